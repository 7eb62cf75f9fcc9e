//! Connections, and operations on paths.

use crate::{
    buffer::Bytes,
    error::Error,
    file::{File, Ranges, gather_from, pieces_from},
};
use odafs::{
    Cache, Changes, CreateOptions, FileKind, Metadata, Options, PathError, Route, Url, Wait,
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[pyclass(frozen, module = "odafs", name = "Client")]
pub struct Client {
    client: odafs::Client,
}

#[pyclass(frozen, get_all, module = "odafs", name = "Attributes")]
#[derive(Clone)]
pub struct Attributes {
    kind: &'static str,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    used: u64,
    file_id: u64,
    accessed: f64,
    modified: f64,
    modified_ns: u64,
    changed_ns: u64,
}

#[pymethods]
impl Attributes {
    fn __repr__(&self) -> String {
        format!("<odafs {}, {} bytes>", self.kind, self.size)
    }
}

impl From<Metadata> for Attributes {
    fn from(from: Metadata) -> Self {
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            kind: match from.kind {
                FileKind::Regular => "file",
                FileKind::Directory => "directory",
                FileKind::Symlink => "link",
                _ => "other",
            },
            mode: from.mode,
            links: from.links,
            uid: from.uid,
            gid: from.gid,
            size: from.size,
            used: from.used,
            file_id: from.file_id,
            accessed: since(from.accessed).as_secs_f64(),
            modified: since(from.modified).as_secs_f64(),
            modified_ns: since(from.modified).as_nanos() as u64,
            changed_ns: since(from.changed).as_nanos() as u64,
        }
    }
}

fn one_of<T: Copy>(what: &str, given: &str, known: &[(&str, T)]) -> PyResult<T> {
    let found = known.iter().find(|(name, _)| *name == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!(
            "{what}={given:?}: it is one of {}",
            names.join(", ")
        ))
    })
}

