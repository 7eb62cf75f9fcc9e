//! The client for async programs on tokio.
//!
//! Operations that need no waiting (the data cache, one-sided reads from shared memory) run on the spot, all others on
//! tokio's blocking threads. A future owns its buffer, so dropping it is always safe.

use crate::{
    batch::FileRequest,
    error::{ConnectError, PathError, ReadError, WriteError},
    fs::{self, FileHandle},
    metadata::{DirEntry, Metadata},
    options::Options,
    url::Url,
};
use odafs_fabric::sync::{Arc, Mutex};
use std::{ops::Range, path::Path};

/// The most reads of a batch that are tried on the spot.
const ON_THE_SPOT: usize = 64;
/// Reads of more bytes are made in pieces of this length, and take memory as data come: the file may be much shorter.
const PIECE: usize = 4 << 20;

/// [`crate::Client`] for async programs.
#[derive(Debug, Clone)]
pub struct Client {
    blocking: crate::Client,
}

impl Client {
    /// Connects with the default [`Options`].
    ///
    /// # Errors
    /// As [`crate::Client::connect`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(url.parse()?, Options::default()).await
    }

    /// Connects with these options.
    ///
    /// # Errors
    /// As [`crate::Client::connect_with`].
    pub async fn connect_with(url: Url, options: Options) -> Result<Self, ConnectError> {
        let blocking = run(move || crate::Client::connect_with(&url, options)).await?;
        Ok(Self { blocking })
    }

    /// The same client for threads, for what this one does not wrap.
    pub fn blocking(&self) -> &crate::Client {
        &self.blocking
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`crate::Client::open`].
    pub async fn open(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        let (client, path) = (self.blocking.clone(), path.as_ref().to_owned());
        let blocking = run(move || client.open(path)).await?;
        Ok(File { blocking })
    }

    /// Creates a file, or truncates an existing one to 0 bytes.
    ///
    /// # Errors
    /// As [`crate::Client::create`].
    pub async fn create(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        let (client, path) = (self.blocking.clone(), path.as_ref().to_owned());
        let blocking = run(move || client.create(path)).await?;
        Ok(File { blocking })
    }

    /// The attributes of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// As [`crate::Client::stat`].
    pub async fn stat(&self, path: impl AsRef<Path>) -> Result<Metadata, PathError> {
        let (client, path) = (self.blocking.clone(), path.as_ref().to_owned());
        run(move || client.stat(path)).await
    }

    /// The entries of a directory, all of them.
    ///
    /// # Errors
    /// As [`crate::Client::read_dir`].
    pub async fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>, PathError> {
        let (client, path) = (self.blocking.clone(), path.as_ref().to_owned());
        run(move || client.read_dir(path)?.collect()).await
    }

    /// Reads ranges of any files of this client, in bytes, and returns the bytes of each: fewer than asked for only at
    /// the end of its file. Up to 64 reads that need no waiting are made on the spot. The others are in flight together.
    ///
    /// # Errors
    /// As [`crate::Client::read_batch`].
    ///
    /// # Panics
    /// If a file is of another client.
    pub async fn read_batch(
        &self,
        reads: &[(&File, Range<u64>)],
    ) -> Result<Vec<Vec<u8>>, ReadError> {
        read_batch(self.blocking.clone(), reads).await
    }
}

async fn read_batch(
    client: crate::Client,
    reads: &[(&File, Range<u64>)],
) -> Result<Vec<Vec<u8>>, ReadError> {
    let length = |range: &Range<u64>| {
        let bytes = range.end.saturating_sub(range.start);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    };
    let room = |range: &Range<u64>| vec![0; length(range).min(PIECE)];
    let mut all: Vec<_> = reads.iter().map(|(_, range)| room(range)).collect();
    let at_once = |((file, range), buf): (&(&File, Range<u64>), &mut Vec<u8>)| {
        if length(range) > PIECE {
            return false;
        }
        let got = file.blocking.try_read_at(buf, range.start);
        got.map(|bytes| buf.truncate(bytes)).is_some()
    };
    let tried = reads.iter().zip(&mut all).take(ON_THE_SPOT);
    let done = tried.map(at_once).take_while(|came| *came).count();
    if done == reads.len() {
        return Ok(all);
    }
    let files: Vec<_> = reads[done..]
        .iter()
        .map(|(file, range)| (file.blocking.clone(), range.start, length(range)))
        .collect();
    run(move || {
        let mut requests: Vec<_> = files
            .iter()
            .zip(&mut all[done..])
            .map(|((file, offset, _), buf)| FileRequest::new(file, *offset, buf))
            .collect();
        client.read_batch(&mut requests)?;
        let got: Vec<_> = requests.iter().map(|request| request.bytes).collect();
        for ((buf, bytes), (file, offset, length)) in all[done..].iter_mut().zip(got).zip(&files) {
            let full = bytes == buf.len();
            buf.truncate(bytes);
            if full {
                read_on(file, *offset, *length, buf)?;
            }
        }
        Ok(all)
    })
    .await
}

