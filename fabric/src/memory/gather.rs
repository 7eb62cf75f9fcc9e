use super::FrameNumber;
use super::Region;
use super::arena::Arena;
use super::stretch::Stretch;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// Number of bytes to copy at a time for callers that need slices.
const LOOK_BYTES: usize = 4096;

/// Bytes in one or several places, to copy to private memory, to frames or to a file. Some may be in memory that others
/// change meanwhile, so there is no slice of them, and two copies may differ.
#[derive(Clone, Default)]
pub struct Gather<'a> {
    /// Each with the number of bytes before it. None is empty.
    stretches: Vec<(usize, Stretch<'a>)>,
    length: usize,
}

impl<'a> Gather<'a> {
    /// No bytes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the bytes cannot change, so that all copies are the same.
    pub fn is_fixed(&self) -> bool {
        let fixed = |(_, stretch): &(usize, Stretch<'_>)| matches!(stretch, Stretch::Bytes(_));
        self.stretches.iter().all(fixed)
    }

    /// Appends a range of a region. Returns `false`, and does nothing, if the range exceeds the region.
    #[must_use]
    pub fn push_region(&mut self, region: &'a Region, offset: usize, length: usize) -> bool {
        let memory = region.memory();
        let holds = memory.holds(offset, length);
        if holds {
            self.push(Stretch::Memory {
                memory,
                at: offset,
                length,
            });
        }
        holds
    }

    /// Appends a range of a frame, which must keep its page (or stay unpublished) while this is used.
    ///
    /// # Panics
    /// If the range is beyond the frame.
    pub fn push_frame(&mut self, arena: &'a Arena, frame: FrameNumber, offset: u32, length: u32) {
        let length = length as usize;
        self.push(Stretch::Memory {
            memory: arena.data(),
            at: arena.place(frame, offset, length),
            length,
        });
    }

    /// Appends a range of another gather.
    ///
    /// # Panics
    /// If the range is beyond them.
    pub fn push_part(&mut self, from: &Gather<'a>, offset: usize, length: usize) {
        from.parts(offset, length).for_each(|part| self.push(part));
    }

    fn push(&mut self, stretch: Stretch<'a>) {
        if stretch.is_empty() {
            return;
        }
        let last = self.stretches.last_mut();
        let joined = last.and_then(|(_, last)| Some((last.joined(stretch)?, last)));
        match joined {
            Some((joined, last)) => *last = joined,
            None => self.stretches.push((self.length, stretch)),
        }
        self.length += stretch.len();
    }

    /// Keeps at most the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        if length < self.length {
            let mut rest = Gather::new();
            rest.push_part(self, 0, length);
            *self = rest;
        }
    }

    /// The parts of a range.
    ///
    /// # Panics
    /// If it is out of bounds.
    pub(super) fn parts(
        &self,
        offset: usize,
        length: usize,
    ) -> impl Iterator<Item = Stretch<'a>> + '_ {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "out of bounds"
        );
        let end = offset + length;
        let first = self
            .stretches
            .partition_point(|(before, _)| *before <= offset);
        self.stretches[first.saturating_sub(1)..]
            .iter()
            .take_while(move |(before, _)| *before < end)
            .map(move |(before, stretch)| {
                let from = offset.saturating_sub(*before);
                let to = stretch.len().min(end - before);
                stretch.part(from, to.saturating_sub(from))
            })
    }

    /// Copies from `offset` on.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn load(&self, offset: usize, into: &mut [u8]) {
        let mut into = &mut *into;
        for stretch in self.parts(offset, into.len()) {
            let (part, rest) = into.split_at_mut(stretch.len());
            match stretch {
                Stretch::Bytes(bytes) => part.copy_from_slice(bytes),
                Stretch::Memory { memory, at, .. } => memory.load(at, part),
            }
            into = rest;
        }
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.load(0, &mut bytes);
        bytes
    }

    /// Passes all bytes in their order, part by part. Bytes in shared memory are passed as a copy.
    pub fn look(&self, mut see: impl FnMut(&[u8])) {
        let mut copy = [0; LOOK_BYTES];
        for (_, stretch) in &self.stretches {
            match *stretch {
                Stretch::Bytes(bytes) => see(bytes),
                Stretch::Memory { memory, at, length } => {
                    for start in (0..length).step_by(LOOK_BYTES) {
                        let copy = &mut copy[..(length - start).min(LOOK_BYTES)];
                        memory.load(at + start, copy);
                        see(copy);
                    }
                }
            }
        }
    }

    /// Writes bytes from `skip` on to a file at `offset`, in one system call. Returns how many, which may be less than
    /// all.
    ///
    /// # Errors
    /// The system's error.
    ///
    /// # Panics
    /// If `skip` is out of bounds.
    #[cfg(not(shuttle))]
    pub fn write_to(&self, file: BorrowedFd<'_>, skip: usize, offset: u64) -> io::Result<usize> {
        use super::stretch::Vectors;
        use std::os::fd::AsRawFd;

        let vectors = Vectors::of(self.parts(skip, self.length - skip));
        let (vectors, offset) = (vectors.as_slice(), offset.cast_signed());
        // SAFETY: the kernel only reads from the vectors, which lie in slices and mappings that `self` borrows, and it may
        // read memory that others write.
        let written = unsafe {
            libc::pwritev(
                file.as_raw_fd(),
                vectors.as_ptr(),
                vectors.len() as libc::c_int,
                offset,
            )
        };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    /// Writes bytes from `skip` on to a file at `offset`. Returns how many, which may be less than all.
    ///
    /// # Errors
    /// The system's error.
    ///
    /// # Panics
    /// If `skip` is out of bounds.
    #[cfg(shuttle)]
    pub fn write_to(&self, file: BorrowedFd<'_>, skip: usize, offset: u64) -> io::Result<usize> {
        let bytes = self.to_vec();
        Ok(rustix::io::pwrite(file, &bytes[skip..], offset)?)
    }
}

impl<'a> From<&'a [u8]> for Gather<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        let mut gather = Self::new();
        gather.push(Stretch::Bytes(bytes));
        gather
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Gather<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl<'a> From<&'a Vec<u8>> for Gather<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl fmt::Debug for Gather<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gather({})", self.length)
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests;
