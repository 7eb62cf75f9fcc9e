//! A server, its memory and a client's references to it, as costs: what a read by each route takes, and what of the
//! machine's noise comes on top.
//!
//! Costs and noise are those that `odafs bench policy` and `odafs bench breakdown` measure. What a read meets depends on
//! its number, the time and the seed alone, not on the routes taken before, so that players are compared on the same luck.

use crate::route::SizeClass;

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// A call.
    Rpc,
    /// By the server's engine.
    Guarded,
    /// By the client itself.
    OneSided,
}

impl Route {
    /// All of them, by [`index`](Self::index).
    pub const ALL: [Self; 3] = [Self::Rpc, Self::Guarded, Self::OneSided];

    /// Its number.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the server has a part in it.
    fn wakes(self, tcp: bool) -> bool {
        tcp || self != Self::OneSided
    }
}

/// A fabric and what the server grants on it: which routes there are, and what they cost in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Export {
    /// As the table of regrets shows it.
    pub name: &'static str,
    /// The size class of the reads.
    pub class: SizeClass,
    /// The most direct route that is granted.
    pub most: Route,
    /// A read by each route, where all goes well.
    pub cost_ns: [f64; 3],
    /// A direct read that is refused, up to the refusal.
    pub stale_ns: [f64; 3],
    /// What a call takes longer if the page is not in the server's memory.
    fill_ns: f64,
    /// What a call takes longer that asks for references.
    learn_ns: f64,
    /// What a read takes longer that wakes the server.
    wake_ns: f64,
    /// The first direct read makes a connection.
    connect_ns: f64,
    /// The first one-sided read of a page maps it.
    map_ns: f64,
    tcp: bool,
}

impl Export {
    /// Those that are judged.
    pub const ALL: [Self; 5] = [
        Self::shm("shm one-sided", Route::OneSided),
        Self::shm("shm guarded", Route::Guarded),
        Self::tcp("tcp one-sided", Route::OneSided),
        Self::tcp("tcp guarded", Route::Guarded),
        Self::tcp_long("tcp 64 KiB"),
    ];

    const fn shm(name: &'static str, most: Route) -> Self {
        Self {
            name,
            class: SizeClass::nth(2),
            most,
            cost_ns: [1370.0, 1200.0, 480.0],
            stale_ns: [0.0, 550.0, 60.0],
            fill_ns: 5500.0,
            learn_ns: 1500.0,
            wake_ns: 15_000.0,
            connect_ns: 150_000.0,
            map_ns: 500.0,
            tcp: false,
        }
    }

    const fn tcp(name: &'static str, most: Route) -> Self {
        Self {
            name,
            class: SizeClass::nth(2),
            most,
            cost_ns: [11_600.0, 9500.0, 9900.0],
            stale_ns: [0.0, 8500.0, 9900.0],
            fill_ns: 5500.0,
            learn_ns: 2000.0,
            wake_ns: 25_000.0,
            connect_ns: 400_000.0,
            map_ns: 0.0,
            tcp: true,
        }
    }

    /// Reads of 16 pages: one call brings them all, and a direct read asks for each.
    const fn tcp_long(name: &'static str) -> Self {
        Self {
            class: SizeClass::nth(4),
            cost_ns: [45_000.0, 52_000.0, 75_000.0],
            stale_ns: [0.0, 8500.0, 9900.0],
            // One read of the file fills all frames.
            fill_ns: 20_000.0,
            learn_ns: 5000.0,
            ..Self::tcp(name, Route::OneSided)
        }
    }

    /// Reads take about a microsecond.
    pub fn is_quick(&self) -> bool {
        !self.tcp
    }

    /// The routes that there are.
    pub fn routes(&self) -> &'static [Route] {
        &Route::ALL[..=self.most.index()]
    }
}

