//! The direct protocol: guarded reads and the attaching of a connection to a session.
//!
//! Messages are little-endian with fixed layouts, every field aligned to its size (docs/WIRE-DIRECT.md).

use crate::connect::Nonce;
use crate::exception::Exception;
use crate::mac::{MacAlgorithm, MacKey, TAG_BYTES, Tag};
use crate::reference::{AccessKey, Epoch, Handle};

/// Version of the direct protocol.
pub const VERSION: u8 = 1;

/// First bytes of the messages: `opcode` of requests is their second byte, that of answers their first.
pub mod opcode {
    /// A guarded read.
    pub const READ: u8 = 1;
    /// Attaches the connection to a session.
    pub const ATTACH: u8 = 2;
    /// Answer to [`READ`].
    pub const COMPLETION: u8 = 0x81;
    /// Answer to [`ATTACH`].
    pub const ATTACHED: u8 = 0x82;
}

#[inline]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

#[inline]
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[inline]
fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

/// A guarded read: one page, or part of one.
///
/// | at | field | | at | field |
/// |---|---|---|---|---|
/// | 0 | version u8 | | 24 | address u64 |
/// | 1 | opcode u8 | | 32 | key u64 |
/// | 2 | mac u8 | | 40 | epoch u64 |
/// | 3 | flags u8: 1 inline, 2 odd key generation, 4 marked | | 48 | sink offset u64 |
/// | 4 | session u32 | | 56 | handle u32 |
/// | 8 | connection u32 | | 60 | length u32 |
/// | 12 | sink tag u32 | | 64 | tag \[16\] over the 64 before it |
/// | 16 | sequence u64 | | | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// MAC that the tag was made with.
    pub mac: MacAlgorithm,
    /// Whether the data follow the completion; else the server writes them to the sink.
    pub inline: bool,
    /// Whether the sink has room for marks behind the data, which tell how far the data have come (the fabric's
    /// `post_write_marked`).
    pub marked: bool,
    /// Low bit of the generation of the session's key. It distinguishes the two valid keys after a rekey.
    pub odd_generation: bool,
    /// Number of the session.
    pub session: u32,
    /// The connection's number, from [`Attached`].
    pub connection: u32,
    /// Steering tag of the client's memory that takes the data.
    pub sink_tag: u32,
    /// Grows with each request of the connection; never used twice.
    pub sequence: u64,
    /// First byte wanted, as an offset in the arena.
    pub address: u64,
    /// As in the reference.
    pub key: AccessKey,
    /// As in the reference.
    pub epoch: Epoch,
    /// Address for the data under `sink_tag`, in bytes.
    pub sink_offset: u64,
    /// As in the reference.
    pub handle: Handle,
    /// Length wanted, in bytes.
    pub length: u32,
}

impl Request {
    /// Length on the wire in bytes, with the tag.
    pub const BYTES: usize = Self::BODY + TAG_BYTES;
    /// Length in bytes of what the tag covers.
    pub const BODY: usize = 64;
    const INLINE: u8 = 1;
    const ODD: u8 = 2;
    const MARKED: u8 = 4;

