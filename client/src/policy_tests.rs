use super::*;
use proptest::prelude::*;

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
    ] {
        assert_eq!(SizeClass::of(bytes).index(), class, "{bytes}");
    }
    for (bytes, class) in [
        (16384, 3),
        (16385, 4),
        (65536, 4),
        (65537, 5),
        (usize::MAX, 5),
    ] {
        assert_eq!(SizeClass::of(bytes).index(), class, "{bytes}");
    }
}

/// A stretch of time during which a share of the direct reads is refused.
#[derive(Debug, Clone, Copy)]
struct Phase {
    reads: u32,
    refused_permille: u32,
    rpc_ns: u64,
    direct_ns: u64,
    stale_ns: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    policy_ns: u64,
    rpc_ns: u64,
    direct_ns: u64,
}

struct Bench {
    policy: Policy,
    file: Record,
    now_ns: u64,
    dice: u64,
}

const CLASS: SizeClass = SizeClass(2);

impl Bench {
    fn new(seed: u64) -> Self {
        let policy = Policy::new(Config::default(), seed);
        let file = policy.record();
        Self {
            policy,
            file,
            now_ns: 0,
            dice: seed | 1,
        }
    }

    fn roll(&mut self) -> u32 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % 1000) as u32
    }

    fn run(&mut self, phase: Phase) -> Spent {
        let mut spent = Spent::default();
        for _ in 0..phase.reads {
            let refused = self.roll() < phase.refused_permille;
            let direct_ns = if refused {
                phase.stale_ns + phase.rpc_ns
            } else {
                phase.direct_ns
            };
            let choice = self.policy.choose(&mut self.file, CLASS, self.now_ns);
            let took_ns = if matches!(choice, Choice::Rpc | Choice::Check) {
                phase.rpc_ns
            } else {
                direct_ns
            };
            self.now_ns += took_ns;
            match (choice, refused) {
                (Choice::Rpc | Choice::Check, _) => {}
                (_, true) => {
                    self.policy
                        .refused(&mut self.file, CLASS, Some(phase.stale_ns), self.now_ns)
                }
                (_, false) => self.policy.completed(
                    &mut self.file,
                    CLASS,
                    1,
                    Some(phase.direct_ns),
                    self.now_ns,
                ),
            }
            if matches!(choice, Choice::Rpc | Choice::Check) || refused {
                self.policy
                    .by_rpc(&mut self.file, CLASS, Some(phase.rpc_ns), self.now_ns);
            }
            spent.policy_ns += took_ns;
            spent.rpc_ns += phase.rpc_ns;
            spent.direct_ns += direct_ns;
        }
        spent
    }
}

const GOOD: Phase = Phase {
    reads: 2000,
    refused_permille: 0,
    rpc_ns: 15_000,
    direct_ns: 1_000,
    stale_ns: 900,
};
const BAD: Phase = Phase {
    refused_permille: 1000,
    stale_ns: 9_000,
    ..GOOD
};

#[test]
fn stays_direct_while_it_pays() {
    let mut bench = Bench::new(1);
    let spent = bench.run(Phase {
        refused_permille: 300,
        ..GOOD
    });
    assert_eq!(bench.policy.switches(), 0);
    assert_eq!(spent.policy_ns, spent.direct_ns);
    let known = bench.policy.explain(&bench.file, CLASS);
    assert!(
        known.ratio > 1.0 && known.direct_ns < known.rpc_ns,
        "{known:?}"
    );
}

#[test]
fn leaves_when_all_is_stale_and_returns_when_it_is_not() {
    let mut bench = Bench::new(2);
    bench.run(GOOD);
    let bad = bench.run(Phase {
        reads: 20_000,
        ..BAD
    });
    assert!(!bench.policy.is_direct(&bench.file, CLASS));
    assert!(bad.policy_ns < bad.rpc_ns + bad.rpc_ns / 50, "{bad:?}");
    let good = bench.run(Phase {
        reads: 400_000,
        ..GOOD
    });
    assert!(bench.policy.is_direct(&bench.file, CLASS));
    assert!(good.policy_ns < good.rpc_ns / 2, "{good:?}");
}

#[test]
fn leaves_direct_reads_that_are_slower_than_rpc() {
    let mut bench = Bench::new(3);
    let slow = Phase {
        reads: 50_000,
        rpc_ns: 2_000,
        direct_ns: 3_200,
        ..GOOD
    };
    bench.run(Phase {
        refused_permille: 1000,
        reads: 4,
        ..slow
    });
    let spent = bench.run(slow);
    assert!(
        spent.policy_ns < spent.rpc_ns + spent.rpc_ns / 50,
        "{spent:?}"
    );
}

#[test]
fn probes_at_once_when_the_server_has_settled() {
    let mut bench = Bench::new(4);
    bench.run(GOOD);
    bench.policy.feedback(Feedback {
        evictions_per_second: 900,
        hit_permille: 500,
        settled_seconds: 0,
    });
    bench.run(Phase {
        reads: 5_000,
        ..BAD
    });
    assert_eq!(
        bench.policy.choose(&mut bench.file, CLASS, bench.now_ns),
        Choice::Rpc
    );
    bench.policy.feedback(Feedback {
        evictions_per_second: 0,
        hit_permille: 990,
        settled_seconds: 3,
    });
    assert_eq!(
        bench.policy.choose(&mut bench.file, CLASS, bench.now_ns),
        Choice::Probe
    );
}