/// A stretch of reads during which nothing changes but what it says.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// Reads.
    pub reads: u32,
    /// Pages of the server's memory, in thousandths of the working set.
    pub memory_permille: u32,
    /// Pages that others write in a second, all in the working set.
    pub writes_per_second: f64,
    /// How many times as long each route takes.
    pub slower: [f64; 3],
    /// Share of the server's processor that others take; whom it serves waits.
    pub load: f64,
    /// Reads after which the working set has moved on by half of itself; 0: it stays.
    pub moves_every: u32,
    /// Stretches of time in which all is slow that the server has a part in.
    pub stalls: Option<Stalls>,
}

/// Stretches of time in which the host gives the processors to others.
#[derive(Debug, Clone, Copy)]
pub struct Stalls {
    /// One comes in each stretch of this length.
    pub every_ns: u64,
    /// So long it lasts.
    pub lasts_ns: u64,
    /// How many times as long a read takes that begins in it.
    pub slower: f64,
}

impl Phase {
    /// All is well.
    pub const CALM: Self = Self {
        reads: 0,
        memory_permille: 2000,
        writes_per_second: 0.0,
        slower: [1.0; 3],
        load: 0.0,
        moves_every: 0,
        stalls: None,
    };
}

/// Pages that are read at a time.
pub const WORKING_SET: u32 = 4096;
/// Pages of the file.
const PAGES: u32 = 16 * WORKING_SET;
/// After so long without work the server sleeps.
const SLEEPS_AFTER_NS: u64 = 50_000;
/// Spread of times, as the standard deviation of their logarithm.
const SPREAD: f64 = 0.18;
/// One read in so many takes so many times as long.
const OUTLIERS: (u64, f64) = (1000, 100.0);

/// References of neighbours that a call brings, and pages among which they are looked for.
const NEIGHBOURS: u32 = 8;
const LOT: u32 = 64;

/// The first reads of a route take so many times as long: neither code nor tables are in the processor's cache.
const COLD: (u32, f64) = (8, 4.0);

/// What a player wants of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The route, if there is a reference; else it goes by RPC.
    pub route: Route,
    /// If it goes by RPC, references are asked for.
    pub learns: bool,
}

impl Wish {
    /// References are asked for where somebody will use them.
    pub fn of(route: Route) -> Self {
        Self {
            route,
            learns: route != Route::Rpc,
        }
    }

    /// They are asked for in any case.
    pub fn learning(route: Route) -> Self {
        Self {
            route,
            learns: true,
        }
    }
}

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Read {
    /// The route that was chosen; none: there was no reference, and so no choice.
    pub chosen: Option<Route>,
    /// Time until a direct try was refused.
    pub refused_ns: Option<u64>,
    /// Time that the call took, if one was made.
    pub rpc_ns: Option<u64>,
    /// Time of all of it.
    pub took_ns: u64,
}

/// The server and the client's references.
pub struct World {
    export: Export,
    phase: Phase,
    seed: u64,
    /// The clock.
    pub now_ns: u64,
    number: u64,
    base: u32,
    /// Of each page: when its content or place last changed.
    stamp: Vec<u32>,
    /// Where it stands in `resident`, plus one; 0: it is not in memory.
    place: Vec<u32>,
    resident: Vec<u32>,
    /// The client's references: the stamp at their issue, plus one.
    reference: Vec<u32>,
    mapped: Vec<bool>,
    /// Reads by each route, refused ones too.
    taken: [u32; 3],
    awake_until_ns: u64,
    next_write_ns: u64,
    draws: u64,
}

impl World {
    /// A server with all of the working set in memory, and a client that has just connected.
    pub fn new(export: Export, seed: u64) -> Self {
        let mut world = Self {
            export,
            phase: Phase::CALM,
            seed,
            now_ns: 0,
            number: 0,
            base: 0,
            stamp: vec![0; PAGES as usize],
            place: vec![0; PAGES as usize],
            resident: Vec::new(),
            reference: vec![0; PAGES as usize],
            mapped: vec![false; PAGES as usize],
            taken: [0; 3],
            awake_until_ns: 0,
            next_write_ns: u64::MAX,
            draws: 0,
        };
        (0..WORKING_SET).for_each(|page| world.fill(page));
        world
    }