impl Client {
    fn on<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&odafs::Client) -> Result<T, PathError> + Send,
    ) -> PyResult<T> {
        Ok(py.detach(|| what(&self.client)).map_err(Error::from)?)
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url, *, deadline=30.0, memory_bytes=64 << 20, route="policy", cache="close-to-open", wait="adaptive",
        lanes=8, identity=None, server_key=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        url: &str,
        deadline: f64,
        memory_bytes: u64,
        route: &str,
        cache: &str,
        wait: &str,
        lanes: u32,
        identity: Option<[u8; 32]>,
        server_key: Option<[u8; 32]>,
    ) -> PyResult<Self> {
        let options = Options {
            deadline: Duration::try_from_secs_f64(deadline)
                .map_err(|error| PyValueError::new_err(format!("deadline={deadline}: {error}")))?,
            memory_bytes,
            route: one_of(
                "route",
                route,
                &[
                    ("policy", Route::Policy),
                    ("rpc", Route::Rpc),
                    ("guarded", Route::Guarded),
                    ("one-sided", Route::OneSided),
                ],
            )?,
            cache: one_of(
                "cache",
                cache,
                &[("close-to-open", Cache::CloseToOpen), ("off", Cache::Off)],
            )?,
            wait: one_of(
                "wait",
                wait,
                &[
                    ("adaptive", Wait::Adaptive),
                    ("spin", Wait::Spin),
                    (
                        "sleep",
                        Wait::Block {
                            spin: Duration::ZERO,
                        },
                    ),
                ],
            )?,
            lanes,
            identity,
            server_key,
            ..Options::default()
        };
        let url: Url = url.parse().map_err(Error::from)?;
        let client = py.detach(|| odafs::Client::connect_with(&url, options));
        let client = client.map_err(Error::from)?;
        Ok(Self { client })
    }

    fn __repr__(&self) -> String {
        format!("<odafs.Client {}>", self.client.url())
    }

    #[getter]
    fn url(&self) -> String {
        self.client.url().to_string()
    }

    /// The counters so far.
    fn statistics(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let all = self.client.statistics();
        [
            ("cache_hits", all.cache_hits),
            ("one_sided_hits", all.one_sided_hits),
            ("guarded_hits", all.guarded_hits),
            ("rpc_reads", all.rpc_reads),
            ("stale_hits", all.stale_hits),
            ("bytes_read", all.bytes_read),
            ("bytes_written", all.bytes_written),
            ("calls", all.calls),
            ("reconnects", all.reconnects),
        ]
        .into()
    }

    fn open(&self, py: Python<'_>, path: PathBuf) -> PyResult<File> {
        Ok(File::new(self.on(py, |client| client.open(path))?))
    }

    #[pyo3(signature = (path, *, mode=0o644, exclusive=false, truncate=true))]
    fn create(
        &self,
        py: Python<'_>,
        path: PathBuf,
        mode: u32,
        exclusive: bool,
        truncate: bool,
    ) -> PyResult<File> {
        let options = CreateOptions {
            mode,
            exclusive,
            truncate,
        };
        Ok(File::new(
            self.on(py, |client| client.create_with(path, &options))?,
        ))
    }

    /// As `gather` of a file, for ranges of several: `which` is an array of 64-bit numbers that says for each range which of
    /// `files` it is of.
    #[pyo3(signature = (files, which, offsets, lengths, buffer, counts=None))]
    fn gather(
        &self,
        files: Vec<Py<File>>,
        which: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let ranges = Ranges::of(offsets, lengths)?;
        let which = self.numbers(&files, which, &ranges)?;
        let file_of = |at: usize| files[which[at] as usize].get().inner();
        gather_from(&self.client, file_of, &ranges, buffer, counts)
    }

    /// As `pieces` of a file, for ranges of several.
    fn pieces<'py>(
        &self,
        py: Python<'py>,
        files: Vec<Py<File>>,
        which: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let ranges = Ranges::of(offsets, lengths)?;
        let which = self.numbers(&files, which, &ranges)?;
        let file_of = |at: usize| files[which[at] as usize].get().inner();
        pieces_from(py, &self.client, file_of, &ranges)
    }

    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, path: PathBuf, follow_symlinks: bool) -> PyResult<Attributes> {
        let stat = |client: &odafs::Client| match follow_symlinks {
            true => client.stat(&path),
            false => client.stat_link(&path),
        };
        Ok(self.on(py, stat)?.into())
    }

    /// Names with their attributes, or None if a file has gone meanwhile.
    fn scandir(
        &self,
        py: Python<'_>,
        path: PathBuf,
    ) -> PyResult<Vec<(std::ffi::OsString, Option<Attributes>)>> {
        let entries = self.on(py, |client| {
            client.read_dir(path)?.collect::<Result<Vec<_>, _>>()
        })?;
        let told = |entry: odafs::DirEntry| (entry.name, entry.metadata.map(Into::into));
        Ok(entries.into_iter().map(told).collect())
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.on(py, |client| client.mkdir(path))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.on(py, |client| client.rmdir(path))
    }

    fn remove(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.on(py, |client| client.remove(path))
    }

    fn rename(&self, py: Python<'_>, old: PathBuf, new: PathBuf) -> PyResult<()> {
        self.on(py, |client| client.rename(old, new))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        self.on(py, |client| client.symlink(target, path))
    }

    /// Gives a file another name (a hard link). An error if the name exists.
    fn link(&self, py: Python<'_>, existing: PathBuf, path: PathBuf) -> PyResult<()> {
        self.on(py, |client| client.hard_link(existing, path))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<std::ffi::OsString> {
        Ok(self.on(py, |client| client.readlink(path))?.into())
    }

    fn truncate(&self, py: Python<'_>, path: PathBuf, size: u64) -> PyResult<()> {
        let changes = Changes {
            size: Some(size),
            ..Changes::default()
        };
        self.change(py, &path, &changes)
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        let changes = Changes {
            mode: Some(mode),
            ..Changes::default()
        };
        self.change(py, &path, &changes)
    }
}

impl Client {
    /// Which of `files` each range is of. All of them were opened by this client.
    fn numbers(
        &self,
        files: &[Py<File>],
        which: &Bound<'_, PyAny>,
        ranges: &Ranges,
    ) -> PyResult<Vec<u64>> {
        let wrong = |what: &str| Err(PyValueError::new_err(what.to_owned()));
        let known = |file: &Py<File>| self.client.has_opened(file.get().inner());
        if !files.iter().all(known) {
            return wrong("a file was opened by another client");
        }
        let which = Bytes::of(which)?.numbers(which.py())?;
        if which.len() != ranges.count() {
            return wrong("there is one file for each offset");
        }
        if which.iter().any(|file| *file >= files.len() as u64) {
            return wrong("there is no such file");
        }
        Ok(which)
    }

    fn change(&self, py: Python<'_>, path: &Path, changes: &Changes) -> PyResult<()> {
        self.on(py, |client| client.set_attributes(path, changes))?;
        Ok(())
    }
}
