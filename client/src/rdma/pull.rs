//! A reply that is fetched from the server's memory (the Read-Read design).

use super::memory::Buffer;
use crate::transport::Broken;
use odafs_common::rpcrdma::Pulled;
use odafs_fabric::{Local, PostError, Posted, QueuePair, Remote, Sink, SteeringTag};

/// A reply that is being fetched.
pub struct Pull {
    pulled: Pulled,
    buffer: Buffer,
    /// The reply, with its inline parts in their places.
    message: Vec<u8>,
    /// Number of RDMA Reads posted.
    posted: usize,
    /// Number of RDMA Reads that have ended.
    over: usize,
}

impl Pull {
    /// Starts from the message that was received. `buffer` is as long as the reply.
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

    /// The xid of the call.
    pub fn xid(&self) -> u32 {
        self.pulled.xid
    }

    /// Posts what can be posted now. Returns true if that is anything.
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

    /// One of its RDMA Reads has ended.
    pub fn read_over(&mut self) {
        self.over += 1;
    }

    /// Whether all have ended.
    pub fn is_over(&self) -> bool {
        self.over >= self.pulled.assembly.pulls.len()
    }

    /// The reply, and the memory into which it was fetched.
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