    /// A phase begins.
    pub fn enter(&mut self, phase: &Phase) {
        self.phase = *phase;
        self.next_write_ns = self.now_ns;
        self.write_until(self.now_ns);
        while self.resident.len() > self.capacity() {
            self.evict();
        }
    }

    /// The next read, as is wished.
    pub fn read(&mut self, wish: Wish) -> Read {
        self.number += 1;
        let every = u64::from(self.phase.moves_every);
        if every > 0 && self.number.is_multiple_of(every) {
            self.base = (self.base + WORKING_SET / 2) % (PAGES - WORKING_SET);
        }
        let page = self.base + (self.luck(0) % u64::from(WORKING_SET)) as u32;
        let chosen = Some(wish.route).filter(|_| self.reference[page as usize] > 0);
        let route = chosen.unwrap_or(Route::Rpc);
        let (mut refused_ns, mut rpc_ns) = (None, None);
        let begin_ns = self.now_ns;
        if route != Route::Rpc {
            let fits = self.holds(page);
            self.pass(self.direct_ns(route, page, fits));
            self.taken[route.index()] += 1;
            self.mapped[page as usize] |= route == Route::OneSided;
            self.wake(route);
            if !fits {
                refused_ns = Some(self.now_ns - begin_ns);
            }
        }
        if route == Route::Rpc || refused_ns.is_some() {
            let called_ns = self.now_ns;
            let missing = self.place[page as usize] == 0;
            let fill_ns = if missing { self.export.fill_ns } else { 0.0 };
            let learn_ns = if wish.learns {
                self.export.learn_ns
            } else {
                0.0
            };
            self.pass(self.noisy(Route::Rpc, self.export.cost_ns[0] + fill_ns + learn_ns));
            self.taken[Route::Rpc.index()] += 1;
            if missing {
                self.fill(page);
            }
            if refused_ns.is_some() {
                self.reference[page as usize] = 0;
            }
            if wish.learns {
                self.learn(page);
            }
            self.wake(Route::Rpc);
            rpc_ns = Some(self.now_ns - called_ns);
        }
        self.write_until(self.now_ns);
        Read {
            chosen,
            refused_ns,
            rpc_ns,
            took_ns: self.now_ns - begin_ns,
        }
    }

    /// References come of the page, and of neighbours that are in memory: of some ahead, then of those behind, in one lot
    /// of pages.
    fn learn(&mut self, page: u32) {
        let lot = page - page % LOT;
        let ahead = page + 1..(page + 1 + NEIGHBOURS).min(lot + LOT);
        let there = |page: &u32| self.place[*page as usize] > 0;
        let near: Vec<u32> = ahead
            .chain(lot..page)
            .filter(there)
            .take(NEIGHBOURS as usize)
            .collect();
        for page in near.into_iter().chain([page]) {
            self.reference[page as usize] = self.stamp[page as usize] + 1;
        }
    }

    /// The client's reference to the page is true.
    fn holds(&self, page: u32) -> bool {
        let page = page as usize;
        self.place[page] > 0 && self.reference[page] == self.stamp[page] + 1
    }

    fn direct_ns(&self, route: Route, page: u32, fits: bool) -> f64 {
        let index = route.index();
        let bare_ns = match fits {
            true => self.export.cost_ns[index],
            false => self.export.stale_ns[index],
        };
        let mut ns = self.noisy(route, bare_ns);
        if self.taken[index] == 0 {
            ns += self.export.connect_ns;
        }
        if route == Route::OneSided && !self.mapped[page as usize] {
            ns += self.export.map_ns;
        }
        ns
    }

