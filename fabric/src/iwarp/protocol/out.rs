//! The bytes that a stream has to send: frames, most of them copied, some with payload in an arena.

use super::ddp::{Header, LAST, SegmentTarget};
use super::mpa;
use crate::memory::Stretch;
use crate::memory::mapping::Mapping;
use crate::sync::Arc;
use std::collections::VecDeque;

/// Memory of an empty queue to keep, in bytes.
const KEPT: usize = 256 << 10;

/// Number of sent bytes after which the rest is moved to the front.
const COMPACT: usize = 64 << 10;

enum Unsent {
    /// This many bytes of the buffer.
    Bytes(usize),
    /// Bytes in an arena, which do not change until they have been sent.
    Memory {
        memory: Arc<Mapping>,
        at: usize,
        length: usize,
        /// The post that ends with the last of them.
        ends: Option<u64>,
    },
}

/// The transmit queue.
pub struct Out {
    crc: bool,
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that have been sent.
    head: usize,
    chunks: VecDeque<Unsent>,
    /// Number of bytes of the first chunk that have been sent.
    sent: usize,
    queued: usize,
    /// The frame at the end of the queue, if more memory may be added to it.
    open: Option<Open>,
}

/// A frame with memory, after which nothing is queued and of which nothing has been sent.
struct Open {
    /// Where it begins in the buffer.
    start: usize,
    ulpdu: usize,
    /// Where its first byte belongs, and the byte behind its last.
    tag: u32,
    next: u64,
}

impl Out {
    pub fn new(crc: bool) -> Self {
        Self {
            crc,
            buffer: Vec::new(),
            head: 0,
            chunks: VecDeque::new(),
            sent: 0,
            queued: 0,
            open: None,
        }
    }

    /// Number of bytes that have not been sent.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Whether checksums are on: then every payload is copied.
    pub fn has_crc(&self) -> bool {
        self.crc
    }

    /// Appends a frame with a payload of `length` bytes that `fill` puts there.
    pub fn frame(&mut self, header: &Header, length: usize, fill: impl FnOnce(&mut [u8])) {
        let start = self.buffer.len();
        self.head_of(header, length);
        let payload = self.buffer.len();
        self.buffer.resize(payload + length, 0);
        fill(&mut self.buffer[payload..]);
        self.trailer_of(start, self.buffer.len() - start - 2);
        self.grown(start);
    }

    /// Appends a frame whose payload stays in its place until it has been sent. Only without checksums.
    pub fn frame_of_memory(
        &mut self,
        header: &Header,
        memory: &Arc<Mapping>,
        at: usize,
        length: usize,
        ends: Option<u64>,
    ) {
        debug_assert!(!self.crc);
        let start = self.buffer.len();
        self.head_of(header, length);
        let ulpdu = self.buffer.len() - start - 2 + length;
        self.grown(start);
        self.memory_of_frame(memory, at, length, ends, ulpdu);
        if let SegmentTarget::Tagged { tag, offset } = header.place {
            self.open = Some(Open {
                start,
                ulpdu,
                tag,
                next: offset.wrapping_add(length as u64),
            });
        }
    }

    /// Number of bytes that may still be added to the last frame, if they belong to this place. A frame has at most
    /// `ulpdu_max`. Longer frames leave less to parse for the peer, and less to gather for a system call.
    pub fn room_behind(&self, tag: u32, offset: u64, ulpdu_max: usize) -> usize {
        match &self.open {
            Some(open) if (open.tag, open.next) == (tag, offset) => {
                ulpdu_max.saturating_sub(open.ulpdu)
            }
            _ => 0,
        }
    }

    /// Adds to the last frame, which has room. `last` says whether its message ends there.
    pub fn more_memory(
        &mut self,
        memory: &Arc<Mapping>,
        at: usize,
        length: usize,
        ends: Option<u64>,
        last: bool,
    ) {
        let Some(open) = &mut self.open else {
            return;
        };
        let trailer = mpa::padding(open.ulpdu) + mpa::CRC_BYTES;
        open.ulpdu += length;
        open.next = open.next.wrapping_add(length as u64);
        let (start, ulpdu) = (open.start, open.ulpdu);
        self.buffer[start..start + 2].copy_from_slice(&(ulpdu as u16).to_be_bytes());
        let control = &mut self.buffer[start + 2];
        *control = if last {
            *control | LAST
        } else {
            *control & !LAST
        };
        // Nothing follows, so the trailer is its own chunk.
        self.buffer.truncate(self.buffer.len() - trailer);
        self.chunks.pop_back();
        self.queued -= trailer;
        let open = self.open.take();
        self.memory_of_frame(memory, at, length, ends, ulpdu);
        self.open = open;
    }

