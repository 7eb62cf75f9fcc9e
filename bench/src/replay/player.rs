//! Plays one pass of a trace by one client.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use odafs::record::{Entry, Operation, Trace};
use odafs::{Changes, Client, File, ReadRequest, Statistics};

use crate::clock;
use crate::gate::Gate;
use crate::histogram::Latencies;

/// How far a pass goes.
#[derive(Clone, Debug)]
pub struct PassLimits {
    /// Number of operations of each thread.
    pub operations: Vec<usize>,
    /// The time after which no further operation begins.
    pub until: Option<Instant>,
    /// Whether operations begin no earlier than in the recording.
    pub as_recorded: bool,
}

/// The times of operations of one kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Histogram of the times.
    pub latencies: Latencies,
    /// Sum of the times.
    pub sum_ns: u64,
}

/// The result of a pass.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Times by operation.
    pub tallies: BTreeMap<&'static str, Tally>,
    /// Number of operations of each thread.
    pub done: Vec<usize>,
    /// Number of operations that failed or succeeded otherwise than in the recording, or that read another length.
    pub differs: u64,
    /// Where reads ended.
    pub ends: Ends,
}

/// Where reads ended. Each read ended in one of the first three.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    /// In the client's data cache.
    pub cache_hits: u64,
    /// By a direct read.
    pub direct_hits: u64,
    /// By RPC.
    pub rpc_reads: u64,
    /// Number of direct reads that were refused.
    pub stale_hits: u64,
}

impl Ends {
    fn between(before: &Statistics, after: &Statistics) -> Self {
        Self {
            cache_hits: after.cache_hits - before.cache_hits,
            direct_hits: after.direct_hits - before.direct_hits,
            rpc_reads: after.rpc_reads - before.rpc_reads,
            stale_hits: after.stale_hits - before.stale_hits,
        }
    }
}

/// The operations of each thread, by their positions in the trace. Reads in one call count as one operation, by the first.
pub fn threads(trace: &Trace) -> Vec<Vec<usize>> {
    let mut threads: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, entry) in trace.entries.iter().enumerate() {
        threads.entry(entry.thread).or_default().push(at);
    }
    threads.into_values().collect()
}

/// Size of the longest call in bytes.
pub fn buffer_bytes(trace: &Trace) -> u64 {
    let (mut longest, mut calls) = (0, HashMap::new());
    for entry in &trace.entries {
        let (length, together) = match entry.operation {
            Operation::Read {
                length, together, ..
            } => (length, together),
            Operation::Write { length, .. } => (length, false),
            _ => continue,
        };
        let call: &mut u64 = calls.entry(entry.thread).or_default();
        *call = u64::from(length) + if together { *call } else { 0 };
        longest = longest.max(*call);
    }
    longest
}

/// Replays all threads at the same time.
///
/// # Errors
/// The connection is lost, or a thread panicked.
pub fn play(
    client: &Client,
    trace: &Trace,
    threads: &[Vec<usize>],
    limits: &PassLimits,
) -> Result<Pass> {
    let before = client.statistics();
    let start = Gate::new(threads.len());
    let zero = trace.entries.iter().map(|e| e.begin_ns).min().unwrap_or(0);
    let played = std::thread::scope(|scope| {
        let players: Vec<_> = threads
            .iter()
            .zip(&limits.operations)
            .map(|(entries, &most)| {
                let start = &start;
                scope.spawn(move || {
                    let mut player = Player {
                        client,
                        trace,
                        files: HashMap::new(),
                        buffer: Vec::new(),
                        late_ns: 0,
                        pass: Pass::default(),
                    };
                    start.pass();
                    let began = Instant::now();
                    let from = limits.as_recorded.then_some((began, zero));
                    let done = player.thread(&entries[..most], from, limits.until)?;
                    player.pass.done = vec![done];
                    anyhow::Ok(player.pass)
                })
            })
            .collect();
        let joined = players.into_iter().map(|player| player.join());
        joined.collect::<Vec<_>>()
    });
    let mut pass = Pass::default();
    for played in played {
        let played = played.map_err(|_| anyhow!("a thread panicked"))??;
        pass.done.extend(played.done);
        pass.differs += played.differs;
        for (verb, tally) in played.tallies {
            let all = pass.tallies.entry(verb).or_default();
            all.latencies.add(&tally.latencies);
            all.sum_ns += tally.sum_ns;
        }
    }
    pass.ends = Ends::between(&before, &client.statistics());
    Ok(pass)
}

