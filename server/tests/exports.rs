//! Exports with rules of their own, as callers at different addresses see them by every protocol.

use std::cell::Cell;
use std::sync::Arc;

use odafs_common::direct;
use odafs_common::mac::MacAlgorithm;
use odafs_common::page::{Layout, PageSize};
use odafs_common::session::{Initiator, Pattern};
use odafs_common::wire::mount3::{self, DirPath, Exports, MountResult, Mounts};
use odafs_common::wire::nfs3::{
    self, CreateResult, DirectoryName, Failed, FileHandle, GetAttributesResult, LinkArgs,
    LinkResult, LookupResult, MakeDirectoryArgs, Procedure, ReadArgs, ReadDirArgs, ReadDirPlusArgs,
    ReadDirPlusResult, ReadDirResult, ReadResult, RenameArgs, RenameResult, Status,
};
use odafs_common::wire::nfs4::{self, CallWriter, Name, Opaque, Operation, OperationResult};
use odafs_common::wire::nlm4;
use odafs_common::wire::odafs::{
    self as wire, Accepted, GetRefsArgs, GetRefsResult, Mode, OdafsStatus, OpenSessionArgs,
    OpenSessionResult, Parameters,
};
use odafs_common::wire::rpc::{self, Auth, AuthSys, Groups, Rejection};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_nic::calls::{Caller, Calls, Notes, Outcome, Transport};
use odafs_server::access::{Access, Rule};
use odafs_server::config::{MinorVersions, Squash};
use odafs_server::drc::{Bounds, DuplicateCache};
use odafs_server::export::{Export, ExportConfig};
use odafs_server::mount3::MountProgram;
use odafs_server::nfs3::Nfs3;
use odafs_server::nfs4::Nfs4;
use odafs_server::nlm4::{Lockd, Nlm4};
use odafs_server::odafs::{Odafs, SessionPolicy};
use odafs_server::rpc::{Program, Service};
use odafs_server::store::table::Entry;
use odafs_server::store::{
    CreateHow, Credential, MemoryStore, SetAttributes, Store, StoreTable, Time,
};

const OPEN: u16 = 7;
const CLOSED: u16 = 9;

/// `/open` is for 10.0.0.0/8, whose ids are squashed; `/deep/closed` for 10.1.0.0/16, which keeps its ids but root's.
struct Server {
    service: Service,
    access: Arc<Access>,
    export: Arc<Export>,
    xid: Cell<u32>,
}

/// A client of one connection.
struct Client<'s> {
    server: &'s Server,
    caller: Caller,
    uid: u32,
}

fn closed_rule() -> Rule {
    let networks = vec!["10.1.0.0/16".parse().unwrap()];
    let mut rule = Rule::new(networks, Squash::Root);
    rule.loopback = false;
    rule
}

fn open_rule() -> Rule {
    Rule::new(vec!["10.0.0.0/8".parse().unwrap()], Squash::All)
}

/// A file of user 5 that nobody else may read, and one for everybody.
fn store() -> Arc<dyn Store> {
    let store = MemoryStore::new(1);
    for (name, mode) in [(&b"private"[..], 0o600), (b"public", 0o644)] {
        let new = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        let who = Credential::of(5, 5, &[]);
        let made = store.create(&who, store.root(), name, CreateHow::Guarded(&new));
        let file = made.unwrap().object;
        store.write_at(&who, file, 0, &[7; 4096]).unwrap();
    }
    let all = SetAttributes {
        mode: Some(0o777),
        ..SetAttributes::default()
    };
    let root = Credential::of(0, 0, &[]);
    store.setattr(&root, store.root(), &all).unwrap();
    Arc::new(store)
}

