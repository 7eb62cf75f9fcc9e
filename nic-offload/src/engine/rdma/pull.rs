//! A call whose data is read from the client's memory before it is served.

use std::collections::VecDeque;

use odafs_common::rpcrdma::{Assembly, Ticket};
use odafs_common::wire::rpcrdma::Gaps;
use odafs_common::wire::xdr::Gap;
use odafs_fabric::clock::Nanos;
use odafs_fabric::{PostError, Posted, QueuePair, Remote, SteeringTag};

use crate::calls::ChunkedArguments;
use crate::registration::{Contents, Lease};

/// Bytes of a word of XDR.
const WORD: usize = 4;

/// A call that has arrived and not begun.
pub(super) struct Arrived {
    pub ticket: Ticket,
    pub message: Message,
    parts: VecDeque<Part>,
}

/// The message without the parts that came apart, and what is still elsewhere.
pub(super) struct Message {
    bytes: Vec<u8>,
    places: Vec<InlineBytes>,
    /// Where in the whole message the separate chunks belong.
    gaps: Gaps,
    /// Where in the sink they are, one behind the other.
    apart: usize,
}

/// Bytes of the sink that belong into the message.
struct InlineBytes {
    at: usize,
    sink: usize,
    length: usize,
}

/// What remains to be read.
struct Part {
    from: Remote,
    sink: usize,
    length: usize,
}

impl Arrived {
    /// The call in `received`, as its assembly describes it. `None` if the assembly does not fit.
    pub fn new(ticket: Ticket, assembly: &Assembly, received: &[u8]) -> Option<Arrived> {
        // Data in chunks of their own stay where they are read to. Their padding is nowhere.
        let gaps = assembly.gaps;
        let missing: usize = gaps.iter().map(Gap::padded).sum();
        let reduced = |at: u32| {
            let before = gaps.iter().take_while(|gap| gap.end() <= at.into());
            let missing: usize = before.map(Gap::padded).sum();
            (at as usize).saturating_sub(missing)
        };
        let mut bytes = vec![0; (assembly.length as usize).checked_sub(missing)?];
        for piece in &assembly.inline {
            let from = received.get(piece.from.clone())?;
            bytes
                .get_mut(reduced(piece.at)..)?
                .get_mut(..from.len())?
                .copy_from_slice(from);
        }
        let (mut parts, mut places) = (VecDeque::new(), Vec::new());
        let (mut sink, mut apart) = (0, 0);
        for pull in &assembly.pulls {
            let length = pull.from.length as usize;
            if length == 0 {
                continue;
            }
            if !gaps
                .iter()
                .any(|gap| gap.range().contains(&(pull.at as usize)))
            {
                let at = reduced(pull.at);
                bytes.get(at..)?.get(..length)?;
                places.push(InlineBytes { at, sink, length });
                // The separate chunks follow.
                apart = sink + length;
            }
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
        let message = Message {
            bytes,
            places,
            gaps,
            apart,
        };
        Some(Arrived {
            ticket,
            message,
            parts,
        })
    }

    /// Number of bytes to read before the call is served.
    pub fn pull_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.length).sum()
    }
}

impl Message {
    /// The xid with which it begins.
    pub fn xid(&self, contents: &Contents) -> Option<u32> {
        self.word(0, contents)
    }

    /// Whether it is an RPC reply: those come inline, or not at all.
    pub fn is_reply(&self, contents: &Contents) -> bool {
        const REPLY: u32 = 1;
        self.word(WORD, contents) == Some(REPLY)
    }

    /// The word at this place of it.
    fn word(&self, at: usize, contents: &Contents) -> Option<u32> {
        let mut word = *self.bytes.get(at..)?.first_chunk::<WORD>()?;
        for place in &self.places {
            let begin = place.at.max(at);
            let end = (place.at + place.length).min(at + WORD);
            if begin < end
                && !contents.load(
                    place.sink + (begin - place.at),
                    &mut word[begin - at..end - at],
                )
            {
                return None;
            }
        }
        Some(u32::from_be_bytes(word))
    }

    /// The bytes that came with it, and zeros in place of those to read.
    pub fn without_data(&self) -> &[u8] {
        &self.bytes
    }

    /// The whole message except the parts that came apart, and those parts. For threads that may copy a megabyte.
    pub fn complete(mut self, contents: &Contents) -> (Vec<u8>, Option<ChunkedArguments>) {
        for place in &self.places {
            let into = &mut self.bytes[place.at..place.at + place.length];
            let held = contents.load(place.sink, into);
            debug_assert!(held, "a lease is as long as what is read into it");
        }
        if self.gaps.is_empty() {
            return (self.bytes, None);
        }
        let mut apart = ChunkedArguments::new(contents.clone());
        let mut start = self.apart;
        for gap in self.gaps.iter() {
            let end = start + gap.bytes as usize;
            let held = apart.push(gap.at, start..end);
            assert!(held, "a lease is as long as what is read into it");
            start = end;
        }
        (self.bytes, Some(apart))
    }

