//! A process that takes a share of a processor.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::{cpu, process};

/// In each period, the process computes for its share and sleeps for the rest.
const PERIOD: Duration = Duration::from_millis(10);

/// Uses the share of processor time that the last line on stdin gives, in thousandths, and none before the first line.
/// Prints `ready` on stdout when it listens, and returns at the end of stdin.
///
/// # Errors
/// stdin or stdout cannot be used.
pub fn run() -> Result<()> {
    let share = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let burner = scope.spawn(|| burn(&share));
        let mut out = std::io::stdout();
        writeln!(out, "ready").and_then(|()| out.flush())?;
        for line in std::io::stdin().lock().lines() {
            share.store(line?.trim().parse()?, Ordering::Relaxed);
            burner.thread().unpark();
        }
        // The thread has nothing to give back.
        std::process::exit(0)
    })
}

fn burn(share: &AtomicU32) {
    loop {
        let (begin, used) = (Instant::now(), cpu::thread_ns());
        let asked = share.load(Ordering::Relaxed);
        let part = asked.min(1000);
        if part == 0 {
            std::thread::park();
            continue;
        }
        let wanted = PERIOD.as_nanos() as u64 * u64::from(part) / 1000;
        // By its own time: what the scheduler gives to others meanwhile is no work of this one.
        // A share that changes holds at once: the next slice is not to pay for this one.
        while cpu::thread_ns() - used < wanted && share.load(Ordering::Relaxed) == asked {
            for number in 0..500u64 {
                std::hint::black_box(number);
            }
        }
        if let Some(rest) = PERIOD.checked_sub(begin.elapsed())
            && part < 1000
        {
            std::thread::sleep(rest);
        }
    }
}

/// Such processes. Dropping this ends them.
pub struct Others(Vec<Child>);

impl Others {
    /// Starts this many processes, on these processors or on all.
    ///
    /// # Errors
    /// One could not be started.
    pub fn start(program: &Path, number: u32, cpus: Option<&[usize]>) -> Result<Self> {
        let mut others = Self(Vec::new());
        for _ in 0..number {
            let mut command = Command::new(program);
            command.args(["bench", "load", "--burn"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let child = process::spawn_on(&mut command, cpus)
                .with_context(|| format!("cannot start {}", program.display()))?;
            others.0.push(child);
            let Some(child) = others.0.last_mut() else {
                continue;
            };
            if process::first_line(child)?.trim() != "ready" {
                bail!("a process that loads the processor has ended, for the reason above");
            }
        }
        Ok(others)
    }

    /// Sets the percentage of a processor that they take together from now on. At 100, each takes all that it can get.
    ///
    /// # Errors
    /// One has ended.
    pub fn take(&self, percent: u32) -> Result<()> {
        let share = match percent {
            100 => 1000,
            _ => percent * 10 / self.0.len().max(1) as u32,
        };
        for child in &self.0 {
            let mut stdin = child.stdin.as_ref().context("it has no stdin")?;
            writeln!(stdin, "{share}").context("a process that loads the processor has ended")?;
        }
        Ok(())
    }

    /// CPU time that they have used, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let used = |child: &Child| cpu::process_ns(child.id()).unwrap_or(0);
        self.0.iter().map(used).sum()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It has nothing to lose; neither call can fail in a way that leaves more to do.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
