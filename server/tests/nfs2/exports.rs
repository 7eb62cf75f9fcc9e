//! Exports with rules of their own, as callers at different addresses see them by version 2.

use std::sync::Arc;

use odafs_common::wire::mount1::{MountResult, PATH_CONF, PathConf, VERSIONS, mask};
use odafs_common::wire::mount3::{self, DirPath, Exports, Mounts};
use odafs_common::wire::nfs2::{
    AttributesResult, ChangeResult, CreateArgs, DirectoryName, FileHandle, LinkArgs, ObjectResult,
    Payload, Procedure, ReadDirArgs, ReadDirResult, ReadResult, RenameArgs, StatFsResult, Status,
    WriteArgs,
};
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::{Decode, Encode};
use odafs_server::access::{Access, Rule};
use odafs_server::config::Squash;
use odafs_server::export::ExportsConfig;
use odafs_server::store::table::Entry;
use odafs_server::store::{
    CreateHow, Credential, MemoryStore, SetAttributes, Store, StoreTable, Time,
};
use odafs_server::vfs::ShortHandle;

use crate::harness::{NFS, Server, at, mode, range, user};

const OPEN: u16 = 7;
const CLOSED: u16 = 9;

/// `/open` is for 10.0.0.0/8, whose ids are squashed; `/deep/closed` for 10.1.0.0/16, which keeps its ids but root's.
fn two_exports() -> Server {
    let entry = |name: &str, tag| Entry {
        name: name.to_owned(),
        tag,
        store: store(),
    };
    let entries = vec![entry("/open", OPEN), entry("/deep/closed", CLOSED)];
    let table = StoreTable::new(entries, 3, Time::default()).expect("a table");
    let config = ExportsConfig {
        others: vec!["/open".to_owned(), "/deep/closed".to_owned()],
        ..ExportsConfig::default()
    };
    let rule = |network: &str, squash| {
        let mut rule = Rule::new(vec![network.parse().expect("a network")], squash);
        rule.loopback = false;
        rule
    };
    let open = rule("10.0.0.0/8", Squash::All);
    let closed = rule("10.1.0.0/16", Squash::Root);
    let access = Access::new(Vec::new(), Squash::All, Credential::of(1000, 1000, &[]));
    let access = access.with_exports(vec![(OPEN, open), (CLOSED, closed)]);
    Server::of(config, Arc::new(table), access)
}

/// A file of user 5 that nobody else may read, and one for everybody.
fn store() -> Arc<dyn Store> {
    let store = MemoryStore::new(1);
    for (name, mode) in [(&b"private"[..], 0o600), (b"public", 0o666)] {
        let new = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        let who = Credential::of(5, 5, &[]);
        let made = store.create(&who, store.root(), name, CreateHow::Guarded(&new));
        let file = made.expect("made").object;
        store.write_at(&who, file, 0, &[7; 4096]).expect("written");
    }
    let all = SetAttributes {
        mode: Some(0o777),
        ..SetAttributes::default()
    };
    let root = Credential::of(0, 0, &[]);
    store.setattr(&root, store.root(), &all).expect("set");
    Arc::new(store)
}

/// The handle of a path, whoever may reach it.
fn handle(server: &Server, path: &[&str]) -> ShortHandle {
    let (store, who) = (server.export.store(), Credential::of(0, 0, &[]));
    let step = |at, name: &&str| store.lookup(&who, at, name.as_bytes()).expect("found").0;
    server
        .export
        .short_handle(path.iter().fold(store.root(), step))
}

/// A caller: its address, and whom it says that it is.
#[derive(Clone, Copy)]
struct Client<'s>(&'s Server, &'static str, u32);

impl Client<'_> {
    fn ask<R: Decode<'static>>(
        self,
        program: (u32, u32),
        procedure: u32,
        arguments: &impl Encode,
    ) -> R {
        let Self(server, address, uid) = self;
        let arguments = arguments.to_bytes();
        let message = server.message(program, procedure, &user(uid, uid), &arguments);
        let reply = server.exchange(address, &message).expect("a reply");
        let reply = rpc::parse_reply(reply).expect("a reply's header");
        R::from_bytes(reply.body.expect("served").rest()).expect("the procedure's results")
    }

    fn nfs<R: Decode<'static>>(self, procedure: Procedure, arguments: &impl Encode) -> R {
        self.ask(NFS, procedure.code(), arguments)
    }

    fn names(self, directory: &ShortHandle) -> Vec<String> {
        let arguments = ReadDirArgs {
            directory: FileHandle(directory),
            cookie: 0,
            count: 4096,
        };
        let listed: ReadDirResult<'static> = self.nfs(Procedure::ReadDir, &arguments);
        let listed = listed.expect("listed");
        assert!(listed.eof);
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        listed
            .entries
            .iter()
            .map(|entry| name(entry.name))
            .collect()
    }

    fn lookup(self, directory: &ShortHandle, name: &str) -> Result<ShortHandle, Status> {
        let place = at(FileHandle(directory), name);
        let found: ObjectResult<'static> = self.nfs(Procedure::Lookup, &place);
        found.map(|found| *found.file.0)
    }

    fn reads(self, file: &ShortHandle) -> Result<usize, Status> {
        let arguments = range(FileHandle(file), 0, 4096);
        let read: ReadResult<'static> = self.nfs(Procedure::Read, &arguments);
        read.map(|read| read.data.0.len())
    }
}

