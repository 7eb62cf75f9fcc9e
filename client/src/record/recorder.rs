//! Writes a trace while a client works.
//!
//! Operations become lines in a chunk of memory, under a lock. The recorder's own thread writes full chunks. If it does
//! not keep up, operations are left out and counted, so that nobody waits for a disk and memory is bounded. The
//! operations of one call are all recorded or all left out.

use super::format::{
    BYTES_MAX, ENTRIES_MAX, Entry, HEADER, Initial, NAMES_MAX, Name, Operation, PATHS_MAX,
    THREADS_MAX, name_line, path_of,
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
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, Receiver, SendError, Sender},
    },
    thread::{JoinHandle, ThreadId},
};

/// Length in bytes at which a chunk goes to the writing thread.
const CHUNK: usize = 64 << 10;
/// While this many bytes wait for that thread, it gets no further chunk.
const WAITING_MAX: usize = 2 << 20;
/// The most names of a recorder, which keeps them in memory.
const NAMES_KEPT: usize = if NAMES_MAX < 100_000 {
    NAMES_MAX
} else {
    100_000
};

/// What a trace reveals of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Names {
    /// A random code for each component of a path. The trace shows which names share a directory, and nothing more.
    #[default]
    Hashed,
    /// Names as they are.
    Kept,
}

/// What a recorder has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Number of operations in the trace.
    pub operations: u64,
    /// Number of operations that are not in the trace: writing did not keep up or failed, or the trace's limits for
    /// operations, threads, names, paths, lengths or offsets were exceeded.
    pub left_out: u64,
}

/// Records what clients do: [`Options::record`](crate::Options::record). All clones record to the same trace, and so do
/// all clients that use one of them.
///
/// The trace is complete after [`finish`](Self::finish), or when the last clone is dropped.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    began: Nanos,
    names: Names,
    codes: RandomState,
    state: Mutex<State>,
    /// The result of the recording. The caller that ends it holds this lock, and not that of `state`, while the rest is
    /// written.
    ended: Mutex<Option<Result<Recorded, Arc<io::Error>>>>,
}

struct State {
    chunk: String,
    chunks: Option<Sender<String>>,
    /// Bytes of the chunks that are not yet written.
    waiting: Arc<AtomicUsize>,
    writer: Option<JoinHandle<io::Result<()>>>,
    names: HashMap<Vec<u8>, u32>,
    /// Bytes of all paths in the trace.
    path_bytes: usize,
    threads: HashMap<ThreadId, u32>,
    recorded: Recorded,
}

impl Recorder {
    /// Records to a new file.
    ///
    /// # Errors
    /// The file already exists, or cannot be created.
    pub fn create(path: impl AsRef<Path>, names: Names) -> io::Result<Self> {
        Self::to(File::create_new(path)?, names)
    }

    /// Records to `writer`, on a thread of the recorder.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn to(writer: impl Write + Send + 'static, names: Names) -> io::Result<Self> {
        let (chunks, full) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&waiting);
        let writer = std::thread::Builder::new()
            .name("odafs-record".to_owned())
            .spawn(move || write(writer, &full, &written))?;
        Ok(Self(Arc::new(Inner {
            began: clock::now(),
            names,
            codes: RandomState::new(),
            state: Mutex::new(State {
                chunk: format!("{HEADER}\n"),
                chunks: Some(chunks),
                waiting,
                writer: Some(writer),
                names: HashMap::new(),
                path_bytes: 0,
                threads: HashMap::new(),
                recorded: Recorded {
                    operations: 0,
                    left_out: 0,
                },
            }),
            ended: Mutex::new(None),
        })))
    }

    /// Ends the trace, and writes everything that was recorded. Later operations are not recorded. A second call waits
    /// for the first and returns the same.
    ///
    /// # Errors
    /// Not all of it could be written. The trace contains the rest.
    pub fn finish(&self) -> io::Result<Recorded> {
        self.0.finish()
    }

    /// Records the operations of one call that began at `began` and has ended: all `count` of them or none. `describe`
    /// numbers the names, and says what had them before.
    pub(crate) fn note<O: IntoIterator<Item = Operation>>(
        &self,
        began: Nanos,
        failed: bool,
        count: u64,
        describe: impl FnOnce(&mut Naming<'_>) -> Option<O>,
    ) {
        let took_ns = clock::now().since(began).0;
        let begin_ns = began.since(self.0.began).0;
        let mut state = self.0.lock();
        if state.chunks.is_none() {
            return;
        }
        let entry = |operation, thread| Entry {
            begin_ns,
            took_ns: Some(took_ns),
            thread,
            operation,
            failed,
        };
        match state.has_room(count) && self.0.write(&mut state, entry, describe).is_some() {
            true => state.recorded.operations += count,
            false => state.recorded.left_out += count,
        }
    }
}

