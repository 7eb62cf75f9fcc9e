//! What the tests of the page cache share: an export of a memory store, and clients that read directly.

use std::os::unix::fs::PermissionsExt as _;

use odafs_common::connect::Nonce;
use odafs_common::direct::{Attach, Completion, Request};
use odafs_common::exception::Exception;
use odafs_common::mac::MacAlgorithm;
use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::Reference;
use odafs_common::session::SessionKey;
use odafs_common::wire::odafs::PageReference;
use odafs_fabric::Peer;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig, ArenaView, Gather, LifeWord};
use odafs_fabric::sync::Arc;
use odafs_nic::capability::NewSession;
use odafs_nic::connection::Connection;
use odafs_nic::host_vm::HostVm;
use odafs_nic::nic::{NicConfig, Verdict};
use tempfile::TempDir;

use crate::store::local::counted::{Counted, count_of};
use crate::store::local::within;
use crate::store::state::StateDir;
use crate::store::table::Entry;
use crate::store::{
    Acl, AclKind, Attributes, BeforeSync, CreateHow, Credential, FileSystemLimits, Listing,
    LocalOptions, LocalStore, MemoryStore, ObjectId, Operation, OutsideChange, OutsideEvent,
    ReaddirRange, SetAttributes, Space, Status, Store, StoreTable, Time,
};
use crate::vfs::export::{Exports, ExportsConfig};
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadDone, ReadFailed, ReadRange, read};
use crate::vfs::references::piggyback;
use crate::vfs::sessions::{OpenSession, SessionOwner};
use crate::vfs::write::{Stable, Written, write};

pub(crate) const PAGE: u64 = 4096;

/// The user that owns the files.
pub(crate) fn owner() -> Credential {
    Credential::of(1000, 1000, &[])
}

/// Someone else.
pub(crate) fn other() -> Credential {
    Credential::of(2000, 2000, &[])
}

pub(crate) struct World {
    pub store: Arc<MemoryStore>,
    pub export: Arc<Exports>,
    pub life: LifeWord,
}

/// An export of a directory of this machine, with a directory `d` in it, and in that a file `f`.
pub(crate) struct LocalTree {
    pub world: World,
    pub d: ObjectId,
    _directory: TempDir,
}

impl LocalTree {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let served = directory.path().join("served");
        std::fs::create_dir_all(served.join("d")).expect("a directory");
        std::fs::write(served.join("d/f"), b"").expect("a file");
        // Everybody may do anything there.
        for path in [directory.path(), &served, &served.join("d")] {
            let mode = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(path, mode).expect("a mode");
        }
        let state = StateDir::open(Some(&directory.path().join("state")), &served);
        let options = LocalOptions::default();
        let store = LocalStore::open(&served, &state.expect("a state directory"), options);
        let store = store.expect("a store");
        let found = |within, name: &[u8]| store.lookup(&owner(), within, name).expect("found").0;
        let d = found(store.root(), b"d");
        found(d, b"f");
        Self {
            world: World::behind(64, |_| Arc::new(store)),
            d,
            _directory: directory,
        }
    }
}

/// How often a store looks where a directory lies while `act` runs, which no wait of the machine changes.
pub(crate) fn looks<T>(act: impl FnOnce() -> T) -> (T, u64) {
    within::known_for(Nanos(u64::MAX), || count_of(Counted::Look, act))
}

impl World {
    /// With so many frames, one of which holds change counters.
    pub(crate) fn new(frames: u32) -> Self {
        let nic = NicConfig {
            tpt_entries: 1024,
            ..NicConfig::default()
        };
        Self::with(
            frames,
            ExportsConfig {
                nic,
                ..ExportsConfig::default()
            },
        )
    }

    pub(crate) fn with(frames: u32, config: ExportsConfig) -> Self {
        Self::with_vm(frames, config, |vm| vm)
    }

    /// The NIC reaches the host through what `wrap` makes of it.
    pub(crate) fn with_vm(
        frames: u32,
        config: ExportsConfig,
        wrap: impl FnOnce(Arc<dyn HostVm>) -> Arc<dyn HostVm>,
    ) -> Self {
        Self::of(frames, config, |store| store, wrap)
    }

