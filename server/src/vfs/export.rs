//! All exports of a server together: one store and the page cache in front of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use odafs_common::direct::Feedback;
use odafs_common::page::PageSize;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::entropy;
use odafs_fabric::memory::Arena;
use odafs_fabric::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use odafs_fabric::sync::{Arc, Mutex, RwLock};
use odafs_nic::capability::{ReaderClass, SessionId};
use odafs_nic::host_vm::{HostVm, SharedVm};
use odafs_nic::nic::{Nic, NicConfig};

use crate::store::state::HandleKey;
use crate::store::{Advancing, Attributes, FileType, ObjectId, Status, Store, StoreError};
use crate::vfs::around::Changes;
use crate::vfs::cache::Cache;
use crate::vfs::classes::Classes;
use crate::vfs::counters::ChangeCounters;
use crate::vfs::feedback::Pulse;
use crate::vfs::file::{Facts, File, Judged};
use crate::vfs::fill::Buffers;
use crate::vfs::handle::{self, HandleBytes, HandleMaker, ShortHandle};
use crate::vfs::handles::{Handles, Known};
use crate::vfs::locks::Locks;
use crate::vfs::metrics::Metrics;
use crate::vfs::promises::Promises;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::sessions::Sessions;

/// Whether clients may read pages directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// No. Sessions are refused.
    Off,
    /// Through the NIC, which checks every request.
    #[default]
    Guarded,
    /// On this host, trusted clients read the memory itself. All others read guarded.
    Auto,
    /// The same, and clients of other machines read the memory itself, too.
    OneSided,
}

/// Where the host has the directory of an export. Both paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tag of the export in a table, or 0.
    pub tag: u16,
    /// As the operator named it.
    pub named: PathBuf,
    /// Without symbolic links.
    pub real: PathBuf,
}

/// The options of a server's exports.
#[derive(Clone, Debug)]
pub struct ExportsConfig {
    /// Name, such as `/`.
    pub name: String,
    /// Names of directories below the root that clients may mount as exports of their own.
    pub others: Vec<String>,
    /// Direct reads.
    pub direct: Direct,
    /// Where the host has the directories that are served.
    pub places: Vec<Place>,
    /// The tags of those exports of a table whose files clients read by calls alone.
    pub direct_off: Vec<u16>,
    /// The most bytes that one fill reads from the store, rounded down to whole pages, but at least one page.
    pub read_ahead_bytes: u32,
    /// Change counters begin above this number, which is above those of all earlier lives.
    pub change_base: u64,
    /// The NIC.
    pub nic: NicConfig,
    /// The key of the MAC in file handles. By default it is random and ends with the export, as then do its file handles.
    pub handle_key: HandleKey,
}

impl ExportsConfig {
    /// All names under which clients can mount it or a part of it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.others.iter().map(String::as_str);
        std::iter::once(self.name.as_str()).chain(others)
    }
}

impl Default for ExportsConfig {
    fn default() -> Self {
        Self {
            name: "/".to_owned(),
            others: Vec::new(),
            places: Vec::new(),
            direct: Direct::Guarded,
            direct_off: Vec::new(),
            read_ahead_bytes: 128 << 10,
            change_base: 0,
            nic: NicConfig::default(),
            handle_key: HandleKey::random(),
        }
    }
}

/// What a server exports: one store, which may be a table of several exports, its page cache and its NIC.
pub struct Exports {
    config: ExportsConfig,
    store: Arc<dyn Store>,
    /// The same.
    times: Arc<Advancing>,
    cache: Arc<Cache>,
    nic: Option<Arc<Nic>>,
    shards: [Shard; Exports::SHARDS],
    live: AtomicUsize,
    /// Beyond this many live files, those without pages are let go.
    live_max: AtomicUsize,
    handles: Handles,
    naming: HandleMaker,
    /// Whether the store is a table of exports.
    is_table: bool,
    classes: Classes,
    sessions: Sessions,
    changes: Changes,
    locks: Arc<Locks>,
    buffers: Buffers,
    verifier: AtomicU64,
    pulse: Pulse,
    promises: Promises,
}

/// A part of the live files.
#[derive(Default)]
struct Shard {
    /// Held while a file is made or let go, so that no old watch ends after a new one has begun.
    making: Mutex<()>,
    files: RwLock<HashMap<ObjectId, Arc<File>>>,
}

impl Exports {
    const SHARDS: usize = 16;

    /// Exports `store`, with its page cache in all of `arena`.
    pub fn new(config: ExportsConfig, store: Arc<dyn Store>, arena: Arc<Arena>) -> Self {
        Self::with_vm(config, store, arena, |vm| vm)
    }

