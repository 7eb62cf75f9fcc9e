//! A single read and the policy: the order that the read gets, what is counted, and what is reported to the policy.
//!
//! ```text
//! ask:    a standing order of the file, or else the policy's own
//! count:  under a standing order one read in some is due, and speaks for those since the last one
//! tell:   what came of it, and the file's standing order is written down anew
//! ```
//!
//! This does no IO. The reader reads the clock if its read [is timed](AskedRead::is_timed).

use super::{
    order::{Choice, Orders, Purpose, RouteOrder, SizeClass},
    policy::{Policy, Record},
};
use crate::shard::Tick;

/// One read in this many is timed if it involves neither a system call nor anybody else.
pub const QUICK_TIMED_ONE_IN: u32 = 64;
/// One hit in the data cache in this many is timed. A report costs as much as several hits.
pub const HITS_TIMED_ONE_IN: u32 = 256;
/// One read in this many is timed if the server takes part in it.
pub const TIMED_ONE_IN: u32 = 16;

/// All reads of this class and of longer ones are timed, because reading the clock is cheap beside them.
const LONG: usize = 4;

/// The order of one read.
#[derive(Debug, Clone, Copy)]
pub struct AskedRead {
    /// The size class.
    pub class: SizeClass,
    /// The order.
    pub order: RouteOrder,
    timed: bool,
}

/// The result of a read.
#[derive(Debug, Clone, Copy)]
pub enum ReadOutcome<'o> {
    /// A hit in the data cache.
    Hit,
    /// The page was read by this route. It is RPC, whatever the order, if there was no reference.
    Read(Choice),
    /// Direct reads were refused. For each, the time in nanoseconds if it was measured.
    Refused(&'o [Option<u64>]),
}

/// A report to the policy.
#[derive(Debug, Clone, Copy)]
pub struct News<'o> {
    asked: AskedRead,
    outcome: ReadOutcome<'o>,
    /// How long the read took in nanoseconds, if that counts.
    took_ns: Option<u64>,
    reads: u32,
    hits: u32,
}

impl AskedRead {
    /// The order of a read with a standing order.
    #[inline]
    pub fn standing(orders: &Orders, tick: &Tick, class: SizeClass) -> Option<Self> {
        let order = orders.get(class)?;
        let due = match order.choice {
            _ if class.index() >= LONG => 1,
            Choice::OneSided => QUICK_TIMED_ONE_IN,
            Choice::Guarded | Choice::Rpc => TIMED_ONE_IN,
        };
        let timed = tick.reads.get() + 1 >= due || tick.hits.get() + 1 >= HITS_TIMED_ONE_IN;
        Some(Self {
            class,
            order,
            timed,
        })
    }

    /// The order of a read that asks the policy.
    pub fn of_policy(
        policy: &mut Policy,
        record: &mut Record,
        class: SizeClass,
        now_ns: u64,
    ) -> Self {
        Self {
            class,
            order: policy.order(record, class, now_ns),
            timed: true,
        }
    }

    /// The order of a read that goes together with a read of another file, which has the order `first`.
    pub fn beside(
        policy: &mut Policy,
        record: &mut Record,
        class: SizeClass,
        first: &RouteOrder,
        now_ns: u64,
    ) -> Self {
        Self {
            class,
            order: policy.order_beside(record, class, first, now_ns),
            timed: true,
        }
    }

    /// Whether to time this read and report it to the policy.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Counts the result. Returns a report if one is due now.
    #[inline]
    pub fn count<'o>(
        &self,
        tick: &Tick,
        outcome: ReadOutcome<'o>,
        took_ns: Option<u64>,
    ) -> Option<News<'o>> {
        let mut news = News {
            asked: *self,
            outcome,
            took_ns,
            reads: 0,
            hits: 0,
        };
        let alone = self.order.purpose != Purpose::Standing;
        let (reads, hits) = (tick.reads.get(), tick.hits.get());
        match outcome {
            // The reads that others have counted took another route, so this read does not report them.
            ReadOutcome::Read(_) if alone => {
                news.reads = 1;
                return Some(news);
            }
            ReadOutcome::Hit if alone => {
                news.hits = 1;
                return Some(news);
            }
            ReadOutcome::Refused(_) if alone => return Some(news),
            // Compare refusals with all successful reads since the last report. Those are reported now and do not wait
            // for a timed read.
            ReadOutcome::Refused(_) => {
                news.reads = reads - tick.told.get().min(reads);
                tick.told.set(reads);
                return Some(news);
            }
            ReadOutcome::Read(_) => news.reads = 1,
            ReadOutcome::Hit => news.hits = 1,
        }
        if !self.timed {
            tick.reads.set(reads + news.reads);
            tick.hits.set(hits + news.hits);
            return None;
        }
        news.reads += reads - tick.told.get().min(reads);
        news.hits += hits;
        // Reset both countdowns, or else every read would be timed until the other is due.
        tick.reads.set(0);
        tick.told.set(0);
        tick.hits.set(0);
        Some(news)
    }
}

impl News<'_> {
    /// Reports to the policy, and stores the file's standing order for this class.
    pub fn tell(&self, policy: &mut Policy, record: &mut Record, orders: &Orders, now_ns: u64) {
        let AskedRead { class, order, .. } = self.asked;
        let ordered = (order.choice, order.purpose);
        let (reads, took_ns) = (self.reads, self.took_ns);
        match self.outcome {
            ReadOutcome::Refused(samples) => {
                self.tell_untold(policy, record, now_ns);
                for sample in samples {
                    policy.refused(record, class, order.purpose, *sample, now_ns);
                }
            }
            ReadOutcome::Read(Choice::Rpc) => {
                policy.by_rpc(record, class, ordered, reads, took_ns, now_ns);
            }
            ReadOutcome::Read(direct) => {
                let by = (direct, order.purpose);
                policy.completed(record, class, by, reads, took_ns, now_ns);
            }
            ReadOutcome::Hit => {
                policy.hit(record, class, order.purpose, self.hits, took_ns, now_ns);
                self.tell_untold(policy, record, now_ns);
            }
        }
        orders.set(class, policy.standing(record, class));
    }

    /// Earlier reads by the standing order that have not been reported yet.
    fn tell_untold(&self, policy: &mut Policy, record: &mut Record, now_ns: u64) {
        let (class, choice) = (self.asked.class, self.asked.order.choice);
        let standing = (choice, Purpose::Standing);
        match choice {
            _ if self.reads == 0 => {}
            Choice::Rpc => policy.by_rpc(record, class, standing, self.reads, None, now_ns),
            _ => policy.completed(record, class, standing, self.reads, None, now_ns),
        }
    }
}
