use super::mapping::Mapping;
#[cfg(not(shuttle))]
use std::marker::PhantomData;

/// Contiguous bytes.
#[derive(Clone, Copy)]
pub enum Stretch<'a> {
    /// Private bytes.
    Bytes(&'a [u8]),
    /// Shared memory.
    Memory {
        /// The mapping.
        memory: &'a Mapping,
        /// First byte.
        at: usize,
        /// Length in bytes.
        length: usize,
    },
}

impl<'a> Stretch<'a> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Stretch::Bytes(bytes) => bytes.len(),
            Stretch::Memory { length, .. } => *length,
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of it: `length` bytes from `from` on.
    ///
    /// # Panics
    /// If it is not that long.
    pub(super) fn part(self, from: usize, length: usize) -> Stretch<'a> {
        match self {
            Stretch::Bytes(bytes) => Stretch::Bytes(&bytes[from..][..length]),
            Stretch::Memory {
                memory,
                at,
                length: whole,
            } => {
                assert!(from <= whole && length <= whole - from, "out of bounds");
                Stretch::Memory {
                    memory,
                    at: at + from,
                    length,
                }
            }
        }
    }

    /// Both as one, if `next` follows in the same shared memory.
    pub(super) fn joined(self, next: Stretch<'a>) -> Option<Stretch<'a>> {
        match (self, next) {
            (
                Stretch::Memory { memory, at, length },
                Stretch::Memory {
                    memory: same,
                    at: behind,
                    length: more,
                },
            ) if std::ptr::eq(memory, same) && at + length == behind => Some(Stretch::Memory {
                memory,
                at,
                length: length + more,
            }),
            _ => None,
        }
    }
}

/// Stretches for one system call that reads from them, with neighbours joined.
#[cfg(not(shuttle))]
pub(crate) struct Vectors<'a> {
    vectors: [libc::iovec; Vectors::MAX],
    count: usize,
    borrowed: PhantomData<&'a ()>,
}

#[cfg(not(shuttle))]
impl<'a> Vectors<'a> {
    /// The next call takes more.
    const MAX: usize = 320;

    /// As many of the stretches as one call takes.
    pub fn of(stretches: impl Iterator<Item = Stretch<'a>>) -> Self {
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut all = Vectors {
            vectors: [empty; Self::MAX],
            count: 0,
            borrowed: PhantomData,
        };
        for stretch in stretches {
            if !all.push(stretch) {
                break;
            }
        }
        all
    }

    fn push(&mut self, stretch: Stretch<'a>) -> bool {
        let base = match stretch {
            Stretch::Bytes(bytes) => bytes.as_ptr(),
            Stretch::Memory { memory, at, length } => memory.address(at, length),
        };
        // Neighbouring pages are one stretch for the kernel.
        let last = self.vectors[..self.count].last_mut();
        if let Some(last) = last
            && last
                .iov_base
                .cast_const()
                .cast::<u8>()
                .wrapping_add(last.iov_len)
                == base
        {
            last.iov_len += stretch.len();
        } else if let Some(next) = self.vectors.get_mut(self.count) {
            next.iov_base = base.cast_mut().cast();
            next.iov_len = stretch.len();
            self.count += 1;
        } else {
            return false;
        }
        true
    }

    /// They point into slices and mappings that `'a` keeps alive.
    pub fn as_slice(&self) -> &[libc::iovec] {
        &self.vectors[..self.count]
    }
}
