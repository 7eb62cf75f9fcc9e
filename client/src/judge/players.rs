//! Who chooses: fixed routes, rules of others, and ours.

use super::world::{Export, Read, Route, Wish};
use crate::{
    route::{
        AskedRead, Choice, Config, Orders, Policy, ReadOutcome, Record, RouteOrder, SizeClass,
    },
    shard::Tick,
};

/// One who chooses.
pub trait Player {
    /// What the next read is to do.
    fn choose(&mut self, now_ns: u64) -> Wish;

    /// What came of a read.
    fn tell(&mut self, read: &Read, now_ns: u64);
}

/// Always the same.
pub struct Fixed(pub Route);

impl Player for Fixed {
    fn choose(&mut self, _: u64) -> Wish {
        Wish::of(self.0)
    }

    fn tell(&mut self, _: &Read, _: u64) {}
}

/// The paper's rule as it stands (004 section III-B): mean times and counts of all that was seen; direct reads while
/// their benefit outweighs the refusals. The paper does not say how one comes back, so one read in a hundred is direct.
pub struct Plain {
    direct: Route,
    rpc: Mean,
    good: Mean,
    stale: Mean,
    reads: u64,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, ns: u64) {
        self.sum += ns as f64;
        self.count += 1.0;
    }

    fn ns(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}

impl Plain {
    /// Between RPC and the most direct route.
    pub fn new(export: &Export) -> Self {
        Self {
            direct: export.most,
            rpc: Mean::default(),
            good: Mean::default(),
            stale: Mean::default(),
            reads: 0,
        }
    }
}

impl Player for Plain {
    fn choose(&mut self, _: u64) -> Wish {
        self.reads += 1;
        let benefit = self.good.count * (self.rpc.ns() - self.good.ns());
        let cost = self.stale.count * self.stale.ns();
        match benefit >= cost || self.reads.is_multiple_of(100) {
            true => Wish::of(self.direct),
            false => Wish::learning(Route::Rpc),
        }
    }

    fn tell(&mut self, read: &Read, _: u64) {
        match (read.rpc_ns, read.refused_ns) {
            (Some(ns), None) => self.rpc.add(ns),
            (_, Some(ns)) => self.stale.add(ns),
            (None, None) => self.good.add(read.took_ns),
        }
    }
}

/// A bandit for arms that change: discounted UCB (Garivier, Moulines, ALT 2011). Times are in multiples of the least
/// mean, none counts as more than eight.
pub struct Discounted {
    arms: Vec<(Route, f64, f64)>,
}

impl Discounted {
    /// What was seen so many reads ago counts a 1/e-th.
    const HORIZON: f64 = 2000.0;
    /// Weight of what is not known, and the most that a time may be.
    const XI: f64 = 0.1;
    const MOST: f64 = 8.0;

    /// One arm for each route.
    pub fn new(export: &Export) -> Self {
        let arm = |route: &Route| (*route, 0.0, 0.0);
        Self {
            arms: export.routes().iter().map(arm).collect(),
        }
    }

    fn least_ns(&self) -> Option<f64> {
        let tried = self.arms.iter().filter(|(_, _, count)| *count > 0.5);
        tried.map(|(_, sum, count)| sum / count).reduce(f64::min)
    }
}

impl Player for Discounted {
    fn choose(&mut self, _: u64) -> Wish {
        let all: f64 = self.arms.iter().map(|(_, _, count)| count).sum();
        let least_ns = self.least_ns().unwrap_or(1.0);
        let bound = |(_, sum, count): &(Route, f64, f64)| {
            if *count < 0.5 {
                return f64::NEG_INFINITY;
            }
            sum / count / least_ns - 2.0 * (Self::XI * all.max(1.0).ln() / count).sqrt()
        };
        let best = self
            .arms
            .iter()
            .min_by(|a, b| bound(a).total_cmp(&bound(b)));
        Wish::learning(best.map_or(Route::Rpc, |(route, ..)| *route))
    }

    fn tell(&mut self, read: &Read, _: u64) {
        let Some(chosen) = read.chosen else {
            return;
        };
        let most = self.least_ns().map_or(f64::INFINITY, |ns| ns * Self::MOST);
        for (route, sum, count) in &mut self.arms {
            *sum *= 1.0 - 1.0 / Self::HORIZON;
            *count *= 1.0 - 1.0 / Self::HORIZON;
            if *route == chosen {
                *sum += (read.took_ns as f64).min(most);
                *count += 1.0;
            }
        }
    }
}