    /// With what the phase and the machine add.
    fn noisy(&self, route: Route, ns: f64) -> f64 {
        let mut ns = ns * self.phase.slower[route.index()];
        ns *= (SPREAD * self.normal()).exp();
        if self.taken[route.index()] < COLD.0 {
            ns *= COLD.1;
        }
        if self.luck(3).is_multiple_of(OUTLIERS.0) {
            ns *= OUTLIERS.1;
        }
        if route.wakes(self.export.tcp) {
            ns *= self.stalled();
        }
        let waits_ns = self.waits_ns(route);
        if waits_ns > 0.0 && self.chance(4) < self.phase.load {
            // Whoever finds others before it waits as long as they take: exponentially.
            ns -= waits_ns / self.phase.load * (1.0 - self.chance(5)).ln();
        }
        if route.wakes(self.export.tcp) && self.now_ns > self.awake_until_ns {
            ns += self.export.wake_ns;
        }
        ns
    }

    /// How many times as long a read takes now because of a stall.
    fn stalled(&self) -> f64 {
        let Some(stalls) = self.phase.stalls else {
            return 1.0;
        };
        let (nth, at_ns) = (self.now_ns / stalls.every_ns, self.now_ns % stalls.every_ns);
        let begins_ns = mixed(self.seed ^ nth) % (stalls.every_ns - stalls.lasts_ns);
        match (begins_ns..begins_ns + stalls.lasts_ns).contains(&at_ns) {
            true => stalls.slower,
            false => 1.0,
        }
    }

    /// The mean wait behind others at the server (M/M/1, with reads of others that take ten times as long as ours).
    fn waits_ns(&self, route: Route) -> f64 {
        if !route.wakes(self.export.tcp) {
            return 0.0;
        }
        let served_ns = 10.0 * 700.0;
        served_ns * self.phase.load / (1.0 - self.phase.load)
    }

    fn wake(&mut self, route: Route) {
        if route.wakes(self.export.tcp) {
            self.awake_until_ns = self.now_ns + SLEEPS_AFTER_NS;
        }
    }

    fn pass(&mut self, ns: f64) {
        self.now_ns += ns.max(1.0) as u64;
    }

    // The server's memory

    fn capacity(&self) -> usize {
        (u64::from(WORKING_SET) * u64::from(self.phase.memory_permille) / 1000) as usize
    }

    fn fill(&mut self, page: u32) {
        while self.resident.len() >= self.capacity().max(1) {
            self.evict();
        }
        self.resident.push(page);
        self.place[page as usize] = self.resident.len() as u32;
    }

    fn evict(&mut self) {
        let victim = (self.draw() % self.resident.len() as u64) as usize;
        let page = self.resident.swap_remove(victim) as usize;
        self.place[page] = 0;
        self.stamp[page] += 1;
        if let Some(moved) = self.resident.get(victim) {
            self.place[*moved as usize] = victim as u32 + 1;
        }
    }

    fn write_until(&mut self, now_ns: u64) {
        if self.phase.writes_per_second <= 0.0 {
            self.next_write_ns = u64::MAX;
            return;
        }
        while self.next_write_ns <= now_ns {
            let page = self.base + (self.draw() % u64::from(WORKING_SET)) as u32;
            self.stamp[page as usize] += 1;
            let drawn = (self.draw() >> 11) as f64 / (1u64 << 53) as f64;
            let pause_ns = -(1.0 - drawn).ln() * 1e9 / self.phase.writes_per_second;
            self.next_write_ns += pause_ns.max(1.0) as u64;
        }
    }

    // Luck

    /// What this read meets: the same for all players.
    fn luck(&self, what: u64) -> u64 {
        mixed(self.seed ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (what << 56))
    }

    fn chance(&self, what: u64) -> f64 {
        (self.luck(what) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&self) -> f64 {
        let (a, b) = (self.chance(1), self.chance(2));
        (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// What befalls the server besides.
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        mixed(!self.seed ^ self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The end of splitmix64.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