/// Replays one thread.
struct Player<'a> {
    client: &'a Client,
    trace: &'a Trace,
    files: HashMap<u32, File>,
    buffer: Vec<u8>,
    /// How long the operation had to wait for the one before, beyond the time at which it was to begin.
    late_ns: u64,
    pass: Pass,
}

impl Player<'_> {
    /// Replays an entry, and returns how many entries that were.
    fn thread(
        &mut self,
        entries: &[usize],
        from: Option<(Instant, u64)>,
        until: Option<Instant>,
    ) -> Result<usize> {
        let mut at = 0;
        while at < entries.len() {
            let entry = &self.trace.entries[entries[at]];
            self.late_ns = 0;
            if let Some((began, zero)) = from {
                let due = began + Duration::from_nanos(entry.begin_ns - zero);
                self.late_ns = late_ns(due, Instant::now());
                // No operation begins after the end, so the thread does not wait beyond it.
                let wake = until.map_or(due, |until| due.min(until));
                std::thread::sleep(wake.saturating_duration_since(Instant::now()));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            let more = entries[at + 1..].iter().take_while(|&&next| {
                let next = self.trace.entries[next].operation;
                matches!(next, Operation::Read { together: true, .. })
            });
            let call = &entries[at..=at + more.count()];
            self.entry(entry, call)?;
            at += call.len();
        }
        Ok(at)
    }

    /// Makes one call: an entry, and the reads in the same call.
    fn entry(&mut self, entry: &Entry, call: &[usize]) -> Result<()> {
        let operation = entry.operation;
        // Another thread opened the file, or nobody did during the recording. This open is not timed.
        let needs = matches!(
            operation,
            Operation::Read { .. } | Operation::Write { .. } | Operation::Sync { .. }
        );
        let (first, _) = operation.names();
        if needs && !self.files.contains_key(&first) {
            match self.client.open(self.path(first)) {
                Ok(file) => drop(self.files.insert(first, file)),
                Err(_) => {
                    self.pass.differs += 1;
                    return Ok(());
                }
            }
        }
        let (took_ns, came) = match operation {
            Operation::Read { .. } => self.read(call),
            Operation::Write {
                file,
                offset,
                length,
            } => {
                self.room(length as usize);
                let data = &self.buffer[..length as usize];
                let file = &self.files[&file];
                timed(|| file.write_at(data, offset).is_ok())
            }
            Operation::Sync { file } => timed(|| self.files[&file].sync().is_ok()),
            Operation::Open { file } | Operation::Create { file } => {
                let path = self.path(file);
                let begin = Instant::now();
                let opened = match operation {
                    Operation::Create { .. } => self.client.create(path),
                    _ => self.client.open(path),
                };
                let took_ns = clock::nanos(begin, Instant::now());
                let came = opened.is_ok();
                match opened {
                    Ok(opened) => drop(self.files.insert(file, opened)),
                    Err(_) => drop(self.files.remove(&file)),
                }
                (took_ns, came)
            }
            _ => timed(|| self.by_name(operation)),
        };
        self.pass.differs += u64::from(came == entry.failed);
        let verb = match operation {
            Operation::Read { .. } => "read",
            _ => operation.verb(),
        };
        let tally = self.pass.tallies.entry(verb).or_default();
        // A program that asked at the recorded time would have waited as long.
        let took_ns = took_ns + self.late_ns;
        tally.latencies.record(took_ns);
        tally.sum_ns += took_ns;
        if !came && self.client.ping().is_err() {
            bail!("the connection was lost at operation {}", call[0] + 1);
        }
        Ok(())
    }

    fn read(&mut self, call: &[usize]) -> (u64, bool) {
        let entries = call.iter().map(|&at| self.trace.entries[at]);
        let reads: Vec<_> = entries.filter_map(|entry| range(&entry)).collect();
        let all = reads.iter().map(|read| read.length).sum();
        self.room(all);
        let (mut rest, mut requests) = (&mut self.buffer[..all], Vec::new());
        for read in &reads {
            let (buf, after) = rest.split_at_mut(read.length);
            requests.push(ReadRequest::new(read.offset, buf));
            rest = after;
        }
        let file = &self.files[&reads[0].file];
        let (took_ns, came) = match &mut requests[..] {
            [one] => timed(|| match file.read_at(one.buf, one.offset) {
                Ok(bytes) => {
                    one.bytes = bytes;
                    true
                }
                Err(_) => false,
            }),
            many => timed(|| file.read_batch(many).is_ok()),
        };
        if came {
            let pairs = requests.iter().zip(&reads);
            self.pass.differs += pairs.filter(|(done, read)| done.bytes != read.got).count() as u64;
        }
        (took_ns, came)
    }

    fn by_name(&self, operation: Operation) -> bool {
        let client = self.client;
        match operation {
            Operation::Stat { file } => client.stat_link(self.path(file)).is_ok(),
            Operation::List { file } => client
                .read_dir(self.path(file))
                .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok())),
            Operation::Mkdir { file } => client.mkdir(self.path(file)).is_ok(),
            Operation::Rmdir { file } => client.rmdir(self.path(file)).is_ok(),
            Operation::Remove { file } => client.remove(self.path(file)).is_ok(),
            Operation::Rename { from, to } => client.rename(self.path(from), self.path(to)).is_ok(),
            Operation::Link { from, to } => {
                client.hard_link(self.path(from), self.path(to)).is_ok()
            }
            Operation::Truncate { file, length } => self.change(file, Some(length)),
            Operation::Attributes { file } => self.change(file, None),
            Operation::Open { .. }
            | Operation::Create { .. }
            | Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync { .. } => false,
        }
    }

    fn change(&self, file: u32, size: Option<u64>) -> bool {
        let changes = Changes {
            size,
            mode: size.is_none().then_some(0o777),
            ..Changes::default()
        };
        self.client
            .set_attributes(self.path(file), &changes)
            .is_ok()
    }

    fn path(&self, name: u32) -> &Path {
        Path::new(OsStr::from_bytes(&self.trace.names[name as usize].path))
    }

    fn room(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 1);
        }
    }
}

