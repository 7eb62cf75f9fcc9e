//! Outgoing replies: one record fragment each, many in one write.

use std::collections::VecDeque;
use std::io::IoSlice;

use odafs_common::wire::record::RecordMark;

use super::buffers::Buffers;

/// Replies of up to this many bytes are gathered in one buffer. Longer ones are sent from where they are.
const GATHERED_MAX: usize = 16 << 10;
/// A gathering buffer is closed at this size, in bytes.
const GATHER_BYTES: usize = 128 << 10;
/// The most buffers in one write.
const SLICES: usize = 32;
/// The most bytes in one write. The kernel takes all of them before the thread looks at another connection, and within one
/// host it does the receiver's work too.
const WRITE_BYTES: usize = 512 << 10;

/// Replies that the client has not taken.
#[derive(Default)]
pub struct Replies {
    parts: VecDeque<Part>,
    /// Bytes of the first part that have been sent.
    gone: usize,
    bytes: usize,
}

struct Part {
    bytes: Vec<u8>,
    /// More may be appended.
    open: bool,
}

impl Replies {
    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a reply. Keeps its buffer, or returns it to `buffers`.
    pub fn push(&mut self, reply: Vec<u8>, buffers: &Buffers) {
        let length = u32::try_from(reply.len()).expect("no reply holds 4 GiB");
        let mark = RecordMark::whole(length).to_bytes();
        self.bytes += mark.len() + reply.len();
        let open = self.open_part(buffers);
        open.extend_from_slice(&mark);
        if reply.len() <= GATHERED_MAX {
            open.extend_from_slice(&reply);
            buffers.give(reply);
        } else {
            self.close_last();
            self.parts.push_back(Part {
                bytes: reply,
                open: false,
            });
        }
    }

    fn open_part(&mut self, buffers: &Buffers) -> &mut Vec<u8> {
        let fits = |part: &Part| part.open && part.bytes.len() < GATHER_BYTES;
        if !self.parts.back().is_some_and(fits) {
            self.close_last();
            self.parts.push_back(Part {
                bytes: buffers.take(),
                open: true,
            });
        }
        &mut self.parts.back_mut().expect("just pushed").bytes
    }

    fn close_last(&mut self) {
        if let Some(last) = self.parts.back_mut() {
            last.open = false;
        }
    }

    /// Fills in the slices of the next write, and returns how many there are.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let mut skip = self.gone;
        let mut room = WRITE_BYTES;
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            let bytes = &part.bytes[skip..];
            let bytes = &bytes[..bytes.len().min(room)];
            *slice = IoSlice::new(bytes);
            skip = 0;
            count += 1;
            room -= bytes.len();
            if room == 0 {
                break;
            }
        }
        count
    }

    /// An array for [`Replies::slices`].
    pub fn no_slices<'a>() -> [IoSlice<'a>; SLICES] {
        [IoSlice::new(&[]); SLICES]
    }

    /// `bytes` have been sent.
    pub fn advance(&mut self, gone: usize, buffers: &Buffers) {
        self.bytes -= gone;
        self.gone += gone;
        while let Some(first) = self.parts.front()
            && self.gone >= first.bytes.len()
        {
            self.gone -= first.bytes.len();
            if let Some(part) = self.parts.pop_front() {
                buffers.give(part.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_is_one_fragment_whatever_the_writes_take() {
        let buffers = Buffers::new();
        let sizes = [
            0,
            5,
            GATHERED_MAX,
            GATHERED_MAX + 1,
            1_300_000,
            7,
            100_000,
            1,
        ];
        for taken in [7, 4097, 2 << 20] {
            let mut replies = Replies::default();
            let mut wanted = Vec::new();
            for (number, size) in sizes.iter().enumerate() {
                let reply = vec![number as u8; *size];
                wanted.extend_from_slice(&RecordMark::whole(*size as u32).to_bytes());
                wanted.extend_from_slice(&reply);
                replies.push(reply, &buffers);
            }
            assert_eq!(replies.bytes(), wanted.len());
            let mut sent = Vec::new();
            while !replies.is_empty() {
                let mut slices = Replies::no_slices();
                let count = replies.slices(&mut slices);
                let all = slices[..count].iter().flat_map(|part| part.iter());
                let bytes: usize = slices[..count].iter().map(|part| part.len()).sum();
                assert!(bytes > 0 && bytes <= WRITE_BYTES);
                let before = sent.len();
                sent.extend(all.take(taken));
                replies.advance(sent.len() - before, &buffers);
            }
            assert!(wanted == sent, "{taken} at a time");
        }
    }
}
