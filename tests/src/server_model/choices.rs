//! What the bytes mean.

use odafs_common::wire::nfs3::{SetAttributes, SetTime, Time};

use super::STORE_BYTES;

/// The bytes, one choice after the other; zeros once they are used up.
pub(crate) struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    pub fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    pub fn small(&mut self) -> u32 {
        u32::from(self.byte()) << 8 | u32::from(self.byte())
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Mostly within a few pages and often next to their ends, at times far out.
    pub fn offset(&mut self) -> u64 {
        let page = u64::from(self.byte());
        match self.byte() {
            0 => u64::MAX - page,
            1 => i64::MAX as u64 - page,
            2 => STORE_BYTES - page,
            within => (page % 64 * 4096 + u64::from(within) * 16).saturating_sub(48),
        }
    }

    pub fn attributes(&mut self) -> SetAttributes {
        let what = self.byte();
        let some = |bit: u8| what & bit != 0;
        SetAttributes {
            mode: some(1).then(|| self.small() & 0o7777),
            uid: (what & 6 == 6).then(|| self.byte().into()),
            gid: (what & 10 == 10).then(|| self.byte().into()),
            size: some(16).then(|| self.offset()),
            atime: if some(32) {
                SetTime::ServerTime
            } else {
                SetTime::Keep
            },
            mtime: if some(64) {
                SetTime::To(Time {
                    seconds: 1,
                    nanoseconds: 2,
                })
            } else {
                SetTime::Keep
            },
        }
    }
}