#[test]
fn an_idle_file_probes_after_a_while() {
    let mut bench = Bench::new(5);
    bench.run(GOOD);
    bench.run(Phase {
        reads: 5_000,
        ..BAD
    });
    assert_eq!(
        bench.policy.choose(&mut bench.file, CLASS, bench.now_ns),
        Choice::Rpc
    );
    bench.now_ns += Config::default().idle_ns;
    assert_eq!(
        bench.policy.choose(&mut bench.file, CLASS, bench.now_ns),
        Choice::Probe
    );
}

#[test]
fn a_new_file_starts_from_what_the_server_is_known_for() {
    let mut bench = Bench::new(6);
    bench.run(Phase {
        reads: 300,
        refused_permille: 400,
        ..GOOD
    });
    let fresh = bench.policy.record();
    let (fresh, server) = (
        bench.policy.explain(&fresh, CLASS),
        bench.policy.explain_server(CLASS),
    );
    assert!((fresh.completed + fresh.refused - 8.0).abs() < 1e-6);
    assert!((fresh.ratio / server.ratio - 1.0).abs() < 1e-6);
}

#[test]
fn counting_many_at_once_is_counting_them_one_by_one() {
    let fresh = Standing {
        completed: 3.0,
        refused: 5.0,
        mode: Mode::FRESH,
    };
    let (mut one_by_one, mut at_once) = (fresh, fresh);
    (0..64).for_each(|_| one_by_one.count(32.0, 1, 0));
    at_once.count(32.0, 64, 0);
    assert!((one_by_one.completed - at_once.completed).abs() < 1e-9);
    assert!((one_by_one.refused - at_once.refused).abs() < 1e-9);
}

fn phase() -> impl Strategy<Value = Phase> {
    let permille = prop_oneof![Just(0), Just(1000), 0u32..=1000];
    (
        1u32..5_000,
        permille,
        1_500u64..60_000,
        300u64..40_000,
        300u64..40_000,
    )
        .prop_map(
            |(reads, refused_permille, rpc_ns, direct_ns, stale_ns)| Phase {
                reads,
                refused_permille,
                rpc_ns,
                direct_ns,
                stale_ns,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The stated bound: against RPC alone, each change of the world costs at most W reads' worth, all else 2 %.
    #[test]
    fn regret_against_rpc_is_bounded(seed in any::<u64>(), rpc_ns in 1_500u64..60_000, mut phases in proptest::collection::vec(phase(), 1..12)) {
        let mut bench = Bench::new(seed);
        // A reference comes with an RPC, so that much is known before the first choice.
        bench.policy.by_rpc(&mut bench.file, CLASS, Some(rpc_ns), 0);
        phases.iter_mut().for_each(|phase| phase.rpc_ns = rpc_ns);
        let (mut policy_ns, mut rpc_ns, mut changes_ns) = (0u64, 0u64, 0u64);
        for phase in &phases {
            let spent = bench.run(*phase);
            policy_ns += spent.policy_ns;
            rpc_ns += spent.rpc_ns;
            // Means decay over 16 samples besides the counts' 32 tries, and a probe of 4 may fall into the change.
            changes_ns += 64 * (60_000u64.max(phase.stale_ns) + phase.direct_ns);
        }
        prop_assert!(policy_ns <= rpc_ns + rpc_ns / 50 + changes_ns, "{policy_ns} {rpc_ns} {changes_ns}");
    }

    /// Against the better of the two fixed choices in one steady world: the search costs a bounded share.
    #[test]
    fn regret_in_a_steady_world_is_small(seed in any::<u64>(), stale in prop_oneof![0u32..200, 950u32..1000]) {
        let mut bench = Bench::new(seed);
        let spent = bench.run(Phase { reads: 20_000, refused_permille: stale, ..BAD });
        let better_ns = spent.rpc_ns.min(spent.direct_ns);
        prop_assert!(spent.policy_ns <= better_ns + better_ns / 25 + 64 * 24_000, "{spent:?}");
    }

    #[test]
    fn the_same_inputs_take_the_same_routes(seed in any::<u64>(), phases in proptest::collection::vec(phase(), 1..4)) {
        let run = || {
            let mut bench = Bench::new(seed);
            phases.iter().map(|p| bench.run(*p).policy_ns).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn what_a_refusal_took_is_learned_without_a_choice() {
    let mut policy = Policy::new(Config::default(), 7);
    let guessed = policy.explain_server(CLASS);
    policy.refusal_took(CLASS, 1234);
    let told = policy.explain_server(CLASS);
    assert_eq!(told.stale_ns, 1234.0);
    assert_eq!(
        (told.completed, told.refused),
        (guessed.completed, guessed.refused)
    );
}