impl Server {
    fn new() -> Self {
        let entry = |name: &str, tag| Entry {
            name: name.to_owned(),
            tag,
            store: store(),
        };
        let entries = vec![entry("/open", OPEN), entry("/deep/closed", CLOSED)];
        let table = StoreTable::new(entries, 3, Time::default()).unwrap();
        let arena = ArenaConfig {
            frames: 512,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let config = ExportConfig {
            others: vec!["/open".to_owned(), "/deep/closed".to_owned()],
            ..ExportConfig::default()
        };
        let arena = Arc::new(Arena::create(&arena).unwrap());
        let export = Arc::new(Export::new(config, Arc::new(table), arena));
        let access = Access::new(Vec::new(), Squash::All, Credential::of(1000, 1000, &[]));
        let rules = vec![(OPEN, open_rule()), (CLOSED, closed_rule())];
        let access = Arc::new(access.with_exports(rules));
        let four = odafs_server::nfs4::Config {
            minors: MinorVersions::ALL,
            lease: Nanos::from_secs(90),
            boot: 1,
            records: odafs_server::nfs4::Records::read("", |_| Ok(())),
            owners: odafs_server::nfs4::OwnersConfig::default(),
        };
        let locks = odafs_server::nlm4::Config {
            state: 1,
            grace: Nanos(0),
            records: odafs_server::nlm4::Records::read("", |_| Ok(())),
            peers: None,
        };
        let programs: Vec<Box<dyn Program>> = vec![
            Box::new(Nfs3::new(export.clone())),
            Box::new(MountProgram::new(export.clone(), access.clone())),
            Box::new(Nfs4::new(export.clone(), four)),
            Box::new(Nlm4::new(Lockd::start(export.clone(), locks))),
            Box::new(Odafs::new(export.clone(), SessionPolicy::default())),
        ];
        let duplicates = DuplicateCache::new(Bounds::default());
        Self {
            service: Service::new(programs, access.clone(), duplicates, false),
            access,
            export,
            xid: Cell::new(1),
        }
    }

    fn client(&self, address: &str, uid: u32) -> Client<'_> {
        self.client_over(
            Peer::Address(address.parse().unwrap()),
            uid,
            Transport::Iwarp,
        )
    }

    fn client_over(&self, peer: Peer, uid: u32, transport: Transport) -> Client<'_> {
        Client {
            server: self,
            caller: Caller {
                peer,
                connection: 1,
                transport,
                reply_bytes_max: 1 << 20,
                placement: None,
                apart: None,
                back: None,
                notes: Notes::default(),
            },
            uid,
        }
    }

    /// The handle of a name below the root of an export, whoever may reach it.
    fn handle(&self, path: &[&str]) -> Vec<u8> {
        let (store, who) = (self.export.store(), Credential::of(0, 0, &[]));
        let step = |at, name: &&str| store.lookup(&who, at, name.as_bytes()).unwrap().0;
        let found = path.iter().fold(store.root(), step);
        self.export.handle(found).to_vec()
    }

    /// Takes the network 10.1.0.0/16 away from `/deep/closed`.
    fn close(&self) {
        let mut nobody = closed_rule();
        nobody.allow.clear();
        let server = Rule::new(Vec::new(), Squash::All);
        let replaced = self
            .access
            .replace(server, vec![open_rule(), nobody])
            .unwrap();
        self.export
            .close_sessions(|address| replaced.concerns(address));
    }
}

