//! Record marking (RFC 5531, section 11): messages on a byte stream.

/// The word before a fragment: how long it is, and whether it ends its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    /// The record ends with this fragment.
    pub last: bool,
    /// Bytes of the fragment: below 2^31.
    pub length: u32,
}

impl RecordMark {
    /// Bytes of a mark.
    pub const BYTES: usize = 4;

    const LAST: u32 = 1 << 31;

    /// The mark of a record in one fragment.
    pub fn whole(length: u32) -> Self {
        Self { last: true, length }
    }

    /// From the wire.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Self {
            last: word & Self::LAST != 0,
            length: word & !Self::LAST,
        }
    }

    /// To the wire.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        debug_assert_eq!(self.length & Self::LAST, 0);
        (self.length | if self.last { Self::LAST } else { 0 }).to_be_bytes()
    }
}

/// A record above the limit: the stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record above {max} bytes")]
pub struct RecordTooLong {
    /// The limit.
    pub max: u32,
}

/// Puts records together from whatever pieces the stream comes in. It holds no more than one record,
/// and of that no more than has arrived.
#[derive(Debug)]
pub struct RecordAssembler {
    max: u32,
    mark: [u8; RecordMark::BYTES],
    mark_bytes: usize,
    fragment: Option<Fragment>,
    record: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Fragment {
    missing: usize,
    last: bool,
}

impl RecordAssembler {
    /// Room is made for a whole fragment once this part of it arrives at one go: a claim alone takes no memory.
    const WORTH: usize = 16;

    /// Records of at most `max` bytes.
    pub fn new(max: u32) -> Self {
        Self {
            max,
            mark: [0; RecordMark::BYTES],
            mark_bytes: 0,
            fragment: None,
            record: Vec::new(),
        }
    }

    /// Takes bytes off the front of `input` until a record is complete (what follows it stays in
    /// `input`, for the next call) or all are taken.
    ///
    /// # Errors
    /// [`RecordTooLong`] as soon as a mark exceeds the limit. The stream is then useless.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, RecordTooLong> {
        loop {
            let Some(fragment) = self.current(input)? else {
                return Ok(None);
            };
            let (here, rest) = input.split_at(fragment.missing.min(input.len()));
            *input = rest;
            if here.len() >= fragment.missing / Self::WORTH {
                // Not exactly: a record in many small fragments would be copied at each of them.
                self.record.reserve(fragment.missing);
            }
            self.record.extend_from_slice(here);
            let missing = fragment.missing - here.len();
            if missing > 0 {
                self.fragment = Some(Fragment {
                    missing,
                    ..fragment
                });
                return Ok(None);
            }
            self.fragment = None;
            if fragment.last {
                return Ok(Some(std::mem::take(&mut self.record)));
            }
        }
    }

    /// The record so far, and the number of bytes that its fragment lacks, if there is room for all of them already.
    /// They may then be appended in place instead of being fed, if [`RecordAssembler::appended`] is called.
    pub fn tail(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let missing = self.fragment?.missing;
        let room = self.record.capacity() - self.record.len();
        (room >= missing).then_some((&mut self.record, missing))
    }

    /// So many bytes, no more than were missing, were appended to [`RecordAssembler::tail`]. The record, if
    /// they complete it.
    pub fn appended(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fragment = self.fragment.as_mut()?;
        debug_assert!(bytes <= fragment.missing);
        fragment.missing = fragment.missing.saturating_sub(bytes);
        if fragment.missing > 0 {
            return None;
        }
        let last = fragment.last;
        self.fragment = None;
        last.then(|| std::mem::take(&mut self.record))
    }

    /// Number of bytes that the current mark or fragment still lacks. Reading that many ahead is never too much.
    pub fn missing(&self) -> usize {
        self.fragment
            .map_or(RecordMark::BYTES - self.mark_bytes, |fragment| {
                fragment.missing
            })
    }

    /// Nothing of a record has arrived: the stream may end here.
    pub fn is_idle(&self) -> bool {
        self.fragment.is_none() && self.mark_bytes == 0 && self.record.is_empty()
    }

    fn current(&mut self, input: &mut &[u8]) -> Result<Option<Fragment>, RecordTooLong> {
        if self.fragment.is_some() {
            Ok(self.fragment)
        } else {
            self.feed_mark(input)
        }
    }

    fn feed_mark(&mut self, input: &mut &[u8]) -> Result<Option<Fragment>, RecordTooLong> {
        let wanted = &mut self.mark[self.mark_bytes..];
        let (here, rest) = input.split_at(wanted.len().min(input.len()));
        *input = rest;
        wanted[..here.len()].copy_from_slice(here);
        self.mark_bytes += here.len();
        if self.mark_bytes < RecordMark::BYTES {
            return Ok(None);
        }
        self.mark_bytes = 0;
        let mark = RecordMark::from_bytes(self.mark);
        if u64::from(mark.length) + self.record.len() as u64 > u64::from(self.max) {
            return Err(RecordTooLong { max: self.max });
        }
        Ok(Some(Fragment {
            missing: mark.length as usize,
            last: mark.last,
        }))
    }
}

#[cfg(test)]
mod tests;
