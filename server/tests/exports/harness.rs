//! A server of two exports with rules of their own, and clients at addresses.

use std::path::PathBuf;
use std::sync::Arc;

use odafs_common::direct;
use odafs_common::mac::MacAlgorithm;
use odafs_common::page::{Layout, PageSize};
use odafs_common::session::{Initiator, Pattern};
use odafs_common::wire::mount3;
use odafs_common::wire::nfs2;
use odafs_common::wire::nfs3::{
    self, DirectoryName, FileHandle, LookupResult, Procedure, ReadArgs, ReadDirArgs,
    ReadDirPlusArgs, ReadDirPlusResult, ReadDirResult, ReadResult, Status,
};
use odafs_common::wire::nfs4::{self, CallWriter, Name, Opaque, Operation, OperationResult};
use odafs_common::wire::nfsacl3::{self, Acls, SetAclArgs, SetAclResult, mask, tag};
use odafs_common::wire::nlm4;
use odafs_common::wire::odafs::{
    self as wire, Accepted, GetRefsArgs, GetRefsResult, Mode, OdafsStatus, OpenSessionArgs,
    OpenSessionResult, Parameters,
};
use odafs_common::wire::rpc::Rejection;
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_nic::calls::{Caller, Transport};
use odafs_server::access::{Access, Rule};
use odafs_server::config::{MinorVersions, Squash};
use odafs_server::export::{Exports, ExportsConfig, Place};
use odafs_server::mount3::MountProgram;
use odafs_server::nfs2::Nfs2;
use odafs_server::nfs3::Nfs3;
use odafs_server::nfs4::Nfs4;
use odafs_server::nfsacl3::NfsAcl3;
use odafs_server::nlm4::{Lockd, Nlm4};
use odafs_server::odafs::{Odafs, SessionPolicy};
use odafs_server::rpc::Program;
use odafs_server::store::table::Entry;
use odafs_server::store::{
    CreateHow, Credential, MemoryStore, ObjectId, SetAttributes, Store, StoreTable, Time,
};

use crate::bare::{Bare, caller, user};

pub const OPEN: u16 = 7;
pub const CLOSED: u16 = 9;

/// `/open` is for 10.0.0.0/8, whose ids are squashed; `/deep/closed` for 10.1.0.0/16, which keeps its ids but root's.
pub struct Server {
    bare: Bare,
    pub access: Arc<Access>,
    pub export: Arc<Exports>,
}

/// A client of one connection.
pub struct Client<'s> {
    pub server: &'s Server,
    pub caller: Caller,
    pub uid: u32,
}

pub fn closed_rule() -> Rule {
    let networks = vec!["10.1.0.0/16".parse().unwrap()];
    let mut rule = Rule::new(networks, Squash::Root);
    rule.loopback = false;
    rule
}

pub fn open_rule() -> Rule {
    Rule::new(vec!["10.0.0.0/8".parse().unwrap()], Squash::All)
}

