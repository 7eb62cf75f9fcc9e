//! What reads ask the policy, and what they report to it.
//!
//! A standing order is an atomic word of the file. One read in several is timed, and reported together with the untimed
//! ones before it, so few reads take the policy's lock or read the clock.

use super::Shared;
use crate::{
    options::Route,
    part::BatchOutcome,
    read_page::Fetched,
    route::{
        self, CLASSES, Choice, News, Orders, PageName, Purpose, ReadOutcome, Record, RouteOrder,
        SizeClass,
    },
    session::Session,
    shard::Shard,
    state::FileState,
    trace::RouteTaken,
};
use odafs_common::page::PageSize;
use odafs_fabric::clock::{self, Nanos};

/// One read, from its order to its end.
#[derive(Debug, Clone, Copy)]
pub struct TimedRead {
    asked: route::AskedRead,
    shard: Shard,
    /// When the read began, if it is timed.
    began: Option<Nanos>,
    /// Whether the data cache has been told that the page is read.
    looked: bool,
}

impl TimedRead {
    /// The order.
    #[inline]
    pub fn order(&self) -> &RouteOrder {
        &self.asked.order
    }

    /// The same, of which nothing is looked for in the data cache or kept unless `keeps`.
    #[inline]
    pub fn kept_if(mut self, keeps: bool) -> Self {
        self.asked.order.keeps &= keeps;
        self
    }

    /// The same, of a read that has looked for its page and looks again.
    pub fn looked(mut self) -> Self {
        self.looked = true;
        self
    }

    /// Whether the read has looked for its page before.
    #[inline]
    pub fn has_looked(&self) -> bool {
        self.looked
    }

    /// The shard of the thread that reads.
    #[inline]
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// Whether the policy will hear of this read alone.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.asked.is_timed()
    }

    /// How long the read has taken so far, in nanoseconds, if it is timed.
    #[inline]
    pub fn took_ns(&self) -> Option<u64> {
        self.began.map(|began| clock::now().since(began).0)
    }
}