    /// The message, with its tag under `key`.
    #[inline]
    pub fn seal(&self, key: &MacKey) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0] = VERSION;
        out[1] = opcode::READ;
        out[2] = self.mac as u8;
        out[3] = if self.inline { Self::INLINE } else { 0 }
            | if self.odd_generation { Self::ODD } else { 0 }
            | if self.marked { Self::MARKED } else { 0 };
        put(&mut out, 4, self.session.to_le_bytes());
        put(&mut out, 8, self.connection.to_le_bytes());
        put(&mut out, 12, self.sink_tag.to_le_bytes());
        put(&mut out, 16, self.sequence.to_le_bytes());
        put(&mut out, 24, self.address.to_le_bytes());
        put(&mut out, 32, self.key.0.to_le_bytes());
        put(&mut out, 40, self.epoch.0.to_le_bytes());
        put(&mut out, 48, self.sink_offset.to_le_bytes());
        put(&mut out, 56, self.handle.0.to_le_bytes());
        put(&mut out, 60, self.length.to_le_bytes());
        let tag = key.tag(&out[..Self::BODY]);
        put(&mut out, Self::BODY, tag);
        out
    }

    /// The fields and the tag, unverified. `None`: not a read of this version.
    #[inline]
    pub fn parse(message: &[u8]) -> Option<(Request, &[u8; Self::BODY], &Tag)> {
        let message: &[u8; Self::BYTES] = message.try_into().ok()?;
        let (body, tag) = message.split_first_chunk::<{ Self::BODY }>()?;
        let tag: &Tag = tag.try_into().ok()?;
        if body[0] != VERSION
            || body[1] != opcode::READ
            || body[3] & !(Self::INLINE | Self::ODD | Self::MARKED) != 0
        {
            return None;
        }
        let request = Request {
            mac: MacAlgorithm::from_code(body[2].into())?,
            inline: body[3] & Self::INLINE != 0,
            odd_generation: body[3] & Self::ODD != 0,
            marked: body[3] & Self::MARKED != 0,
            session: half(body, 4),
            connection: half(body, 8),
            sink_tag: half(body, 12),
            sequence: word(body, 16),
            address: word(body, 24),
            key: AccessKey(word(body, 32)),
            epoch: Epoch(word(body, 40)),
            sink_offset: word(body, 48),
            handle: Handle(half(body, 56)),
            length: half(body, 60),
        };
        Some((request, body, tag))
    }
}

/// How a guarded read ended. 32 bytes; with `inline` set, `length` bytes of data follow.
///
/// `{ opcode u8, flags u8 (1 inline), status u16, length u32, sequence u64, epoch u64, feedback u64 }`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// `Ok`: the length of the data moved, in bytes.
    pub result: Result<u32, Exception>,
    /// The data follows this header.
    pub inline: bool,
    /// Of the request; 0 when the request was too garbled to have one.
    pub sequence: u64,
    /// The export's epoch when the request was judged.
    pub epoch: Epoch,
    /// The server's word on its cache, packed by [`Feedback::pack`].
    pub feedback: u64,
}

impl Completion {
    /// Length of the header in bytes.
    pub const BYTES: usize = 32;
    const INLINE: u8 = 1;

    /// The header's bytes.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let (status, length) = match self.result {
            Ok(length) => (0, length),
            Err(exception) => (exception.code(), 0),
        };
        let mut out = [0; Self::BYTES];
        out[0] = opcode::COMPLETION;
        out[1] = if self.inline { Self::INLINE } else { 0 };
        put(&mut out, 2, status.to_le_bytes());
        put(&mut out, 4, length.to_le_bytes());
        put(&mut out, 8, self.sequence.to_le_bytes());
        put(&mut out, 16, self.epoch.0.to_le_bytes());
        put(&mut out, 24, self.feedback.to_le_bytes());
        out
    }

    /// The header and the data after it (empty unless inline). `None` if the header is malformed, or the data does not
    /// have the length in the header.
    #[inline]
    pub fn parse(message: &[u8]) -> Option<(Completion, &[u8])> {
        let (header, data) = message.split_first_chunk::<{ Self::BYTES }>()?;
        if header[0] != opcode::COMPLETION || header[1] & !Self::INLINE != 0 {
            return None;
        }
        let inline = header[1] & Self::INLINE != 0;
        let length = half(header, 4);
        let result = match u16::from_le_bytes([header[2], header[3]]) {
            0 => Ok(length),
            code => Err(Exception::from_code(code)?),
        };
        let expected = if inline && result.is_ok() {
            length as usize
        } else {
            0
        };
        let completion = Completion {
            result,
            inline,
            sequence: word(header, 8),
            epoch: Epoch(word(header, 16)),
            feedback: word(header, 24),
        };
        (data.len() == expected).then_some((completion, data))
    }
}

/// The server's word on its cache, which rides on every answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// Pages evicted per second.
    pub evictions_per_second: u32,
    /// Cache hits per thousand reads.
    pub hit_permille: u16,
    /// Seconds since evictions were last frequent.
    pub settled_seconds: u16,
}

impl Feedback {
    /// In one word, so that it can be read in one load.
    pub const fn pack(self) -> u64 {
        self.evictions_per_second as u64
            | (self.hit_permille as u64) << 32
            | (self.settled_seconds as u64) << 48
    }

