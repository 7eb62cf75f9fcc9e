//! The order of a read, and where the standing orders are stored for reads that must not wait for the policy.

use odafs_fabric::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The size classes, by the bytes of a call: up to 256, 1 Ki, 4 Ki, 16 Ki, 64 Ki, and above.
pub const CLASSES: usize = 6;

/// A size class: an index below [`CLASSES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The class of calls for this many bytes.
    pub fn of(bytes: usize) -> Self {
        let above_256 = (bytes.saturating_sub(1) >> 8) as u64;
        let class = (u64::BITS - above_256.leading_zeros()).div_ceil(2);
        Self(class.min(CLASSES as u32 - 1) as u8)
    }

    /// The class with this index.
    pub const fn nth(index: usize) -> Self {
        assert!(index < CLASSES, "there is no such class");
        Self(index as u8)
    }

    /// The index of the class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The route of a read that misses the data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Call the server.
    #[default]
    Rpc,
    /// Let the server's NIC engine check and move the page.
    Guarded,
    /// Read the server's memory, then the stamp.
    OneSided,
}

impl Choice {
    /// All routes, by their [`index`](Self::index).
    pub const ALL: [Self; 3] = [Self::Rpc, Self::Guarded, Self::OneSided];

    /// The index of the route.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the route needs a reference.
    pub const fn is_direct(self) -> bool {
        !matches!(self, Self::Rpc)
    }
}

/// The order of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteOrder {
    /// The route.
    pub choice: Choice,
    /// Whether to look into the data cache first, and to keep what is read.
    pub keeps: bool,
    /// Whether calls ask for references, because direct reads are the rule or may soon be.
    pub learns: bool,
    /// Why the read takes this route.
    pub purpose: Purpose,
}

/// Why a read takes its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The route is the cheapest one as far as is known, or the one that the caller asked for.
    Standing,
    /// Two routes are being compared. The first reads after a change of route warm it up and are not measured.
    Trial {
        /// Whether the time of this read counts.
        measured: bool,
    },
    /// The read finds out whether direct reads of this file are still refused.
    Probe,
    /// The read goes together with reads of another file, whose time is reported for all. Only its refusals count.
    Together,
}

impl RouteOrder {
    /// A standing order by this route.
    pub const fn standing(choice: Choice, keeps: bool) -> Self {
        Self {
            choice,
            keeps,
            learns: choice.is_direct(),
            purpose: Purpose::Standing,
        }
    }
}

/// The standing orders of one file by size class. A read that finds one here asks nobody.
#[derive(Debug)]
pub struct Orders([AtomicU32; CLASSES]);

const KEEPS: u32 = 1 << 2;
const ASK: u32 = 1 << 3;

impl Orders {
    /// The same order for all classes.
    pub fn new(order: RouteOrder) -> Self {
        let orders = Self(Default::default());
        (0..CLASSES).for_each(|n| orders.set(SizeClass::nth(n), Some(order)));
        orders
    }

    /// Stores an order. With `None`, each read asks the policy.
    pub fn set(&self, class: SizeClass, order: Option<RouteOrder>) {
        let word = order.map_or(ASK, |order| {
            order.choice as u32 | if order.keeps { KEEPS } else { 0 }
        });
        let place = &self.0[class.index()];
        if place.load(Relaxed) != word {
            place.store(word, Relaxed);
        }
    }

    /// The standing order, if there is one.
    #[inline]
    pub fn get(&self, class: SizeClass) -> Option<RouteOrder> {
        let word = self.0[class.index()].load(Relaxed);
        if word & ASK != 0 {
            return None;
        }
        let choice = match word & 3 {
            0 => Choice::Rpc,
            1 => Choice::Guarded,
            _ => Choice::OneSided,
        };
        Some(RouteOrder::standing(choice, word & KEEPS != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_four() {
        for (bytes, class) in [
            (0, 0),
            (64, 0),
            (256, 0),
            (257, 1),
            (1024, 1),
            (1025, 2),
            (4096, 2),
            (4097, 3),
            (16384, 3),
            (16385, 4),
            (65536, 4),
            (65537, 5),
            (usize::MAX, 5),
        ] {
            assert_eq!(SizeClass::of(bytes).index(), class, "{bytes}");
        }
    }

    #[test]
    fn orders_are_read_as_they_were_written() {
        let orders = Orders::new(RouteOrder::standing(Choice::Rpc, false));
        let class = SizeClass::of(4096);
        for choice in Choice::ALL {
            for keeps in [false, true] {
                let order = RouteOrder::standing(choice, keeps);
                orders.set(class, Some(order));
                assert_eq!(orders.get(class), Some(order));
            }
        }
        orders.set(class, None);
        assert_eq!(orders.get(class), None);
        let other = orders.get(SizeClass::of(64)).expect("another class");
        assert_eq!(other.choice, Choice::Rpc);
    }
}