    fn memory_of_frame(
        &mut self,
        memory: &Arc<Mapping>,
        at: usize,
        length: usize,
        ends: Option<u64>,
        ulpdu: usize,
    ) {
        self.chunks.push_back(Unsent::Memory {
            memory: Arc::clone(memory),
            at,
            length,
            ends,
        });
        self.queued += length;
        let trailer = self.buffer.len();
        self.trailer_of(trailer, ulpdu);
        self.grown(trailer);
    }

    fn head_of(&mut self, header: &Header, payload: usize) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 2]);
        header.encode(&mut self.buffer);
        let ulpdu = self.buffer.len() - start - 2 + payload;
        self.buffer[start..start + 2].copy_from_slice(&(ulpdu as u16).to_be_bytes());
    }

    fn trailer_of(&mut self, start: usize, ulpdu: usize) {
        let padded = self.buffer.len() + mpa::padding(ulpdu);
        self.buffer.resize(padded, 0);
        let crc = match self.crc {
            true => mpa::checksum(&self.buffer[start..]),
            false => [0; 4],
        };
        self.buffer.extend_from_slice(&crc);
    }

    /// Adds the bytes of the buffer from `start` on.
    fn grown(&mut self, start: usize) {
        self.open = None;
        let bytes = self.buffer.len() - start;
        self.queued += bytes;
        match self.chunks.back_mut() {
            Some(Unsent::Bytes(length)) => *length += bytes,
            _ => self.chunks.push_back(Unsent::Bytes(bytes)),
        }
    }

    /// The bytes to send, in order.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        let mut skip = self.sent;
        let mut at = self.head;
        self.chunks.iter().map(move |chunk| {
            let skipped = std::mem::take(&mut skip);
            match chunk {
                Unsent::Bytes(length) => {
                    let from = at;
                    at += length - skipped;
                    Stretch::Bytes(&self.buffer[from..at])
                }
                Unsent::Memory {
                    memory, at, length, ..
                } => Stretch::Memory {
                    memory,
                    at: at + skipped,
                    length: length - skipped,
                },
            }
        })
    }

    /// This many bytes have been sent. `ended` hears which posts have ended.
    pub fn sent(&mut self, bytes: usize, mut ended: impl FnMut(u64)) {
        let mut left = bytes;
        self.queued -= bytes;
        self.open = None;
        while left > 0 {
            let Some(chunk) = self.chunks.front() else {
                break;
            };
            let (length, ends) = match chunk {
                Unsent::Bytes(length) => (*length, None),
                Unsent::Memory { length, ends, .. } => (*length, *ends),
            };
            let taken = left.min(length - self.sent);
            if matches!(chunk, Unsent::Bytes(_)) {
                self.head += taken;
            }
            left -= taken;
            self.sent += taken;
            if self.sent == length {
                self.sent = 0;
                self.chunks.pop_front();
                ends.map(&mut ended);
            }
        }
        if self.head == self.buffer.len() {
            self.head = 0;
            self.buffer.clear();
            if self.buffer.capacity() > KEPT {
                self.buffer = Vec::new();
            }
        } else if self.head >= COMPACT.max(self.buffer.len() / 2) {
            self.buffer.drain(..self.head);
            self.head = 0;
        }
    }

    /// Drops everything. `ended` hears which posts never ended.
    pub fn clear(&mut self, mut ended: impl FnMut(u64)) {
        for chunk in self.chunks.drain(..) {
            if let Unsent::Memory { ends: Some(id), .. } = chunk {
                ended(id);
            }
        }
        (self.head, self.sent, self.queued) = (0, 0, 0);
        self.open = None;
        self.buffer = Vec::new();
    }

    /// Gives memory back, if nothing is queued.
    pub fn shrink(&mut self) {
        if self.queued == 0 {
            self.buffer = Vec::new();
            self.chunks = VecDeque::new();
        }
    }
}
