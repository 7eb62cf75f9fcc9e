//! Many ranges of one version of an object, read by several threads.

use crate::{
    block::help,
    fault::{Fault, Kind},
    open::Open,
    slabs::{SLAB, Slabs},
};
use bytes::Bytes;
use odafs::ReadRequest;
use std::{
    fs,
    ops::Range,
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError},
    thread::available_parallelism,
};

/// The most ranges that are read together: as many as the client handles at once.
const TOGETHER: usize = 1024;
/// The most threads that help with one call. More have no use for the memory's bandwidth.
const HELPERS_MAX: usize = 3;

/// The processors that this process may use.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, |processors| processors.get()));

/// How many threads can help on processors that have nothing else to do. Those on a busy processor would take a chunk and
/// then wait for their turn, and the caller with them.
fn helpers() -> usize {
    if *PROCESSORS == 1 {
        return 0;
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let idle = running(&load).map_or(0, |running| PROCESSORS.saturating_sub(running));
    idle.min(HELPERS_MAX)
}

/// The number of threads of all programs that run or are ready to, the caller's among them: the first number of the fourth
/// field of /proc/loadavg (proc_loadavg(5)).
fn running(load: &str) -> Option<usize> {
    let (running, _) = load.split(' ').nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// Ranges of one version. They are cut into chunks, and each thread takes the next chunk until none is left. So a thread
/// that does not get to run holds nobody up.
pub struct Batch {
    open: Arc<Open>,
    location: Arc<str>,
    /// Cut where the version ends.
    ranges: Vec<Range<u64>>,
    chunks: Vec<RangesTogether>,
    slabs: Arc<Slabs>,
    progress: Mutex<Progress>,
    /// Signalled when the last chunk under way is done.
    done: Condvar,
}

/// Ranges that share memory.
struct RangesTogether {
    ranges: Range<usize>,
    bytes: usize,
}

#[derive(Default)]
struct Progress {
    /// The next chunk to read.
    next: usize,
    /// Number of chunks under way.
    under_way: usize,
    /// The ranges of each chunk, once they are read.
    read: Vec<Option<Vec<Bytes>>>,
    failed: Option<Fault>,
}

/// A chunk under way. It no longer is when this is dropped, even by a panic.
struct UnderWay<'b> {
    batch: &'b Batch,
    number: usize,
    read: Option<Result<Vec<Bytes>, Fault>>,
}

/// Reads ranges of one version. Bytes behind its end are left out, as in any get.
///
/// # Errors
/// A range is empty or begins behind the end, or a read failed.
pub fn read(
    open: &Arc<Open>,
    location: &Arc<str>,
    ranges: &[Range<u64>],
    slabs: &Arc<Slabs>,
) -> Result<Vec<Bytes>, Fault> {
    let batch = Arc::new(Batch::cut(open, location, ranges, slabs)?);
    // A single chunk is read before another thread is awake.
    if batch.chunks.len() > 1 {
        for _ in 0..helpers().min(batch.chunks.len() / 2) {
            let batch = Arc::clone(&batch);
            help(move || batch.work());
        }
    }
    batch.work();
    batch.all()
}

impl Batch {
    fn cut(
        open: &Arc<Open>,
        location: &Arc<str>,
        ranges: &[Range<u64>],
        slabs: &Arc<Slabs>,
    ) -> Result<Self, Fault> {
        let size = open.version.size;
        let mut there = Vec::with_capacity(ranges.len());
        let mut chunks: Vec<RangesTogether> = Vec::new();
        for (at, range) in ranges.iter().enumerate() {
            if range.start >= range.end || range.start >= size {
                let why = format!("no bytes from {} to {} of {size}", range.start, range.end);
                return Err(Fault::new(Kind::Other, location, why));
            }
            let range = range.start..range.end.min(size);
            let bytes = (range.end - range.start) as usize;
            there.push(range);
            match chunks.last_mut() {
                Some(last)
                    if last.ranges.len() < TOGETHER && last.bytes.saturating_add(bytes) <= SLAB =>
                {
                    last.ranges.end += 1;
                    last.bytes += bytes;
                }
                _ => chunks.push(RangesTogether {
                    ranges: at..at + 1,
                    bytes,
                }),
            }
        }
        let read = chunks.iter().map(|_| None).collect();
        Ok(Self {
            open: Arc::clone(open),
            location: Arc::clone(location),
            ranges: there,
            chunks,
            slabs: Arc::clone(slabs),
            progress: Mutex::new(Progress {
                read,
                ..Progress::default()
            }),
            done: Condvar::new(),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads chunks until none is left, or one has failed.
    fn work(&self) {
        while let Some(mut chunk) = self.next() {
            chunk.read = Some(self.read(&self.chunks[chunk.number]));
        }
    }

    fn next(&self) -> Option<UnderWay<'_>> {
        let mut progress = self.progress();
        let number = progress.next;
        if progress.failed.is_some() || number == self.chunks.len() {
            return None;
        }
        progress.next += 1;
        progress.under_way += 1;
        Some(UnderWay {
            batch: self,
            number,
            read: None,
        })
    }

    /// Waits for the chunks that other threads have begun. Those threads that have begun none find none any more.
    fn all(&self) -> Result<Vec<Bytes>, Fault> {
        let mut progress = self.progress();
        while progress.under_way > 0 {
            let woken = self.done.wait(progress);
            progress = woken.unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(fault) = progress.failed.take() {
            return Err(fault);
        }
        let read = std::mem::take(&mut progress.read);
        drop(progress);
        let mut all = Vec::with_capacity(self.ranges.len());
        for (chunk, read) in self.chunks.iter().zip(read) {
            match read {
                Some(read) => all.extend(read),
                // The thread that had it panicked. If this one does too, the caller sees it.
                None => all.extend(self.read(chunk)?),
            }
        }
        Ok(all)
    }

    fn read(&self, chunk: &RangesTogether) -> Result<Vec<Bytes>, Fault> {
        let ranges = &self.ranges[chunk.ranges.clone()];
        let length = |range: &Range<u64>| (range.end - range.start) as usize;
        let mut memory = self.slabs.take(chunk.bytes);
        let mut rest = memory.bytes();
        let mut requests = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (here, after) = rest.split_at_mut(length(range));
            rest = after;
            requests.push(ReadRequest::new(range.start, here));
        }
        let read = self.open.file.read_batch(&mut requests);
        read.map_err(|error| Fault::read(&self.location, error))?;
        let short = |request: &ReadRequest<'_>| request.bytes < request.buf.len();
        if requests.iter().any(short) {
            return Err(Fault::changed(&self.location));
        }
        let memory = Bytes::from_owner(memory);
        let mut at = 0;
        let slices = ranges.iter().map(|range| {
            let from = at;
            at += length(range);
            memory.slice(from..at)
        });
        Ok(slices.collect())
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut progress = self.batch.progress();
        match self.read.take() {
            Some(Ok(read)) => progress.read[self.number] = Some(read),
            Some(Err(fault)) => progress.failed = Some(fault),
            None => {}
        }
        progress.under_way -= 1;
        if progress.under_way == 0 {
            self.batch.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_run_are_told_by_the_system() {
        assert_eq!(running("0.20 0.18 0.12 3/812 11206\n"), Some(3));
        for wrong in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 3 812", "0 0 0 x/8 1"] {
            assert_eq!(running(wrong), None, "{wrong}");
        }
        let here = fs::read_to_string("/proc/loadavg").unwrap();
        assert!(running(&here).is_some_and(|running| running > 0), "{here}");
    }
}
