//! The client: its connection to one export, and the operations on paths.

use crate::{
    error::{ConnectError, PathError, Status},
    facts::{FileReferences, Granted, PageReference, ServerFacts},
    file::File,
    link::{Dial, Link},
    listing::Entries,
    metadata::{CreateOptions, Metadata},
    nfs::{Nfs, NfsError, Removed, references},
    open_file::OpenFile,
    options::{Eager, Options},
    path::{EntryName, Walk},
    read_dir::ReadDir,
    record::{Initial, Operation},
    route::{Choice, SizeClass},
    shared::Shared,
    statistics::{RdmaTerms, Statistics},
    types::{Changes, Cookie, Create, Entry, FileKind, Space, When},
    url::Url,
};
use odafs_fabric::{
    clock, entropy,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// A connection to one export of a server. It is cheap to clone. All clones share caches and connections, and many
/// threads may use them at once.
///
/// An absolute path begins with the export's name, as in a URL; a relative one starts at the URL's path.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Connects with the default [`Options`].
    ///
    /// # Errors
    /// The URL is malformed, no server answers, no export holds the URL's path, or a call fails.
    pub fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(&url.parse()?, Options::default())
    }

    /// Connects with these options.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and when the server does not grant a route that the options insist on.
    pub fn connect_with(url: &Url, options: Options) -> Result<Self, ConnectError> {
        let link = Link::of(url, options.rdma)?;
        Ok(Self {
            shared: Arc::new(Shared::connect(url, link, options)?),
        })
    }

    /// Connects over a fabric that the caller brings. Only the path of the URL counts.
    ///
    /// # Errors
    /// As [`connect_with`](Self::connect_with).
    pub fn over(fabric: Arc<dyn Dial>, url: &Url, options: Options) -> Result<Self, ConnectError> {
        let link = Link::Fabric(fabric, options.rdma);
        Ok(Self {
            shared: Arc::new(Shared::connect(url, link, options)?),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn nfs(&self) -> Nfs<'_> {
        self.shared.nfs()
    }

    pub(crate) fn walk(&self, verb: &'static str) -> Walk<'_> {
        Walk {
            shared: &self.shared,
            verb,
        }
    }

    /// The URL with which the client connected.
    pub fn url(&self) -> &Url {
        &self.shared.url
    }

    /// What the server is and what it granted.
    pub fn server(&self) -> ServerFacts {
        let session = self.shared.session();
        let granted = session.as_ref().map(|session| {
            let mac = session.algorithm.name();
            if session.one_sided {
                Granted::OneSided { mac }
            } else {
                Granted::Guarded { mac }
            }
        });
        ServerFacts {
            fabric: self.shared.calls.link().name(),
            export: String::from_utf8_lossy(&self.shared.mounted.export).into_owned(),
            odafs: self.shared.odafs.load(Relaxed),
            granted,
            page_bytes: session
                .as_ref()
                .map_or(0, |session| session.page.bytes() as u32),
            max_read: self.shared.read_max,
            max_write: self.shared.write_max,
        }
    }

    /// The counters of all clones since the client connected.
    pub fn statistics(&self) -> Statistics {
        let shared = &self.shared;
        let mut all = Statistics::default();
        shared.shards.add_to(&mut all);
        all.references_learned = shared.learned.load(Relaxed);
        all.references_held = shared.directory.held();
        all.directory_bytes = shared.directory.bytes();
        all.cache_bytes = shared.cache_bytes();
        all.bytes_written = shared.written.load(Relaxed);
        all.calls = shared.calls.sent.load(Relaxed);
        all.reconnects = shared.calls.reconnects.load(Relaxed);
        all.delegations_held = shared.delegations_held();
        all.delegations_granted = shared.delegations.granted.load(Relaxed);
        all.delegations_recalled = shared.delegations.recalled.load(Relaxed);
        let policy = shared.policy.lock();
        all.policy_switches = policy.switches();
        all.policy_probes = policy.probes();
        all.policy_trials = policy.trials();
        let class = SizeClass::of(4096);
        let known = policy.explain_server(class);
        let took_ns = |choice| policy.cost_ns(class, choice).unwrap_or_default() as u64;
        all.terms = RdmaTerms {
            rpc_ns: known.rpc_ns as u64,
            direct_ns: known.direct_ns as u64,
            guarded_ns: took_ns(Choice::Guarded),
            one_sided_ns: took_ns(Choice::OneSided),
            hit_ns: policy.hit_ns(class).unwrap_or_default() as u64,
            put_ns: policy.put_ns().unwrap_or_default() as u64,
            stale_ns: known.stale_ns as u64,
            directory_hits_milli: ((known.completed + known.refused) * 1000.0) as u64,
            stale_hits_milli: (known.refused * 1000.0) as u64,
        };
        all
    }

    /// Opens a file for reading and writing, and checks what is cached of it against the server.
    ///
    /// # Errors
    /// No such file exists, it is a directory, or the call failed.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        let path = path.as_ref();
        let size = |file: &File| file.state().attributes().map_or(0, |known| known.size);
        let before = |file: &File| Initial::Bytes(size(file));
        self.shared.recorded(
            path,
            |file| Operation::Open { file },
            before,
            || self.open_at(path),
        )
    }

    fn open_at(&self, path: &Path) -> Result<File, PathError> {
        let verb = "open";
        let found = self.walk(verb).find(path, true)?;
        if found.attributes.kind == FileKind::Directory {
            return Err(NfsError::from(Status::IS_DIR).at(verb, &shown(path)));
        }
        let file = self.file(shown(path), &found);
        if self.shared.options.eager == Eager::OnOpen {
            // References that do not come now come with the reads.
            let _ = file.learn(0, u64::MAX);
        }
        Ok(file)
    }

    /// Opens a file that was just found or created. What is cached of it is checked against its attributes.
    pub(crate) fn file(&self, path: String, found: &Entry) -> File {
        let state = self.shared.file(found.handle);
        state.revalidate(&found.attributes);
        // The counter distinguishes versions with the same times.
        let _ = crate::counter::unchanged_at_once(&self.shared, &state);
        let inner = OpenFile::new(self.shared.clone(), state, path.into());
        File::new(self.clone(), inner)
    }

    /// Creates a file, or truncates an existing one to 0 bytes.
    ///
    /// # Errors
    /// As [`create_with`](Self::create_with).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        self.create_with(path, &CreateOptions::default())
    }

    /// Creates a file that does not exist yet.
    ///
    /// # Errors
    /// As [`create_with`](Self::create_with), and if the file exists.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        self.create_with(
            path,
            &CreateOptions {
                exclusive: true,
                ..CreateOptions::default()
            },
        )
    }

    /// Creates a file with these options.
    ///
    /// # Errors
    /// The server refused to create it (no such directory, no right, read-only, no space), or the call failed.
    pub fn create_with(
        &self,
        path: impl AsRef<Path>,
        options: &CreateOptions,
    ) -> Result<File, PathError> {
        let path = path.as_ref();
        let of = |file| Operation::Create { file };
        self.shared
            .recorded(path, of, |_| Initial::Absent, || self.make(path, options))
    }

    fn make(&self, path: &Path, options: &CreateOptions) -> Result<File, PathError> {
        let verb = "create";
        let place = self.walk(verb).place(path)?;
        let size = options.truncate.then_some(0);
        let attributes = Changes {
            mode: Some(options.mode),
            size,
            ..Default::default()
        };
        let how = match options.exclusive {
            // A call with a verifier may be repeated. The attributes follow in a second call (RFC 1813 section 3.3.8).
            true => Create::Exclusive(entropy::word().to_be_bytes()),
            false => Create::Unchecked(attributes),
        };
        let at = |error: NfsError| error.at(verb, &shown(path));
        let (directory, name) = (&place.directory, &place.name);
        let mut made = self.shared.create(directory, name, &how).map_err(at)?;
        if options.exclusive {
            let first = Changes {
                mode: Some(options.mode),
                // The server may have stored the verifier in place of the times.
                accessed: Some(When::Now),
                modified: Some(When::Now),
                ..Default::default()
            };
            let set = self.shared.set_attributes(&made.handle, &first, None);
            made.attributes = set.map_err(at)?;
        }
        Ok(self.file(shown(path), &made))
    }

    /// The attributes of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// There is no such file, or the call failed.
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Metadata, PathError> {
        self.stat_at(path.as_ref(), true)
    }

    /// The attributes of a file, or of a symbolic link itself.
    ///
    /// # Errors
    /// As [`stat`](Self::stat).
    pub fn stat_link(&self, path: impl AsRef<Path>) -> Result<Metadata, PathError> {
        self.stat_at(path.as_ref(), false)
    }

    fn stat_at(&self, path: &Path, follows: bool) -> Result<Metadata, PathError> {
        let of = |file| Operation::Stat { file };
        self.shared.recorded(path, of, Metadata::initial, || {
            Ok(self.walk("stat").find(path, follows)?.attributes.into())
        })
    }

    /// The entries of a directory, without `.` and `..`. The client fetches them as the program asks for them.
    ///
    /// # Errors
    /// There is no such directory, or the call failed.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir, PathError> {
        let path = path.as_ref();
        let of = |file| Operation::List { file };
        self.shared
            .recorded(path, of, |_| Initial::Directory, || self.list(path))
    }

    fn list(&self, path: &Path) -> Result<ReadDir, PathError> {
        let verb = "list";
        let directory = self.walk(verb).find(path, true)?;
        if directory.attributes.kind != FileKind::Directory {
            return Err(NfsError::from(Status::NOT_DIR).at(verb, &shown(path)));
        }
        let shared = self.shared.clone();
        let entries = Entries::new(shared, directory.handle, Cookie::START, true);
        ReadDir::new(path, entries)
    }

    /// Creates a directory with mode 0755.
    ///
    /// # Errors
    /// The name exists, its parent does not, or the call failed.
    pub fn mkdir(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        let path = path.as_ref();
        let of = |file| Operation::Mkdir { file };
        let attributes = Changes {
            mode: Some(0o755),
            ..Default::default()
        };
        self.shared.recorded(
            path,
            of,
            |()| Initial::Absent,
            || {
                self.on_name("mkdir", path, |nfs, at| {
                    nfs.make_directory(&at.directory, &at.name, &attributes)
                        .map(drop)
                })
            },
        )
    }

    /// Removes a file or a symbolic link.
    ///
    /// # Errors
    /// No such file exists, it is a directory, or the call failed.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        let path = path.as_ref();
        let of = |file| Operation::Remove { file };
        self.shared.recorded(
            path,
            of,
            |()| Initial::Bytes(0),
            || {
                self.on_name("remove", path, |_, at| {
                    self.shared.remove(&at.directory, &at.name, Removed::File)
                })
            },
        )
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// No such directory exists, it is not empty, or the call failed.
    pub fn rmdir(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        let path = path.as_ref();
        let of = |file| Operation::Rmdir { file };
        self.shared.recorded(
            path,
            of,
            |()| Initial::Directory,
            || {
                self.on_name("rmdir", path, |_, at| {
                    self.shared
                        .remove(&at.directory, &at.name, Removed::Directory)
                })
            },
        )
    }

    /// Renames a file or directory, and replaces what bears the new name.
    ///
    /// # Errors
    /// There is no such file, or the call failed.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), PathError> {
        let names = (from.as_ref(), to.as_ref());
        self.shared.recorded_pair(
            names,
            |from, to| Operation::Rename { from, to },
            || {
                let [to, from] = self.walk("rename").places(names.1, names.0)?;
                self.shared
                    .rename((&from.directory, &from.name), (&to.directory, &to.name))
                    .map_err(|error| error.at("rename", &shown(names.0)))
            },
        )
    }

    /// Creates a symbolic link at `path` that points to `target`.
    ///
    /// # Errors
    /// The name exists, or the call failed.
    pub fn symlink(
        &self,
        target: impl AsRef<Path>,
        path: impl AsRef<Path>,
    ) -> Result<(), PathError> {
        let target = target.as_ref().as_os_str().as_bytes();
        self.on_name("symlink", path.as_ref(), |nfs, at| {
            nfs.symlink(&at.directory, &at.name, target).map(drop)
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The file is not a symbolic link, or the call failed.
    pub fn readlink(&self, path: impl AsRef<Path>) -> Result<PathBuf, PathError> {
        let (verb, path) = ("readlink", path.as_ref());
        let link = self.walk(verb).find(path, false)?;
        let target = self
            .nfs()
            .read_link(&link.handle)
            .map_err(|error| error.at(verb, &shown(path)))?;
        Ok(OsString::from_vec(target).into())
    }

    /// Gives the file `existing` the further name `new` (a hard link).
    ///
    /// # Errors
    /// The new name exists, the two names lie on different file systems, or the call failed.
    pub fn hard_link(
        &self,
        existing: impl AsRef<Path>,
        new: impl AsRef<Path>,
    ) -> Result<(), PathError> {
        let names = (existing.as_ref(), new.as_ref());
        self.shared.recorded_pair(
            names,
            |from, to| Operation::Link { from, to },
            || {
                let (file, at) = self.walk("link").file_and_place(names.0, names.1)?;
                self.shared
                    .link(&file, &at.directory, &at.name)
                    .map_err(|error| error.at("link", &shown(names.1)))
            },
        )
    }

    fn on_name(
        &self,
        verb: &'static str,
        path: &Path,
        what: impl FnOnce(Nfs<'_>, &EntryName) -> Result<(), NfsError>,
    ) -> Result<(), PathError> {
        let place = self.walk(verb).place(path)?;
        what(self.nfs(), &place).map_err(|error| error.at(verb, &shown(path)))
    }

    /// Changes mode, owner, size or times, and returns the new attributes. Symbolic links are followed.
    ///
    /// # Errors
    /// There is no such file, the caller has no right to change it, or the call failed.
    pub fn set_attributes(
        &self,
        path: impl AsRef<Path>,
        changes: &Changes,
    ) -> Result<Metadata, PathError> {
        let path = path.as_ref();
        let of = |file| match changes.size {
            Some(length) => Operation::Truncate { file, length },
            None => Operation::Attributes { file },
        };
        self.shared
            .recorded(path, of, Metadata::initial, || self.change(path, changes))
    }

    fn change(&self, path: &Path, changes: &Changes) -> Result<Metadata, PathError> {
        let verb = "set attributes";
        let found = self.walk(verb).find(path, true)?;
        self.shared
            .set_attributes(&found.handle, changes, None)
            .map(Metadata::from)
            .map_err(|error| error.at(verb, &shown(path)))
    }

    /// Space on the export's file system, in bytes and files.
    ///
    /// # Errors
    /// The call failed.
    pub fn space(&self) -> Result<Space, PathError> {
        let root = &self.shared.mounted.root;
        self.nfs()
            .space(root)
            .map_err(|error| error.at("ask for space on", "the export"))
    }

    /// Asks the server for the references of whole files, keeps them in the directory, and returns them without
    /// access keys.
    ///
    /// # Errors
    /// A file is missing, the server has no ODAFS program, or the call failed.
    pub fn refs<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Vec<FileReferences>, PathError> {
        let verb = "ask for references of";
        let files: Result<Vec<_>, _> = paths.iter().map(|path| self.open(path)).collect();
        let files = files?;
        let wanted = files.iter().map(|file| references::Wanted {
            file: file.state(),
            offset: 0,
            length: u64::MAX,
        });
        let ranges: Vec<_> = wanted.collect();
        let answers = references::query(&self.shared, &ranges);
        let session = self.shared.session();
        let page_bytes = self.shared.page(session.as_deref()).bytes() as u32;
        let names = || {
            paths
                .iter()
                .map(|path| shown(path.as_ref()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let answers = answers.map_err(|error| error.at(verb, &names()))?;
        let told = |(path, answer): (&P, references::Answered)| FileReferences {
            path: path.as_ref().to_owned(),
            change: answer.change,
            size: answer.size,
            page_bytes,
            counter: answer.counter,
            pages: answer.references.iter().map(PageReference::from).collect(),
        };
        Ok(paths.iter().zip(answers).map(told).collect())
    }

    /// Makes one call that does nothing (paper 004's T_NullRPC), and returns its time.
    ///
    /// # Errors
    /// The call failed.
    pub fn ping(&self) -> Result<Duration, PathError> {
        let before = clock::now();
        self.nfs()
            .null()
            .map_err(|error| NfsError::Call(error).at("ping", "the server"))?;
        Ok(clock::now().since(before).duration())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.shared.url)
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl NfsError {
    /// Makes the error name the path and the operation that the caller asked for.
    pub fn at(self, verb: &'static str, path: &str) -> PathError {
        let path = path.to_owned();
        match self {
            Self::Status(status) => PathError::Server { verb, path, status },
            Self::Call(source) => PathError::Call { verb, path, source },
        }
    }
}
