//! NFS calls in any order against a plain map of what was written: no call may panic, no reply may be malformed, a
//! repeated call gets the reply of the first, and a read returns what the writes left, whatever was paged out, cut off,
//! removed or changed from outside in between.
//!
//! The calls come from bytes, so that a fuzzer can choose them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use odafs_common::page::PageSize;
use odafs_common::wire::nfs3::*;
use odafs_common::wire::rpc::{Auth, AuthSys, Groups, Rejection, call, parse_reply};
use odafs_common::wire::xdr::{Decode, Encode, Writer};
use odafs_fabric::Peer;
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Caller, Calls, Outcome, Transport};
use odafs_nic::nic::NicConfig;
use odafs_server::access::Access;
use odafs_server::change::observe;
use odafs_server::config::Squash;
use odafs_server::drc::DuplicateCache;
use odafs_server::export::{Export, ExportConfig};
use odafs_server::nfs3::Nfs3;
use odafs_server::rpc::Service;
use odafs_server::store::{Credential, MemoryStore, OutsideChange, Store};

const STEPS_MAX: usize = 100;
const HANDLES_MAX: usize = 32;
const REPLY_BYTES_MAX: u32 = 64 << 10;
const STORE_BYTES: u64 = 1 << 20;
const NAMES: [&[u8]; 8] = [b"a", b"b", b"cc", b"d.d", b".", b"..", b"", b"no/slash"];

/// Makes the calls that `bytes` say.
///
/// # Panics
/// When the server does not keep its word.
pub fn run(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut world = World::new();
    for _ in 0..STEPS_MAX {
        let Some(step) = choices.next() else { break };
        world.step(step, &mut choices);
    }
    world.check_everything();
}

/// The bytes, one choice after the other; zeros once they are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    fn small(&mut self) -> u32 {
        u32::from(self.byte()) << 8 | u32::from(self.byte())
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Mostly within a few pages and often next to their ends, at times far out.
    fn offset(&mut self) -> u64 {
        let page = u64::from(self.byte());
        match self.byte() {
            0 => u64::MAX - page,
            1 => i64::MAX as u64 - page,
            2 => STORE_BYTES - page,
            within => (page % 64 * 4096 + u64::from(within) * 16).saturating_sub(48),
        }
    }

    fn attributes(&mut self) -> SetAttributes {
        let what = self.byte();
        let some = |bit: u8| what & bit != 0;
        SetAttributes {
            mode: some(1).then(|| self.small() & 0o7777),
            uid: (what & 6 == 6).then(|| self.byte().into()),
            gid: (what & 10 == 10).then(|| self.byte().into()),
            size: some(16).then(|| self.offset()),
            atime: if some(32) { SetTime::ServerTime } else { SetTime::Keep },
            mtime: if some(64) { SetTime::To(Time { seconds: 1, nanoseconds: 2 }) } else { SetTime::Keep },
        }
    }
}