/// Numbers names for one operation.
pub(crate) struct Naming<'a> {
    inner: &'a Inner,
    state: &'a mut State,
}

impl Naming<'_> {
    /// The number of the name with this path from the export's root. `initial` had it, if it is new. `None` if a trace
    /// cannot have such a name, or this one has too many.
    pub fn number(&mut self, path: &[u8], initial: Initial) -> Option<u32> {
        let path = path_of(path)?;
        if let Some(&number) = self.state.names.get(&path) {
            return Some(number);
        }
        if matches!(initial, Initial::Bytes(bytes) if bytes > BYTES_MAX) {
            return None;
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
        let path_bytes = self.state.path_bytes + name.path.len();
        if path_bytes > PATHS_MAX {
            return None;
        }
        self.state.path_bytes = path_bytes;
        let _ = writeln!(self.state.chunk, "{}", name_line(number as u32, &name));
        self.state.names.insert(path, number as u32);
        Some(number as u32)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the lines of one call. An operation that exceeds the limits is left out with its whole call.
    fn write<O: IntoIterator<Item = Operation>>(
        &self,
        state: &mut State,
        entry: impl Fn(Operation, u32) -> Entry,
        describe: impl FnOnce(&mut Naming<'_>) -> Option<O>,
    ) -> Option<()> {
        let thread = state.thread()?;
        let operations = describe(&mut Naming { inner: self, state })?;
        let start = state.chunk.len();
        for operation in operations {
            let entry = entry(operation, thread);
            if !entry.fits() {
                state.chunk.truncate(start);
                return None;
            }
            let _ = writeln!(state.chunk, "{entry}");
        }
        Some(())
    }

    fn finish(&self) -> io::Result<Recorded> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = ended.get_or_insert_with(|| self.end().map_err(Arc::new));
        match ended {
            Ok(recorded) => Ok(*recorded),
            Err(error) => Err(io::Error::new(error.kind(), Arc::clone(error))),
        }
    }

    /// Gives the rest to the writing thread, and waits for it.
    fn end(&self) -> io::Result<Recorded> {
        let mut state = self.lock();
        let (chunks, writer) = (state.chunks.take(), state.writer.take());
        let (mut chunk, recorded) = (std::mem::take(&mut state.chunk), state.recorded);
        let waiting = Arc::clone(&state.waiting);
        // From now on, other callers find that the recording has ended, and do not wait.
        drop(state);
        if recorded.left_out > 0 {
            let _ = writeln!(chunk, "# {} operations were left out", recorded.left_out);
        }
        if let (Some(chunks), Some(writer)) = (chunks, writer) {
            waiting.fetch_add(chunk.len(), Relaxed);
            // This fails if the thread is gone. Its error comes next.
            let _ = chunks.send(chunk);
            drop(chunks);
            let died = |_| Err(io::Error::other("the thread that writes the trace died"));
            writer.join().unwrap_or_else(died)?;
        }
        Ok(recorded)
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
    /// Whether this many further operations may be recorded. A full chunk goes to the writing thread.
    fn has_room(&mut self, count: u64) -> bool {
        if self.recorded.operations + count > ENTRIES_MAX as u64 {
            return false;
        }
        if self.chunk.len() < CHUNK {
            return true;
        }
        let Some(chunks) = &self.chunks else {
            return false;
        };
        let bytes = self.chunk.len();
        if self.waiting.load(Relaxed) >= WAITING_MAX {
            return false;
        }
        self.waiting.fetch_add(bytes, Relaxed);
        match chunks.send(std::mem::take(&mut self.chunk)) {
            Ok(()) => true,
            // Writing has failed.
            Err(SendError(chunk)) => {
                self.waiting.fetch_sub(bytes, Relaxed);
                self.chunk = chunk;
                false
            }
        }
    }

    /// The number of this thread, if the trace has one for it.
    fn thread(&mut self) -> Option<u32> {
        let (mine, next) = (std::thread::current().id(), self.threads.len() as u32);
        if let Some(&number) = self.threads.get(&mine) {
            return Some(number);
        }
        if next >= THREADS_MAX {
            return None;
        }
        self.threads.insert(mine, next);
        Some(next)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The error was reported when it occurred.
        let _ = self.finish();
    }
}

fn write(mut writer: impl Write, full: &Receiver<String>, waiting: &AtomicUsize) -> io::Result<()> {
    let written = full
        .iter()
        .try_for_each(|chunk| {
            waiting.fetch_sub(chunk.len(), Relaxed);
            writer.write_all(chunk.as_bytes())
        })
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

/// The bytes of a read or write as an operation stores them. What does not fit exceeds the limits of a trace, too.
pub(crate) fn length_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::format::{LENGTH_MAX, Trace};
    use super::*;
    use std::sync::Condvar;

    /// What was written, and whether writing is blocked.
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
        recorder.note(clock::now(), false, 1, |names| {
            let file = names.number(path.as_bytes(), Initial::Bytes(7))?;
            Some([Operation::Stat { file }])
        });
    }

    /// Reads of one call, by offset and length.
    fn read(recorder: &Recorder, path: &str, reads: &[(u64, u32)]) {
        recorder.note(clock::now(), false, reads.len() as u64, |names| {
            let file = names.number(path.as_bytes(), Initial::Bytes(7))?;
            let numbered = reads.iter().enumerate();
            Some(
                numbered.map(move |(at, &(offset, length))| Operation::Read {
                    file,
                    offset,
                    length,
                    got: 0,
                    together: at > 0,
                }),
            )
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
        for _ in 0..2 {
            let error = recorder.finish().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(error.to_string(), "no storage space");
        }
    }

    #[test]
    fn the_end_of_a_slow_recording_holds_nobody_up() {
        let sink = Sink::default();
        sink.hold(true);
        let recorder = Recorder::to(sink.clone(), Names::Kept).unwrap();
        stat(&recorder, "a");
        let ends = [(); 2].map(|()| {
            let recorder = recorder.clone();
            std::thread::spawn(move || recorder.finish())
        });
        // The sink is blocked, so a recording that held its lock until everything is written would never release it.
        let mut tries = 0;
        let state = &recorder.0.state;
        while !state.try_lock().is_ok_and(|state| state.chunks.is_none()) {
            tries += 1;
            assert!(tries < 30_000, "the lock is held while the rest is written");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        stat(&recorder, "late");
        sink.hold(false);
        for end in ends {
            assert_eq!(end.join().unwrap().unwrap().operations, 1);
        }
        assert_eq!(sink.trace().entries.len(), 1);
    }

    #[test]
    fn a_call_is_in_the_trace_with_all_its_operations_or_not_at_all() {
        let sink = Sink::default();
        let recorder = Recorder::to(sink.clone(), Names::Kept).unwrap();
        read(&recorder, "a", &[(0, 64), (64, 64)]);
        for beyond in [(i64::MAX as u64, 1), (0, LENGTH_MAX + 1)] {
            read(&recorder, "a", &[beyond, (0, 64)]);
            read(&recorder, "a", &[(0, 64), (64, 64), beyond]);
        }
        read(&recorder, &"long/".repeat(1000), &[(0, 64), (64, 64)]);
        let recorded = recorder.finish().unwrap();
        assert_eq!((recorded.operations, recorded.left_out), (2, 12));
        assert_eq!(sink.trace().entries.len(), 2);
    }

    #[test]
    fn threads_beyond_those_of_a_trace_are_left_out() {
        let sink = Sink::default();
        let recorder = Recorder::to(sink.clone(), Names::Kept).unwrap();
        for _ in 0..THREADS_MAX + 3 {
            std::thread::scope(|scope| scope.spawn(|| stat(&recorder, "a")).join().unwrap());
        }
        let recorded = recorder.finish().unwrap();
        assert_eq!(recorded.left_out, 3);
        let threads: Vec<_> = sink.trace().entries.iter().map(|e| e.thread).collect();
        assert_eq!(threads, (0..THREADS_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn lengths_beyond_those_of_a_trace_are_left_out() {
        let sink = Sink::default();
        let recorder = Recorder::to(sink.clone(), Names::Kept).unwrap();
        for (path, initial, length) in [
            ("a", BYTES_MAX + 1, 0),
            ("b", BYTES_MAX, BYTES_MAX + 1),
            ("b", 0, BYTES_MAX),
        ] {
            recorder.note(clock::now(), false, 1, |names| {
                let file = names.number(path.as_bytes(), Initial::Bytes(initial))?;
                Some([Operation::Truncate { file, length }])
            });
        }
        let recorded = recorder.finish().unwrap();
        assert_eq!((recorded.operations, recorded.left_out), (1, 2));
        assert_eq!(sink.trace().names[0].initial, Initial::Bytes(BYTES_MAX));
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
