//! Ranges of bytes that owners have locked in one file, as POSIX has them: an owner's locks never overlap, a later one
//! replaces what it covers, and neighbours of one kind are one range.

use super::{Counted, LockOwner, Side};

/// Bytes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: u64,
    /// The last, not before the first.
    pub last: u64,
}

impl Span {
    /// All bytes of a file.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// Whether it contains all of the other.
    pub fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether they overlap.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The bytes in both.
    pub fn common(self, other: Self) -> Option<Self> {
        self.overlaps(other).then(|| Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        })
    }

    /// Whether they overlap, or no byte lies between them.
    fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// A range that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The range.
    pub span: Span,
    /// Whether nobody else may hold any of it (a write lock).
    pub write: bool,
    /// The owner.
    pub owner: LockOwner,
}

impl Held {
    /// Whether another owner can not lock the span meanwhile.
    pub fn blocks(&self, span: Span, write: bool) -> bool {
        self.span.overlaps(span) && (self.write || write)
    }
}

/// The locks of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<Held>);

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges an owner has locked.
    pub fn count(&self, owner: LockOwner) -> usize {
        self.0.iter().filter(|held| held.owner == owner).count()
    }

    /// Changes the ranges of an owner, and counts them before and after.
    pub fn counting(&mut self, owner: LockOwner, act: impl FnOnce(&mut Self)) -> Counted {
        let before = self.count(owner);
        act(self);
        let after = self.count(owner);
        Counted { before, after }
    }

    /// How many ranges a side has locked.
    pub fn of(&self, side: Side) -> usize {
        let ranges = self.0.iter();
        ranges.filter(|held| held.owner.side == side).count()
    }

    /// What an owner has locked of a span.
    pub fn within(&self, span: Span, owner: LockOwner) -> Self {
        let own = self.0.iter().filter(|held| held.owner == owner);
        let within = own.filter_map(|held| {
            Some(Held {
                span: held.span.common(span)?,
                ..*held
            })
        });
        Self(within.collect())
    }

    /// Locks all ranges of another.
    pub fn lock_all(&mut self, others: &Self, which: impl Fn(&Held) -> bool) {
        for held in others.0.iter().filter(|held| which(held)) {
            self.lock(held.span, held.write, held.owner);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A lock in the way of `owner`, the first in the file.
    pub fn conflict(&self, span: Span, write: bool, owner: Option<LockOwner>) -> Option<Held> {
        let held = self.0.iter();
        let in_the_way = held.filter(|held| Some(held.owner) != owner && held.blocks(span, write));
        in_the_way.min_by_key(|held| held.span.first).copied()
    }

    /// Whether nothing is in the way of `owner`.
    pub fn is_free(&self, span: Span, write: bool, owner: Option<LockOwner>) -> bool {
        let mut held = self.0.iter();
        !held.any(|held| Some(held.owner) != owner && held.blocks(span, write))
    }

    /// What these owners have locked.
    pub fn held_by(&self, whose: impl Fn(LockOwner) -> bool) -> Vec<Held> {
        let held = self.0.iter().filter(|held| whose(held.owner));
        held.copied().collect()
    }

    /// Gives back all that these owners have locked, and counts it.
    pub fn unlock_all(&mut self, whose: impl Fn(LockOwner) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(|held| !whose(held.owner));
        before - self.0.len()
    }

    /// The owners of a side that have a lock in the way of this one, each once.
    pub fn in_the_way(&self, side: Side, span: Span, write: bool) -> Vec<u64> {
        let held = self.0.iter();
        let held = held.filter(|held| held.owner.side == side && held.blocks(span, write));
        let mut owners = Vec::from_iter(held.map(|held| held.owner.number));
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Whether an owner's lock would be cut in two without this span.
    pub fn would_split(&self, span: Span, owner: LockOwner) -> bool {
        self.0.iter().any(|held| {
            held.owner == owner && held.span.first < span.first && held.span.last > span.last
        })
    }

    /// Locks a span for an owner, which replaces what it had locked there.
    pub fn lock(&mut self, span: Span, write: bool, owner: LockOwner) {
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
    pub fn unlock(&mut self, span: Span, owner: LockOwner) {
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
