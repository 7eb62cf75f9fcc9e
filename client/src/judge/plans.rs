//! Plans in which what pays changes.

use super::world::{Phase, Route, Stalls, WORKING_SET};

/// A plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// As the table of regrets shows it.
    pub name: &'static str,
    /// Its phases.
    pub phases: Vec<Phase>,
}

/// The plans, with phases of so many reads. Those with an odd `variant` have other numbers: what is tuned on one half is
/// judged on the other.
pub fn all(reads: u32, variant: u32) -> Vec<Plan> {
    let calm = Phase {
        reads,
        ..Phase::CALM
    };
    let odd = variant % 2 == 1;
    let pick = |even: f64, other: f64| if odd { other } else { even };
    let memory = |permille: f64| Phase {
        memory_permille: permille as u32,
        ..calm
    };
    let writes = |per_second: f64| Phase {
        writes_per_second: per_second,
        ..calm
    };
    let slow = |route: Route, factor: f64| {
        let mut slower = [1.0; 3];
        slower[route.index()] = factor;
        Phase { slower, ..calm }
    };
    let load = |load: f64| Phase { load, ..calm };
    let factor = pick(10.0, 7.0);
    // Both direct routes: they share what slows them.
    let slow_direct = Phase {
        slower: [1.0, factor, factor],
        ..calm
    };
    let moves = |of: f64| Phase {
        moves_every: (f64::from(WORKING_SET) * of) as u32,
        ..calm
    };
    let stalls = |slower: f64, lasts_ns: f64| Phase {
        stalls: Some(Stalls {
            every_ns: 5_000_000,
            lasts_ns: lasts_ns as u64,
            slower,
        }),
        ..calm
    };
    let plan = |name, phases: &[Phase]| Plan {
        name,
        phases: phases.to_vec(),
    };
    vec![
        plan("calm", &[calm, calm, calm]),
        plan(
            "memory to a quarter and back",
            &[calm, memory(pick(250.0, 350.0)), calm],
        ),
        plan(
            "memory breathes",
            &[
                memory(pick(500.0, 700.0)),
                calm,
                memory(pick(250.0, 180.0)),
                calm,
            ],
        ),
        plan("working set moves", &[calm, moves(pick(4.0, 2.5)), calm]),
        plan(
            "writers come and go",
            &[calm, writes(pick(300_000.0, 900_000.0)), calm],
        ),
        plan("rpc slows tenfold", &[calm, slow(Route::Rpc, factor), calm]),
        plan("direct slows tenfold", &[calm, slow_direct, calm]),
        plan(
            "one-sided slows tenfold",
            &[calm, slow(Route::OneSided, factor), calm],
        ),
        plan(
            "server loads up",
            &[calm, load(pick(0.5, 0.3)), load(pick(0.8, 0.7)), calm],
        ),
        plan(
            "processors are taken away",
            &[
                stalls(pick(3.0, 2.0), 500_000.0),
                stalls(pick(10.0, 8.0), pick(400_000.0, 600_000.0)),
                calm,
            ],
        ),
    ]
}