impl Client<'_> {
    fn call(
        &self,
        (program, version): (u32, u32),
        procedure: u32,
        arguments: &[u8],
    ) -> Result<&'static [u8], Rejection> {
        let xid = self.server.xid.get();
        self.server.xid.set(xid + 1);
        let mut message = Vec::new();
        let who = Auth::Sys(AuthSys {
            stamp: 0,
            machine: b"client",
            uid: self.uid,
            gid: self.uid,
            gids: Groups::new(&[]),
        });
        let mut w = Writer::new(&mut message);
        rpc::call(&mut w, xid, program, version, procedure, &who);
        message.extend_from_slice(arguments);
        let mut reply = Vec::new();
        let mut outcome = self.server.service.call(&self.caller, &message, &mut reply);
        while let Outcome::Deferred(job) = outcome {
            reply.clear();
            outcome = job(&mut reply);
        }
        assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
        let reply = rpc::parse_reply(reply.leak()).unwrap();
        reply.body.map(|results| results.rest())
    }

    fn nfs<R: Decode<'static>>(&self, procedure: Procedure, arguments: &impl Encode) -> R {
        let program = (nfs3::PROGRAM, nfs3::VERSION);
        let results = self.call(program, procedure.code(), &arguments.to_bytes());
        R::from_bytes(results.expect("served")).unwrap()
    }

    fn mount<R: Decode<'static>>(
        &self,
        procedure: mount3::Procedure,
        arguments: &impl Encode,
    ) -> R {
        let program = (mount3::PROGRAM, mount3::VERSION);
        let results = self.call(program, procedure.code(), &arguments.to_bytes());
        R::from_bytes(results.expect("served")).unwrap()
    }

    /// What a compound of minor version 0 ends with.
    fn compound(&self, operations: &[Operation<'_>]) -> OperationResult<'static> {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        let call = CallWriter::compound(&mut w, Opaque(b""), 0);
        let call = operations
            .iter()
            .fold(call, |call, operation| call.push(operation));
        call.finish();
        let program = (nfs4::PROGRAM, nfs4::VERSION);
        let results = self.call(program, nfs4::Procedure::Compound.code(), &bytes);
        let results = nfs4::Results::begin(Reader::new(results.expect("served"))).unwrap();
        results.last().expect("a result").unwrap()
    }

    fn odafs<R: Decode<'static>>(&self, procedure: wire::Procedure, arguments: &impl Encode) -> R {
        let program = (wire::PROGRAM, wire::VERSION);
        let results = self.call(program, procedure.code(), &arguments.to_bytes());
        R::from_bytes(results.expect("served")).unwrap()
    }

    fn session(&self, export: &str) -> Result<u32, OdafsStatus> {
        let parameters = Parameters {
            version: direct::VERSION.into(),
            features: 0,
            macs: MacAlgorithm::OFFERED,
            mode: Mode::OneSided,
            pattern: Pattern::Nn,
            export: export.as_bytes(),
            fabric: b"tcp",
        };
        let parameters = parameters.to_bytes();
        let (initiator, handshake) =
            Initiator::start(&parameters, [1; 32].into(), None, None).unwrap();
        let arguments = OpenSessionArgs {
            parameters: &parameters,
            handshake: &handshake,
        };
        let opened: OpenSessionResult<'static> =
            self.odafs(wire::Procedure::OpenSession, &arguments);
        let (_, payload) = initiator.finish(opened?.0).unwrap();
        Ok(Accepted::from_bytes(&payload).unwrap().session)
    }

    /// READ of the ODAFS program: the status, and how many references came.
    fn read(&self, file: &[u8], session: u32) -> Result<usize, Status> {
        let arguments = wire::ReadArgs {
            file: FileHandle(file),
            offset: 0,
            count: 4096,
            session,
            want_references: session != 0,
            chunk: None,
        };
        let read: wire::ReadResult<'static> = self.odafs(wire::Procedure::Read, &arguments);
        read.map(|read| read.references.len())
            .map_err(|failed| failed.status)
    }

    fn refs(&self, file: &[u8], session: u32) -> Result<(Status, usize), OdafsStatus> {
        let arguments = GetRefsArgs {
            session,
            resume: 0,
            ranges: vec![wire::Range {
                file: FileHandle(file),
                offset: 0,
                length: 4096,
            }],
        };
        let found: GetRefsResult = self.odafs(wire::Procedure::GetRefs, &arguments);
        found.map(|found| (found.files[0].status, found.files[0].references.len()))
    }

    fn names(&self, directory: &[u8]) -> Vec<String> {
        let arguments = ReadDirArgs {
            directory: FileHandle(directory),
            cookie: 0,
            verifier: [0; 8],
            count: 4096,
        };
        let listed: ReadDirResult<'static> = self.nfs(Procedure::ReadDir, &arguments);
        let listed = listed.expect("listed");
        assert!(listed.eof);
        let names = listed.entries.iter().map(|entry| entry.name);
        let names: Vec<_> = names
            .map(|name| String::from_utf8_lossy(name).into())
            .collect();
        let plus = ReadDirPlusArgs {
            directory: FileHandle(directory),
            cookie: 0,
            verifier: [0; 8],
            directory_count: 4096,
            max_count: 4096,
        };
        let plus: ReadDirPlusResult<'static> = self.nfs(Procedure::ReadDirPlus, &plus);
        assert_eq!(plus.expect("listed").entries.len(), names.len());
        names
    }

    fn lookup(&self, directory: &[u8], name: &str) -> Result<Vec<u8>, Status> {
        let place = DirectoryName {
            directory: FileHandle(directory),
            name: name.as_bytes(),
        };
        let found: LookupResult<'static> = self.nfs(Procedure::Lookup, &place);
        found
            .map(|found| found.file.0.to_vec())
            .map_err(|failed| failed.status)
    }

    /// READ by version 3.
    fn reads(&self, file: &[u8]) -> Result<u32, Status> {
        let arguments = ReadArgs {
            file: FileHandle(file),
            offset: 0,
            count: 4096,
        };
        let read: ReadResult<'static> = self.nfs(Procedure::Read, &arguments);
        read.map(|read| read.count).map_err(|failed| failed.status)
    }

    /// READ by version 4.
    fn reads_4(&self, file: &[u8]) -> Result<usize, nfs4::Status> {
        let read = self.compound(&[
            Operation::PutFileHandle(nfs4::FileHandle(file)),
            Operation::Read(nfs4::ReadArgs {
                state: nfs4::StateId::ANONYMOUS,
                offset: 0,
                count: 4096,
            }),
        ]);
        match read {
            OperationResult::Read(read) => read.map(|read| read.data.0.len()),
            OperationResult::PutFileHandle(refused) => Err(refused.unwrap_err()),
            other => panic!("{other:?}"),
        }
    }

    fn lookup_4(&self, names: &[&str]) -> Result<(), nfs4::Status> {
        let names = names
            .iter()
            .map(|name| Operation::Lookup(Name(name.as_bytes())));
        let operations: Vec<_> = std::iter::once(Operation::PutRootFileHandle)
            .chain(names)
            .collect();
        match self.compound(&operations) {
            OperationResult::Lookup(found) => found,
            other => panic!("{other:?}"),
        }
    }

    fn names_4(&self) -> Vec<String> {
        let list = Operation::ReadDir(nfs4::ReadDirArgs {
            cookie: 0,
            verifier: [0; 8],
            directory_count: 0,
            max_count: 4096,
            asked: nfs4::Bitmap::of(&[nfs4::Attribute::FileId]),
        });
        match self.compound(&[Operation::PutRootFileHandle, list]) {
            OperationResult::ReadDir(Ok(listed)) => {
                let names = listed.entries.iter().map(|entry| entry.name.0);
                names
                    .map(|name| String::from_utf8_lossy(name).into())
                    .collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn lock(&self, file: &[u8]) -> nlm4::Status {
        let arguments = nlm4::LockArgs {
            cookie: nlm4::Object(b"c"),
            block: false,
            exclusive: false,
            lock: nlm4::Lock {
                caller: nlm4::Name(b"client"),
                file: FileHandle(file),
                owner: nlm4::Object(b"owner"),
                process: self.uid,
                offset: 0,
                length: 1,
            },
            reclaim: false,
            state: 3,
        };
        let program = (nlm4::PROGRAM, nlm4::VERSION);
        let code = nlm4::Procedure::UnmonitoredLock.code();
        let locked = self
            .call(program, code, &arguments.to_bytes())
            .expect("served");
        nlm4::LockResult::from_bytes(locked).unwrap().status
    }
}

#[test]
fn an_export_is_invisible_to_those_who_may_not_reach_it() {
    let server = Server::new();
    let root = server.handle(&[]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    assert_eq!(inside.names(&root), [".", "..", "deep", "open"]);
    assert_eq!(outside.names(&root), [".", "..", "open"]);
    assert_eq!(inside.names_4(), ["deep", "open"]);
    assert_eq!(outside.names_4(), ["open"]);
    let deep = server.handle(&["deep"]);
    assert_eq!(inside.names(&deep), [".", "..", "closed"]);
    assert_eq!(outside.names(&deep), [".", ".."]);
    assert!(inside.lookup(&deep, "closed").is_ok());
    assert_eq!(outside.lookup(&deep, "closed"), Err(Status::NoEnt));
    assert_eq!(outside.lookup(&root, "deep"), Err(Status::NoEnt));
    assert!(outside.lookup(&root, "open").is_ok());
    assert_eq!(inside.lookup_4(&["deep", "closed", "public"]), Ok(()));
    assert_eq!(outside.lookup_4(&["deep"]), Err(nfs4::Status::NoEnt));
    assert_eq!(outside.lookup_4(&["open", "public"]), Ok(()));
    // Who may reach no export is refused as a whole.
    let stranger = server.client("192.0.2.1:700", 5);
    let program = (nfs3::PROGRAM, nfs3::VERSION);
    let refused = stranger.call(program, 1, &FileHandle(&root).to_bytes());
    assert!(matches!(refused, Err(Rejection::Auth(_))), "{refused:?}");
}

#[test]
fn a_handle_is_stale_to_those_who_may_not_reach_its_export() {
    let server = Server::new();
    let file = server.handle(&["deep", "closed", "public"]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 6),
        server.client("10.2.0.1:700", 6),
    );
    // Resident by now.
    assert_eq!(inside.reads(&file), Ok(4096));
    assert_eq!(inside.reads_4(&file), Ok(4096));
    assert_eq!(inside.read(&file, 0), Ok(0));
    assert_eq!(outside.reads(&file), Err(Status::Stale));
    assert_eq!(outside.reads_4(&file), Err(nfs4::Status::Stale));
    assert_eq!(outside.read(&file, 0), Err(Status::Stale));
    let found: GetAttributesResult = outside.nfs(Procedure::GetAttributes, &FileHandle(&file));
    assert_eq!(found.unwrap_err().status, Status::Stale);
    let directory = server.handle(&["deep", "closed"]);
    let make = MakeDirectoryArgs {
        place: DirectoryName {
            directory: FileHandle(&directory),
            name: b"x",
        },
        attributes: nfs3::SetAttributes::default(),
    };
    let made: CreateResult<'static> = outside.nfs(Procedure::MakeDirectory, &make);
    let Err(Failed { status, rest }) = made else {
        panic!("made");
    };
    assert_eq!((status, rest.after), (Status::Stale, None));
    assert_eq!(inside.lock(&file), nlm4::Status::Granted);
    assert_eq!(outside.lock(&file), nlm4::Status::StaleHandle);
    // A port that the export does not believe: Linux says the same.
    let ordinary = server.client("10.1.0.1:7000", 6);
    assert_eq!(ordinary.reads(&file), Err(Status::Perm));
    assert_eq!(ordinary.reads_4(&file), Err(nfs4::Status::Perm));
    let deep = server.handle(&["deep"]);
    assert_eq!(ordinary.lookup(&deep, "closed"), Err(Status::Perm));
    assert_eq!(
        ordinary.reads(&server.handle(&["open", "public"])),
        Ok(4096)
    );
}

#[test]
fn callers_act_in_each_export_as_its_rule_says() {
    let server = Server::new();
    let private = |export: &[&str]| server.handle(&[export, &["private"]].concat());
    let (closed, open) = (private(&["deep", "closed"]), private(&["open"]));
    let owner = server.client("10.1.0.1:700", 5);
    assert_eq!(owner.reads(&closed), Ok(4096));
    assert_eq!(owner.reads_4(&closed), Ok(4096));
    assert_eq!(owner.lock(&closed), nlm4::Status::Granted);
    for squashed in [&owner, &server.client("10.2.0.1:700", 5)] {
        assert_eq!(squashed.reads(&open), Err(Status::Access));
        assert_eq!(squashed.reads_4(&open), Err(nfs4::Status::Access));
        assert_eq!(squashed.read(&open, 0), Err(Status::Access));
        assert_eq!(squashed.lock(&open), nlm4::Status::Failed);
    }
    for other in [0, 6] {
        let other = server.client("10.1.0.1:700", other);
        assert_eq!(other.reads(&closed), Err(Status::Access));
        assert_eq!(other.reads_4(&closed), Err(nfs4::Status::Access));
    }
    // On this host the kernel vouches for a caller, wherever it goes.
    let local = Peer::Uid {
        uid: 5,
        gid: 5,
        groups: [].into(),
        pid: 1,
    };
    let local = server.client_over(local, 0, Transport::Shm);
    assert_eq!(local.reads(&open), Ok(4096));
    assert_eq!(local.reads(&closed), Ok(4096));
}

#[test]
fn nothing_goes_from_an_export_to_another_by_two_handles() {
    let server = Server::new();
    let closed = server.handle(&["deep", "closed"]);
    let open = server.handle(&["open"]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    let rename = |client: &Client<'_>| {
        let place = |directory| DirectoryName {
            directory: FileHandle(directory),
            name: b"public",
        };
        let arguments = RenameArgs {
            from: place(&open),
            to: place(&closed),
        };
        let moved: RenameResult = client.nfs(Procedure::Rename, &arguments);
        moved.expect_err("refused").status
    };
    assert_eq!(
        (rename(&inside), rename(&outside)),
        (Status::XDev, Status::Stale)
    );
    let file = server.handle(&["open", "public"]);
    let link = |client: &Client<'_>| {
        let arguments = LinkArgs {
            file: FileHandle(&file),
            place: DirectoryName {
                directory: FileHandle(&closed),
                name: b"new",
            },
        };
        let linked: LinkResult = client.nfs(Procedure::Link, &arguments);
        linked.expect_err("refused").status
    };
    assert_eq!(
        (link(&inside), link(&outside)),
        (Status::XDev, Status::Stale)
    );
    // One operation has one credential: who acts as another there reads and writes instead.
    let private = server.handle(&["deep", "closed", "private"]);
    let copy = inside.compound(&[
        Operation::PutFileHandle(nfs4::FileHandle(&private)),
        Operation::SaveFileHandle,
        Operation::PutFileHandle(nfs4::FileHandle(&file)),
        Operation::Link(Name(b"x")),
    ]);
    assert!(matches!(copy, OperationResult::Link(Err(_))), "{copy:?}");
    // The credential goes with the file handle, also when a saved one comes back.
    let back = inside.compound(&[
        Operation::PutFileHandle(nfs4::FileHandle(&private)),
        Operation::SaveFileHandle,
        Operation::PutFileHandle(nfs4::FileHandle(&file)),
        Operation::RestoreFileHandle,
        Operation::Read(nfs4::ReadArgs {
            state: nfs4::StateId::ANONYMOUS,
            offset: 0,
            count: 1,
        }),
    ]);
    assert!(matches!(back, OperationResult::Read(Ok(_))), "{back:?}");
}

#[test]
fn mount_shows_and_gives_what_may_be_reached() {
    let server = Server::new();
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    let mount = |client: &Client<'_>, path: &str| {
        let path = DirPath(path.as_bytes());
        let mounted: MountResult<'static> = client.mount(mount3::Procedure::Mount, &path);
        mounted.map(|mounted| mounted.flavors)
    };
    assert_eq!(mount(&inside, "/deep/closed"), Ok(vec![1]));
    assert_eq!(mount(&inside, "/open"), Ok(vec![1, 0]));
    assert_eq!(mount(&outside, "/open"), Ok(vec![1, 0]));
    assert!(mount(&outside, "/").is_ok());
    assert_eq!(mount(&outside, "/deep/closed"), Err(mount3::Status::Access));
    assert_eq!(mount(&outside, "/deep"), Err(mount3::Status::NoEnt));
    assert_eq!(
        mount(&outside, "/open/../deep/closed"),
        Err(mount3::Status::NoEnt)
    );
    // No way leads through it either, and none tells what is in it.
    for path in [
        "/open/../deep/closed/../../open",
        "/open/../deep/closed/public/../../../open",
        "/open/../deep/closed/nothing",
        "/./deep/closed",
    ] {
        assert_eq!(mount(&outside, path), Err(mount3::Status::NoEnt), "{path}");
    }
    let ordinary = server.client("10.1.0.1:7000", 5);
    assert_eq!(
        mount(&ordinary, "/deep/closed"),
        Err(mount3::Status::Access)
    );
    let listed = |client: &Client<'_>| {
        let listed: Exports<'static> = client.mount(mount3::Procedure::Export, &());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let groups = |export: &mount3::Export<'_>| {
            let groups = export.groups.iter().map(|group| text(group.0));
            groups.collect::<Vec<_>>().join(" ")
        };
        let all = listed.0.iter();
        all.map(|export| (text(export.directory.0), groups(export)))
            .collect::<Vec<_>>()
    };
    let line = |name: &str, groups: &str| (name.to_owned(), groups.to_owned());
    let both = line("/", "10.0.0.0/8 10.1.0.0/16");
    let open = line("/open", "10.0.0.0/8");
    assert_eq!(listed(&outside), [both.clone(), open.clone()]);
    let closed = line("/deep/closed", "10.1.0.0/16");
    assert_eq!(listed(&inside), [both, open, closed]);
    let dumped = |client: &Client<'_>| {
        let mounts: Mounts<'static> = client.mount(mount3::Procedure::Dump, &());
        let of_closed = |mount: &&mount3::Mount<'_>| mount.directory.0 == b"/deep/closed";
        mounts.0.iter().filter(of_closed).count()
    };
    assert_eq!((dumped(&inside), dumped(&outside)), (1, 0));
}

