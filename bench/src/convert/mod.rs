//! `odafs bench convert`: converts traces in other formats to our own (docs/TRACES.md). Its only IO is to read lines.

mod published;
mod strace;
#[cfg(test)]
mod strace_tests;

use std::collections::HashMap;
use std::io::BufRead;

use anyhow::{Context as _, Result, bail};
use odafs::record::{
    BYTES_MAX, ENTRIES_MAX, Entry, Initial, LENGTH_MAX, NAMES_MAX, Name, Operation, PATHS_MAX,
    THREADS_MAX, TIME_MAX, Trace, path_of,
};

/// Maximum length of a line in bytes.
const LINE_MAX: usize = 1 << 20;
/// Maximum bytes of one read or write. A longer one becomes several, as programs make them.
const PIECE: u64 = 8 << 20;
/// Maximum bytes that are kept of one operation.
const OPERATION_MAX: u64 = LENGTH_MAX as u64;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What `strace -f -y -ttt -T` writes.
    Strace,
    /// Block traces of Microsoft Research Cambridge, at SNIA: CSV.
    Msr,
    /// Object store traces of IBM, at SNIA.
    IbmCos,
}

/// Which parts of a trace to keep, and how.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Only names under this directory, which becomes the root (strace).
    pub under: Vec<u8>,
    /// Maximum size of a file in bytes, at least 1. Offsets beyond it wrap around to 0.
    pub fold: Option<u64>,
    /// Maximum number of operations.
    pub limit: usize,
    /// Give all operations to one thread, in the order of time.
    pub one_thread: bool,
}

/// A converted trace.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The trace in our format.
    pub trace: Trace,
    /// Number of lines without an operation that a trace can hold.
    pub skipped: u64,
}

/// Converts a trace.
///
/// # Errors
/// A line cannot be read, or is not in the format. The error has its number.
pub fn convert(format: Format, mut input: impl BufRead, kept: &Kept) -> Result<Converted> {
    let mut builder = Builder::new(kept.clone());
    let mut strace = strace::Strace::default();
    let (mut line, mut number) = (Vec::new(), 0u64);
    while builder.entries.len() < builder.kept.limit {
        line.clear();
        number += 1;
        let most = LINE_MAX as u64 + 1;
        let bytes = std::io::Read::take(&mut input, most).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            break;
        }
        if bytes > LINE_MAX {
            bail!("line {number}: longer than {LINE_MAX} bytes");
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let taken = match format {
            Format::Strace => strace.line(text, &mut builder),
            Format::Msr => published::msr(text, &mut builder),
            Format::IbmCos => published::ibm_cos(text, &mut builder),
        };
        match taken.with_context(|| format!("line {number}"))? {
            true => {}
            false => builder.skipped += 1,
        }
    }
    Ok(builder.finish())
}

/// What is known of a name while a trace is built.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What had this name before the trace, as far as that is known.
    initial: Option<Initial>,
    /// The file was written or replaced, so what is read now says nothing about earlier content.
    is_changed: bool,
    /// Whether something has this name now.
    is_there: Option<bool>,
    /// Its size in bytes now, as far as is known.
    end: u64,
    /// An operation that made it, or opened it, if it was there already.
    maybe_made: Option<usize>,
}

/// When an operation was done, how long it took, and by which thread.
#[derive(Clone, Copy, Debug)]
struct When {
    begin_ns: u64,
    took_ns: Option<u64>,
    who: u64,
}

/// A trace while it is built.
struct Builder {
    kept: Kept,
    names: Vec<Name>,
    known: Vec<Known>,
    by_path: HashMap<Vec<u8>, u32>,
    path_bytes: usize,
    entries: Vec<Entry>,
    threads: HashMap<u64, u32>,
    skipped: u64,
}

impl Builder {
    fn new(mut kept: Kept) -> Self {
        kept.limit = kept.limit.min(ENTRIES_MAX);
        Self {
            kept,
            names: Vec::new(),
            known: Vec::new(),
            by_path: HashMap::new(),
            path_bytes: 0,
            entries: Vec::new(),
            threads: HashMap::new(),
            skipped: 0,
        }
    }

    /// The number of a name; none if it is not kept.
    fn name(&mut self, path: &[u8]) -> Option<u32> {
        let path = path_of(path)?;
        if let Some(&number) = self.by_path.get(&path) {
            return Some(number);
        }
        let path_bytes = self.path_bytes + path.len();
        if self.names.len() >= NAMES_MAX || path_bytes > PATHS_MAX {
            return None;
        }
        self.path_bytes = path_bytes;
        let number = self.names.len() as u32;
        self.by_path.insert(path.clone(), number);
        self.known.push(Known::default());
        let initial = Initial::Absent;
        self.names.push(Name { initial, path });
        Some(number)
    }

    fn known(&mut self, name: u32) -> &mut Known {
        &mut self.known[name as usize]
    }

