use super::{Random, clock};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// One scheduling decision in this many lets a sleeper wake although others could run, as on a slow machine, where
/// deadlines pass early.
const EARLY_ONE_IN: u64 = 512;

/// Runs `test` under `iterations` random schedules. Each depends only on its seed, counted up from `seed`. The seed of
/// a failure is printed, and `explore(that seed, 1, test)` repeats it.
pub fn explore(seed: u64, iterations: u32, test: impl Fn() + Send + Sync + 'static) {
    schedules(seed, iterations, true, test);
}

/// As [`explore`], but no deadline passes while any task can run. So a task that meets its deadline waits for something
/// that will never come.
pub fn explore_in_time(seed: u64, iterations: u32, test: impl Fn() + Send + Sync + 'static) {
    schedules(seed, iterations, false, test);
}

fn schedules(seed: u64, iterations: u32, early: bool, test: impl Fn() + Send + Sync + 'static) {
    let test = std::sync::Arc::new(test);
    for seed in seed..seed + u64::from(iterations) {
        let told = TellSeed(seed);
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = MaxSteps::FailAfter(10_000_000);
        config.failure_persistence = FailurePersistence::None;
        let test = std::sync::Arc::clone(&test);
        Runner::new(
            Explorer {
                seed,
                random: Random(seed),
                early,
                over: false,
            },
            config,
        )
        .run(move || test());
        drop(told);
    }
}

struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// Picks at random among the tasks that do not sleep. If all sleep, moves the clock on.
struct Explorer {
    seed: u64,
    random: Random,
    /// Whether deadlines may pass early.
    early: bool,
    over: bool,
}

impl Scheduler for Explorer {
    fn new_execution(&mut self) -> Option<Schedule> {
        clock::reset();
        (!std::mem::replace(&mut self.over, true)).then(|| Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        _current: Option<TaskId>,
        _yielding: bool,
    ) -> Option<TaskId> {
        let awake: Vec<TaskId> = runnable
            .iter()
            .map(|task| task.id())
            .filter(|task| !clock::sleeps(*task))
            .collect();
        let early = self.early && self.random.next().is_multiple_of(EARLY_ONE_IN);
        if !awake.is_empty() && !early {
            return Some(awake[(self.random.next() % awake.len() as u64) as usize]);
        }
        match clock::next_sleeper().filter(|next| runnable.iter().any(|task| task.id() == *next)) {
            Some(sleeper) => {
                clock::advance_to(sleeper);
                Some(sleeper)
            }
            None => Some(runnable[(self.random.next() % runnable.len() as u64) as usize].id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}
