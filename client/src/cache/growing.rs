//! What a client takes while its data cache grows, played with costs that are given: against one that keeps nothing.

use super::*;
use crate::{
    route::{
        AskedRead, Choice, Config, Orders, PageName, Policy, ReadOutcome, Record, Reuse,
        RouteOrder, SizeClass,
    },
    shard::Tick,
};

const CLASS: SizeClass = SizeClass::nth(2);
/// Frames of the cache.
const FRAMES: u64 = 2000;
const HIT_NS: u64 = 500;
const PUT_NS: u64 = 300;

/// What things take, in nanoseconds.
struct Costs {
    guarded_ns: u64,
    rpc_ns: u64,
    /// Giving memory to the frame with this number.
    frame_ns: fn(u64) -> u64,
}

/// A client with one file.
struct Player {
    policy: Policy,
    record: Record,
    reuse: Reuse,
    cache: DataCache,
    costs: Costs,
    frames: u64,
    /// What growth took since the policy was told.
    unpaid_ns: u64,
    now_ns: u64,
    orders: Orders,
    tick: Tick,
}

impl Player {
    fn new(costs: Costs) -> Self {
        let mut policy = Policy::new(Config::default(), 1, Some(BLOCK));
        policy.grant(Choice::Guarded, true);
        let record = policy.record();
        let orders = Orders::new(RouteOrder::standing(Choice::Rpc, false));
        orders.set(CLASS, policy.standing(&record, CLASS));
        let bytes = FRAMES * Core::BYTES as u64;
        let cache = DataCache::new(bytes, bytes);
        cache.allow_growth(policy.grew(0, 0));
        Self {
            record,
            policy,
            reuse: Reuse::new(FRAMES as usize),
            cache,
            costs,
            frames: 0,
            unpaid_ns: 0,
            now_ns: 0,
            orders,
            tick: Tick::default(),
        }
    }

    /// Reads a page.
    fn read(&mut self, number: u64) {
        let mut data = [0; BLOCK];
        let page = Stretch {
            file: 1,
            generation: 0,
            offset: number * BLOCK as u64,
        };
        self.reuse.note(PageName {
            file: 1,
            generation: 0,
            page: number,
        });
        let asked = AskedRead::standing(&self.orders, &self.tick, CLASS).unwrap_or_else(|| {
            AskedRead::of_policy(&mut self.policy, &mut self.record, CLASS, self.now_ns)
        });
        let order = asked.order;
        if order.keeps && self.cache.get(page, true, &mut data).is_some() {
            self.now_ns += HIT_NS;
            return self.tell(&asked, ReadOutcome::Hit, HIT_NS);
        }
        let took_ns = match order.choice {
            Choice::Rpc => self.costs.rpc_ns,
            _ => self.costs.guarded_ns,
        };
        self.now_ns += took_ns;
        if order.keeps && self.cache.has_room() {
            self.keep(page, &data, asked.is_timed());
        }
        self.tell(&asked, ReadOutcome::Read(order.choice), took_ns);
    }

    fn keep(&mut self, page: Stretch, data: &[u8], timed: bool) {
        match self.cache.put(page, PageSize::MIN, data, || true) {
            Put::Not => {}
            Put::InNewMemory => {
                let ns = (self.costs.frame_ns)(self.frames);
                self.frames += 1;
                self.unpaid_ns += ns;
                self.now_ns += ns;
            }
            Put::InPlace { .. } => {
                self.now_ns += PUT_NS;
                if timed {
                    self.policy.put(PUT_NS);
                }
            }
        }
    }

    /// As `Shared::tell` does, but for what growth has taken.
    fn tell(&mut self, asked: &AskedRead, outcome: ReadOutcome<'_>, took_ns: u64) {
        let took_ns = asked.is_timed().then_some(took_ns);
        let Some(news) = asked.count(&self.tick, outcome, took_ns) else {
            return;
        };
        self.policy.set_chance(self.reuse.chance());
        let (policy, record) = (&mut self.policy, &mut self.record);
        news.tell(policy, record, &self.orders, self.now_ns);
        let (frames, _) = self.cache.take_growth();
        let ns = std::mem::take(&mut self.unpaid_ns);
        self.cache.allow_growth(self.policy.grew(frames, ns));
    }
}

