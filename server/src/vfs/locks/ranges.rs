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

    /// Its bytes that are not in the other: those before, and those behind.
    pub fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let overlap = self.overlaps(other);
        let whole = (!overlap).then_some(self);
        let front = (overlap && self.first < other.first).then(|| Self {
            last: other.first - 1,
            ..self
        });
        let back = (overlap && self.last > other.last).then(|| Self {
            first: other.last + 1,
            ..self
        });
        [whole, front, back].into_iter().flatten()
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

/// A lock that somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The range.
    pub span: Span,
    /// Whether it excludes all others (a write lock).
    pub write: bool,
    /// The owner, whose own locks are not in the way.
    pub owner: Option<LockOwner>,
}

/// How far some ranges reach.
#[derive(Default)]
struct Reach {
    /// The owner of the range that reaches furthest, and the last byte of that.
    furthest: Option<(LockOwner, u64)>,
    /// The last byte of all ranges of other owners.
    others: Option<u64>,
}

impl Reach {
    fn add(&mut self, held: &Held) {
        let (owner, last) = (held.owner, held.span.last);
        match self.furthest {
            Some((known, furthest)) if known == owner => {
                self.furthest = Some((owner, furthest.max(last)));
            }
            Some((_, furthest)) if last <= furthest => self.others = self.others.max(Some(last)),
            known => {
                self.others = known.map(|(_, furthest)| furthest);
                self.furthest = Some((owner, last));
            }
        }
    }

    /// The last byte of all ranges, but for those of this owner.
    fn beside(&self, owner: Option<LockOwner>) -> Option<u64> {
        let (known, furthest) = self.furthest?;
        match Some(known) == owner {
            true => self.others,
            false => Some(furthest),
        }
    }
}

