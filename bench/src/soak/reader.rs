//! Clients that read, and check what they read.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use odafs::{Client, File, PathError, ReadError, ReadRequest, Status};

use super::files::{Files, Opened};
use super::plan::Kind;
use super::run::{Run, held};
use crate::clock;
use crate::histogram::Latencies;
use crate::pages::PAGE;
use crate::random::Random;

/// Maximum number of pages of a read, and of reads of a batch.
const MOST: usize = 16;

/// A reader reopens a file after approximately this many reads.
const REOPEN: u64 = 32;

/// A client, and the files that it has open.
pub struct Reader<'a> {
    run: &'a Run,
    kind: Kind,
    client: Client,
    open: Vec<Option<(File, Opened)>>,
    random: Random,
    buffer: Vec<u8>,
    /// The times of its reads.
    latencies: &'a Mutex<Latencies>,
}

/// A range to read: `bytes` bytes, which begin `within` bytes into the first page.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    pages: usize,
    within: usize,
    bytes: usize,
}

impl Range {
    fn offset(self) -> u64 {
        (self.first * PAGE + self.within) as u64
    }
}

impl<'a> Reader<'a> {
    /// A new client with nothing open.
    pub fn new(run: &'a Run, kind: Kind, client: Client, slot: usize, seed: u64) -> Self {
        Self {
            run,
            kind,
            client,
            open: (0..run.files.len()).map(|_| None).collect(),
            random: Random::new(seed),
            buffer: vec![0; MOST * PAGE],
            latencies: &run.latencies[slot],
        }
    }

    /// Reads until the run is over.
    pub fn until_the_end(mut self) {
        while self.run.goes_on() {
            self.once();
        }
    }

    /// Makes a read or a batch of reads, of a random file.
    pub fn once(&mut self) {
        let file = self.random.below(self.run.files.len() as u64) as usize;
        if self.random.below(REOPEN) == 0 {
            self.open[file] = None;
        }
        let found = match self.open[file].take() {
            Some(found) => Some(found),
            None => self.open(file),
        };
        let Some((handle, opened)) = found else {
            // It is gone; there may be nothing but such files for a while.
            std::thread::yield_now();
            return;
        };
        let goes_on = match self.random.below(8) {
            0 => self.batch(file, &handle, &opened),
            _ => self.read(file, &handle, &opened),
        };
        if goes_on {
            self.open[file] = Some((handle, opened));
        }
    }

    fn open(&mut self, file: usize) -> Option<(File, Opened)> {
        let files = &self.run.files;
        let opened = files.open(file, self.kind.keeps());
        let found = match self.client.open(Files::name(file)) {
            Ok(handle) => Some(handle),
            Err(error) if is_gone(&error) => None,
            Err(error) => {
                self.run.failed(self.told(&format!("{error}")));
                return None;
            }
        };
        if !files.allows_open(file, &opened, found.is_some()) {
            let what = if found.is_some() {
                "is there"
            } else {
                "is gone"
            };
            let register = files.there(file);
            let what = format!("open: file {file} {what}, and must not be: {register:?}");
            self.run.wrong(self.told(&what));
        }
        Some((found?, opened))
    }

    fn told(&self, what: &str) -> String {
        let (fabric, route) = self.kind.names();
        format!("{fabric} {route}: {what}")
    }

    fn range(&mut self) -> Range {
        let each = self.run.files.each();
        let first = self.random.below(each as u64) as usize;
        match self.random.below(10) {
            // Within a page.
            0..2 => {
                let words = (PAGE / 8) as u64;
                let from = self.random.below(words);
                let number = 1 + self.random.below(words - from);
                Range {
                    first,
                    pages: 1,
                    within: from as usize * 8,
                    bytes: number as usize * 8,
                }
            }
            2..4 => {
                let most = MOST.min(each - first) as u64;
                let pages = 1 + self.random.below(most) as usize;
                Range {
                    first,
                    pages,
                    within: 0,
                    bytes: pages * PAGE,
                }
            }
            _ => Range {
                first,
                pages: 1,
                within: 0,
                bytes: PAGE,
            },
        }
    }

