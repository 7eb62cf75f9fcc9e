//! CPU time, of this process and of another, and placement on processors.

mod policy;

pub use policy::{before_others, only_when_idle};

use std::fs;
use std::io;
use std::sync::LazyLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPU time that this process has used so far, all threads, in nanoseconds.
pub fn own_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time that the calling thread has used so far, in nanoseconds.
pub fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time that the living threads of process `pid` have used so far, in
/// nanoseconds (the first field of `/proc/PID/task/TID/schedstat`).
///
/// A thread that is running right now is brought up to date by the timer tick,
/// so a difference of two readings is right within a few milliseconds.
pub fn process_ns(pid: u32) -> io::Result<u64> {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(line) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue; // The thread ended in between.
        };
        total += line
            .split_whitespace()
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(total)
}

/// The processors that the calling thread may run on, in rising order.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect(),
        Err(_) => vec![0],
    }
}

/// Binds the calling thread, and every thread or process that it starts from
/// now on, to the given processors.
pub fn bind(cpus: &[usize]) -> io::Result<()> {
    Ok(sched_setaffinity(None, &set_of(cpus))?)
}

/// Runs something that starts threads or processes, on the given processors or wherever it is. They inherit the binding of
/// the thread that starts them, so a thread is bound for it.
pub fn bound<T: Send>(cpus: Option<&[usize]>, starts: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(cpus) = cpus else {
        return Ok(starts());
    };
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            bind(cpus)?;
            Ok(starts())
        });
        starter
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
    })
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    set
}

/// Where the two sides of a measurement run.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Processors of the client (this process).
    pub client: Vec<usize>,
    /// Processors of the server or peer.
    pub server: Vec<usize>,
}

impl Placement {
    /// The first allowed processor for the client and the second for the
    /// server; `None` with a single processor, where binding could only hurt.
    pub fn apart() -> Option<Self> {
        match allowed()[..] {
            [client, server, ..] => Some(Self {
                client: vec![client],
                server: vec![server],
            }),
            _ => None,
        }
    }

    /// The same by what this process was allowed when this was asked first: where its threads were bound since, that is
    /// no longer known.
    pub fn at_start() -> Option<Self> {
        static PLACEMENT: LazyLock<Option<Placement>> = LazyLock::new(Placement::apart);
        PLACEMENT.clone()
    }

    /// In words; of `None` too.
    pub fn words(of: Option<&Self>) -> String {
        match of {
            Some(p) => format!(
                "client bound to processor {}, server to processor {}",
                p.client[0], p.server[0]
            ),
            None => "not bound to processors".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_time_grows_with_work_and_shows_in_proc() {
        let before = own_ns();
        let mut sum = 0u64;
        while own_ns() < before + 20_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_ns(std::process::id()).unwrap() > 10_000_000);
    }

    #[test]
    fn at_least_one_processor_is_allowed() {
        assert!(!allowed().is_empty());
    }
}
