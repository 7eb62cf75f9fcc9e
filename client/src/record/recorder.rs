//! Who writes a trace while a client works.
//!
//! Operations become lines under a lock, in a chunk of memory. A thread of the recorder's own writes full chunks. Where it
//! does not keep up, operations are left out and counted: nobody waits for a disk, and memory is bounded.

use super::format::{
    ENTRIES_MAX, Entry, HEADER, Initial, LENGTH_MAX, NAMES_MAX, Name, Operation, THREADS_MAX,
    name_line, path_of,
};
use odafs_fabric::clock::{self, Nanos};
use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    fs::File,
    hash::{BuildHasher as _, RandomState},
    io::{self, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread::{JoinHandle, ThreadId},
};

/// Bytes of a chunk when it is given to the thread that writes.
const CHUNK: usize = 64 << 10;
/// Chunks that wait for that thread, at most.
const CHUNKS_MAX: usize = 32;
/// Names that a recorder knows, at most: it keeps them in memory.
const NAMES_KEPT: usize = if NAMES_MAX < 100_000 {
    NAMES_MAX
} else {
    100_000
};

/// What a trace tells of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Names {
    /// A random code for each component of a path: which names share a directory can be seen, and no more.
    #[default]
    Hashed,
    /// Names as they are.
    Kept,
}

/// What a recorder has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Operations in the trace.
    pub operations: u64,
    /// Operations that are not: the writing did not keep up, or there were more names, or longer paths, than a trace has.
    pub left_out: u64,
}

/// Records what clients do: [`Options::record`](crate::Options::record). Clones record to the same trace, and so do all
/// clients that are given one of them.
///
/// The trace is whole after [`finish`](Self::finish), or when the last clone is gone.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    began: Nanos,
    names: Names,
    codes: RandomState,
    state: Mutex<State>,
}

struct State {
    chunk: String,
    chunks: Option<SyncSender<String>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    names: HashMap<Vec<u8>, u32>,
    threads: HashMap<ThreadId, u32>,
    recorded: Recorded,
}

impl Recorder {
    /// Records to a new file.
    ///
    /// # Errors
    /// The file exists already, or cannot be made.
    pub fn create(path: impl AsRef<Path>, names: Names) -> io::Result<Self> {
        Self::to(File::create_new(path)?, names)
    }

    /// Records to `writer`, which a thread of the recorder's writes to.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn to(writer: impl Write + Send + 'static, names: Names) -> io::Result<Self> {
        let (chunks, full) = mpsc::sync_channel(CHUNKS_MAX);
        let writer = std::thread::Builder::new()
            .name("odafs-record".to_owned())
            .spawn(move || write(writer, &full))?;
        Ok(Self(Arc::new(Inner {
            began: clock::now(),
            names,
            codes: RandomState::new(),
            state: Mutex::new(State {
                chunk: format!("{HEADER}\n"),
                chunks: Some(chunks),
                writer: Some(writer),
                names: HashMap::new(),
                threads: HashMap::new(),
                recorded: Recorded {
                    operations: 0,
                    left_out: 0,
                },
            }),
        })))
    }

    /// Ends the trace: all that was recorded is written. What is done afterwards is not recorded.
    ///
    /// # Errors
    /// Not all of it could be written. What could be is in the trace.
    pub fn finish(&self) -> io::Result<Recorded> {
        self.0.lock().finish()
    }

    /// Notes an operation that began then and is over now. `describe` has names numbered, with what bore them before.
    pub(crate) fn note(
        &self,
        began: Nanos,
        failed: bool,
        describe: impl FnOnce(&mut Naming<'_>) -> Option<Operation>,
    ) {
        let took_ns = clock::now().since(began).0;
        let begin_ns = began.since(self.0.began).0;
        let mut state = self.0.lock();
        if state.chunks.is_none() {
            return;
        }
        if !state.has_room() {
            state.recorded.left_out += 1;
            return;
        }
        let mut naming = Naming {
            inner: &self.0,
            state: &mut state,
        };
        let Some(operation) = describe(&mut naming) else {
            state.recorded.left_out += 1;
            return;
        };
        let thread = state.thread();
        let entry = Entry {
            begin_ns,
            took_ns: Some(took_ns),
            thread,
            operation,
            failed,
        };
        let _ = writeln!(state.chunk, "{entry}");
        state.recorded.operations += 1;
    }
}

/// Numbers names for one operation.
pub(crate) struct Naming<'a> {
    inner: &'a Inner,
    state: &'a mut State,
}

impl Naming<'_> {
    /// The number of the name with this path from the export's root; `initial` bore it, if it is new. `None`: no trace has
    /// such a name, or this one has too many.
    pub fn number(&mut self, path: &[u8], initial: Initial) -> Option<u32> {
        let path = path_of(path)?;
        if let Some(&number) = self.state.names.get(&path) {
            return Some(number);
        }
        let number = self.state.names.len();
        if number >= NAMES_KEPT {
            return None;
        }
        let shown = match self.inner.names {
            Names::Kept => path.clone(),
            Names::Hashed => self.inner.code(&path),
        };
        let name = Name {
            initial,
            path: path_of(&shown)?,
        };
        let _ = writeln!(self.state.chunk, "{}", name_line(number as u32, &name));
        self.state.names.insert(path, number as u32);
        Some(number as u32)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A code for each component.
    fn code(&self, path: &[u8]) -> Vec<u8> {
        if path == b"." {
            return path.to_vec();
        }
        let code = |part: &[u8]| format!("{:016x}", self.codes.hash_one(part)).into_bytes();
        let codes: Vec<_> = path.split(|byte| *byte == b'/').map(code).collect();
        codes.join(&b'/')
    }
}

