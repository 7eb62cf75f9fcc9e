//! The model: queues, and clients that pass through them.
//!
//! A read passes the client's processor, the link to the server, the adapter, the server's processors, the link back, and
//! the client's processor again. A refused read comes back without data (a one-sided one with useless data), and the
//! client asks again by a call.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::plan::{Costs, Route};
use crate::histogram::Latencies;
use crate::random::Random;

/// Picoseconds in a nanosecond. Times are in picoseconds, because a small request takes only 3 ns of a link of 400 Gbit/s.
const PS: f64 = 1000.0;
/// The unit of a direct read at the adapter, in bytes.
const PAGE: u64 = 4096;

/// Equal servers behind one queue, which serve in the order of arrival.
struct Station {
    /// The time at which each server becomes idle.
    free: BinaryHeap<Reverse<u64>>,
    busy: u64,
}

impl Station {
    fn new(servers: usize) -> Self {
        Self {
            free: (0..servers.max(1)).map(|_| Reverse(0)).collect(),
            busy: 0,
        }
    }

    /// The time at which a job is done that arrives at a given time. Jobs arrive in the order of time.
    fn serve(&mut self, at: u64, service: u64) -> u64 {
        if service == 0 {
            return at;
        }
        let free = self.free.pop().map_or(0, |Reverse(free)| free);
        let done = free.max(at) + service;
        self.free.push(Reverse(done));
        self.busy += service;
        done
    }

    /// The average part of the servers that was busy.
    fn used(&self, busy_before: u64, elapsed: u64) -> f64 {
        let all = elapsed.max(1) as f64 * self.free.len() as f64;
        ((self.busy - busy_before) as f64 / all).min(1.0)
    }
}

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Number of clients, each with one read under way at any time.
    pub clients: u32,
    /// Number of processors of the server.
    pub cores: u32,
    /// Whether the clients share the server's processors instead of having their own.
    pub together: bool,
    /// The server's link in each direction. 0 for no link.
    pub link_gbit: f64,
    /// One-way latency of the network.
    pub one_way_ns: f64,
    /// Size of a read in bytes.
    pub size: u64,
    /// How clients read.
    pub route: Route,
    /// The part of reads for which the client has a reference. It makes the others by a call.
    pub referenced: f64,
    /// The part of direct reads that are refused.
    pub stale: f64,
    /// The costs of the steps.
    pub costs: Costs,
    /// The part of each processor's time that varies, with an exponential distribution.
    pub variability: f64,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Reads per second of all clients.
    pub reads_per_s: f64,
    /// The median read.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The part of the server's processors that was busy.
    pub server_cpu: f64,
    /// The part of the link towards the clients that was in use.
    pub link_use: f64,
    /// The part of the adapter that was in use.
    pub adapter_use: f64,
}

/// The ways in which a client tries to get its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    Direct,
    /// A direct read that will be refused.
    Refused,
    Call,
}

/// The time that a try takes of each resource, in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Demand {
    client: f64,
    up: f64,
    adapter: f64,
    server: f64,
    down: f64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Prepare,
    Request,
    Adapter,
    Serve,
    Reply,
    Finish,
    Done,
}

struct Client {
    since: u64,
    tries: Try,
    step: Step,
}

impl Setting {
    fn demand(&self, tries: Try) -> Demand {
        let route = match tries {
            Try::Call => Route::Rpc,
            _ => self.route,
        };
        let cost = self.costs.of(route);
        // A refusal brings no data. One-sided readers notice only afterwards that their data is stale.
        let bytes = match (tries, route) {
            (Try::Refused, Route::Guarded) => 0,
            _ => self.size,
        };
        let operations = match route {
            Route::Rpc => 1,
            _ => self.size.div_ceil(PAGE),
        };
        let time = |times: &[f64]| self.costs.at(times, bytes) * PS;
        Demand {
            client: time(&cost.client_ns),
            up: self.wire(self.costs.request_bytes),
            adapter: cost.adapter_ns * operations as f64 * PS,
            server: time(&cost.server_ns),
            down: self.wire(self.costs.reply_bytes + bytes),
        }
    }

    /// The time that a message takes of the link.
    fn wire(&self, bytes: u64) -> f64 {
        let headers = bytes.div_ceil(self.costs.packet_bytes) * self.costs.header_bytes;
        match self.link_gbit > 0.0 {
            true => (bytes + headers) as f64 * 8.0 / self.link_gbit * PS,
            false => 0.0,
        }
    }