/// The locks of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// In the order of their first bytes.
    held: Vec<Held>,
    /// How many of them each side has.
    of: [usize; 2],
}

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many ranges an owner has locked.
    pub fn count(&self, owner: LockOwner) -> usize {
        self.held.iter().filter(|held| held.owner == owner).count()
    }

    /// Changes the ranges of an owner, and counts them before and after. `act` returns [`Counted::freed`].
    pub fn counting(&mut self, owner: LockOwner, act: impl FnOnce(&mut Self) -> bool) -> Counted {
        let before = self.count(owner);
        let freed = act(self);
        let after = self.count(owner);
        Counted {
            before,
            after,
            freed,
        }
    }

    /// How many ranges a side has locked.
    pub fn of(&self, side: Side) -> usize {
        self.of[side as usize]
    }

    /// What an owner has locked of a span.
    pub fn within(&self, span: Span, owner: LockOwner) -> Self {
        let own = self.held.iter().filter(|held| held.owner == owner);
        let within = own.filter_map(|held| {
            Some(Held {
                span: held.span.common(span)?,
                ..*held
            })
        });
        let held = Vec::from_iter(within);
        let mut of = [0; 2];
        of[owner.side as usize] = held.len();
        Self { held, of }
    }

    /// Locks all ranges of another.
    pub fn lock_all(&mut self, others: &Self, which: impl Fn(&Held) -> bool) {
        for held in others.held.iter().filter(|held| which(held)) {
            self.lock(held.span, held.write, held.owner);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// A lock in the way of `owner`, the first in the file.
    pub fn conflict(&self, span: Span, write: bool, owner: Option<LockOwner>) -> Option<Held> {
        let mut held = self.held.iter();
        let in_the_way = held.find(|held| Some(held.owner) != owner && held.blocks(span, write));
        in_the_way.copied()
    }

    /// For each of these locks, whether nothing is in its way. However many they are, this goes through the ranges once.
    pub fn are_free(&self, wanted: &[Wanted]) -> Vec<bool> {
        let mut free = vec![true; wanted.len()];
        let mut order = Vec::from_iter(wanted.iter().zip(&mut free));
        order.sort_unstable_by_key(|(wanted, _)| wanted.span.last);
        let mut held = self.held.iter().peekable();
        // The ranges that do not begin behind the lock, and those of them that are locked for writing.
        let (mut all, mut writes) = (Reach::default(), Reach::default());
        for (wanted, free) in order {
            while let Some(held) = held.next_if(|held| held.span.first <= wanted.span.last) {
                all.add(held);
                if held.write {
                    writes.add(held);
                }
            }
            let reach = match wanted.write {
                true => &all,
                false => &writes,
            };
            let last = reach.beside(wanted.owner);
            *free = last.is_none_or(|last| last < wanted.span.first);
        }
        free
    }

    fn insert(&mut self, held: Held) {
        let before = |known: &Held| known.span.first <= held.span.first;
        let at = self.held.partition_point(before);
        self.held.insert(at, held);
        self.of[held.owner.side as usize] += 1;
    }

    /// What these owners have locked.
    pub fn held_by(&self, whose: impl Fn(LockOwner) -> bool) -> Vec<Held> {
        let held = self.held.iter().filter(|held| whose(held.owner));
        held.copied().collect()
    }

    /// Gives back all that these owners have locked, and counts it.
    pub fn unlock_all(&mut self, whose: impl Fn(LockOwner) -> bool) -> usize {
        let before = self.held.len();
        let of = &mut self.of;
        self.held.retain(|held| {
            let goes = whose(held.owner);
            of[held.owner.side as usize] -= usize::from(goes);
            !goes
        });
        before - self.held.len()
    }

    /// The owners of a side that have a lock in the way of this one, each once.
    pub fn in_the_way(&self, side: Side, span: Span, write: bool) -> Vec<u64> {
        let held = self.held.iter();
        let held = held.filter(|held| held.owner.side == side && held.blocks(span, write));
        let mut owners = Vec::from_iter(held.map(|held| held.owner.number));
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Whether an owner's lock would be cut in two without this span.
    pub fn would_split(&self, span: Span, owner: LockOwner) -> bool {
        self.held.iter().any(|held| {
            held.owner == owner && held.span.first < span.first && held.span.last > span.last
        })
    }

    /// Locks a span for an owner, which replaces what it had locked there. Returns whether some of that was stronger.
    pub fn lock(&mut self, span: Span, write: bool, owner: LockOwner) -> bool {
        let had_written = self.cut_out(span, owner) == Some(true);
        let mut whole = span;
        let of = &mut self.of[owner.side as usize];
        self.held.retain(|held| {
            let joins = held.owner == owner && held.write == write && held.span.touches(whole);
            if joins {
                whole.first = whole.first.min(held.span.first);
                whole.last = whole.last.max(held.span.last);
                *of -= 1;
            }
            !joins
        });
        self.insert(Held {
            span: whole,
            write,
            owner,
        });
        had_written && !write
    }

    /// Gives a span back. Returns whether the owner had locked any of it.
    pub fn unlock(&mut self, span: Span, owner: LockOwner) -> bool {
        self.cut_out(span, owner).is_some()
    }

    /// Removes what an owner has locked of a span. Returns whether some of that was for writing, or `None` if there was
    /// nothing.
    fn cut_out(&mut self, span: Span, owner: LockOwner) -> Option<bool> {
        let mut rests = Vec::new();
        let mut found = None;
        let of = &mut self.of[owner.side as usize];
        self.held.retain(|held| {
            let goes = held.owner == owner && held.span.overlaps(span);
            if goes {
                *of -= 1;
                found = Some(held.write || found == Some(true));
                let rest = held.span.without(span);
                rests.extend(rest.map(|span| Held { span, ..*held }));
            }
            !goes
        });
        for rest in rests {
            self.insert(rest);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span() -> impl Strategy<Value = Span> {
        let ends = prop_oneof![4 => 0..24u64, 1 => Just(u64::MAX)];
        (0..20u64, ends).prop_map(|(first, last)| Span {
            first,
            last: last.max(first),
        })
    }

    fn owner() -> impl Strategy<Value = LockOwner> {
        (0..4u64).prop_map(|number| LockOwner {
            side: if number < 2 { Side::Nlm } else { Side::Nfs4 },
            number,
        })
    }

    proptest! {
        #[test]
        fn many_locks_are_free_if_each_is(
            steps in prop::collection::vec((span(), owner(), prop::option::of(any::<bool>())), 0..40),
            wanted in prop::collection::vec((span(), any::<bool>(), prop::option::of(owner())), 0..20),
        ) {
            let mut ranges = Ranges::default();
            for (span, owner, lock) in steps {
                match lock {
                    Some(write) if ranges.conflict(span, write, Some(owner)).is_none() => {
                        ranges.lock(span, write, owner);
                    }
                    Some(_) => {}
                    None => {
                        ranges.unlock(span, owner);
                    }
                }
                prop_assert!(ranges.held.is_sorted_by_key(|held| held.span.first));
                for side in [Side::Nlm, Side::Nfs4] {
                    let of_side = ranges.held.iter().filter(|held| held.owner.side == side);
                    prop_assert_eq!(ranges.of(side), of_side.count());
                }
            }
            let wanted = Vec::from_iter(wanted.into_iter().map(|(span, write, owner)| Wanted {
                span,
                write,
                owner,
            }));
            let blocks = |held: &Held, of: &Wanted| {
                Some(held.owner) != of.owner && held.blocks(of.span, of.write)
            };
            let free = wanted.iter().map(|of| !ranges.held.iter().any(|held| blocks(held, of)));
            prop_assert_eq!(ranges.are_free(&wanted), Vec::from_iter(free));
        }
    }
}