    /// The export reaches the store through what `before` makes of it.
    pub(crate) fn behind(
        frames: u32,
        before: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Self {
        Self::of(frames, ExportsConfig::default(), before, |vm| vm)
    }

    /// A table of two exports of these names and tags. The first is that of the memory store.
    pub(crate) fn table(frames: u32, [first, second]: [(&str, u16); 2]) -> Self {
        let entry = |(name, tag): (&str, u16), store| Entry {
            name: name.to_owned(),
            tag,
            store,
        };
        Self::behind(frames, |store| {
            let other = Arc::new(MemoryStore::new(2));
            let entries = vec![entry(first, store), entry(second, other)];
            Arc::new(StoreTable::new(entries, 3, Time::default()).expect("a table"))
        })
    }

    /// The export reaches a store that implements no more than it must.
    pub(crate) fn plain(frames: u32) -> Self {
        Self::behind(frames, |store| Arc::new(Plain(store)))
    }

    /// `act` runs before each sync of the store.
    pub(crate) fn before_syncs(frames: u32, act: impl Fn() + Send + Sync + 'static) -> Self {
        Self::behind(frames, |store| {
            Arc::new(BeforeSync::new(store, move |_| act()))
        })
    }

    fn of(
        frames: u32,
        config: ExportsConfig,
        before: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
        wrap: impl FnOnce(Arc<dyn HostVm>) -> Arc<dyn HostVm>,
    ) -> Self {
        let arena = ArenaConfig {
            frames,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&arena).expect("an arena"));
        let store = Arc::new(MemoryStore::new(1));
        let behind = before(Arc::clone(&store) as Arc<dyn Store>);
        let export = Exports::with_vm(config, behind, arena, wrap);
        Self {
            store,
            export: Arc::new(export),
            life: LifeWord::in_memory(1).expect("a life word"),
        }
    }

    /// An empty file of the owner's that all may read, made past the export.
    pub(crate) fn made(&self, name: &str) -> ObjectId {
        let new = SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        };
        let how = CreateHow::Guarded(&new);
        let root = self.store.root();
        let created = self.store.create(&owner(), root, name.as_bytes(), how);
        created.expect("created").object
    }

    /// The store's file of this name in the root gets other content, which the server does not learn.
    pub(crate) fn write_behind(&self, name: &str, offset: u64, data: &[u8]) {
        let found = self
            .store
            .lookup(&owner(), self.store.root(), name.as_bytes());
        let (object, _) = found.expect("found");
        let written = self.store.write_at(&owner(), object, offset, data);
        assert_eq!(written.expect("written"), data.len());
    }

    /// A file of the owner's that all may read, with this content.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> Arc<File> {
        let object = self.made(name);
        if !content.is_empty() {
            let wrote = self.store.write_at(&owner(), object, 0, content);
            assert_eq!(wrote.expect("written"), content.len());
        }
        // What the store reports of this is not the tests' subject.
        self.store.wait_events(std::time::Duration::ZERO);
        self.export.file(object).expect("live")
    }

    /// What the store has for a list.
    pub(crate) fn store_list(&self, object: ObjectId, kind: AclKind) -> Option<Acl> {
        self.store.acl(object, kind).expect("told")
    }

    /// The next write to the store fails.
    pub(crate) fn fail_next_write(&self, status: Status) {
        self.store.fail_next(Operation::Write, status);
    }

    pub(crate) fn read(&self, file: &Arc<File>, offset: u64, count: u32) -> Vec<u8> {
        let (data, _) = self
            .try_read(file, offset, count, Effort::MayBlock)
            .expect("read");
        data
    }

    pub(crate) fn try_read(
        &self,
        file: &Arc<File>,
        offset: u64,
        count: u32,
        effort: Effort,
    ) -> Result<(Vec<u8>, ReadDone), ReadFailed> {
        let mut data = vec![0xEE; count as usize];
        let range = ReadRange { offset, count };
        let done = read(&self.export, &owner(), file, range, effort, &mut data)?;
        data.truncate(done.count as usize);
        Ok((data, done))
    }

    pub(crate) fn write<'d>(
        &self,
        file: &Arc<File>,
        offset: u64,
        data: impl Into<Gather<'d>>,
    ) -> Written {
        let data = data.into();
        let length = data.len();
        let written = write(&self.export, &owner(), file, offset, data, Stable::Unstable);
        let written = written.expect("written");
        assert_eq!(written.count as usize, length);
        written
    }

    /// Someone else writes to the beginning of the file.
    pub(crate) fn write_outside(&self, file: &File, data: &[u8]) {
        let change = OutsideChange::Write { offset: 0, data };
        let changed = self.store.outside_change(file.object(), change);
        changed.expect("changed");
    }

    /// Someone else puts this content into the file, which the next read finds out.
    pub(crate) fn write_unreported(&self, file: &File, data: &[u8]) {
        file.end_watch();
        file.set_checked(Nanos(0));
        self.write_outside(file, data);
    }

    /// Acts on all outside changes reported so far.
    pub(crate) fn observe(&self) {
        crate::vfs::change::observe(&self.export, std::time::Duration::ZERO);
    }

    pub(crate) fn view(&self) -> ArenaView {
        ArenaView::of(self.export.arena(), &self.life).expect("a view")
    }

    pub(crate) fn client(&self, who: &Credential) -> DirectClient {
        DirectClient::new(&self.export, who)
    }
}

const NONCE: Nonce = [5; 16];

/// A client that was granted a session, on one attached connection.
pub(crate) struct DirectClient {
    export: Arc<Exports>,
    pub session: Arc<OpenSession>,
    key: SessionKey,
    connection: Connection,
    sequence: u64,
}