const INSIDE: &str = "10.1.0.1:700";
const OUTSIDE: &str = "10.2.0.1:700";

#[test]
fn an_export_is_invisible_to_those_who_may_not_reach_it() {
    let server = two_exports();
    let (inside, outside) = (Client(&server, INSIDE, 5), Client(&server, OUTSIDE, 5));
    let (root, deep) = (handle(&server, &[]), handle(&server, &["deep"]));
    assert_eq!(inside.names(&root), [".", "..", "deep", "open"]);
    assert_eq!(outside.names(&root), [".", "..", "open"]);
    assert_eq!(inside.names(&deep), [".", "..", "closed"]);
    assert_eq!(outside.names(&deep), [".", ".."]);
    let closed = handle(&server, &["deep", "closed"]);
    assert_eq!(inside.lookup(&deep, "closed"), Ok(closed));
    assert_eq!(outside.lookup(&deep, "closed"), Err(Status::NoEnt));
    assert_eq!(outside.lookup(&root, "deep"), Err(Status::NoEnt));
    assert!(outside.lookup(&root, "open").is_ok());
    // A port that the export does not believe.
    let ordinary = Client(&server, "10.1.0.1:7000", 5);
    assert_eq!(ordinary.lookup(&deep, "closed"), Err(Status::Perm));
}

#[test]
fn a_caller_that_may_not_reach_an_export_gets_nothing_there() {
    let server = two_exports();
    let (inside, outside) = (Client(&server, INSIDE, 6), Client(&server, OUTSIDE, 6));
    let directory = handle(&server, &["deep", "closed"]);
    let file = handle(&server, &["deep", "closed", "public"]);
    let (there, closed) = (FileHandle(&file), FileHandle(&directory));
    // Resident by now.
    assert_eq!(inside.reads(&file), Ok(4096));
    assert_eq!(outside.reads(&file), Err(Status::Stale));
    assert_eq!(
        Client(&server, "10.1.0.1:7000", 6).reads(&file),
        Err(Status::Perm)
    );
    let found: AttributesResult = outside.nfs(Procedure::GetAttributes, &there);
    assert_eq!(found, Err(Status::Stale));
    assert_eq!(outside.lookup(&directory, "public"), Err(Status::Stale));
    let write = WriteArgs {
        file: there,
        begin_offset: 0,
        offset: 0,
        total_count: 0,
        data: Payload(b"x"),
    };
    let written: AttributesResult = outside.nfs(Procedure::Write, &write);
    assert_eq!(written, Err(Status::Stale));
    let listing = ReadDirArgs {
        directory: closed,
        cookie: 0,
        count: 4096,
    };
    let listed: ReadDirResult<'static> = outside.nfs(Procedure::ReadDir, &listing);
    assert_eq!(listed.err(), Some(Status::Stale));
    let space: StatFsResult = outside.nfs(Procedure::StatFs, &closed);
    assert_eq!(space.err(), Some(Status::Stale));
    let removed: ChangeResult = outside.nfs(Procedure::Remove, &at(closed, "public"));
    assert_eq!(removed, Err(Status::Stale));
    for procedure in [Procedure::Create, Procedure::MakeDirectory] {
        let new = CreateArgs {
            place: at(closed, "new"),
            attributes: mode(0o777),
        };
        let made: ObjectResult<'static> = outside.nfs(procedure, &new);
        assert_eq!(made.err(), Some(Status::Stale), "{procedure:?}");
    }
    let written: AttributesResult = inside.nfs(Procedure::Write, &write);
    assert_eq!(written.expect("written").size, 4096);
    assert_eq!(inside.names(&directory), [".", "..", "private", "public"]);
}

