//! What reads ask the policy, and what they tell it.
//!
//! A standing order is an atomic word of the file. One read in some is timed, and told together with those since: so
//! the policy's lock and the clock are on the way of few.

use super::Shared;
use crate::{
    lane::Lane,
    options::Route,
    part::Told,
    read_page::Fetched,
    route::{CLASSES, Choice, Order, Orders, PageName, Policy, Purpose, Record, SizeClass},
    session::Session,
    state::FileState,
    trace::Taken,
};
use odafs_fabric::clock::{self, Nanos};

/// One read in so many is timed where it takes no system call and nobody else.
const QUICK_TIMED_ONE_IN: u32 = 64;
/// One read in so many that the server has a part in.
const TIMED_ONE_IN: u32 = 16;

/// One read, from its order to its end.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Its class.
    pub class: SizeClass,
    /// What it is to do.
    pub order: Order,
    lane: Lane,
    /// When it began, if it is timed.
    began: Option<Nanos>,
}

impl Asked {
    /// The lane of the thread that reads.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Will the policy be told of it alone?
    pub fn is_timed(&self) -> bool {
        self.began.is_some()
    }

    /// How long it has taken so far, if it is timed.
    pub fn took_ns(&self) -> Option<u64> {
        self.began.map(|began| clock::now().since(began).0)
    }
}

impl Shared {
    /// The order for all reads of a file that the policy has not judged yet.
    pub(super) fn first_orders(&self, record: &Record) -> Orders {
        let fixed = |choice| Orders::new(Order::standing(choice, self.caches()));
        match self.options.route {
            Route::Rpc => fixed(Choice::Rpc),
            Route::Guarded => fixed(Choice::Guarded),
            Route::OneSided => fixed(Choice::OneSided),
            Route::Policy => {
                let orders = fixed(Choice::Rpc);
                let mut policy = self.policy.lock();
                for class in (0..CLASSES).map(SizeClass::nth) {
                    orders.set(class, policy.standing(record, class));
                }
                orders
            }
        }
    }

    /// The policy is to choose among what this session grants, and RPC.
    pub(super) fn grant(&self, session: &Session) {
        let most = match session.one_sided {
            true => Choice::OneSided,
            false => Choice::Guarded,
        };
        self.policy.lock().grant(most);
    }

    /// What a read of this class is to do.
    #[inline]
    pub fn ask(&self, file: &FileState, class: SizeClass) -> Asked {
        self.standing(file, class)
            .unwrap_or_else(|| self.ask_policy(file, class))
    }

    /// What it is to do, where the policy need not be asked.
    #[inline]
    pub fn standing(&self, file: &FileState, class: SizeClass) -> Option<Asked> {
        let lane = Lane::mine();
        let order = file.orders.get(class)?;
        let tick = &file.ticks[lane.index()];
        let due = match order.choice {
            Choice::OneSided => QUICK_TIMED_ONE_IN,
            Choice::Guarded | Choice::Rpc => TIMED_ONE_IN,
        };
        let timed = tick.reads.get() + 1 >= due || tick.hits.get() + 1 >= QUICK_TIMED_ONE_IN;
        Some(Asked {
            class,
            order,
            lane,
            began: timed.then(clock::now),
        })
    }

    #[cold]
    fn ask_policy(&self, file: &FileState, class: SizeClass) -> Asked {
        let lane = Lane::mine();
        let mut policy = self.policy.lock();
        let mut record = file.record.lock();
        let order = policy.order(&mut record, class, clock::now().0);
        drop((record, policy));
        Asked {
            class,
            order,
            lane,
            began: Some(clock::now()),
        }
    }

    /// A page of the file is read.
    #[inline]
    pub fn note_page(&self, file: &FileState, page: u64) {
        if let Some(reuse) = &self.reuse {
            reuse.note(PageName {
                file: file.number,
                generation: file.generation(),
                page,
            });
        }
    }

    /// A read of one page was served from the data cache, with so many bytes.
    #[inline]
    pub fn was_hit(&self, file: &FileState, asked: &Asked, bytes: usize) {
        let counts = self.lanes.counts(asked.lane);
        counts.read_by(asked.lane, Taken::Cache, 1);
        counts.bytes_read.add(asked.lane, bytes as u64);
        self.tell_hit(file, asked);
    }