impl State {
    /// Whether a further operation may be noted; a full chunk goes to the thread that writes.
    fn has_room(&mut self) -> bool {
        if self.recorded.operations >= ENTRIES_MAX as u64 {
            return false;
        }
        if self.chunk.len() < CHUNK {
            return true;
        }
        let Some(chunks) = &self.chunks else {
            return false;
        };
        match chunks.try_send(std::mem::take(&mut self.chunk)) {
            Ok(()) => true,
            // Names in it are needed: it waits until there is room, or for ever if the writing has failed.
            Err(TrySendError::Full(chunk) | TrySendError::Disconnected(chunk)) => {
                self.chunk = chunk;
                false
            }
        }
    }

    /// This thread's number. Threads beyond the last number share it.
    fn thread(&mut self) -> u32 {
        let (mine, next) = (std::thread::current().id(), self.threads.len() as u32);
        if let Some(&number) = self.threads.get(&mine) {
            return number;
        }
        if next < THREADS_MAX {
            self.threads.insert(mine, next);
        }
        next.min(THREADS_MAX - 1)
    }

    fn finish(&mut self) -> io::Result<Recorded> {
        if let (Some(chunks), Some(writer)) = (self.chunks.take(), self.writer.take()) {
            if self.recorded.left_out > 0 {
                let left_out = self.recorded.left_out;
                let _ = writeln!(self.chunk, "# {left_out} operations were left out");
            }
            // It fails if the thread is gone, whose reason comes next.
            let _ = chunks.send(std::mem::take(&mut self.chunk));
            drop(chunks);
            let died = |_| Err(io::Error::other("the thread that writes the trace died"));
            writer.join().unwrap_or_else(died)?;
        }
        Ok(self.recorded)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // An error was told when it came.
        let _ = self.finish();
    }
}

fn write(mut writer: impl Write, full: &Receiver<String>) -> io::Result<()> {
    let written = full
        .iter()
        .try_for_each(|chunk| writer.write_all(chunk.as_bytes()))
        .and_then(|()| writer.flush());
    if let Err(error) = &written {
        tracing::error!(%error, "cannot write the trace; recording ends");
    }
    written
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({:?})", self.0.names)
    }
}

/// Bytes of a read or write as a trace has them.
pub(crate) fn length_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(LENGTH_MAX).min(LENGTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::format::Trace;
    use super::*;
    use std::sync::Condvar;

    /// What was written, and whether writing is held up.
    type Written = (Vec<u8>, bool);

    #[derive(Clone, Default)]
    struct Sink(Arc<(Mutex<Written>, Condvar)>);

    impl Sink {
        fn hold(&self, held: bool) {
            self.0.0.lock().unwrap().1 = held;
            self.0.1.notify_all();
        }

        fn trace(&self) -> Trace {
            Trace::parse(&self.0.0.lock().unwrap().0).unwrap()
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (lock, changed) = &*self.0;
            let mut state = changed
                .wait_while(lock.lock().unwrap(), |state| state.1)
                .unwrap();
            state.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stat(recorder: &Recorder, path: &str) {
        recorder.note(clock::now(), false, |names| {
            let file = names.number(path.as_bytes(), Initial::Bytes(7))?;
            Some(Operation::Stat { file })
        });
    }

    #[test]
    fn names_are_told_once_and_hashed_if_asked() {
        for names in [Names::Kept, Names::Hashed] {
            let sink = Sink::default();
            let recorder = Recorder::to(sink.clone(), names).unwrap();
            for path in ["/d/a", "d//a", "d/b"] {
                stat(&recorder, path);
            }
            assert_eq!(recorder.finish().unwrap().operations, 3);
            stat(&recorder, "late");
            let trace = sink.trace();
            assert_eq!((trace.names.len(), trace.entries.len()), (2, 3));
            assert_eq!(trace.names[0].path == b"d/a", names == Names::Kept);
            let directory = |at: usize| trace.names[at].path.split(|b| *b == b'/').next();
            assert_eq!(directory(0), directory(1));
        }
    }

    #[test]
    fn who_writes_slowly_holds_nobody_up() {
        let sink = Sink::default();
        sink.hold(true);
        let recorder = Recorder::to(sink.clone(), Names::Kept).unwrap();
        let mut all = 0;
        while recorder.0.lock().recorded.left_out < 10 {
            stat(&recorder, &format!("{:0>900}", all % 5000));
            all += 1;
            assert!(all < 1 << 20, "memory is not bounded");
        }
        sink.hold(false);
        let recorded = recorder.finish().unwrap();
        assert_eq!(recorded.operations + recorded.left_out, all);
        assert_eq!(sink.trace().entries.len() as u64, recorded.operations);
    }

    #[test]
    fn an_error_is_told() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let recorder = Recorder::to(Full, Names::Kept).unwrap();
        for _ in 0..100_000 {
            stat(&recorder, "a");
        }
        let error = recorder.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let sink = Sink::default();
        let recorder = Recorder::to(sink.clone(), Names::Kept).unwrap();
        stat(&recorder, "a");
        std::thread::scope(|scope| scope.spawn(|| stat(&recorder, "a")).join().unwrap());
        drop(recorder);
        let threads: Vec<_> = sink.trace().entries.iter().map(|e| e.thread).collect();
        assert_eq!(threads, [0, 1]);
    }
}