#[test]
fn callers_act_in_each_export_as_its_rule_says() {
    let server = two_exports();
    let closed = handle(&server, &["deep", "closed", "private"]);
    let open = handle(&server, &["open", "private"]);
    let owner = Client(&server, INSIDE, 5);
    assert_eq!(owner.reads(&closed), Ok(4096));
    for squashed in [owner, Client(&server, OUTSIDE, 5)] {
        assert_eq!(squashed.reads(&open), Err(Status::Access));
    }
    for other in [0, 6] {
        let other = Client(&server, INSIDE, other);
        assert_eq!(other.reads(&closed), Err(Status::Access));
    }
    // What is made is of whom the rule says.
    let make = |export: &[&str]| {
        let directory = handle(&server, export);
        let new = CreateArgs {
            place: at(FileHandle(&directory), "new"),
            attributes: mode(0o644),
        };
        let made: ObjectResult<'static> = owner.nfs(Procedure::Create, &new);
        made.expect("made").attributes.uid
    };
    assert_eq!((make(&["deep", "closed"]), make(&["open"])), (5, 1000));
}

#[test]
fn nothing_goes_from_an_export_to_another_by_two_handles() {
    let server = two_exports();
    let clients = [Client(&server, INSIDE, 5), Client(&server, OUTSIDE, 5)];
    let (closed, open) = (
        handle(&server, &["deep", "closed"]),
        handle(&server, &["open"]),
    );
    let file = handle(&server, &["open", "public"]);
    fn place<'a>(directory: &'a ShortHandle, name: &'a str) -> DirectoryName<'a> {
        at(FileHandle(directory), name)
    }
    let both = |from, to| RenameArgs {
        from: place(from, "public"),
        to: place(to, "new"),
    };
    let refused = [Err(Status::Access), Err(Status::Stale)];
    for arguments in [both(&open, &closed), both(&closed, &open)] {
        let moved: [ChangeResult; 2] =
            clients.map(|client| client.nfs(Procedure::Rename, &arguments));
        assert_eq!(moved, refused);
    }
    let arguments = LinkArgs {
        file: FileHandle(&file),
        place: place(&closed, "new"),
    };
    let linked: [ChangeResult; 2] = clients.map(|client| client.nfs(Procedure::Link, &arguments));
    assert_eq!(linked, refused);
}

#[test]
fn mount_shows_and_gives_what_may_be_reached() {
    let server = two_exports();
    let (inside, outside) = (Client(&server, INSIDE, 5), Client(&server, OUTSIDE, 5));
    let ordinary = Client(&server, "10.1.0.1:7000", 5);
    for version in VERSIONS {
        let program = (mount3::PROGRAM, version);
        let mount = |client: Client<'_>, path: &str| {
            let procedure = mount3::Procedure::Mount.code();
            let path = DirPath(path.as_bytes());
            let mounted: MountResult<'static> = client.ask(program, procedure, &path);
            mounted.map(|handle| *handle.0)
        };
        let closed = handle(&server, &["deep", "closed"]);
        assert_eq!(mount(inside, "/deep/closed"), Ok(closed));
        assert_eq!(mount(outside, "/open"), Ok(handle(&server, &["open"])));
        assert!(mount(outside, "/").is_ok());
        for (client, path, status) in [
            (outside, "/deep/closed", Status::Access),
            (outside, "/deep", Status::NoEnt),
            (outside, "/open/../deep/closed", Status::NoEnt),
            (ordinary, "/deep/closed", Status::Access),
        ] {
            assert_eq!(mount(client, path), Err(status), "{path}");
        }
        let listed = |client: Client<'_>| {
            let procedure = mount3::Procedure::Export.code();
            let listed: Exports<'static> = client.ask(program, procedure, &());
            listed.0.len()
        };
        assert_eq!((listed(inside), listed(outside)), (3, 2));
        let dumped = |client: Client<'_>| {
            let procedure = mount3::Procedure::Dump.code();
            let mounts: Mounts<'static> = client.ask(program, procedure, &());
            let of_closed = |mount: &&mount3::Mount<'_>| mount.directory.0 == b"/deep/closed";
            mounts.0.iter().filter(of_closed).count()
        };
        assert_eq!((dumped(inside), dumped(outside)), (1, 0));
    }
    let knows = |client: Client<'_>, path: &str| {
        let path = DirPath(path.as_bytes());
        let told: PathConf = client.ask((mount3::PROGRAM, 2), PATH_CONF, &path);
        told.mask & mask::ERROR == 0
    };
    assert!(knows(inside, "/deep/closed"));
    assert!(!knows(outside, "/deep/closed") && !knows(ordinary, "/deep/closed"));
}