    /// Each kind of try, with the average number of them in a read.
    fn tries(&self) -> [(Try, f64); 3] {
        let direct = match self.route {
            Route::Rpc => 0.0,
            _ => self.referenced,
        };
        let refused = direct * self.stale;
        [
            (Try::Direct, direct - refused),
            (Try::Refused, refused),
            (Try::Call, 1.0 - direct + refused),
        ]
    }

    /// The rate in reads per second that each resource alone would allow, by name. `clients` is the rate without any queue.
    pub fn limits(&self) -> [(&'static str, f64); 4] {
        let sum = |of: &dyn Fn(Demand) -> f64| -> f64 {
            let tries = self.tries();
            tries.map(|(t, n)| n * of(self.demand(t))).iter().sum()
        };
        let rate = |servers: u32, ps: f64| match ps > 0.0 {
            true => f64::from(servers) * 1e12 / ps,
            false => f64::INFINITY,
        };
        let shared = if self.together { 1.0 } else { 0.0 };
        let way = 2.0 * self.one_way_ns * PS;
        let alone = sum(&|d| d.client + d.up + d.adapter + d.server + d.down + way);
        [
            (
                "server CPU",
                rate(self.cores, sum(&|d| d.server + shared * d.client)),
            ),
            (
                "adapter",
                rate(self.costs.adapter_units, sum(&|d| d.adapter)),
            ),
            ("link", rate(1, sum(&|d| d.up).max(sum(&|d| d.down)))),
            ("clients", rate(self.clients, alone)),
        ]
    }

    /// Simulates this many reads, after a fifth of that number that do not count. The same seed gives the same result.
    pub fn simulate(&self, reads: u64, seed: u64) -> Outcome {
        Run::new(self, seed).play(reads)
    }
}

struct Run<'a> {
    setting: &'a Setting,
    random: Random,
    demands: [Demand; 3],
    up: Station,
    down: Station,
    adapter: Station,
    processors: Station,
    one_way: u64,
}

impl<'a> Run<'a> {
    fn new(setting: &'a Setting, seed: u64) -> Self {
        Self {
            setting,
            random: Random::new(seed),
            demands: [Try::Direct, Try::Refused, Try::Call].map(|t| setting.demand(t)),
            up: Station::new(1),
            down: Station::new(1),
            adapter: Station::new(setting.costs.adapter_units as usize),
            processors: Station::new(setting.cores as usize),
            one_way: (setting.one_way_ns * PS) as u64,
        }
    }

    fn play(mut self, reads: u64) -> Outcome {
        let alone = self.demands[Try::Call as usize];
        let spread = alone.client + alone.server + alone.down + 2.0 * self.one_way as f64;
        let mut clients = Vec::with_capacity(self.setting.clients as usize);
        let mut events = BinaryHeap::new();
        for number in 0..self.setting.clients {
            // The clients do not all begin at the same time.
            let since = (spread * self.share()) as u64;
            let tries = self.choose();
            events.push(Reverse((since, number)));
            clients.push(Client {
                since,
                tries,
                step: Step::Prepare,
            });
        }
        let mut latencies = Latencies::default();
        let (mut warming, mut since) = (reads / 5 + u64::from(self.setting.clients), 0);
        let mut busy = [0; 3];
        while let Some(Reverse((now, number))) = events.pop() {
            let client = &mut clients[number as usize];
            if !matches!(client.step, Step::Done) {
                let next = self.step(client, now);
                events.push(Reverse((next, number)));
                continue;
            }
            client.step = Step::Prepare;
            events.push(Reverse((now, number)));
            if client.tries == Try::Refused {
                client.tries = Try::Call;
                continue;
            }
            let took = now - client.since;
            client.since = now;
            client.tries = self.choose();
            if warming > 0 {
                warming -= 1;
                since = now;
                busy = [&self.processors, &self.down, &self.adapter].map(|s| s.busy);
                continue;
            }
            latencies.record(took / PS as u64);
            if latencies.len() == reads {
                let elapsed = now - since;
                let used = |station: &Station, at: usize| station.used(busy[at], elapsed);
                return Outcome {
                    reads_per_s: reads as f64 * 1e12 / elapsed.max(1) as f64,
                    p50_ns: latencies.at(0.5),
                    p99_ns: latencies.at(0.99),
                    server_cpu: used(&self.processors, 0),
                    link_use: used(&self.down, 1),
                    adapter_use: used(&self.adapter, 2),
                };
            }
        }
        unreachable!("a client always has something to do next")
    }

