//! The state that all handles of one client share.

mod routes;
mod sessions;

pub use self::routes::TimedRead;
use self::sessions::Sessions;
use crate::{
    budget::{Budget, Held},
    cache::{DataCache, Put, Stretch},
    calls::Calls,
    delegation::Delegations,
    directory::{Directory, Location, Lookup},
    error::{CallError, ConnectError},
    handle::FileHandle,
    link::Link,
    nfs::{
        MAX_DATA, Nfs, NfsError,
        mount::{self, Mounted},
    },
    options::{Cache, Options, Route},
    route::{Config, Explanation, Policy, Reuse, SizeClass},
    session::Session,
    shard::{Shard, Shards},
    state::{FileState, Moment},
    url::Url,
};
use lru::LruCache;
use odafs_common::{
    exception::Exception,
    page::PageSize,
    reference::{Epoch, Reference},
    wire::odafs::MAX_READ_REFERENCES,
};
use odafs_fabric::{
    clock::Nanos,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};

/// Number of files whose state is kept while they are not open.
const FILES_KEPT: usize = 4096;
/// Length in bytes of a range above which all pages of a file are dropped, not those of the range alone.
const FORGOTTEN_ONE_BY_ONE: u64 = 16 << 20;
/// Length in bytes of an ODAFS READ reply without its data: header, attributes and the most references.
const READ_HEAD: u32 = 512 + 40 * MAX_READ_REFERENCES;
/// Length in bytes of a WRITE call without its data.
const WRITE_HEAD: u32 = 1024;

/// The core of a client.
pub struct Shared {
    /// The URL.
    pub url: Url,
    /// The options.
    pub options: Options,
    /// The process that has connected.
    process: u32,
    /// The connections for calls.
    pub calls: Calls,
    /// The name of the export.
    pub mounted: Mounted,
    /// The longest READ, in bytes.
    pub read_max: u32,
    /// The longest WRITE, in bytes.
    pub write_max: u32,
    /// Whether the server has the ODAFS program, as far as is known.
    pub odafs: AtomicBool,
    /// What threads read with.
    pub shards: Shards,
    /// The directory of references.
    pub directory: Directory,
    /// Number of references learned.
    pub learned: AtomicU64,
    /// Number of bytes written.
    pub written: AtomicU64,
    /// Bytes of all files that were written and that the server may still lose.
    pub unstable: Arc<AtomicU64>,
    /// The files that the server has delegated to this client.
    pub delegations: Delegations,
    /// The policy.
    pub policy: Mutex<Policy>,
    /// Where the policy decides which pages to keep: the estimate which of them would be read again.
    reuse: Option<Reuse>,
    cache: Option<DataCache>,
    budget: Mutex<Budget>,
    files: Mutex<Files>,
    sessions: Sessions,
}

struct Files {
    by_handle: LruCache<FileHandle, Arc<FileState>>,
    next_number: u64,
}

impl Shared {
    /// Connects: mounts the export, asks for its limits, and opens a session if direct reads are wanted.
    pub fn connect(url: &Url, link: Link, options: Options) -> Result<Self, ConnectError> {
        let deadline = Nanos::from(options.deadline);
        let calls = Calls::new(
            link,
            options.lanes,
            &options.credential,
            deadline,
            options.wait,
        );
        let message_max = calls.reach()?;
        let mounted = mount::mount(&calls, url, &options)?;
        let nfs = Nfs {
            calls: &calls,
            repeat: &crate::calls::Trusting,
        };
        let limits = match nfs.limits(&mounted.root) {
            Ok(limits) => limits,
            Err(NfsError::Call(error)) => return Err(error.into()),
            Err(NfsError::Status(status)) => {
                return Err(CallError::Refused {
                    call: "FSINFO",
                    reason: status.to_string(),
                }
                .into());
            }
        };
        let data_cache = options.cache != Cache::Off;
        let cached = data_cache.then(|| PageSize::DEFAULT.bytes());
        let by_policy = data_cache && options.route == Route::Policy;
        let budget = Budget::new(options.memory_bytes, data_cache);
        let cache = data_cache.then(|| DataCache::new(options.memory_bytes, budget.data_bytes(0)));
        let mut policy = Policy::new(Config::default(), options.seed, cached);
        if let Some(cache) = cache.as_ref().filter(|_| by_policy) {
            cache.allow_growth(policy.grew(0, 0));
        }
        let directory = Directory::new(options.memory_bytes);
        directory.set_limit(budget.directory_bytes());
        let shared = Self {
            url: url.clone(),
            process: std::process::id(),
            calls,
            mounted,
            read_max: limits
                .rtmax
                .min(message_max.saturating_sub(READ_HEAD))
                .clamp(4096, MAX_DATA),
            write_max: limits
                .wtmax
                .min(message_max.saturating_sub(WRITE_HEAD))
                .clamp(512, MAX_DATA),
            odafs: AtomicBool::new(true),
            shards: Shards::default(),
            directory,
            learned: AtomicU64::new(0),
            written: AtomicU64::new(0),
            unstable: Arc::default(),
            delegations: Delegations::default(),
            policy: Mutex::new(policy),
            reuse: by_policy.then(|| Reuse::new(frames(budget.data_bytes(0)))),
            cache,
            budget: Mutex::new(budget),
            files: Mutex::new(Files {
                by_handle: LruCache::unbounded(),
                next_number: 1,
            }),
            sessions: Sessions::default(),
            options,
        };
        shared.first_session()?;
        Ok(shared)
    }