#[test]
fn references_are_for_those_who_may_read_where_they_act() {
    let server = Server::new();
    let closed = server.handle(&["deep", "closed", "private"]);
    let open = server.handle(&["open", "private"]);
    let (owner, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    assert_eq!(outside.session("/deep/closed"), Err(OdafsStatus::Denied));
    let foreign = outside.session("/").unwrap();
    let session = owner.session("/deep/closed").unwrap();
    // The first READ fills the cache.
    owner.read(&closed, session).unwrap();
    assert_eq!(owner.read(&closed, session), Ok(1));
    assert_eq!(owner.refs(&closed, session), Ok((Status::Ok, 1)));
    assert_eq!(owner.refs(&open, session), Ok((Status::Access, 0)));
    assert_eq!(outside.refs(&closed, foreign), Ok((Status::Stale, 0)));
    assert_eq!(outside.read(&closed, foreign), Err(Status::Stale));
    // Another user of the same host is squashed to the same one in `/open`, and yet another here.
    let other = server.client("10.1.0.1:700", 6);
    assert_eq!(other.refs(&closed, session), Err(OdafsStatus::NoSession));
}

#[test]
fn who_is_no_longer_admitted_loses_access_and_references() {
    let server = Server::new();
    let file = server.handle(&["deep", "closed", "public"]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    let session = inside.session("/").unwrap();
    let stays = outside.session("/").unwrap();
    assert_eq!(
        (inside.reads(&file), inside.reads_4(&file)),
        (Ok(4096), Ok(4096))
    );
    inside.read(&file, session).unwrap();
    assert_eq!(inside.refs(&file, session), Ok((Status::Ok, 1)));
    server.close();
    assert_eq!(inside.reads(&file), Err(Status::Stale));
    assert_eq!(inside.reads_4(&file), Err(nfs4::Status::Stale));
    assert_eq!(inside.refs(&file, session), Err(OdafsStatus::NoSession));
    assert_eq!(inside.names_4(), ["open"]);
    // Whom it does not concern keeps its session.
    let open = server.handle(&["open", "public"]);
    assert_eq!(
        outside.refs(&open, stays).map(|(status, _)| status),
        Ok(Status::Ok)
    );
}
