//! Ranges of bytes that owners have locked in one file, as POSIX has them: an owner's locks never overlap, a later one
//! replaces what it covers, and neighbours of one kind are one range.

use odafs_common::wire::nfs4::{LockType, Status};

use super::LockRange;

/// Bytes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u64,
    pub last: u64,
}

impl Span {
    /// The bytes that a lock is asked for. There are none in a range of length 0, and none behind `u64::MAX`
    /// (RFC 8881, section 18.10.3).
    pub fn of(range: &LockRange) -> Result<Self, Status> {
        let first = range.offset;
        let last = match range.length {
            0 => return Err(Status::Inval),
            u64::MAX => u64::MAX,
            length => first.checked_add(length - 1).ok_or(Status::Inval)?,
        };
        Ok(Self { first, last })
    }

    fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// They overlap, or nothing is between them.
    fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// Whether a lock of this type excludes all others.
pub(super) fn is_write(kind: LockType) -> bool {
    matches!(kind, LockType::Write | LockType::WriteWait)
}

/// A range that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub span: Span,
    pub write: bool,
    pub owner: u64,
}

impl Held {
    /// The range as the wire tells it.
    pub fn range(&self) -> LockRange {
        let kind = if self.write {
            LockType::Write
        } else {
            LockType::Read
        };
        let length = match self.span.last {
            u64::MAX => u64::MAX,
            last => last - self.span.first + 1,
        };
        LockRange {
            kind,
            offset: self.span.first,
            length,
        }
    }
}

/// The locks of a file.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Held>);

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges an owner has locked.
    pub fn count(&self, owner: u64) -> usize {
        self.0.iter().filter(|held| held.owner == owner).count()
    }

    /// A lock in the way of `owner`, the first in the file.
    pub fn conflict(&self, span: Span, write: bool, owner: Option<u64>) -> Option<Held> {
        let in_the_way = self.0.iter().filter(|held| {
            Some(held.owner) != owner && held.span.overlaps(span) && (held.write || write)
        });
        in_the_way.min_by_key(|held| held.span.first).copied()
    }

    /// Whether an owner's lock would be cut in two without this span.
    pub fn would_split(&self, span: Span, owner: u64) -> bool {
        self.0.iter().any(|held| {
            held.owner == owner && held.span.first < span.first && held.span.last > span.last
        })
    }

    /// Locks a span for an owner, which replaces what it had locked there.
    pub fn lock(&mut self, span: Span, write: bool, owner: u64) {
        self.unlock(span, owner);
        let mut whole = span;
        self.0.retain(|held| {
            let joins = held.owner == owner && held.write == write && held.span.touches(whole);
            if joins {
                whole.first = whole.first.min(held.span.first);
                whole.last = whole.last.max(held.span.last);
            }
            !joins
        });
        self.0.push(Held {
            span: whole,
            write,
            owner,
        });
    }

    /// Gives a span back.
    pub fn unlock(&mut self, span: Span, owner: u64) {
        let mut rests = Vec::new();
        self.0.retain(|held| {
            let goes = held.owner == owner && held.span.overlaps(span);
            if goes {
                if held.span.first < span.first {
                    rests.push(Held {
                        span: Span {
                            first: held.span.first,
                            last: span.first - 1,
                        },
                        ..*held
                    });
                }
                if held.span.last > span.last {
                    rests.push(Held {
                        span: Span {
                            first: span.last + 1,
                            last: held.span.last,
                        },
                        ..*held
                    });
                }
            }
            !goes
        });
        self.0.append(&mut rests);
    }
}