/// What is kept at first, what is tried at an unknown price, and the most that one frame takes.
const AT_ONCE_NS: u64 = 256 * 2_500 + 64 * 16_000 + 8_000_000;

/// Costs of frames: small pages, dear ones, and huge pages of which each takes 8 ms.
const FRAME_NS: [fn(u64) -> u64; 3] = [
    |_| 2_500,
    |_| 16_000,
    |frame| if frame % 485 == 0 { 8_000_000 } else { 200 },
];
/// A guarded read and a call: on one host, and over a network.
const ROUTES_NS: [(u64, u64); 2] = [(1_300, 2_600), (10_000, 12_000)];

fn players() -> impl Iterator<Item = Player> {
    let all = ROUTES_NS
        .iter()
        .flat_map(|route| FRAME_NS.map(|frame_ns| (*route, frame_ns)));
    all.map(|((guarded_ns, rpc_ns), frame_ns)| {
        Player::new(Costs {
            guarded_ns,
            rpc_ns,
            frame_ns,
        })
    })
}

/// Reads pages, and calls `look` after each thousand with how many those were, and what it took in parts of what it takes
/// who keeps nothing.
fn play(player: &mut Player, pages: impl Iterator<Item = u64>, mut look: impl FnMut(u64, f64)) {
    for (read, page) in (1..).zip(pages) {
        player.read(page);
        if read % 1000 == 0 {
            look(
                read,
                player.now_ns as f64 / (read * player.costs.guarded_ns) as f64,
            );
        }
    }
}

fn uniform(pages: u64, reads: usize) -> impl Iterator<Item = u64> {
    let mut dice = contest::Dice(5);
    std::iter::repeat_with(move || dice.below(pages)).take(reads)
}

/// And a hundredth for trials.
#[test]
fn who_reads_nothing_again_loses_a_twentieth() {
    for mut player in players() {
        let read_ns = player.costs.guarded_ns;
        play(&mut player, 0..100_000, |read, ratio| {
            let at_once = AT_ONCE_NS as f64 / (read * read_ns) as f64;
            assert!(ratio < 1.14 + at_once, "{read}: {ratio}");
        });
    }
}

/// Once it has grown, a client that keeps all takes 0.06 (over a network) or 0.4 of what one takes that keeps nothing.
#[test]
fn growth_pays_for_itself() {
    for mut player in players() {
        let read_ns = player.costs.guarded_ns;
        let mut last = f64::INFINITY;
        play(&mut player, uniform(FRAMES / 2, 200_000), |read, ratio| {
            let at_once = AT_ONCE_NS as f64 / (read * read_ns) as f64;
            assert!(ratio < 1.3 + at_once, "{read}: {ratio}");
            last = ratio;
        });
        assert!(last < 0.65, "{last}");
        assert!(player.frames > FRAMES * 9 / 20, "{}", player.frames);
        let before_ns = player.now_ns;
        uniform(FRAMES / 2, 10_000).for_each(|page| player.read(page));
        let mean_ns = (player.now_ns - before_ns) as f64 / 10_000.0;
        assert!(
            mean_ns < 1.15 * HIT_NS as f64 + 0.03 * read_ns as f64,
            "{mean_ns}"
        );
    }
}

#[test]
#[ignore = "prints the table of docs/BENCHMARKS.md"]
fn growth() {
    println!("| a guarded read | whole time | worst | frames |");
    for mut player in players() {
        let (mut worst, mut last) = (0.0f64, 0.0);
        play(&mut player, uniform(FRAMES / 2, 200_000), |read, ratio| {
            if read >= 5_000 {
                worst = worst.max(ratio);
            }
            last = ratio;
        });
        let (read_ns, frames) = (player.costs.guarded_ns, player.frames);
        println!("| {read_ns} | {last:.2} | {worst:.2} | {frames} |");
    }
}
