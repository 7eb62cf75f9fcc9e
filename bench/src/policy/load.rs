//! Other clients of a server, which keep it busy for a share of a processor.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use odafs::{Cache, Client, Options, Route, Url, Wait};

use super::plan::PAGE;
use crate::cpu;
use crate::random::Random;

/// A line on stdin that starts the reads or writes.
pub const RUN: &str = "run";
/// A line on stdin that stops them.
pub const PAUSE: &str = "pause";

/// How often a stopped client checks whether to go on.
const WAIT: Duration = Duration::from_millis(5);

/// Number of clients. Each has a thread.
const CLIENTS: u64 = 4;

/// Bytes of a read: so many that the next call has to wait.
const READ_BYTES: usize = 16 << 10;

/// How long pauses of one length are tried.
const TRIAL: Duration = Duration::from_millis(60);
const TRIALS: u32 = 12;

/// Reads from a file, or writes pages below an offset, until stdin ends. The pauses between the calls of a client are
/// random (exponential), and so long that process `server` uses `percent` of a processor. Prints `ready` on stdout when
/// they have been found.
///
/// # Errors
/// The server could not be reached, or a read failed.
pub fn run(url: &Url, server: u32, percent: u32, writes: Option<u64>) -> Result<()> {
    let (pause_ns, paused) = (AtomicU64::new(100_000), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let path = OsStr::from_bytes(&url.path);
            let file = Client::connect_with(url, options())?.open(path)?;
            let bytes = writes.unwrap_or(file.metadata()?.size);
            let (pause_ns, paused) = (&pause_ns, &paused);
            scope.spawn(move || {
                let mut random = Random::new(number);
                let mut buffer = vec![0; READ_BYTES];
                loop {
                    while paused.load(Ordering::Relaxed) {
                        std::thread::sleep(WAIT);
                    }
                    let done = match writes {
                        None => {
                            let last = bytes.saturating_sub(READ_BYTES as u64).max(1);
                            file.read_at(&mut buffer, random.below(last)).is_ok()
                        }
                        Some(_) => {
                            let page = random.below(bytes / PAGE as u64) * PAGE as u64;
                            file.write_at(&buffer[..PAGE], page).is_ok()
                        }
                    };
                    // The server has gone, and who started us ends us now.
                    if !done {
                        return;
                    }
                    let drawn = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                    let mean = pause_ns.load(Ordering::Relaxed) as f64;
                    let pause = -(1.0 - drawn).ln() * mean;
                    std::thread::sleep(Duration::from_nanos(pause as u64));
                }
            });
        }
        for _ in 0..TRIALS {
            let (begin, before) = (Instant::now(), cpu::process_ns(server)?);
            std::thread::sleep(TRIAL);
            let took = cpu::process_ns(server)?.saturating_sub(before) as f64;
            let found = (took * 100.0 / begin.elapsed().as_nanos() as f64).max(0.5);
            let factor = (found / f64::from(percent.max(1))).clamp(0.4, 2.5);
            let pause = pause_ns.load(Ordering::Relaxed) as f64 * factor;
            pause_ns.store(pause.clamp(1e3, 1e8) as u64, Ordering::Relaxed);
        }
        let mut out = std::io::stdout();
        writeln!(out, "ready").and_then(|()| out.flush())?;
        for line in std::io::stdin().lines() {
            paused.store(line? == PAUSE, Ordering::Relaxed);
        }
        // The threads have nothing to give back.
        std::process::exit(0)
    })
}

fn options() -> Options {
    Options {
        route: Route::Rpc,
        cache: Cache::Off,
        wait: Wait::Block {
            spin: Duration::ZERO,
        },
        ..Options::default()
    }
}
