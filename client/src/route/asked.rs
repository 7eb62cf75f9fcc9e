//! One read and the policy: what the read is told to do, what is counted, and what the policy hears of it.
//!
//! ```text
//! ask:    a standing order of the file, or else the policy's own
//! count:  under a standing order one read in some is due, and speaks for those since the last one
//! tell:   what came of it, and the file's standing order is written down anew
//! ```
//!
//! Sans-IO: whoever reads looks at the clock where a read [is timed](AskedRead::is_timed).

use super::{
    order::{Choice, Orders, Purpose, RouteOrder, SizeClass},
    policy::{Policy, Record},
};
use crate::shard::Tick;

/// One read in so many is timed where it takes no system call and nobody else.
pub const QUICK_TIMED_ONE_IN: u32 = 64;
/// One read in so many that the server has a part in.
pub const TIMED_ONE_IN: u32 = 16;

/// Reads of this class and longer ones are all timed: the clock is nothing beside them.
const LONG: usize = 4;

/// What one read was told to do.
#[derive(Debug, Clone, Copy)]
pub struct AskedRead {
    /// Its class.
    pub class: SizeClass,
    /// What it is to do.
    pub order: RouteOrder,
    timed: bool,
}

/// What a read came to.
#[derive(Debug, Clone, Copy)]
pub enum ReadOutcome<'o> {
    /// The data cache had it.
    Hit,
    /// It was read by this route; by RPC whatever the order, where there was no reference.
    Read(Choice),
    /// Direct tries were refused: for each, how long it took where that was measured.
    Refused(&'o [Option<u64>]),
}

/// What the policy is to be told.
#[derive(Debug, Clone, Copy)]
pub struct News<'o> {
    asked: AskedRead,
    outcome: ReadOutcome<'o>,
    /// How long the read took, if that counts.
    took_ns: Option<u64>,
    reads: u32,
    hits: u32,
}

impl AskedRead {
    /// By the standing order, if there is one.
    #[inline]
    pub fn standing(orders: &Orders, tick: &Tick, class: SizeClass) -> Option<Self> {
        let order = orders.get(class)?;
        let due = match order.choice {
            _ if class.index() >= LONG => 1,
            Choice::OneSided => QUICK_TIMED_ONE_IN,
            Choice::Guarded | Choice::Rpc => TIMED_ONE_IN,
        };
        let timed = tick.reads.get() + 1 >= due || tick.hits.get() + 1 >= QUICK_TIMED_ONE_IN;
        Some(Self {
            class,
            order,
            timed,
        })
    }

    /// By the policy, where there is none.
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

    /// The policy will be told of it, and of how long it took.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Counts what came of it. What the policy is to be told now, if anything.
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
            // What other reads have counted is not this one's to tell: it takes another route.
            ReadOutcome::Read(_) if alone => {
                news.reads = 1;
                return Some(news);
            }
            ReadOutcome::Hit if alone => {
                news.hits = 1;
                return Some(news);
            }
            ReadOutcome::Refused(_) if alone => return Some(news),
            // It weighs against those since the last time, which do not wait to be told until one is timed.
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
        // Whichever was due, both are: else each would look at the clock until the other is.
        tick.reads.set(0);
        tick.told.set(0);
        tick.hits.set(0);
        Some(news)
    }
}

impl News<'_> {
    /// Tells it, and writes down what the file's reads of this class do from now on.
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

    /// Reads by the standing order before this one, of which nothing was told yet.
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