    /// A name exists now. If it did before, it was a file of this many bytes, or a directory.
    fn is_there(&mut self, name: u32, what: Initial) {
        let what = match what {
            Initial::Bytes(bytes) => Initial::Bytes(self.length(bytes)),
            what => what,
        };
        let known = &mut self.known[name as usize];
        known.is_there = Some(true);
        if known.is_changed {
            return;
        }
        match (known.initial, what) {
            (Some(Initial::Bytes(before)), Initial::Bytes(now)) => {
                known.initial = Some(Initial::Bytes(before.max(now)));
            }
            // It was opened before it was known to be one.
            (Some(Initial::Bytes(0)), Initial::Directory) => known.initial = Some(what),
            (None, Initial::Bytes(0)) if known.maybe_made.is_some() => {}
            (None, _) => {
                known.initial = Some(what);
                if let Some(at) = known.maybe_made.take() {
                    self.entries[at].operation = Operation::Open { file: name };
                }
            }
            (Some(_), _) => {}
        }
        if let (Initial::Bytes(bytes), known) = (what, self.known(name)) {
            known.end = known.end.max(bytes);
        }
    }

    /// From now on, nothing has this name.
    fn is_absent(&mut self, name: u32) {
        let known = self.known(name);
        known.is_there = Some(false);
        known.initial.get_or_insert(Initial::Absent);
        (known.is_changed, known.end) = (true, 0);
    }

    /// From now on, the name is that of a file that the trace made.
    fn is_made(&mut self, name: u32) {
        let known = self.known(name);
        known.is_there = Some(true);
        known.initial.get_or_insert(Initial::Absent);
        (known.is_changed, known.end) = (true, 0);
    }

    /// Adds an operation, unless the limit is reached. One line may become several operations.
    fn push(&mut self, when: When, operation: Operation, failed: bool) {
        if self.entries.len() >= self.kept.limit {
            return;
        }
        let next = self.threads.len() as u32 % THREADS_MAX;
        let thread = match self.kept.one_thread {
            true => 0,
            false => *self.threads.entry(when.who).or_insert(next),
        };
        self.entries.push(Entry {
            begin_ns: when.begin_ns,
            took_ns: when.took_ns.map(|ns| ns.min(TIME_MAX)),
            thread,
            operation,
            failed,
        });
    }

    /// A file was opened with `O_CREAT`, without truncating it.
    fn open_or_make(&mut self, when: When, file: u32) {
        let at = self.entries.len();
        match self.known(file).is_there {
            Some(true) => self.push(when, Operation::Open { file }, false),
            Some(false) => {
                self.is_made(file);
                self.push(when, Operation::Create { file }, false);
            }
            None => {
                let known = self.known(file);
                (known.is_there, known.maybe_made) = (Some(true), Some(at));
                self.push(when, Operation::Create { file }, false);
            }
        }
    }

    /// Adds reads of `wanted` bytes, of which `got` were returned.
    fn read(&mut self, when: When, file: u32, offset: u64, (wanted, got): (u64, u64)) {
        // A read of as much as may come is no longer than what a client would take for that.
        let wanted = wanted.min(got.max(PIECE)).min(OPERATION_MAX);
        let (offset, wanted) = self.folded(offset, wanted);
        let got = got.min(wanted);
        if got > 0 {
            self.is_there(file, Initial::Bytes(offset + got));
        }
        let mut from = 0;
        loop {
            let length = (wanted - from).min(PIECE);
            let came = got.saturating_sub(from).min(length);
            let operation = Operation::Read {
                file,
                offset: offset + from,
                length: length as u32,
                got: came as u32,
                together: false,
            };
            self.push(when, operation, false);
            from += length;
            if from >= wanted || came < length {
                return;
            }
        }
    }

    /// Adds writes.
    fn write(&mut self, when: When, file: u32, offset: u64, bytes: u64) {
        let (offset, bytes) = self.folded(offset, bytes.min(OPERATION_MAX));
        for from in (0..bytes).step_by(PIECE as usize) {
            let operation = Operation::Write {
                file,
                offset: offset + from,
                length: (bytes - from).min(PIECE) as u32,
            };
            self.push(when, operation, false);
        }
        let known = self.known(file);
        known.is_changed = true;
        known.end = known.end.max(offset + bytes);
    }

    /// The length that is kept of a file of this length.
    fn length(&self, bytes: u64) -> u64 {
        bytes.min(self.kept.fold.unwrap_or(BYTES_MAX))
    }

    /// A range of at most 1 GiB, within the maximum size of a file.
    fn folded(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let Some(fold) = self.kept.fold else {
            return (offset.min(1 << 62), bytes);
        };
        let bytes = bytes.min(fold);
        ((offset % fold).min(fold - bytes), bytes)
    }

    fn finish(mut self) -> Converted {
        let root = self.entries.iter().map(|entry| entry.begin_ns).min();
        for (name, known) in self.names.iter_mut().zip(&self.known) {
            name.initial = known.initial.unwrap_or(Initial::Absent);
        }
        let names = &self.names;
        let is_directory = |name: u32| names[name as usize].initial == Initial::Directory;
        // Directories are opened by programs, but not here.
        self.entries.retain(
            |entry| !matches!(entry.operation, Operation::Open { file } if is_directory(file)),
        );
        for entry in &mut self.entries {
            entry.begin_ns = (entry.begin_ns - root.unwrap_or(0)).min(TIME_MAX);
        }
        if self.kept.one_thread {
            self.entries.sort_by_key(|entry| entry.begin_ns);
        }
        Converted {
            trace: Trace {
                names: self.names,
                entries: self.entries,
            },
            skipped: self.skipped,
        }
    }
}
