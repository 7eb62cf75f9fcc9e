//! A reply that is fetched from the server's memory (the Read-Read design).

use super::memory::Buffer;
use crate::transport::Broken;
use odafs_common::rpcrdma::Pulled;
use odafs_fabric::{Local, PostError, Posted, QueuePair, Remote, Sink, SteeringTag};

/// A reply on its way.
pub struct Pull {
    pulled: Pulled,
    buffer: Buffer,
    /// The reply, with what came inline in its place.
    message: Vec<u8>,
    /// Reads posted.
    posted: usize,
    /// Reads over.
    over: usize,
}

impl Pull {
    /// Of the message that was received; `buffer` is as long as the reply.
    pub fn new(pulled: Pulled, buffer: Buffer, received: &[u8]) -> Self {
        let mut message = vec![0; pulled.assembly.length as usize];
        for piece in &pulled.assembly.inline {
            let at = piece.at as usize;
            if let Some((place, bytes)) = message
                .get_mut(at..at + piece.from.len())
                .zip(received.get(piece.from.clone()))
            {
                place.copy_from_slice(bytes);
            }
        }
        Self {
            pulled,
            buffer,
            message,
            posted: 0,
            over: 0,
        }
    }

    /// Of the call.
    pub fn xid(&self) -> u32 {
        self.pulled.xid
    }

    /// Posts what can be posted now. True if that is something.
    pub fn post(&mut self, pair: &mut dyn QueuePair) -> Result<bool, Broken> {
        if pair.reads_max() == 0 {
            return Err(Broken::new(
                "the server left a reply in its memory, and lets nobody read it",
            ));
        }
        let before = self.posted;
        while let Some(pull) = self.pulled.assembly.pulls.get(self.posted) {
            let into = Sink::Region(Local {
                region: self.buffer.region(),
                offset: pull.at as usize,
                length: pull.from.length as usize,
            });
            let from = Remote {
                tag: SteeringTag(pull.from.handle),
                offset: pull.from.offset,
            };
            match pair.post_read(self.pulled.xid.into(), into, from) {
                Ok(Posted::Pending) => self.posted += 1,
                Ok(Posted::Done) => {
                    self.posted += 1;
                    self.over += 1;
                }
                Err(PostError::Full) => break,
                Err(error) => return Err(Broken::new(error)),
            }
        }
        Ok(self.posted > before)
    }

    /// One of its reads is over.
    pub fn read_over(&mut self) {
        self.over += 1;
    }

    /// Are all?
    pub fn is_over(&self) -> bool {
        self.over >= self.pulled.assembly.pulls.len()
    }

    /// The reply, and the memory that it was fetched into.
    pub fn finish(mut self) -> (Vec<u8>, Buffer) {
        for pull in &self.pulled.assembly.pulls {
            let at = pull.at as usize;
            let place = self.message.get_mut(at..at + pull.from.length as usize);
            // The assembly lies within the reply, and so within the buffer.
            let _ = place.is_some_and(|place| self.buffer.load(at, place));
        }
        (self.message, self.buffer)
    }
}