struct World {
    service: Service,
    export: Arc<Export>,
    store: Arc<MemoryStore>,
    caller: Caller,
    xid: u32,
    /// Handles that came back, the root first.
    handles: Vec<Vec<u8>>,
    /// What regular files hold, by handle.
    contents: BTreeMap<Vec<u8>, Vec<u8>>,
    written: u8,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new(1));
        store.set_capacity(STORE_BYTES);
        let arena = ArenaConfig { frames: 32, page: PageSize::DEFAULT, huge: false, populate: false };
        let arena = Arc::new(Arena::create(&arena).expect("memory"));
        let nic = NicConfig { tpt_entries: 64, ..NicConfig::default() };
        let config = ExportConfig { nic, read_ahead_bytes: 16 << 10, ..ExportConfig::default() };
        let export = Arc::new(Export::new(config, Arc::clone(&store) as Arc<dyn Store>, arena));
        let nobody = Credential::of(65_534, 65_534, &[]);
        let access = Arc::new(Access::new(Vec::new(), Squash::None, nobody));
        let replies = DuplicateCache::new(NonZeroUsize::new(64).expect("not zero"));
        let root = store.handle(store.root()).expect("a root");
        Self {
            service: Service::new(vec![Box::new(Nfs3::new(Arc::clone(&export)))], access, replies),
            export,
            store,
            caller: Caller {
                peer: Peer::Simulated(1),
                connection: 1,
                transport: Transport::Sim,
                reply_bytes_max: REPLY_BYTES_MAX,
            },
            xid: 0,
            handles: vec![root.to_vec()],
            contents: BTreeMap::new(),
            written: 0,
        }
    }

    fn step(&mut self, step: u8, choices: &mut Choices<'_>) {
        // Every eighth call or so is another user's.
        let uid = if step >> 5 == 7 { 1000 } else { 0 };
        match step & 31 {
            0..=3 => self.create(uid, choices),
            4 => self.make_directory(uid, choices),
            5 => self.symlink(uid, choices),
            6 => self.make_node(uid, choices),
            7 => self.lookup(uid, choices),
            8..=12 => self.write(uid, choices),
            13..=17 => self.read(uid, choices),
            18 | 19 => self.set_attributes(uid, choices),
            20 => self.remove(uid, choices),
            21 => self.rename(uid, choices),
            22 => self.link(uid, choices),
            23 => self.list(uid, choices),
            24 => self.list_plus(uid, choices),
            25 => self.ask(uid, choices),
            26 => self.commit(uid, choices),
            27 | 28 => self.outside(choices),
            29 => self.mangled(uid, choices),
            30 => observe(&self.export, Duration::ZERO),
            _ => self.forged(uid, choices),
        }
    }

    /// Results of a call that decodes; served twice if it changes anything.
    fn call(&mut self, uid: u32, procedure: Procedure, args: &impl Encode) -> Vec<u8> {
        let message = self.message(uid, procedure, args);
        let reply = self.serve(&message);
        use Procedure as P;
        let repeats = matches!(procedure, P::Create | P::Write | P::Remove | P::Rename | P::SetAttributes | P::Link);
        if repeats && self.xid.is_multiple_of(4) {
            assert_eq!(self.serve(&message), reply, "a repeated call gets the first reply");
        }
        let parsed = parse_reply(&reply).expect("a reply");
        assert_eq!(parsed.xid, self.xid);
        parsed.body.expect("an accepted call").rest().to_vec()
    }

    fn message(&mut self, uid: u32, procedure: Procedure, args: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        let sys = AuthSys { stamp: 0, machine: b"", uid, gid: uid, gids: Groups::default() };
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        call(&mut w, self.xid, PROGRAM, VERSION, procedure.code(), &Auth::Sys(sys));
        args.encode(&mut w);
        message
    }

    fn serve(&self, message: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        let mut outcome = self.service.call(&self.caller, message, &mut reply);
        while let Outcome::Deferred(job) = outcome {
            reply.clear();
            outcome = job(&mut reply);
        }
        assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
        assert!(reply.len() <= REPLY_BYTES_MAX as usize);
        reply
    }

    fn handle(&self, choices: &mut Choices<'_>) -> Vec<u8> {
        self.handles[usize::from(choices.byte()) % self.handles.len()].clone()
    }

    fn learn(&mut self, handle: &[u8]) {
        if self.handles.len() < HANDLES_MAX && !self.handles.iter().any(|known| known == handle) {
            self.handles.push(handle.to_vec());
        }
    }

    fn create(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.handle(choices);
        let name = choices.one_of(&NAMES);
        let how = match choices.byte() % 3 {
            0 => CreateHow::Unchecked(choices.attributes()),
            1 => CreateHow::Guarded(choices.attributes()),
            _ => CreateHow::Exclusive([choices.byte(); 8]),
        };
        let place = DirectoryName { directory: FileHandle(&directory), name };
        let results = self.call(uid, Procedure::Create, &CreateArgs { place, how });
        let Ok(created) = CreateResult::from_bytes(&results).expect("a result") else { return };
        let (Some(file), Some(attributes)) = (created.file, created.attributes) else { return };
        self.learn(file.0);
        let content = self.contents.entry(file.0.to_vec()).or_default();
        if let CreateHow::Unchecked(SetAttributes { size: Some(size), .. })
        | CreateHow::Guarded(SetAttributes { size: Some(size), .. }) = how
        {
            content.resize(size as usize, 0);
        }
        assert_eq!(content.len() as u64, attributes.size);
    }

    fn made(&mut self, results: &[u8]) {
        if let Ok(made) = CreateResult::from_bytes(results).expect("a result")
            && let Some(file) = made.file
        {
            self.learn(file.0);
        }
    }

    fn make_directory(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.handle(choices);
        let place = DirectoryName { directory: FileHandle(&directory), name: choices.one_of(&NAMES) };
        let attributes = choices.attributes();
        let args = MakeDirectoryArgs { place, attributes };
        let results = self.call(uid, Procedure::MakeDirectory, &args);
        self.made(&results);
    }

    fn symlink(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.handle(choices);
        let place = DirectoryName { directory: FileHandle(&directory), name: choices.one_of(&NAMES) };
        let target = Payload(choices.one_of(&NAMES));
        let args = SymlinkArgs { place, attributes: choices.attributes(), target };
        let results = self.call(uid, Procedure::Symlink, &args);
        if let Ok(CreateOk { file: Some(file), .. }) = CreateResult::from_bytes(&results).expect("a result") {
            let results = self.call(0, Procedure::ReadLink, &file);
            let read = ReadLinkResult::from_bytes(&results).expect("a result").expect("a link");
            assert_eq!(read.target, target);
        }
        self.made(&results);
    }

    fn make_node(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.handle(choices);
        let place = DirectoryName { directory: FileHandle(&directory), name: choices.one_of(&NAMES) };
        let attributes = choices.attributes();
        let what = match choices.byte() % 4 {
            0 => MakeNode::Fifo(attributes),
            1 => MakeNode::Socket(attributes),
            2 => MakeNode::Character(attributes, Device { major: 1, minor: 3 }),
            _ => MakeNode::Other(FileType::Regular),
        };
        let results = self.call(uid, Procedure::MakeNode, &MakeNodeArgs { place, what });
        self.made(&results);
    }

    fn lookup(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.handle(choices);
        let place = DirectoryName { directory: FileHandle(&directory), name: choices.one_of(&NAMES) };
        let results = self.call(uid, Procedure::Lookup, &place);
        if let Ok(found) = LookupResult::from_bytes(&results).expect("a result") {
            self.learn(found.file.0);
            self.check_size(found.file.0, found.attributes);
        }
    }

    fn write(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let offset = choices.offset();
        self.written = self.written.wrapping_add(1);
        let data: Vec<u8> = (0..choices.small() % 10_000).map(|i| (i / 3) as u8 ^ self.written).collect();
        let stable = choices.one_of(Stable::ALL);
        let count = data.len() as u32;
        let args = WriteArgs { file: FileHandle(&handle), offset, count, stable, data: Payload(&data) };
        let results = self.call(uid, Procedure::Write, &args);
        let Ok(written) = WriteResult::from_bytes(&results).expect("a result") else { return };
        assert!(written.count <= count && written.committed >= stable);
        let content = self.contents.get_mut(&handle).expect("only files are written");
        if written.count > 0 {
            let (start, count) = (offset as usize, written.count as usize);
            content.resize(content.len().max(start + count), 0);
            content[start..start + count].copy_from_slice(&data[..count]);
        }
        self.check_size(&handle, written.wcc.after);
    }

    fn read(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let (offset, count) = (choices.offset(), choices.small());
        self.read_at(uid, &handle, offset, count);
    }

    /// Bytes read, if it could be.
    fn read_at(&mut self, uid: u32, handle: &[u8], offset: u64, count: u32) -> Option<u32> {
        let args = ReadArgs { file: FileHandle(handle), offset, count };
        let results = self.call(uid, Procedure::Read, &args);
        let read = ReadResult::from_bytes(&results).expect("a result").ok()?;
        let content = &self.contents[handle];
        let rest = content.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        assert_eq!(read.count as usize, read.data.0.len());
        assert!(read.count <= count);
        assert!(rest.starts_with(read.data.0), "other bytes than were written");
        assert_eq!(read.eof, read.count as usize == rest.len());
        assert!(read.count > 0 || count == 0 || read.eof, "a read that gets nowhere");
        self.check_size(handle, read.attributes);
        Some(read.count)
    }

    fn check_size(&self, handle: &[u8], attributes: Option<Attributes>) {
        if let (Some(content), Some(attributes)) = (self.contents.get(handle), attributes) {
            assert_eq!(content.len() as u64, attributes.size);
        }
    }

    fn set_attributes(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let attributes = choices.attributes();
        let guard = (choices.byte() == 0).then_some(Time { seconds: 1, nanoseconds: 1 });
        let args = SetAttributesArgs { file: FileHandle(&handle), attributes, guard };
        let results = self.call(uid, Procedure::SetAttributes, &args);
        if let Ok(wcc) = SetAttributesResult::from_bytes(&results).expect("a result") {
            if let (Some(size), Some(content)) = (attributes.size, self.contents.get_mut(&handle)) {
                content.resize(size as usize, 0);
            }
            self.check_size(&handle, wcc.after);
        } else {
            // What failed half way may have been done half way.
            self.relearn(&handle);
        }
    }

    /// Takes what the store holds for right.
    fn relearn(&mut self, handle: &[u8]) {
        let Some(content) = self.contents.get_mut(handle) else { return };
        let Ok(object) = self.store.open_handle(handle) else { return };
        let Ok(attributes) = self.store.getattr(object) else { return };
        content.resize(attributes.size as usize, 0);
        let read = self.store.read_at(object, 0, content).expect("a file");
        assert_eq!(read, content.len());
    }

    fn remove(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let directory = self.handle(choices);
        let place = DirectoryName { directory: FileHandle(&directory), name: choices.one_of(&NAMES) };
        let procedure = choices.one_of(&[Procedure::Remove, Procedure::RemoveDirectory]);
        let results = self.call(uid, procedure, &place);
        let _ = RemoveResult::from_bytes(&results).expect("a result");
    }

    fn rename(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let (from, to) = (self.handle(choices), self.handle(choices));
        let from = DirectoryName { directory: FileHandle(&from), name: choices.one_of(&NAMES) };
        let to = DirectoryName { directory: FileHandle(&to), name: choices.one_of(&NAMES) };
        let results = self.call(uid, Procedure::Rename, &RenameArgs { from, to });
        let _ = RenameResult::from_bytes(&results).expect("a result");
    }

    fn link(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let (file, directory) = (self.handle(choices), self.handle(choices));
        let place = DirectoryName { directory: FileHandle(&directory), name: choices.one_of(&NAMES) };
        let results = self.call(uid, Procedure::Link, &LinkArgs { file: FileHandle(&file), place });
        let _ = LinkResult::from_bytes(&results).expect("a result");
    }

    fn list(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let (mut cookie, count) = (u64::from(choices.byte() / 64), choices.small() % 600);
        let (mut verifier, directory) = ([0; 8], FileHandle(&handle));
        for _ in 0..8 {
            let args = ReadDirArgs { directory, cookie, verifier, count };
            let results = self.call(uid, Procedure::ReadDir, &args);
            let Ok(list) = ReadDirResult::from_bytes(&results).expect("a result") else { return };
            assert!(results.len() as u32 - 4 <= count);
            let Some(last) = list.entries.last() else { return assert!(list.eof) };
            (cookie, verifier) = (last.cookie, list.verifier);
        }
    }

    fn list_plus(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let args = ReadDirPlusArgs {
            directory: FileHandle(&handle),
            cookie: u64::from(choices.byte() / 64),
            verifier: [0; 8],
            directory_count: choices.small(),
            max_count: choices.small(),
        };
        let results = self.call(uid, Procedure::ReadDirPlus, &args);
        let Ok(list) = ReadDirPlusResult::from_bytes(&results).expect("a result") else { return };
        assert!(results.len() as u32 - 4 <= args.max_count);
        for entry in &list.entries {
            if let Some(file) = entry.file {
                self.learn(file.0);
                self.check_size(file.0, entry.attributes);
            }
        }
    }

    /// Calls that only ask.
    fn ask(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let file = FileHandle(&handle);
        let access = choices.byte().into();
        let attributes = GetAttributesResult::from_bytes(&self.call(uid, Procedure::GetAttributes, &file));
        self.check_size(&handle, attributes.expect("a result").ok());
        let results = self.call(uid, Procedure::Access, &AccessArgs { file, access });
        if let Ok(granted) = AccessResult::from_bytes(&results).expect("a result") {
            assert_eq!(granted.access & !access, 0);
        }
        let _ = FsStatResult::from_bytes(&self.call(uid, Procedure::FsStat, &file)).expect("a result");
        let _ = FsInfoResult::from_bytes(&self.call(uid, Procedure::FsInfo, &file)).expect("a result");
        let _ = PathConfResult::from_bytes(&self.call(uid, Procedure::PathConf, &file)).expect("a result");
        let _ = ReadLinkResult::from_bytes(&self.call(uid, Procedure::ReadLink, &file)).expect("a result");
    }

    fn commit(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let args = CommitArgs { file: FileHandle(&handle), offset: choices.offset(), count: choices.small() };
        let results = self.call(uid, Procedure::Commit, &args);
        if let Ok(done) = CommitResult::from_bytes(&results).expect("a result") {
            self.check_size(&handle, done.wcc.after);
        }
    }

    /// A change behind the server's back, of which its watch tells.
    fn outside(&mut self, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let Ok(object) = self.store.open_handle(&handle) else { return };
        let data = [choices.byte(); 5000];
        let (offset, mode) = (choices.offset() % STORE_BYTES, choices.small() & 0o777);
        let change = match choices.byte() % 4 {
            0 | 1 => OutsideChange::Write { offset, data: &data },
            2 => OutsideChange::Resize(offset),
            _ => OutsideChange::Mode(mode),
        };
        if self.contents.contains_key(&handle) {
            let _ = self.store.outside_change(object, change);
            observe(&self.export, Duration::ZERO);
            self.relearn(&handle);
        }
    }

    /// A call that asks, with a byte changed: any answer but silence will do.
    fn mangled(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let handle = self.handle(choices);
        let args = ReadArgs { file: FileHandle(&handle), offset: choices.offset(), count: 100 };
        let procedure = choices.one_of(&[Procedure::Read, Procedure::Access, Procedure::ReadDir, Procedure::Lookup]);
        let mut message = self.message(uid, procedure, &args);
        let args_at = message.len() - args.to_bytes().len();
        let at = args_at + usize::from(choices.byte()) % (message.len() - args_at);
        message[at] ^= choices.byte();
        message.truncate(message.len() - usize::from(choices.byte() % 5));
        let reply = self.serve(&message);
        let reply = parse_reply(&reply).expect("a reply");
        assert!(matches!(reply.body, Ok(_) | Err(Rejection::GarbageArguments)));
    }

    /// A handle that the server did not make.
    fn forged(&mut self, uid: u32, choices: &mut Choices<'_>) {
        let mut handle = self.handle(choices);
        let at = usize::from(choices.byte()) % handle.len();
        handle[at] ^= choices.byte() | 1;
        let attributes = self.call(uid, Procedure::GetAttributes, &FileHandle(&handle));
        let refused = GetAttributesResult::from_bytes(&attributes).expect("a result");
        assert!(matches!(refused.expect_err("a forged handle").status, Status::BadHandle | Status::Stale));
    }

    /// Every file that is still there holds what was written.
    fn check_everything(&mut self) {
        let files: Vec<_> = self.contents.keys().cloned().collect();
        for handle in files {
            let mut offset = 0;
            while let Some(read) = self.read_at(0, &handle, offset, 30_000)
                && read > 0
            {
                offset += u64::from(read);
            }
        }
    }
}