    /// The present step of a client, and when it ends.
    fn step(&mut self, client: &mut Client, now: u64) -> u64 {
        let demand = self.demands[client.tries as usize];
        let (done, next) = match client.step {
            Step::Prepare => (self.at_client(now, demand.client / 2.0), Step::Request),
            Step::Request => {
                let sent = self.up.serve(now, demand.up as u64);
                (sent + self.one_way, Step::Adapter)
            }
            Step::Adapter => (self.adapter.serve(now, demand.adapter as u64), Step::Serve),
            Step::Serve => {
                let service = self.vary(demand.server);
                (self.processors.serve(now, service), Step::Reply)
            }
            Step::Reply => {
                let sent = self.down.serve(now, demand.down as u64);
                (sent + self.one_way, Step::Finish)
            }
            Step::Finish | Step::Done => (self.at_client(now, demand.client / 2.0), Step::Done),
        };
        client.step = next;
        done
    }

    fn at_client(&mut self, now: u64, time: f64) -> u64 {
        let time = self.vary(time);
        match self.setting.together {
            true => self.processors.serve(now, time),
            false => now + time,
        }
    }

    fn vary(&mut self, mean: f64) -> u64 {
        let varies = self.setting.variability;
        (mean * (1.0 - varies + varies * exponential(&mut self.random))) as u64
    }

    fn choose(&mut self) -> Try {
        let [(_, direct), (_, refused), _] = self.setting.tries();
        match self.share() {
            drawn if drawn < direct => Try::Direct,
            drawn if drawn < direct + refused => Try::Refused,
            _ => Try::Call,
        }
    }

    fn share(&mut self) -> f64 {
        share(&mut self.random)
    }
}