impl Shared {
    /// The order for all reads of a file that the policy has not judged yet.
    pub(super) fn first_orders(&self, record: &Record) -> Orders {
        let fixed = |choice| Orders::new(RouteOrder::standing(choice, self.caches()));
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

    /// Lets the policy choose among RPC and the routes that this session grants.
    pub(super) fn grant(&self, session: &Session) {
        let most = match session.one_sided {
            true => Choice::OneSided,
            false => Choice::Guarded,
        };
        self.policy.lock().grant(most, session.view.is_some());
    }

    /// The order of a read of this class.
    #[inline]
    pub fn ask(&self, file: &FileState, class: SizeClass) -> TimedRead {
        self.standing(file, class)
            .unwrap_or_else(|| self.ask_policy(file, class))
    }

    /// The order, if the policy need not be asked.
    #[inline]
    pub fn standing(&self, file: &FileState, class: SizeClass) -> Option<TimedRead> {
        let shard = Shard::mine();
        let asked = route::AskedRead::standing(&file.orders, &file.ticks[shard.index()], class)?;
        Some(TimedRead {
            asked,
            shard,
            began: asked.is_timed().then(clock::now),
            looked: false,
        })
    }

    /// The order of reads that go together with those of another file, which have `first`. While the policy compares
    /// routes, all take the same one, so that the time of the batch is that of one route.
    #[inline]
    pub fn ask_beside(&self, file: &FileState, class: SizeClass, first: &TimedRead) -> TimedRead {
        match self.standing(file, class) {
            Some(asked) if first.order().purpose == Purpose::Standing => asked,
            _ => self.ask_policy_beside(file, class, first),
        }
    }

    #[cold]
    fn ask_policy_beside(
        &self,
        file: &FileState,
        class: SizeClass,
        first: &TimedRead,
    ) -> TimedRead {
        let mut policy = self.policy.lock();
        let mut record = file.record.lock();
        let (first, now) = (first.order(), clock::now().0);
        let asked = route::AskedRead::beside(&mut policy, &mut record, class, first, now);
        drop((record, policy));
        TimedRead {
            asked,
            shard: Shard::mine(),
            began: None,
            looked: false,
        }
    }

    #[cold]
    fn ask_policy(&self, file: &FileState, class: SizeClass) -> TimedRead {
        let mut policy = self.policy.lock();
        let mut record = file.record.lock();
        let asked = route::AskedRead::of_policy(&mut policy, &mut record, class, clock::now().0);
        drop((record, policy));
        TimedRead {
            asked,
            shard: Shard::mine(),
            began: Some(clock::now()),
            looked: false,
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

    /// The data cache served a read of one page, with this many bytes.
    #[inline]
    pub fn was_hit(&self, file: &FileState, asked: &TimedRead, bytes: usize) {
        let counts = self.shards.counts(asked.shard);
        counts.read_by(asked.shard, RouteTaken::Cache, 1);
        counts.bytes_read.add(asked.shard, bytes as u64);
        let took_ns = asked.took_ns();
        if let Some(ns) = took_ns.filter(|_| bytes == PageSize::MIN.bytes()) {
            file.ticks[asked.shard.index()].looks.took(ns);
        }
        self.tell(file, asked, ReadOutcome::Hit, took_ns, 1);
    }

    /// A read of one page was served in this way.
    #[inline]
    pub fn was_read(&self, file: &FileState, asked: &TimedRead, fetched: &Fetched) {
        let counts = self.shards.counts(asked.shard);
        counts.read_by(asked.shard, RouteTaken::from(fetched.by), 1);
        if fetched.by.is_direct() {
            counts.directory_hits.add(asked.shard, 1);
        }
        counts.bytes_read.add(asked.shard, fetched.bytes as u64);
        let outcome = ReadOutcome::Read(fetched.by);
        // Only RPC tells that the file has ended. That is no comparison of routes.
        let took_ns = fetched.took_ns.filter(|_| fetched.bytes > 0);
        self.tell(file, asked, outcome, took_ns, 1);
    }

    /// Reports the results of a batch of requests. Its time counts only if all of it took one route.
    pub fn tell_batch(
        &self,
        file: &FileState,
        asked: &TimedRead,
        told: &BatchOutcome,
        took_ns: Option<u64>,
    ) {
        if self.options.route != Route::Policy {
            for ns in told.refused.iter().flatten() {
                self.policy.lock().refusal_took(asked.asked.class, *ns);
            }
        }
        let pure = told.direct.is_none() || told.by_rpc == 0;
        let outcome = match (told.direct, told.by_rpc) {
            _ if !told.refused.is_empty() => ReadOutcome::Refused(&told.refused),
            (Some(direct), _) => ReadOutcome::Read(direct),
            (None, 0) => return self.tell(file, asked, ReadOutcome::Hit, took_ns, told.pages),
            (None, _) => ReadOutcome::Read(Choice::Rpc),
        };
        let took_ns = took_ns.filter(|_| pure && !told.mixed);
        self.tell(file, asked, outcome, took_ns, told.pages);
    }

    #[inline]
    fn tell(
        &self,
        file: &FileState,
        asked: &TimedRead,
        outcome: ReadOutcome<'_>,
        took_ns: Option<u64>,
        pages: u32,
    ) {
        let tick = &file.ticks[asked.shard.index()];
        if let Some(news) = asked.asked.count(tick, outcome, took_ns) {
            self.tell_policy(file, &news, (asked.asked.class, pages));
        }
    }

    #[cold]
    fn tell_policy(&self, file: &FileState, news: &News<'_>, (class, pages): (SizeClass, u32)) {
        if self.options.route != Route::Policy {
            return;
        }
        let now = clock::now().0;
        let mut policy = self.policy.lock();
        let mut record = file.record.lock();
        if let Some(reuse) = &self.reuse {
            policy.set_chance(reuse.chance());
        }
        policy.spans(class, pages);
        news.tell(&mut policy, &mut record, &file.orders, now);
        if let Some(cache) = &self.cache {
            let (frames, ns) = cache.take_growth();
            cache.allow_growth(policy.grew(frames, ns));
        }
    }
}