    /// Reads once. Returns whether the file can be read further.
    fn read(&mut self, file: usize, handle: &File, opened: &Opened) -> bool {
        let range = self.range();
        let files = &self.run.files;
        let asked = files.ask(file, opened, range.first, range.pages);
        let begin = Instant::now();
        let read = handle.read_at(&mut self.buffer[..range.bytes], range.offset());
        let ns = clock::nanos(begin, Instant::now());
        held(self.latencies).record(ns);
        let read = match read {
            Ok(read) => read,
            Err(error) => return self.refused(file, opened, &error),
        };
        self.count(read);
        let (of, data) = ((range.within, range.bytes), &self.buffer[..read]);
        if let Some(what) = files.check(file, &asked, of, data) {
            let what = format!("read file {file} at {}: {what}", range.offset());
            self.run.wrong(self.told(&what));
        }
        true
    }

    /// As [`read`](Self::read), for a batch.
    fn batch(&mut self, file: usize, handle: &File, opened: &Opened) -> bool {
        let files = &self.run.files;
        let each = files.each() as u64;
        let places: Vec<usize> = (0..MOST)
            .map(|_| self.random.below(each) as usize)
            .collect();
        let asked = places.iter().map(|page| files.ask(file, opened, *page, 1));
        let asked: Vec<_> = asked.collect();
        let mut requests: Vec<ReadRequest<'_>> = (places.iter())
            .zip(self.buffer.chunks_exact_mut(PAGE))
            .map(|(page, buffer)| ReadRequest::new((page * PAGE) as u64, buffer))
            .collect();
        let read = handle.read_batch(&mut requests);
        let lengths: Vec<usize> = requests.iter().map(|request| request.bytes).collect();
        drop(requests);
        if let Err(error) = read {
            return self.refused(file, opened, &error);
        }
        let pages = self.buffer.chunks_exact(PAGE);
        for (((page, asked), length), data) in places.iter().zip(&asked).zip(lengths).zip(pages) {
            self.count(length);
            if let Some(what) = files.check(file, asked, (0, PAGE), &data[..length]) {
                let what = format!("read file {file} at {} in a batch: {what}", page * PAGE);
                self.run.wrong(self.told(&what));
            }
        }
        true
    }

    fn count(&self, bytes: usize) {
        self.run.counts.reads.fetch_add(1, Relaxed);
        self.run.counts.read_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a read that failed, unless the file was removed.
    fn refused(&self, file: usize, opened: &Opened, error: &ReadError) -> bool {
        let is_stale = matches!(error, ReadError::Server { status, .. } if *status == STALE);
        if !is_stale {
            self.run.failed(self.told(&format!("{error}")));
        } else if !self.run.files.may_be_gone(file, opened) {
            let register = self.run.files.there(file);
            self.run
                .wrong(self.told(&format!("{error}, and was not removed: {register:?}")));
        }
        false
    }
}

/// NFS3ERR_STALE.
const STALE: Status = Status(70);

/// Whether the file does not exist (NFS3ERR_NOENT), or was removed after it was looked up.
pub fn is_gone(error: &PathError) -> bool {
    matches!(error, PathError::Server { status, .. } if [Status(2), STALE].contains(status))
}

/// Until the run is over, connects a client, by each of these kinds in turn, which reads parts of a few files.
pub fn visit(run: &Run, kinds: &[Kind], slot: usize) {
    const READS: usize = 32;
    for turn in slot as u64.. {
        if !run.goes_on() {
            break;
        }
        let kind = kinds[turn as usize % kinds.len()];
        let client = match run.connect(kind.way, kind.options()) {
            Ok(client) => client,
            Err(error) => {
                run.failed(format!("a visitor: {error:#}"));
                std::thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
        };
        let mut reader = Reader::new(run, kind, client, slot, turn << 20 | slot as u64);
        (0..READS).for_each(|_| reader.once());
        run.counts.visits.fetch_add(1, Relaxed);
    }
}