/// The other bandit for arms that change, against an adversary: EXP3.S (Auer, Cesa-Bianchi, Freund, Schapire, SIAM J.
/// Comput. 2002). One read in twenty is drawn at random.
pub struct Exp3S {
    arms: Vec<(Route, f64, f64)>,
    least_ns: f64,
    dice: u64,
}

impl Exp3S {
    const EXPLORES: f64 = 0.05;
    const SHARES: f64 = 1e-4;

    /// One arm for each route.
    pub fn new(export: &Export, seed: u64) -> Self {
        let arm = |route: &Route| (*route, 1.0, 0.0);
        Self {
            arms: export.routes().iter().map(arm).collect(),
            least_ns: f64::INFINITY,
            dice: seed | 1,
        }
    }
}

impl Player for Exp3S {
    fn choose(&mut self, _: u64) -> Wish {
        let all: f64 = self.arms.iter().map(|(_, weight, _)| weight).sum();
        let fair = Self::EXPLORES / self.arms.len() as f64;
        for (_, weight, chance) in &mut self.arms {
            *chance = (1.0 - Self::EXPLORES) * *weight / all + fair;
        }
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let mut drawn = (self.dice >> 11) as f64 / (1u64 << 53) as f64;
        for (route, _, chance) in &self.arms {
            drawn -= chance;
            if drawn <= 0.0 {
                return Wish::learning(*route);
            }
        }
        Wish::learning(self.arms[0].0)
    }

    fn tell(&mut self, read: &Read, _: u64) {
        let Some(chosen) = read.chosen else {
            return;
        };
        let ns = read.took_ns as f64;
        // Forgets, so that a route which was fast once is no measure for ever.
        self.least_ns = (self.least_ns * 1.0001).min(ns);
        let gain = (self.least_ns / ns).clamp(0.0, 1.0);
        let arms = self.arms.len() as f64;
        let all: f64 = self.arms.iter().map(|(_, weight, _)| weight).sum();
        for (route, weight, chance) in &mut self.arms {
            if *route == chosen {
                *weight *= (Self::EXPLORES * gain / chance.max(1e-6) / arms).exp();
            }
            *weight += std::f64::consts::E * Self::SHARES / arms * all;
        }
        let all: f64 = self.arms.iter().map(|(_, weight, _)| weight).sum();
        self.arms
            .iter_mut()
            .for_each(|(_, weight, _)| *weight /= all);
    }
}

/// The client's own policy, asked and told by the client's own code.
pub struct Ours {
    class: SizeClass,
    policy: Policy,
    file: Record,
    orders: Orders,
    tick: Tick,
    asked: Option<AskedRead>,
}

impl Ours {
    /// Knows nothing yet.
    pub fn new(export: &Export, seed: u64) -> Self {
        let mut policy = Policy::new(Config::default(), seed, None);
        policy.grant(choice_of(export.most), true);
        let file = policy.record();
        let orders = Orders::new(RouteOrder::standing(Choice::Rpc, false));
        orders.set(export.class, policy.standing(&file, export.class));
        Self {
            class: export.class,
            policy,
            file,
            orders,
            tick: Tick::default(),
            asked: None,
        }
    }
}

impl Player for Ours {
    fn choose(&mut self, now_ns: u64) -> Wish {
        let asked = AskedRead::standing(&self.orders, &self.tick, self.class);
        let (policy, file, class) = (&mut self.policy, &mut self.file, self.class);
        let asked = asked.unwrap_or_else(|| AskedRead::of_policy(policy, file, class, now_ns));
        self.asked = Some(asked);
        Wish {
            route: route_of(asked.order.choice),
            learns: asked.order.learns,
        }
    }

    fn tell(&mut self, read: &Read, now_ns: u64) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let refused = [read.refused_ns];
        let outcome = match (read.refused_ns, read.rpc_ns) {
            (Some(_), _) => ReadOutcome::Refused(&refused),
            (None, Some(_)) => ReadOutcome::Read(Choice::Rpc),
            (None, None) => ReadOutcome::Read(asked.order.choice),
        };
        let took_ns = asked.is_timed().then_some(read.took_ns);
        if let Some(news) = asked.count(&self.tick, outcome, took_ns) {
            news.tell(&mut self.policy, &mut self.file, &self.orders, now_ns);
        }
    }
}

fn choice_of(route: Route) -> Choice {
    Choice::ALL[route.index()]
}

fn route_of(choice: Choice) -> Route {
    Route::ALL[choice.index()]
}