    /// Inverse of [`pack`](Self::pack).
    pub const fn unpack(word: u64) -> Feedback {
        Feedback {
            evictions_per_second: word as u32,
            hit_permille: (word >> 32) as u16,
            settled_seconds: (word >> 48) as u16,
        }
    }
}

/// Attaches a connection to a session: sent by the client, first thing.
///
/// `{ version u8, opcode u8, 0 u8, flags u8 (1 wants one-sided), session u32, nonce [16], tag [16] }`. The tag is over
/// the 24 bytes before it and the server's nonce of this connection, under the session's attach key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Number of the session.
    pub session: u32,
    /// The client's nonce.
    pub nonce: Nonce,
    /// Asks for one-sided access.
    pub one_sided: bool,
}

impl Attach {
    /// Length on the wire in bytes.
    pub const BYTES: usize = Self::BODY + TAG_BYTES;
    const BODY: usize = 24;

    fn body(&self) -> [u8; Self::BODY] {
        let mut out = [0; Self::BODY];
        out[0] = VERSION;
        out[1] = opcode::ATTACH;
        out[3] = u8::from(self.one_sided);
        put(&mut out, 4, self.session.to_le_bytes());
        put(&mut out, 8, self.nonce);
        out
    }

    fn transcript(&self, server: &Nonce) -> [u8; Self::BODY + 16] {
        let mut out = [0; Self::BODY + 16];
        put(&mut out, 0, self.body());
        put(&mut out, Self::BODY, *server);
        out
    }

    /// The message, sealed with the session's attach key.
    pub fn seal(&self, key: &MacKey, server: &Nonce) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        put(&mut out, 0, self.body());
        put(&mut out, Self::BODY, key.tag(&self.transcript(server)));
        out
    }

    /// Does the tag hold on a connection whose server nonce this is?
    pub fn verify(&self, key: &MacKey, server: &Nonce, tag: &Tag) -> bool {
        key.verify(&self.transcript(server), tag)
    }

    /// The fields and the tag, unverified. `None`: not an attach of this version.
    pub fn parse(message: &[u8]) -> Option<(Attach, &Tag)> {
        let message: &[u8; Self::BYTES] = message.try_into().ok()?;
        let (body, tag) = message.split_first_chunk::<{ Self::BODY }>()?;
        if body[0] != VERSION || body[1] != opcode::ATTACH || body[2] != 0 || body[3] > 1 {
            return None;
        }
        let attach = Attach {
            session: half(body, 4),
            nonce: std::array::from_fn(|i| body[8 + i]),
            one_sided: body[3] == 1,
        };
        Some((attach, tag.try_into().ok()?))
    }
}

/// The server's answer to [`Attach`].
///
/// `{ opcode u8, flags u8 (1 one-sided granted, 2 reads in order), status u16, connection u32, arena tag u32, stamps tag u32, arena address
/// u64, stamps address u64, tag [16] }`. The tag is over the 32 bytes before it, the client's nonce and the server's, under the session's attach key; all
/// zeros when the server refuses, for then there may be no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The grant, or why the server refuses.
    pub result: Result<Grant, Exception>,
}

/// What an attached connection may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Number that requests on this connection carry.
    pub connection: u32,
    /// Where the arena and its stamps are, if one-sided access was granted.
    pub one_sided: Option<ExposedMemory>,
}

/// An export's memory, as RDMA Reads name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExposedMemory {
    /// The memory of the frames: where a reference's address lies in it is a matter of the layout.
    pub arena: RemoteAddress,
    /// The memory of the stamps.
    pub stamps: RemoteAddress,
    /// The order in which RDMA Reads see this memory, as far as the server decides it.
    pub order: ReadOrder,
    /// Whether each frame's stamp is right behind it. Then `stamps` names the same memory as `arena`.
    pub beside: bool,
}

/// The order in which RDMA Reads on one queue pair see memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadOrder {
    /// Only a read that was posted after the completion of another sees at least what that one saw.
    #[default]
    Fence,
    /// As [`ReadOrder::Fence`]. In addition, the last word of a read, at a multiple of its size, sees at least what the
    /// bytes before it saw, if their length is a multiple of 4096, so that neither packets nor pages of memory contain
    /// both.
    Rising,
    /// As [`ReadOrder::Rising`]; and a read sees at least what those saw that were posted before it: data and its stamp
    /// may be posted in one flush.
    Ordered,
}