    /// As [`Exports::new`]; the NIC reaches the host through what `wrap` makes of the shared state.
    pub fn with_vm(
        config: ExportsConfig,
        store: Arc<dyn Store>,
        arena: Arc<Arena>,
        wrap: impl FnOnce(Arc<dyn HostVm>) -> Arc<dyn HostVm>,
    ) -> Self {
        let frames = arena.frames();
        let counter_frames = (frames / 256).clamp(1, 64).min(frames);
        let counters = Arc::new(ChangeCounters::new(
            Arc::clone(&arena),
            arena.page(),
            counter_frames,
            config.change_base,
        ));
        let live_max = counters.capacity().max(1024) as usize;
        let cache = Arc::new(Cache::new(
            Arc::clone(&arena),
            arena.page(),
            counter_frames,
            counters,
            Arc::default(),
        ));
        let nic = (config.direct != Direct::Off).then(|| {
            let pages = Arc::clone(&cache);
            let vm = wrap(Arc::new(SharedVm::new(Arc::clone(&arena), pages)));
            let nic = Arc::new(Nic::new(config.nic.clone(), arena, vm));
            cache.set_nic(&nic);
            nic
        });
        let naming = HandleMaker::new(&config.handle_key, store.number());
        let is_table = !store.tags().is_empty();
        let times = Arc::new(Advancing::new(store));
        Self {
            config,
            store: Arc::clone(&times) as Arc<dyn Store>,
            times,
            cache,
            nic,
            shards: std::array::from_fn(|_| Shard::default()),
            live: AtomicUsize::new(0),
            live_max: AtomicUsize::new(live_max),
            handles: Handles::new(),
            naming,
            is_table,
            classes: Classes::default(),
            sessions: Sessions::default(),
            changes: Changes::default(),
            locks: Arc::default(),
            buffers: Buffers::default(),
            verifier: AtomicU64::new(entropy::word()),
            pulse: Pulse::new(clock::now()),
            promises: Promises::default(),
        }
    }

    /// What it was made of.
    pub fn config(&self) -> &ExportsConfig {
        &self.config
    }

    /// Tells this server from all others. Like file handles, it stays the same for as long as the state directory and what is
    /// exported do. It may be shown to anybody.
    pub fn server(&self) -> [u8; 16] {
        self.naming.server()
    }

    /// Page size.
    pub fn page(&self) -> PageSize {
        self.cache.page()
    }

    /// What holds the files.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What shows the times of its objects.
    pub(crate) fn times(&self) -> &Advancing {
        &self.times
    }

    /// What judges direct reads; `None` where they are off.
    pub fn nic(&self) -> Option<&Arc<Nic>> {
        self.nic.as_ref()
    }

    /// The page cache's memory.
    pub fn arena(&self) -> &Arc<Arena> {
        self.cache.arena()
    }

    /// Pages that the cache holds, and how many it has room for.
    pub fn cache_use(&self) -> (u32, u32) {
        (self.cache.used(), self.cache.capacity())
    }