    /// Makes plain NFS calls.
    pub fn nfs(&self) -> Nfs<'_> {
        Nfs {
            calls: &self.calls,
            repeat: self,
        }
    }

    /// Numbers of pages for the cache and for references.
    pub fn page(&self, session: Option<&Session>) -> PageSize {
        session.map_or(PageSize::DEFAULT, |session| session.page)
    }

    // Files

    /// The state of a file. Creates it if there is none.
    pub fn file(&self, handle: FileHandle) -> Arc<FileState> {
        let record = self.policy.lock().record();
        let mut files = self.files.lock();
        if let Some(file) = files.by_handle.get(&handle) {
            return file.clone();
        }
        let number = files.next_number;
        files.next_number += 1;
        let orders = self.first_orders(&record);
        let file = Arc::new(FileState::new(
            number,
            handle,
            record,
            orders,
            Arc::clone(&self.unstable),
        ));
        files.by_handle.put(handle, file.clone());
        files.shrink();
        file
    }

    /// The state of a file, if there is any.
    pub fn known_file(&self, handle: &FileHandle) -> Option<Arc<FileState>> {
        self.files.lock().by_handle.peek(handle).cloned()
    }

    /// The files with writes that the server may still lose, the least recently used ones first.
    pub fn unstable_files(&self) -> Vec<Arc<FileState>> {
        let files = self.files.lock();
        let is_unstable = |file: &&Arc<FileState>| file.unstable.lock().bytes > 0;
        let unstable = files.by_handle.iter().rev().map(|(_, file)| file);
        unstable.filter(is_unstable).cloned().collect()
    }

    /// All files whose state is kept.
    pub fn known_files(&self) -> Vec<Arc<FileState>> {
        let files = self.files.lock();
        files
            .by_handle
            .iter()
            .map(|(_, file)| file.clone())
            .collect()
    }

    /// Whether files are to be delegated to this client.
    #[inline]
    pub fn delegates(&self) -> bool {
        self.options.cache == Cache::Delegated
    }

    // The data cache

    /// Copies bytes of a cached page, from `within` on. Returns `None` if the page is not cached. A page that is `far` is
    /// prefetched first.
    pub fn cached(
        &self,
        file: &FileState,
        page: u64,
        size: PageSize,
        within: usize,
        far: bool,
        into: &mut [u8],
    ) -> Option<usize> {
        let into_page = size.bytes().saturating_sub(within).min(into.len());
        let from = stretch(file, file.moment().generation, page, size, within);
        self.cache.as_ref()?.get(from, far, &mut into[..into_page])
    }

    /// Prepares for the page after this one. Frames lie in the order in which they were filled, which the processor
    /// cannot predict. So a sequential reader's next page is prefetched while this one is copied.
    /// Returns whether this one, if it is kept, is far away.
    #[inline]
    pub fn follow(&self, file: &FileState, page: u64, size: PageSize, shard: Shard) -> bool {
        let tick = &file.ticks[shard.index()];
        let follows = tick.looks.follows(page);
        if let Some(cache) = self.cache.as_ref().filter(|_| follows) {
            cache.fetch_ahead(stretch(file, 0, page + 1, size, 0));
        }
        !follows && tick.looks.are_far()
    }

    /// Whether there is a data cache.
    pub fn caches(&self) -> bool {
        self.cache.is_some()
    }

    /// Whether the cache has room for a page.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.cache.as_ref().is_some_and(DataCache::has_room)
    }

    /// Keeps the valid bytes of a page, if the file still has the version of `moment`.
    pub fn keep(
        &self,
        file: &FileState,
        moment: Moment,
        page: u64,
        size: PageSize,
        data: &[u8],
    ) -> Put {
        let Some(cache) = &self.cache else {
            return Put::Not;
        };
        let whole = stretch(file, moment.generation, page, size, 0);
        let put = cache.put(whole, size, data, || file.still(moment));
        if put == (Put::InPlace { returns: true }) {
            let class = SizeClass::of(size.bytes());
            self.ghost(class, |budget, known, held| {
                budget.data_ghost(known.direct_ns.min(known.rpc_ns), held)
            });
        }
        put
    }

    /// Drops the pages from `first` to `last` from the data cache and the directory.
    pub fn forget_pages(&self, file: &FileState, size: PageSize, first: u64, last: u64) {
        self.directory.forget_range(&file.tree, first, last);
        if let Some(cache) = &self.cache {
            if (last - first) * size.bytes() as u64 > FORGOTTEN_ONE_BY_ONE {
                return file.drop_pages();
            }
            cache.remove(file.number, size, first, last);
        }
    }

    /// Bytes of pages in the data cache.
    pub fn cache_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, DataCache::bytes)
    }

    /// A page or a reference was wanted that more memory would have kept. `tell` tells the budget what it would have
    /// saved, and returns true if the split has moved. The budget stays locked until all limits are set, so that they
    /// belong to one split.
    #[cold]
    fn ghost(
        &self,
        class: SizeClass,
        tell: impl FnOnce(&mut Budget, &Explanation, &dyn Fn() -> Held) -> bool,
    ) {
        let known = self.policy.lock().explain_server(class);
        let held = || Held {
            hits: self.shards.directory_hits(),
            saved_ns: saved_ns(&known),
            bytes: self.directory.bytes(),
        };
        let mut budget = self.budget.lock();
        if !tell(&mut budget, &known, &held) {
            return;
        }
        self.directory.set_limit(budget.directory_bytes());
        let data = budget.data_bytes(self.directory.bytes_allocated());
        if let Some(cache) = &self.cache {
            cache.set_limit(data);
        }
        if let Some(reuse) = &self.reuse {
            reuse.set_frames(frames(data));
        }
    }

    // References and the policy

    /// Looks up the reference of a page. The caller counts the lookup.
    pub fn reference(&self, file: &FileState, session: &Session, page: u64) -> Option<Reference> {
        let found = self
            .directory
            .lookup(&file.tree, page, session.number, session.page);
        match found {
            Lookup::Found(reference) => Some(reference),
            Lookup::Missing | Lookup::Evicted => None,
        }
    }

    /// Looks up where a page lies. The caller counts the lookup.
    #[inline]
    pub fn location(&self, file: &FileState, session: &Session, page: u64) -> Option<Location> {
        self.directory
            .locate(&file.tree, page, session.number, session.page)
    }

    /// A read had a reference.
    #[inline]
    pub fn was_referenced(&self, shard: Shard) {
        self.shards.counts(shard).directory_hits.add(shard, 1);
    }

    /// A read had no reference. `evicted` says whether there was one before.
    #[cold]
    pub fn no_reference(&self, shard: Shard, evicted: bool) {
        self.shards.counts(shard).directory_misses.add(shard, 1);
        if evicted {
            self.ghost(SizeClass::of(4096), |budget, known, held| {
                budget.directory_ghost(saved_ns(known), held)
            });
        }
    }

    /// Handles a refused reference.
    pub fn refused(
        &self,
        session: &Session,
        file: &FileState,
        page: u64,
        epoch: Epoch,
        why: Exception,
    ) {
        session.was_refused(why);
        let shard = Shard::mine();
        self.shards.counts(shard).refused(shard, why);
        if why.forgets_reference() {
            self.directory.forget(&file.tree, page, epoch);
        }
    }
}

impl Files {
    /// Keeps the table of files small. Open files stay.
    fn shrink(&mut self) {
        for _ in 0..self.by_handle.len().saturating_sub(FILES_KEPT).min(8) {
            let Some((handle, file)) = self.by_handle.pop_lru() else {
                return;
            };
            if Arc::strong_count(&file) > 1 || file.unstable.lock().bytes > 0 {
                self.by_handle.put(handle, file);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A child of a fork drops its copy. The session is still the parent's.
        if std::process::id() == self.process {
            self.close_session();
        }
    }
}

/// How much time a reference saves, in nanoseconds, when it is used.
fn saved_ns(known: &Explanation) -> f64 {
    (known.rpc_ns - known.direct_ns).max(0.0)
}

/// Number of pages for which this much memory suffices.
fn frames(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX) / PageSize::DEFAULT.bytes()
}

/// The bytes of a page from `within` on.
fn stretch(file: &FileState, generation: u64, page: u64, size: PageSize, within: usize) -> Stretch {
    Stretch {
        file: file.number,
        generation,
        offset: size.start(page).saturating_add(within as u64),
    }
}
