//! A call whose data is read from the client's memory before it is served.

use std::collections::VecDeque;

use odafs_common::rpcrdma::{Assembly, Ticket};
use odafs_fabric::clock::Nanos;
use odafs_fabric::{PostError, Posted, QueuePair, Remote, SteeringTag};

use crate::registration::{Contents, Lease};

/// A call that arrived and has not begun.
pub(super) struct Arrived {
    pub ticket: Ticket,
    pub message: Message,
    parts: VecDeque<Part>,
}

/// The message, and what of it is still elsewhere.
pub(super) struct Message {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Bytes of the sink that belong into the message.
struct Place {
    at: usize,
    sink: usize,
    length: usize,
}

/// What is still to be read.
struct Part {
    from: Remote,
    sink: usize,
    length: usize,
}

impl Arrived {
    /// The call that `received` brings, as its assembly says. `None`: the assembly does not fit.
    pub fn new(ticket: Ticket, assembly: &Assembly, received: &[u8]) -> Option<Arrived> {
        let mut bytes = vec![0; assembly.length as usize];
        for piece in &assembly.inline {
            let from = received.get(piece.from.clone())?;
            bytes
                .get_mut(piece.at as usize..)?
                .get_mut(..from.len())?
                .copy_from_slice(from);
        }
        let (mut parts, mut places) = (VecDeque::new(), Vec::new());
        let mut sink = 0;
        for pull in &assembly.pulls {
            let (at, length) = (pull.at as usize, pull.from.length as usize);
            bytes.get(at..)?.get(..length)?;
            if length == 0 {
                continue;
            }
            places.push(Place { at, sink, length });
            parts.push_back(Part {
                from: Remote {
                    tag: SteeringTag(pull.from.handle),
                    offset: pull.from.offset,
                },
                sink,
                length,
            });
            sink += length;
        }
        let message = Message { bytes, places };
        Some(Arrived {
            ticket,
            message,
            parts,
        })
    }

    /// Bytes to be read before it is served.
    pub fn pull_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.length).sum()
    }
}

impl Message {
    /// The whole of it: for threads that may copy a megabyte.
    pub fn complete(mut self, contents: Option<&Contents>) -> Vec<u8> {
        if let Some(contents) = contents {
            for place in &self.places {
                let into = &mut self.bytes[place.at..place.at + place.length];
                let held = contents.load(place.sink, into);
                debug_assert!(held, "a lease is as long as what is read into it");
            }
        }
        self.bytes
    }
}

/// A call whose data is on its way.
pub(super) struct Pulling {
    arrived: Arrived,
    pub lease: Lease,
    /// Ids of the reads that are under way.
    reading: Vec<u64>,
    failed: bool,
    pub since: Nanos,
}

impl Pulling {
    pub fn new(arrived: Arrived, lease: Lease, now: Nanos) -> Pulling {
        Pulling {
            arrived,
            lease,
            reading: Vec::new(),
            failed: false,
            since: now,
        }
    }

    /// Posts as many of its reads as there is room for. Bytes and number of those posted.
    ///
    /// # Errors
    /// The connection is over.
    pub fn post(
        &mut self,
        qp: &mut dyn QueuePair,
        next_id: &mut u64,
    ) -> Result<(u64, u64), PostError> {
        let (mut bytes, mut reads) = (0, 0);
        while !self.failed
            && let Some(part) = self.arrived.parts.front_mut()
        {
            let (sink, length) = self.lease.sink(part.sink, part.length);
            match qp.post_read(*next_id, sink, part.from) {
                Ok(Posted::Done) => {}
                Ok(Posted::Pending) => self.reading.push(*next_id),
                Err(PostError::Full) => break,
                Err(PostError::BadRange | PostError::TooLong) => {
                    self.failed = true;
                    break;
                }
                Err(PostError::Closed) => return Err(PostError::Closed),
            }
            *next_id += 1;
            bytes += length as u64;
            reads += 1;
            part.sink += length;
            part.length -= length;
            part.from.offset = part.from.offset.wrapping_add(length as u64);
            if part.length == 0 {
                self.arrived.parts.pop_front();
            }
        }
        Ok((bytes, reads))
    }

    /// A read is over. `false`: it is another call's.
    pub fn completed(&mut self, id: u64, failed: bool) -> bool {
        let Some(at) = self.reading.iter().position(|reading| *reading == id) else {
            return false;
        };
        self.reading.swap_remove(at);
        self.failed |= failed;
        true
    }

    /// Nothing is under way any more, and nothing is to come.
    pub fn is_over(&self) -> bool {
        self.reading.is_empty() && (self.failed || self.arrived.parts.is_empty())
    }

    /// Some of it could not be read.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    pub fn into_parts(self) -> (Ticket, Message, Lease) {
        (self.arrived.ticket, self.arrived.message, self.lease)
    }
}