    /// The whole message, if nothing had to be read.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A call whose data is being read.
pub(super) struct Pulling {
    arrived: Arrived,
    pub lease: Lease,
    /// Ids of the reads under way.
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

    /// Posts as many of its reads as there is room for. Returns the bytes and the number of those posted.
    ///
    /// # Errors
    /// The connection is over.
    pub fn post(
        &mut self,
        qp: &mut dyn QueuePair,
        next_id: &mut u64,
    ) -> Result<(u64, u64), PostError> {
        let (mut bytes, mut reads) = (0, 0);
        // If the peer lets nobody read, there is nothing to wait for.
        self.failed |= qp.reads_max() == 0;
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

    /// A read has ended. Returns `false` if it belongs to another call.
    pub fn completed(&mut self, id: u64, failed: bool) -> bool {
        let Some(at) = self.reading.iter().position(|reading| *reading == id) else {
            return false;
        };
        self.reading.swap_remove(at);
        self.failed |= failed;
        true
    }

    /// Whether nothing is under way any more, and nothing will come.
    pub fn is_over(&self) -> bool {
        self.reading.is_empty() && (self.failed || self.arrived.parts.is_empty())
    }

    /// Whether some of it could not be read.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    pub fn into_parts(self) -> (Ticket, Message, Lease) {
        (self.arrived.ticket, self.arrived.message, self.lease)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::registration::{Adapter, Registrar, RegistrationConfig, Supply};
    use odafs_common::page::{Layout, PageSize};
    use odafs_common::rpcrdma::{
        GrantPolicy, PrivateData, ReadRead, Received, Responder, ResponderConfig, Terms,
    };
    use odafs_common::wire::rpcrdma::{Body, Chunks, Header, ReadList, ReadSegment, Segment};
    use odafs_common::wire::xdr::Encode as _;
    use odafs_fabric::Listener as _;
    use odafs_fabric::iwarp::{ConnectOptions, Limits, Listener, connect};
    use odafs_fabric::memory::{Arena, ArenaConfig};
    use odafs_fabric::sync::{Arc, thread};

    fn arrived() -> Arrived {
        let mut responder = Responder::new(ResponderConfig {
            terms: Terms::between(&PrivateData::default(), None),
            credits: GrantPolicy::Fixed(1),
            message_max: 1000,
            read_read: ReadRead::default(),
            reverse_credits: 0,
        });
        let segment = Segment {
            handle: 1,
            length: 100,
            offset: 0,
        };
        let chunks = Chunks {
            reads: ReadList::one(ReadSegment {
                position: 12,
                segment,
            }),
            ..Chunks::default()
        };
        let header = Header {
            xid: 1,
            credits: 1,
            body: Body::Msg(chunks),
        };
        let message = [&header.to_bytes(), &1_u32.to_be_bytes()[..], &[0; 8]].concat();
        let Received::Call(incoming) = responder.receive(&message) else {
            panic!("it is a call")
        };
        Arrived::new(incoming.ticket, &incoming.assembly, &message).unwrap()
    }

    /// A call of a client that lets nobody read its memory is refused, and does not wait.
    #[test]
    fn who_cannot_be_read_is_not_waited_for() {
        let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), Limits::default()).unwrap();
        let address = listener.local_addr();
        let options = ConnectOptions {
            inbound_reads: 0,
            ..ConnectOptions::default()
        };
        let client = thread::spawn(move || connect(address, b"", &options).unwrap());
        let mut qp = loop {
            if let Some(incoming) = listener.poll_accept().unwrap() {
                break incoming.accept(b"", 0).unwrap();
            }
        };
        let _client = client.join().unwrap();
        let arena = Arena::create(&ArenaConfig {
            frames: 1,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        });
        let arena = Arc::new(arena.unwrap());
        let supply = Supply::new(None, arena, 1 << 20, Arc::default());
        let mut registrar = Registrar::new(RegistrationConfig::default(), Adapter::Soft, supply);
        let lease = registrar.lease(&mut *qp, 100).unwrap();
        let mut pulling = Pulling::new(arrived(), lease, Nanos(0));
        assert_eq!(pulling.post(&mut *qp, &mut 0), Ok((0, 0)));
        assert!(pulling.is_over() && pulling.has_failed());
    }
}