    /// Counters.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.cache.metrics()
    }

    /// Number of live files.
    pub fn live_count(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// The promises to clients about its files.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    #[cfg(test)]
    pub(crate) fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The changes under way of objects without pages.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The locks of clients, by any protocol.
    pub fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn read_ahead_pages(&self) -> u32 {
        // A fill must leave room for others.
        let pages = self.config.read_ahead_bytes >> self.page().shift();
        pages.min(self.cache.capacity() / 4).max(1)
    }

    /// The feedback on the cache in replies.
    pub fn feedback(&self) -> Feedback {
        self.pulse.feedback()
    }

    /// Measures the cache for [`Exports::feedback`]. To be called about every second.
    pub fn tick(&self, now: Nanos) {
        self.pulse.take(now, self.metrics());
        if let Some(nic) = &self.nic {
            nic.set_feedback(self.feedback().pack());
        }
    }

    /// The object of a file handle. It is remembered, so that a known handle costs no MAC. BADHANDLE, STALE, or
    /// [`ReadFailed::NotResident`] if the handle is unknown and nothing may block.
    pub fn resolve(&self, handle: &[u8], effort: Effort) -> Result<ObjectId, ReadFailed> {
        match self.handles.get(handle) {
            Some(Known::Object(object)) => return Ok(object),
            Some(Known::File(file)) => {
                if let Some(file) = file.upgrade() {
                    return Ok(file.object());
                }
            }
            None => {}
        }
        if effort == Effort::ResidentOnly {
            return Err(ReadFailed::NotResident);
        }
        let object = self.naming.open(handle)?;
        self.store.find(object).map_err(|error| error.status)?;
        self.handles.insert(handle, Known::Object(object));
        Ok(object)
    }

    /// The object for which a file handle was made, whether it still exists or not.
    pub fn named(&self, handle: &[u8]) -> Result<ObjectId, Status> {
        self.naming.open(handle)
    }

    /// Whether it is a table of exports.
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// The tag of the export of a table to which an object belongs. 0 is the table itself, and everything in a store that
    /// is no table.
    pub fn tag_of(&self, object: ObjectId) -> u16 {
        match self.is_table {
            true => (object.generation >> 48) as u16,
            false => 0,
        }
    }

    /// As [`Self::tag_of`], of what a handle names. Before the handle is resolved this is what the caller says.
    pub fn tag_of_handle(&self, handle: &[u8]) -> u16 {
        match self.is_table {
            true => handle::tag(handle),
            false => 0,
        }
    }

    /// The live file of a file handle. Fails like [`Self::resolve`], and with INVAL or ISDIR if it is no regular file. Its
    /// attributes are those that the caller may see.
    pub fn file_of_handle(&self, handle: &[u8], effort: Effort) -> Result<Arc<File>, ReadFailed> {
        let file = self.file_as_named(handle, effort)?;
        self.promises.look(file.object(), effort)?;
        Ok(file)
    }

    fn file_as_named(&self, handle: &[u8], effort: Effort) -> Result<Arc<File>, ReadFailed> {
        if let Some(file) = self.handles.file(handle) {
            return Ok(file);
        }
        if effort == Effort::ResidentOnly {
            return Err(ReadFailed::NotResident);
        }
        let file = self.file(self.resolve(handle, effort)?)?;
        // Only under the file's own handle, which `reclaim` can remove again.
        if **file.handle() == *handle {
            self.handles
                .insert(handle, Known::File(Arc::downgrade(&file)));
        }
        Ok(file)
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.store.root()
    }

    /// The file handle of an object.
    pub fn handle(&self, object: ObjectId) -> HandleBytes {
        self.naming.make(object)
    }

    /// What a client of NFS version 2 keeps to name an object.
    pub fn short_handle(&self, object: ObjectId) -> ShortHandle {
        self.naming.make_short(object)
    }

    /// The handle of the object that a short one was made for. BADHANDLE.
    pub fn handle_of_short(&self, handle: &ShortHandle) -> Result<HandleBytes, Status> {
        Ok(self.naming.make(self.naming.open_short(handle)?))
    }

    /// Whether so much is written and not synced that a writer to this file is to sync at once.
    pub fn wants_sync(&self, object: ObjectId) -> bool {
        self.store.wants_sync(object)
    }

    fn shard(&self, object: ObjectId) -> &Shard {
        let mixed = object.ino.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 60) as usize % Self::SHARDS]
    }

    /// The file, if it is live.
    pub(crate) fn live(&self, object: ObjectId) -> Option<Arc<File>> {
        self.shard(object).files.read().get(&object).cloned()
    }

    /// All live files.
    pub(crate) fn live_files(&self) -> Vec<Arc<File>> {
        let mut files = Vec::with_capacity(self.live_count());
        for shard in &self.shards {
            files.extend(shard.files.read().values().cloned());
        }
        files
    }

    /// The live file of an object, which is made if need be. May block.
    pub fn file(&self, object: ObjectId) -> Result<Arc<File>, Status> {
        if let Some(file) = self.live(object) {
            return Ok(file);
        }
        let shard = self.shard(object);
        let making = shard.making.lock();
        if let Some(file) = self.live(object) {
            return Ok(file);
        }
        let file = Arc::new(self.make(object).map_err(|error| error.status)?);
        shard.files.write().insert(object, Arc::clone(&file));
        drop(making);
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        if live > self.live_max.load(Ordering::Relaxed) {
            self.reclaim();
        }
        Ok(file)
    }

    fn make(&self, object: ObjectId) -> Result<File, StoreError> {
        match self.store.getattr(object)?.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Status::IsDir.into()),
            _ => return Err(Status::Inval.into()),
        }
        let handle = self.handle(object);
        // The watch comes first, so that changes after the look are reported.
        let watched = self.store.watch(object);
        let now = clock::now();
        let attributes = self.store.getattr(object).inspect_err(|_| {
            self.store.unwatch(object);
        })?;
        let facts = self.facts_of(object, attributes);
        let counter = self.cache.counters().new_counter();
        Ok(File::new(object, handle, facts, counter, watched, now))
    }

    /// The facts that follow from attributes. Asks the store about ACLs.
    pub(crate) fn facts_of(&self, object: ObjectId, attributes: Attributes) -> Judged {
        let mode_decides = self.store.mode_decides(object).unwrap_or(false);
        let nic = self.nic.as_ref().filter(|_| mode_decides);
        let hold = nic.and_then(|nic| {
            let tag = self.tag_of(object);
            let class = self.classes.of(tag, &attributes, |free| nic.expel(free));
            if class.is_none() {
                self.metrics().classes_short.increment();
            }
            class
        });
        Judged {
            facts: Facts {
                attributes,
                mode_decides,
                class: hold.as_ref().map(|class| class.0),
            },
            hold,
        }
    }

    /// The class of a file. If it had none when `facts` were taken, it gets one if there are free numbers now. The caller
    /// has shared the file's gate since before then.
    pub(crate) fn class_of(&self, file: &File, facts: &Facts) -> Option<ReaderClass> {
        facts.class.or_else(|| {
            self.nic.as_ref().filter(|_| facts.mode_decides)?;
            let tag = self.tag_of(file.object());
            file.set_class(self.classes.find(tag, &facts.attributes)?)
        })
    }

    /// Number of reader classes in use, or in use lately.
    pub fn reader_classes(&self) -> usize {
        self.classes.count()
    }

    /// Forgets a file that is gone for good, so that nobody finds it any more.
    pub(crate) fn forget(&self, file: &Arc<File>) {
        let shard = self.shard(file.object());
        let _making = shard.making.lock();
        self.handles.remove(file.handle());
        let mut files = shard.files.write();
        let ours = files
            .get(&file.object())
            .is_some_and(|found| Arc::ptr_eq(found, file));
        if ours {
            files.remove(&file.object());
            drop(files);
            self.live.fetch_sub(1, Ordering::Relaxed);
            self.store.unwatch(file.object());
        }
    }

    /// Lets go of files that have no pages and that nobody uses. The next time comes when there are a quarter more than
    /// remain now.
    fn reclaim(&self) {
        for shard in &self.shards {
            let _making = shard.making.lock();
            let mut files = shard.files.write();
            let idle: Vec<ObjectId> = files
                .iter()
                .filter(|(_, file)| self.is_idle(file))
                .map(|(object, _)| *object)
                .collect();
            for object in &idle {
                files.remove(object);
            }
            drop(files);
            self.live.fetch_sub(idle.len(), Ordering::Relaxed);
            for object in idle {
                self.store.unwatch(object);
            }
        }
        let least = self.cache.counters().capacity().max(1024) as usize;
        let next = least.max(self.live_count() + self.live_count() / 4);
        self.live_max.store(next, Ordering::Relaxed);
    }

    /// Whether nobody uses the file. While its shard is locked and its handle forgotten, the file can be reached only
    /// through an `Arc` of it, and the shard's must be the only one.
    fn is_idle(&self, file: &Arc<File>) -> bool {
        if !file.is_empty() || Arc::strong_count(file) != 1 {
            return false;
        }
        self.handles.remove(file.handle());
        let idle = file.is_empty() && Arc::strong_count(file) == 1;
        if idle {
            file.counter()
                .revoke(|handle| self.cache.forget_handle(handle));
        }
        idle
    }

    /// Whether references to a file's pages may be issued. Outside changes must be reported, or looked for in time, and
    /// nobody may change the file unseen.
    pub(crate) fn hands_out(&self, file: &File) -> bool {
        self.nic.is_some()
            && !self.config.direct_off.contains(&self.tag_of(file.object()))
            && !self.promises.is_left(file.object())
            && (file.is_watched() || file.unchecked_for(clock::now()) <= Nanos::from_secs(2))
    }

    /// The write verifier.
    pub fn verifier(&self) -> [u8; 8] {
        self.verifier.load(Ordering::SeqCst).to_be_bytes()
    }

    /// Changes the write verifier, because unstable data may have been lost.
    pub(crate) fn change_verifier(&self) {
        let old = self.verifier.load(Ordering::SeqCst);
        let mut new = entropy::word();
        if new == old {
            new = !old;
        }
        self.verifier.store(new, Ordering::SeqCst);
    }

    /// Ends a session. Returns whether there was one.
    pub(crate) fn close_session(&self, id: u32) -> bool {
        let known = self.sessions.remove(id).is_some();
        let nic = self.nic.as_ref();
        known && nic.is_some_and(|nic| nic.close_session(SessionId(id)))
    }

    /// Ends the sessions of peers at the addresses for which `test` holds: their references are worthless afterwards.
    /// Returns how many there were.
    pub fn close_sessions(&self, test: impl Fn(IpAddr) -> bool) -> usize {
        let ids = (self.sessions).matching(|session| session.address().is_some_and(&test));
        ids.iter().filter(|id| self.close_session(**id)).count()
    }

    /// Ends the sessions that were opened on a connection that has gone.
    pub fn connection_closed(&self, connection: u64) {
        for id in self.sessions.of_connection(connection) {
            self.close_session(id);
        }
    }
}