fn place(tag: u16, path: &str) -> Place {
    let path = PathBuf::from(path);
    let (named, real) = (path.clone(), path);
    Place { tag, named, real }
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
    pub fn new() -> Self {
        Self::with(open_rule(), closed_rule(), Vec::new())
    }

    /// With these rules for the exports, and without references to files of those with the tags of `direct_off`.
    pub fn with(open: Rule, closed: Rule, direct_off: Vec<u16>) -> Self {
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
        let config = ExportsConfig {
            others: vec!["/open".to_owned(), "/deep/closed".to_owned()],
            places: vec![place(OPEN, "/srv/open"), place(CLOSED, "/srv/closed")],
            direct_off,
            ..ExportsConfig::default()
        };
        let arena = Arc::new(Arena::create(&arena).unwrap());
        let export = Arc::new(Exports::new(config, Arc::new(table), arena));
        let access = Access::new(Vec::new(), Squash::All, Credential::of(1000, 1000, &[]));
        let rules = vec![(OPEN, open), (CLOSED, closed)];
        let access = Arc::new(access.with_exports(rules));
        let four = odafs_server::nfs4::Config {
            minors: MinorVersions::ALL,
            lease: Nanos::from_secs(90),
            boot: 1,
            records: odafs_server::nfs4::Records::read("", |_| Ok(())),
            owners: odafs_server::nfs4::OwnersConfig::default(),
            cached_bytes: odafs_server::nfs4::CACHED_BYTES,
        };
        let locks = odafs_server::nlm4::Config {
            state: 1,
            grace: Nanos(0),
            records: odafs_server::nlm4::Records::read("", |_| Ok(())),
            peers: None,
        };
        let programs: Vec<Box<dyn Program>> = vec![
            Box::new(Nfs2::new(export.clone())),
            Box::new(Nfs3::new(export.clone())),
            Box::new(NfsAcl3::new(export.clone())),
            Box::new(MountProgram::new(export.clone(), access.clone())),
            Box::new(Nfs4::new(export.clone(), four)),
            Box::new(Nlm4::new(Lockd::start(
                export.clone(),
                access.clone(),
                locks,
            ))),
            Box::new(Odafs::new(export.clone(), SessionPolicy::default())),
        ];
        Self {
            bare: Bare::new(programs, access.clone()),
            access,
            export,
        }
    }

    pub fn client(&self, address: &str, uid: u32) -> Client<'_> {
        self.client_over(
            Peer::Address(address.parse().unwrap()),
            uid,
            Transport::Iwarp,
        )
    }

    pub fn client_over(&self, peer: Peer, uid: u32, transport: Transport) -> Client<'_> {
        Client {
            server: self,
            caller: Caller {
                peer,
                transport,
                ..caller("10.0.0.1:700")
            },
            uid,
        }
    }

    /// The handle of a name below the root of an export, whoever may reach it.
    pub fn handle(&self, path: &[&str]) -> Vec<u8> {
        self.export.handle(self.object(path)).to_vec()
    }

    fn object(&self, path: &[&str]) -> ObjectId {
        let (store, who) = (self.export.store(), Credential::of(0, 0, &[]));
        let step = |at, name: &&str| store.lookup(&who, at, name.as_bytes()).unwrap().0;
        path.iter().fold(store.root(), step)
    }

    /// Takes the network 10.1.0.0/16 away from `/deep/closed`.
    pub fn close(&self) {
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
    pub fn call(
        &self,
        program: (u32, u32),
        procedure: u32,
        arguments: &[u8],
    ) -> Result<&'static [u8], Rejection> {
        let who = user(self.uid, self.uid);
        let bare = &self.server.bare;
        bare.call_from(&self.caller, program, procedure, &who, arguments)
    }

    pub fn nfs<R: Decode<'static>>(&self, procedure: Procedure, arguments: &impl Encode) -> R {
        let program = (nfs3::PROGRAM, nfs3::VERSION);
        let results = self.call(program, procedure.code(), &arguments.to_bytes());
        R::from_bytes(results.expect("served")).unwrap()
    }

    pub fn mount<R: Decode<'static>>(
        &self,
        procedure: mount3::Procedure,
        arguments: &impl Encode,
    ) -> R {
        let program = (mount3::PROGRAM, mount3::VERSION);
        let results = self.call(program, procedure.code(), &arguments.to_bytes());
        R::from_bytes(results.expect("served")).unwrap()
    }

    /// What a compound of minor version 0 ends with.
    pub fn compound(&self, operations: &[Operation<'_>]) -> OperationResult<'static> {
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

    pub fn odafs<R: Decode<'static>>(
        &self,
        procedure: wire::Procedure,
        arguments: &impl Encode,
    ) -> R {
        let program = (wire::PROGRAM, wire::VERSION);
        let results = self.call(program, procedure.code(), &arguments.to_bytes());
        R::from_bytes(results.expect("served")).unwrap()
    }

    pub fn session(&self, export: &str) -> Result<u32, OdafsStatus> {
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
    pub fn read(&self, file: &[u8], session: u32) -> Result<usize, Status> {
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

    pub fn refs(&self, file: &[u8], session: u32) -> Result<(Status, usize), OdafsStatus> {
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

    pub fn names(&self, directory: &[u8]) -> Vec<String> {
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

    pub fn lookup(&self, directory: &[u8], name: &str) -> Result<Vec<u8>, Status> {
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
    pub fn reads(&self, file: &[u8]) -> Result<u32, Status> {
        let arguments = ReadArgs {
            file: FileHandle(file),
            offset: 0,
            count: 4096,
        };
        let read: ReadResult<'static> = self.nfs(Procedure::Read, &arguments);
        read.map(|read| read.count).map_err(|failed| failed.status)
    }

    /// READ by version 2 of the file with this path.
    pub fn reads_2(&self, path: &[&str]) -> Result<usize, nfs2::Status> {
        let handle = self.server.export.short_handle(self.server.object(path));
        let arguments = nfs2::ReadArgs {
            file: nfs2::FileHandle(&handle),
            offset: 0,
            count: 4096,
            total_count: 0,
        };
        let program = (nfs2::PROGRAM, nfs2::VERSION);
        let results = self.call(program, nfs2::Procedure::Read.code(), &arguments.to_bytes());
        let read = nfs2::ReadResult::from_bytes(results.expect("served")).unwrap();
        read.map(|read| read.data.0.len())
    }

    /// SETACL of what the mode of the file says already.
    pub fn sets_acl(&self, file: &[u8]) -> Result<(), Status> {
        let entry = |tag, permissions| nfsacl3::Entry {
            tag,
            id: 5,
            permissions,
        };
        let access = vec![
            entry(tag::OWNER, 6),
            entry(tag::OWNING_GROUP, 0),
            entry(tag::OTHER, 0),
        ];
        let arguments = SetAclArgs {
            file: FileHandle(file),
            acls: Acls {
                mask: mask::ACCESS | mask::ACCESS_COUNT,
                access_count: 3,
                access,
                ..Acls::default()
            },
        };
        let program = (nfsacl3::PROGRAM, nfsacl3::VERSION);
        let code = nfsacl3::Procedure::SetAcl.code();
        let results = self.call(program, code, &arguments.to_bytes());
        let set = SetAclResult::from_bytes(results.expect("served")).unwrap();
        set.map(drop).map_err(|failed| failed.status)
    }

    /// READ by version 4.
    pub fn reads_4(&self, file: &[u8]) -> Result<usize, nfs4::Status> {
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

    pub fn lookup_4(&self, names: &[&str]) -> Result<(), nfs4::Status> {
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

    pub fn names_4(&self) -> Vec<String> {
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

    pub fn lock(&self, file: &[u8]) -> nlm4::Status {
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