    #[inline]
    fn tell_hit(&self, file: &FileState, asked: &Asked) {
        let tick = &file.ticks[asked.lane.index()];
        let hits = tick.hits.get() + 1;
        let Some(ns) = asked.took_ns() else {
            return tick.hits.set(hits);
        };
        tick.hits.set(0);
        self.tell_hits(file, asked, hits, ns);
        // Reads that are due would have each hit look at the clock.
        let reads = tick.reads.get();
        if reads > 0 {
            tick.reads.set(0);
            self.tell_reads(file, asked, asked.order.choice, reads, None);
        }
    }

    #[cold]
    fn tell_hits(&self, file: &FileState, asked: &Asked, count: u32, ns: u64) {
        self.tell(file, asked.class, |policy, record, now| {
            policy.hit(record, asked.class, count, ns, now);
        });
    }

    /// A read of one page was served so.
    #[inline]
    pub fn was_read(&self, file: &FileState, asked: &Asked, fetched: &Fetched) {
        let counts = self.lanes.counts(asked.lane);
        counts.read_by(asked.lane, Taken::from(fetched.by), 1);
        counts.bytes_read.add(asked.lane, fetched.bytes as u64);
        self.tell_read(file, asked, fetched.by, fetched.took_ns);
    }

    #[inline]
    fn tell_read(&self, file: &FileState, asked: &Asked, by: Choice, took_ns: Option<u64>) {
        if asked.order.purpose != Purpose::Standing {
            return self.tell_reads(file, asked, by, 1, took_ns);
        }
        let tick = &file.ticks[asked.lane.index()];
        let reads = tick.reads.get() + 1;
        if !asked.is_timed() {
            return tick.reads.set(reads);
        }
        tick.reads.set(0);
        tick.hits.set(0);
        self.tell_reads(file, asked, by, reads, took_ns);
    }

    #[cold]
    fn tell_reads(
        &self,
        file: &FileState,
        asked: &Asked,
        by: Choice,
        count: u32,
        took_ns: Option<u64>,
    ) {
        let (class, order) = (asked.class, asked.order);
        self.tell(file, class, |policy, record, now| match by {
            Choice::Rpc => {
                let ordered = (order.choice, order.purpose);
                policy.by_rpc(record, class, ordered, count, took_ns, now);
            }
            direct => {
                policy.completed(record, class, (direct, order.purpose), count, took_ns, now);
            }
        });
    }

    /// What a batch of requests came to. Its time counts only where all of it took one route.
    pub fn tell_batch(&self, file: &FileState, asked: &Asked, told: &Told, took_ns: Option<u64>) {
        let (class, order) = (asked.class, asked.order);
        if self.options.route != Route::Policy {
            for ns in told.refused.iter().flatten() {
                self.policy.lock().refusal_took(class, *ns);
            }
            return;
        }
        let pure = told.refused.is_empty() && (told.direct.is_none() || told.by_rpc == 0);
        let took_ns = took_ns.filter(|_| pure && !told.mixed);
        if told.refused.is_empty() {
            let by = match (told.direct, told.by_rpc) {
                (Some(direct), _) => direct,
                (None, 0) => return self.tell_hit(file, asked),
                (None, _) => Choice::Rpc,
            };
            return self.tell_read(file, asked, by, took_ns);
        }
        self.tell(file, class, |policy, record, now| {
            for sample in &told.refused {
                policy.refused(record, class, order.purpose, *sample, now);
            }
        });
    }

    fn tell(
        &self,
        file: &FileState,
        class: SizeClass,
        what: impl FnOnce(&mut Policy, &mut Record, u64),
    ) {
        if self.options.route != Route::Policy {
            return;
        }
        let now = clock::now().0;
        let mut policy = self.policy.lock();
        let mut record = file.record.lock();
        what(&mut policy, &mut record, now);
        if let Some(reuse) = &self.reuse {
            policy.set_chance(reuse.chance());
        }
        file.orders.set(class, policy.standing(&record, class));
    }
}