/// A first byte of memory, as RDMA names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Steering tag.
    pub tag: u32,
    /// Address under the tag.
    pub address: u64,
}

impl Attached {
    /// Length on the wire in bytes.
    pub const BYTES: usize = Self::BODY + TAG_BYTES;
    const BODY: usize = 32;
    const ONE_SIDED: u8 = 1;
    const ORDERED: u8 = 2;
    const RISING: u8 = 4;
    const BESIDE: u8 = 8;

    fn body(&self) -> [u8; Self::BODY] {
        let mut out = [0; Self::BODY];
        out[0] = opcode::ATTACHED;
        match self.result {
            Ok(grant) => {
                put(&mut out, 4, grant.connection.to_le_bytes());
                if let Some(memory) = grant.one_sided {
                    let ExposedMemory {
                        arena,
                        stamps,
                        order,
                        beside,
                    } = memory;
                    let order = match order {
                        ReadOrder::Fence => 0,
                        ReadOrder::Rising => Self::RISING,
                        ReadOrder::Ordered => Self::ORDERED,
                    };
                    out[1] = Self::ONE_SIDED | order | if beside { Self::BESIDE } else { 0 };
                    put(&mut out, 8, arena.tag.to_le_bytes());
                    put(&mut out, 12, stamps.tag.to_le_bytes());
                    put(&mut out, 16, arena.address.to_le_bytes());
                    put(&mut out, 24, stamps.address.to_le_bytes());
                }
            }
            Err(exception) => put(&mut out, 2, exception.code().to_le_bytes()),
        }
        out
    }

    /// What the tag covers.
    fn transcript(
        body: &[u8; Self::BODY],
        client: &Nonce,
        server: &Nonce,
    ) -> [u8; Self::BODY + 32] {
        let mut out = [0; Self::BODY + 32];
        put(&mut out, 0, *body);
        put(&mut out, Self::BODY, *client);
        put(&mut out, Self::BODY + 16, *server);
        out
    }

    /// The message of a grant, sealed with the session's attach key.
    pub fn seal(grant: Grant, key: &MacKey, client: &Nonce, server: &Nonce) -> [u8; Self::BYTES] {
        let body = Attached { result: Ok(grant) }.body();
        let mut out = [0; Self::BYTES];
        put(&mut out, 0, body);
        put(
            &mut out,
            Self::BODY,
            key.tag(&Self::transcript(&body, client, server)),
        );
        out
    }

    /// The message of a refusal.
    pub fn refuse(exception: Exception) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        put(
            &mut out,
            0,
            Attached {
                result: Err(exception),
            }
            .body(),
        );
        out
    }

    /// What the server answered; a grant only if its tag holds. `None`: malformed or forged.
    pub fn open(message: &[u8], key: &MacKey, client: &Nonce, server: &Nonce) -> Option<Attached> {
        let message: &[u8; Self::BYTES] = message.try_into().ok()?;
        let (body, tag) = message.split_first_chunk::<{ Self::BODY }>()?;
        let flags = Self::ONE_SIDED | Self::ORDERED | Self::RISING | Self::BESIDE;
        if body[0] != opcode::ATTACHED || body[1] & !flags != 0 {
            return None;
        }
        let order = match body[1] & (Self::ORDERED | Self::RISING) {
            0 => ReadOrder::Fence,
            Self::RISING => ReadOrder::Rising,
            Self::ORDERED => ReadOrder::Ordered,
            _ => return None,
        };
        let status = u16::from_le_bytes([body[2], body[3]]);
        if status != 0 {
            return Some(Attached {
                result: Err(Exception::from_code(status)?),
            });
        }
        let place = |tag, address| RemoteAddress {
            tag: half(body, tag),
            address: word(body, address),
        };
        let one_sided = (body[1] & Self::ONE_SIDED != 0).then(|| ExposedMemory {
            arena: place(8, 16),
            stamps: place(12, 24),
            order,
            beside: body[1] & Self::BESIDE != 0,
        });
        let attached = Attached {
            result: Ok(Grant {
                connection: half(body, 4),
                one_sided,
            }),
        };
        let sent = Self::transcript(body, client, server);
        key.verify(&sent, tag.try_into().ok()?).then_some(attached)
    }
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