/// Reads on behind the bytes of `all`, which begin at `offset`, until there are `length` or the file ends.
fn read_on(
    file: &crate::File,
    offset: u64,
    length: usize,
    all: &mut Vec<u8>,
) -> Result<(), ReadError> {
    while all.len() < length {
        let start = all.len();
        let Some(from) = offset.checked_add(start as u64) else {
            return Ok(());
        };
        all.resize(start + (length - start).min(PIECE), 0);
        let bytes = file.read_at(&mut all[start..], from)?;
        let full = start + bytes == all.len();
        all.truncate(start + bytes);
        if !full {
            return Ok(());
        }
    }
    Ok(())
}

/// [`fs::FileSystem`] for async programs. Every operation is a call to the server, so [`call`](Self::call) runs any
/// of them on a thread that may block.
///
/// ```no_run
/// # async fn example(client: odafs::tokio::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let files = odafs::tokio::FileSystem::new(&client);
/// let table = files.call(|fs| fs.lookup(&fs.root(), "table")).await?;
/// let file = files.open(table.handle).await?;
/// println!("{} bytes", file.read_at(0, 4096).await?.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FileSystem {
    blocking: fs::FileSystem,
}

impl FileSystem {
    /// The files of the export that a client is connected to.
    pub fn new(client: &Client) -> Self {
        Self {
            blocking: fs::FileSystem::new(&client.blocking),
        }
    }

    /// The same files for threads.
    pub fn blocking(&self) -> &fs::FileSystem {
        &self.blocking
    }

    /// Runs `job` with the files on a thread that may block. It runs to its end even if the future is dropped.
    pub async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&fs::FileSystem) -> T + Send + 'static,
    ) -> T {
        let files = self.blocking.clone();
        run(move || job(&files)).await
    }

    /// Reads ranges of any open files, as [`Client::read_batch`].
    ///
    /// # Errors
    /// As [`crate::Client::read_batch`].
    ///
    /// # Panics
    /// If a file is of another client.
    pub async fn read_batch(
        &self,
        reads: &[(&File, Range<u64>)],
    ) -> Result<Vec<Vec<u8>>, ReadError> {
        read_batch(self.blocking.client().clone(), reads).await
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`fs::FileSystem::open`].
    pub async fn open(&self, file: FileHandle) -> Result<File, PathError> {
        let blocking = self.call(move |fs| fs.open(&file)).await?;
        Ok(File { blocking })
    }
}

/// [`crate::File`] for async programs.
#[derive(Debug, Clone)]
pub struct File {
    blocking: crate::File,
}

impl File {
    /// The same file for threads, for what this one does not wrap.
    pub fn blocking(&self) -> &crate::File {
        &self.blocking
    }

    /// Reads up to `length` bytes from `offset` on, in bytes. It returns fewer only at the end of the file.
    ///
    /// # Errors
    /// As [`crate::File::read_at`].
    pub async fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let file = self.blocking.clone();
        if length > PIECE {
            return run(move || {
                let mut all = Vec::new();
                read_on(&file, offset, length, &mut all)?;
                Ok(all)
            })
            .await;
        }
        let mut buf = vec![0; length];
        if let Some(bytes) = file.try_read_at(&mut buf, offset) {
            buf.truncate(bytes);
            return Ok(buf);
        }
        run(move || {
            let bytes = file.read_at(&mut buf, offset)?;
            buf.truncate(bytes);
            Ok(buf)
        })
        .await
    }

    /// Writes all of `data` at `offset`, in bytes. The write is unstable until [`sync`](Self::sync).
    ///
    /// A future that is dropped after its first poll does not take its write back: the write goes on, and may be made
    /// after writes that begin later. To write the same bytes again, await the first write to its end.
    ///
    /// # Errors
    /// As [`crate::File::write_at`].
    pub async fn write_at(&self, data: Vec<u8>, offset: u64) -> Result<(), WriteError> {
        let file = self.blocking.clone();
        run(move || file.write_at(&data, offset)).await
    }

    /// Brings all that was written to this file through this client to stable storage.
    ///
    /// # Errors
    /// As [`crate::File::sync`].
    pub async fn sync(&self) -> Result<(), WriteError> {
        let file = self.blocking.clone();
        run(move || file.sync()).await
    }
}

/// Runs `job` on a thread that may block. A panic in `job` continues in the caller. A runtime that shuts down begins no
/// more jobs; then `job` runs on the caller's thread.
async fn run<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    let job = Arc::new(Mutex::new(Some(job)));
    let mine = Arc::clone(&job);
    let ended = ::tokio::task::spawn_blocking(move || {
        let job = mine.lock().take();
        job.map(|job| job())
    });
    let failed = match ended.await {
        Ok(Some(value)) => return value,
        Ok(None) => unreachable!("only a job that never ran is taken from it"),
        Err(failed) => failed,
    };
    let job = job.lock().take();
    match (failed.try_into_panic(), job) {
        (Ok(panic), _) => std::panic::resume_unwind(panic),
        (Err(_), Some(job)) => job(),
        (Err(cancelled), None) => panic!("a job was cancelled after it began: {cancelled}"),
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use ::tokio::runtime;

    #[test]
    fn a_runtime_that_shuts_down_loses_no_job() {
        let other = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime");
        let gone = other.handle().clone();
        other.shutdown_background();
        let here = runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let job = async {
            let _entered = gone.enter();
            run(|| 7).await
        };
        assert_eq!(here.block_on(job), 7);
    }

    #[test]
    #[should_panic(expected = "as planned")]
    fn a_panic_of_a_job_goes_on() {
        let here = runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        here.block_on(run(|| panic!("as planned")));
    }
}