/// How late a thread is that has ended an operation at `now` and was to begin the next at `due`. A thread that has time left
/// sleeps and is not late, however long it takes to wake up: that is no doing of the server.
fn late_ns(due: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(due).as_nanos() as u64
}

struct Range {
    file: u32,
    offset: u64,
    length: usize,
    got: usize,
}

fn range(entry: &Entry) -> Option<Range> {
    match entry.operation {
        Operation::Read {
            file,
            offset,
            length,
            got,
            ..
        } => Some(Range {
            file,
            offset,
            length: length as usize,
            got: got as usize,
        }),
        _ => None,
    }
}

fn timed(call: impl FnOnce() -> bool) -> (u64, bool) {
    let begin = Instant::now();
    let came = call();
    (clock::nanos(begin, Instant::now()), came)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_all_operations_that_were_due_meanwhile() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        // One each 10 ms; the first takes 35 ms, the others 1 ms.
        let (mut now, mut times) = (began, Vec::new());
        for (number, took) in [(0, 35), (1, 1), (2, 1), (3, 1), (4, 1)] {
            let due = at(10 * number);
            let late = Duration::from_nanos(late_ns(due, now));
            now = now.max(due) + Duration::from_millis(took);
            times.push((late + Duration::from_millis(took)).as_millis());
        }
        assert_eq!(times, [35, 26, 17, 8, 1]);
    }
}