impl DirectClient {
    fn new(export: &Arc<Exports>, who: &Credential) -> Self {
        let nic = export.nic().expect("direct access");
        let key = SessionKey::from_bytes([9; 32]);
        let new = NewSession {
            key: key.clone(),
            mac: MacAlgorithm::Blake3,
            one_sided: false,
            credential: 0,
            expires: Nanos(u64::MAX),
            rekey_requests: u64::MAX / 4,
            rekey_after: Nanos(u64::MAX / 4),
            rekey_grace: Nanos(0),
            now: clock::now(),
        };
        let opened = nic.open_session(new).expect("a session");
        let id = opened.id();
        let sessions = export.sessions();
        let place = sessions
            .reserve(SessionOwner::Simulated(id.0), 1)
            .expect("a place");
        sessions.add(place, opened, who.clone(), (&Peer::Simulated(id.0), 0));
        let mut connection = Connection::new(id.0, NONCE);
        let attach = Attach {
            session: id.0,
            nonce: [6; 16],
            one_sided: false,
        };
        let message = attach.seal(&key.attach_key(), &NONCE);
        match nic.receive(&mut connection, &message, clock::now()) {
            Verdict::Attach(request) => {
                nic.attached(&mut connection, request, None);
            }
            other => panic!("not attached: {other:?}"),
        }
        Self {
            session: sessions.get(id.0).expect("just added"),
            export: Arc::clone(export),
            key,
            connection,
            sequence: 0,
        }
    }

    /// The references of the pages of a range, and no others.
    pub(crate) fn references(
        &self,
        file: &Arc<File>,
        offset: u64,
        count: u32,
    ) -> Vec<PageReference> {
        let range = ReadRange { offset, count };
        let pages = PageSize::DEFAULT.span(offset, count.into()).expect("pages");
        let (found, _) = piggyback(
            &self.export,
            file,
            (&*self.session, self.session.who()),
            range,
            64,
        );
        let mut found: Vec<_> = found
            .into_iter()
            .filter(|reference| pages.contains(&reference.page))
            .collect();
        found.sort_by_key(|reference| reference.page);
        found
    }

    /// The reference of one page.
    pub(crate) fn reference(&self, file: &Arc<File>, page: u64) -> Option<Reference> {
        let found = self.references(file, page * PAGE, 1);
        found.first().map(|found| found.reference)
    }

    /// Where the file's change counter lies.
    pub(crate) fn counter(&self, file: &Arc<File>) -> Option<Reference> {
        let range = ReadRange {
            offset: 0,
            count: 1,
        };
        piggyback(
            &self.export,
            file,
            (&*self.session, self.session.who()),
            range,
            64,
        )
        .1
    }

    /// A guarded read of all that the reference covers.
    pub(crate) fn read(&mut self, reference: &Reference) -> Result<Vec<u8>, Exception> {
        self.sequence += 1;
        let request = Request {
            mac: MacAlgorithm::Blake3,
            inline: true,
            marked: false,
            odd_generation: false,
            session: self.session.nic().id().0,
            connection: self.connection.number(),
            sink_tag: 0,
            sequence: self.sequence,
            address: reference.address,
            key: reference.key,
            epoch: reference.epoch,
            sink_offset: 0,
            handle: reference.handle,
            length: reference.length,
        };
        let message = request.seal(&self.key.mac_key(MacAlgorithm::Blake3, 0));
        let nic = self.export.nic().expect("direct access");
        match nic.receive(&mut self.connection, &message, clock::now()) {
            Verdict::Read(transfer) => {
                let mut data = vec![0; transfer.length as usize];
                let arena = self.export.arena();
                arena.copy_out(transfer.frame.frame(), transfer.offset, &mut data);
                nic.finish(transfer);
                Ok(data)
            }
            Verdict::Refused(answer) => {
                let (completion, _) = Completion::parse(&answer).expect("a completion");
                Err(completion.result.expect_err("a refusal"))
            }
            Verdict::Attach(_) | Verdict::NotAttached(_) => panic!("no attach was sent"),
        }
    }
}

/// A store that implements no more than it must.
struct Plain(Arc<dyn Store>);

macro_rules! forward {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl Store for Plain {
            $(fn $name(&self, $($arg: $kind),*) -> $result { self.0.$name($($arg),*) })*
        }
    };
}

forward! {
    root() -> ObjectId;
    getattr(object: ObjectId) -> crate::store::Result<Attributes>;
    lookup(who: &Credential, directory: ObjectId, name: &[u8]) -> crate::store::Result<(ObjectId, Attributes)>;
    readlink(object: ObjectId) -> crate::store::Result<Vec<u8>>;
    read_at(object: ObjectId, offset: u64, data: &mut [u8]) -> crate::store::Result<usize>;
    readdir(who: &Credential, directory: ObjectId, range: ReaddirRange) -> crate::store::Result<Listing>;
    statfs(object: ObjectId) -> crate::store::Result<Space>;
    pathconf(object: ObjectId) -> crate::store::Result<FileSystemLimits>;
    number() -> u64;
    watch(object: ObjectId) -> bool;
    unwatch(object: ObjectId) -> ();
    wait_events(timeout: std::time::Duration) -> Vec<OutsideEvent>;
    interrupt() -> ();
}
