//! Monotonic time. Under `--cfg shuttle` time is virtual: it stands still while anything can run (except for a tick at
//! each look) and jumps to the next deadline when all threads wait.

#[cfg(not(shuttle))]
use std::sync::{
    Mutex, PoisonError,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A time since an arbitrary start, or a span of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A span of whole microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// The span from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The same span for the standard library.
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(span: std::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl std::ops::Add for Nanos {
    type Output = Self;

    /// Saturates at zero.
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

#[cfg(not(shuttle))]
mod real {
    use super::Nanos;
    use rustix::time::{ClockId, clock_gettime};

    /// The kernel's monotonic time.
    #[inline]
    pub fn now() -> Nanos {
        nanos(ClockId::Monotonic)
    }

    /// As [`now`], by a clock that goes on while the machine sleeps. Times of both do not compare.
    #[inline]
    pub fn since_boot() -> Nanos {
        nanos(ClockId::Boottime)
    }

    #[inline]
    fn nanos(clock: ClockId) -> Nanos {
        let time = clock_gettime(clock);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Blocks the thread for `span`.
    pub fn sleep(span: Nanos) {
        std::thread::sleep(span.duration());
    }

    /// How often the calling thread has slept so far: its voluntary context switches (getrusage(2)).
    #[allow(unsafe_code)]
    pub fn sleeps() -> u64 {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a whole `rusage`, which the kernel fills in. It keeps nothing of it.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        // SAFETY: all fields are integers, and zero if the call failed.
        unsafe { usage.assume_init() }.ru_nvcsw.cast_unsigned()
    }
}

#[cfg(not(shuttle))]
pub use real::{now, since_boot, sleep, sleeps};

// No machine sleeps there, and nobody is stopped.
#[cfg(shuttle)]
pub use crate::sim::clock::{now, now as awake, now as since_boot, sleep};

/// Who sleeps there is not counted.
#[cfg(shuttle)]
pub fn sleeps() -> u64 {
    0
}

/// As [`now`], but it stands still while the process is stopped, by a signal, a frozen control group or a suspended virtual
/// machine: between two looks it goes on by [`LOOKED_EVERY`] at most. For spans in which others must have had the chance to
/// reach this process. It does not compare with times of the other clocks.
#[cfg(not(shuttle))]
pub fn awake() -> Nanos {
    static AWAKE: Awake = Awake::new();
    AWAKE.look(now)
}

/// How often somebody has to look at [`awake`] for it not to fall behind.
#[cfg(not(shuttle))]
pub const LOOKED_EVERY: Nanos = Nanos::from_secs(2);

#[cfg(not(shuttle))]
struct Awake {
    /// The time of a look, zero before the first. It is not older than a tenth of [`LOOKED_EVERY`] while somebody looks.
    seen: AtomicU64,
    /// How long the process was stopped. It is written before the look that follows, so who reads that look finds it, too.
    stopped: AtomicU64,
    finding: Mutex<()>,
}

#[cfg(not(shuttle))]
impl Awake {
    const fn new() -> Self {
        Self {
            seen: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            finding: Mutex::new(()),
        }
    }

    fn look(&self, now: impl Fn() -> Nanos) -> Nanos {
        loop {
            let stopped = self.stopped.load(Acquire);
            let real = now();
            let seen = self.seen.load(Acquire);
            if real.since(Nanos(seen)).0 > LOOKED_EVERY.0 / 10 {
                self.note(real);
            } else if self.stopped.load(Relaxed) == stopped {
                return real.since(Nanos(stopped));
            }
            // Otherwise the time is from before a stop that another thread has noted.
        }
    }

    fn note(&self, real: Nanos) {
        let _finding = self.finding.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have found it meanwhile.
        let seen = self.seen.load(Acquire);
        let passed = real.since(Nanos(seen));
        if passed > LOOKED_EVERY && seen != 0 {
            self.stopped
                .fetch_add(passed.since(LOOKED_EVERY).0, Relaxed);
        }
        self.seen.fetch_max(real.0, Release);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn one_clock_stands_still_while_nobody_looks() {
        let clock = Awake::new();
        let at = |seconds| clock.look(|| Nanos::from_secs(seconds));
        assert_eq!(at(1000), Nanos::from_secs(1000));
        assert_eq!(at(1001), Nanos::from_secs(1001));
        assert_eq!(at(1003), Nanos::from_secs(1003));
        assert_eq!(at(1100), Nanos::from_secs(1005));
        assert_eq!(at(1101), Nanos::from_secs(1006));
        // A thread took the time before a stop, which another has noted since: it takes the time anew.
        let early = std::cell::Cell::new(true);
        let late = clock.look(|| {
            if !early.take() {
                return Nanos::from_secs(1201);
            }
            assert_eq!(at(1200), Nanos::from_secs(1008));
            Nanos::from_secs(1102)
        });
        assert_eq!(late, Nanos::from_secs(1009));
    }

    /// Set in a process whose machine has slept, as it seems to it.
    const SLEPT: &str = "ODAFS_TEST_SLEPT";

    #[test]
    fn one_clock_goes_on_while_the_machine_sleeps() {
        if std::env::var_os(SLEPT).is_some() {
            let before = now();
            assert!(since_boot().since(before) >= Nanos::from_secs(3600));
            return;
        }
        let unshare = |program: &std::path::Path| {
            let mut command = Command::new("unshare");
            command.args(["--time", "--boottime", "3600"]).arg(program);
            command
        };
        let may = unshare("true".as_ref()).output();
        if !may.is_ok_and(|done| done.status.success()) {
            eprintln!("skipped: only root makes time namespaces, where Linux has them");
            return;
        }
        let test = std::env::current_exe().expect("this test");
        let same = [
            "--exact",
            "clock::tests::one_clock_goes_on_while_the_machine_sleeps",
        ];
        let done = unshare(&test).args(same).env(SLEPT, "1").output();
        let done = done.expect("it runs");
        assert!(done.status.success(), "{done:?}");
        assert!(
            String::from_utf8_lossy(&done.stdout).contains("1 passed"),
            "{done:?}"
        );
    }
}