/// A random number from 0 to below 1.
fn share(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// An exponential random number with a mean of 1.
fn exponential(random: &mut Random) -> f64 {
    -(1.0 - share(random)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::plan::Cost;

    /// The mean wait of a Poisson stream before some servers, in units of the mean service.
    fn mean_wait(servers: usize, load: f64, service: fn(&mut Random) -> f64) -> f64 {
        const MEAN: f64 = 1e6;
        let (mut station, mut random) = (Station::new(servers), Random::new(5));
        let (mut at, mut waited, jobs) = (0.0, 0.0, 400_000);
        for _ in 0..jobs {
            at += exponential(&mut random) * MEAN / load / servers as f64;
            let service = (service(&mut random) * MEAN) as u64 + 1;
            let done = station.serve(at as u64, service);
            waited += (done - service - at as u64) as f64;
        }
        waited / f64::from(jobs) / MEAN
    }

    fn close(found: f64, expected: f64, within: f64) {
        let off = (found / expected - 1.0).abs();
        assert!(off < within, "{found} rather than {expected}");
    }

    #[test]
    fn a_station_waits_as_queueing_theory_says() {
        for load in [0.3, 0.5, 0.8] {
            // M/M/1: load / (1 - load) services; M/D/1: half of that (Pollaczek and Khinchine).
            let expected = load / (1.0 - load);
            close(mean_wait(1, load, exponential), expected, 0.05);
            close(mean_wait(1, load, |_| 1.0), expected / 2.0, 0.05);
        }
        // M/M/2 at 0.8: Erlang's C is 0.7111, the wait C / (2 - 1.6).
        close(mean_wait(2, 0.8, exponential), 0.711_11 / 0.4, 0.05);
    }

    fn setting(clients: u32, route: Route) -> Setting {
        let cost = |server_ns: [f64; 2], adapter_ns| Cost {
            client_ns: vec![500.0, 540.0],
            server_ns: server_ns.to_vec(),
            adapter_ns,
        };
        Setting {
            clients,
            cores: 4,
            together: false,
            link_gbit: 100.0,
            one_way_ns: 1000.0,
            size: 4096,
            route,
            referenced: 1.0,
            stale: 0.0,
            costs: Costs {
                source: String::new(),
                fabric: None,
                sizes: vec![0, 4096],
                adapter_units: 2,
                request_bytes: 150,
                reply_bytes: 100,
                packet_bytes: 4096,
                header_bytes: 60,
                rpc: cost([2000.0, 2400.0], 0.0),
                guarded: cost([300.0, 700.0], 400.0),
                one_sided: cost([0.0, 0.0], 1000.0),
            },
            variability: 0.0,
        }
    }

    #[test]
    fn one_client_waits_for_nothing_but_the_parts() {
        for route in [Route::Rpc, Route::Guarded, Route::OneSided] {
            let setting = setting(1, route);
            let found = setting.simulate(1000, 1);
            let (_, alone) = setting.limits()[3];
            close(found.reads_per_s, alone, 0.001);
            close(found.p50_ns as f64, 1e9 / alone, 0.002);
            assert_eq!(found.p50_ns, found.p99_ns);
        }
        // 540 + 2000 + 2400 + what 210 and 4,316 bytes (two packets of the latter) take.
        let rpc = setting(1, Route::Rpc).simulate(100, 1);
        close(rpc.p50_ns as f64, 4940.0 + 16.8 + 345.3, 0.002);
    }

    #[test]
    fn many_clients_get_what_the_narrowest_allows() {
        let mut limits_seen = Vec::new();
        for route in [Route::Rpc, Route::Guarded, Route::OneSided] {
            for link_gbit in [10.0, 100.0, 400.0] {
                for together in [false, true] {
                    let setting = Setting {
                        link_gbit,
                        together,
                        variability: 1.0,
                        stale: 0.1,
                        ..setting(500, route)
                    };
                    let limits = setting.limits();
                    let (limit, rate) = (limits.into_iter())
                        .min_by(|a, b| a.1.total_cmp(&b.1))
                        .unwrap();
                    let found = setting.simulate(40_000, 2);
                    close(found.reads_per_s, rate, 0.02);
                    // Little's law, since each client has one read under way.
                    close(found.p50_ns as f64, 500.0 * 1e9 / rate, 0.35);
                    limits_seen.push(limit);
                }
            }
        }
        for limit in ["server CPU", "adapter", "link"] {
            assert!(limits_seen.contains(&limit), "{limits_seen:?}");
        }
    }

    #[test]
    fn clients_that_pause_are_the_model_of_the_repairman() {
        // One processor, exponential; N clients with an exponential pause: a closed form without approximation.
        let mut setting = setting(8, Route::Rpc);
        (setting.cores, setting.link_gbit, setting.one_way_ns) = (1, 0.0, 0.0);
        (setting.variability, setting.size) = (1.0, 0);
        setting.costs.rpc.client_ns = vec![10_000.0; 2];
        // Two pauses of half of it at the client: their sum need not be exponential, as only its mean counts.
        let ratio: f64 = 2000.0 / 10_000.0;
        let weights = (0..=8).map(|n| {
            let ways: f64 = (0..n).map(|k| f64::from(8 - k)).product();
            ways * ratio.powi(n)
        });
        let idle = 1.0 / weights.sum::<f64>();
        let found = setting.simulate(200_000, 3);
        close(found.reads_per_s, (1.0 - idle) / 2000e-9, 0.01);
        close(found.server_cpu, 1.0 - idle, 0.01);
    }

    #[test]
    fn a_stale_reference_costs_the_trip_and_the_call() {
        let alone = |stale, referenced| {
            let setting = Setting {
                stale,
                referenced,
                ..setting(1, Route::Guarded)
            };
            1e9 / setting.simulate(2000, 4).reads_per_s
        };
        let rpc = 1e9 / setting(1, Route::Rpc).simulate(2000, 4).reads_per_s;
        let (good, refused) = (alone(0.0, 1.0), alone(1.0, 1.0));
        assert!(
            rpc < refused && refused < rpc + good,
            "{rpc} {refused} {good}"
        );
        close(alone(0.5, 1.0), f64::midpoint(good, refused), 0.03);
        close(alone(0.0, 0.0), rpc, 0.001);
    }

    #[test]
    fn a_seed_gives_the_same_again() {
        let setting = Setting {
            variability: 0.5,
            stale: 0.2,
            ..setting(50, Route::OneSided)
        };
        assert_eq!(setting.simulate(3000, 7), setting.simulate(3000, 7));
        assert_ne!(setting.simulate(3000, 7), setting.simulate(3000, 8));
    }
}
