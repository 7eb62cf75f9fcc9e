//! LOOKUP and what makes, moves and removes names.

use odafs_common::wire::nfs3::{
    CreateArgs, CreateHow, CreateOk, CreateResult, DirectoryName, FileHandle, FileType, LinkArgs,
    LinkResult, LookupResult, MakeNode, MakeNodeArgs, Payload, Procedure, ReadLinkResult,
    RemoveResult, RenameArgs, RenameResult, SetAttributes, Status, SymlinkArgs, WccData,
};

use odafs_server::store::OutsideChange;

use crate::harness::{Server, at, mode, refused, user};

fn lookup<'a>(server: &Server, place: DirectoryName<'_>) -> LookupResult<'a> {
    server.nfs(Procedure::Lookup, &place)
}

fn create(server: &Server, name: &str, how: CreateHow) -> CreateResult<'static> {
    let place = at(server.root(), name);
    server.nfs(Procedure::Create, &CreateArgs { place, how })
}

fn rename(server: &Server, from: DirectoryName<'_>, to: DirectoryName<'_>) -> RenameResult {
    server.nfs(Procedure::Rename, &RenameArgs { from, to })
}

/// The directory's change is told from before to after.
fn consistent(server: &Server, wcc: WccData, directory: FileHandle<'_>) {
    let before = wcc.before.expect("attributes from before");
    let after = wcc.after.expect("attributes from after");
    assert!(before.mtime <= after.mtime);
    assert_eq!(after, server.attributes(directory));
}

#[test]
fn names_at_hand_are_looked_up_without_the_pool() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, b"abc");
    server.attributes(server.root());
    let before = server.deferred();
    let found = lookup(&server, at(server.root(), "f")).expect("found");
    assert_eq!(found.attributes.map(|of| of.size), Some(3));
    assert_eq!(
        refused(lookup(&server, at(server.root(), "g"))),
        Status::NoEnt
    );
    assert_eq!(server.deferred(), before);
    // What somebody else did to the file has to be dealt with, elsewhere.
    let object = server.object(file);
    let resized = server
        .store
        .outside_change(object, OutsideChange::Resize(1));
    resized.expect("changed");
    let found = lookup(&server, at(server.root(), "f")).expect("found");
    assert_eq!(found.attributes.map(|of| of.size), Some(1));
    assert_eq!(server.deferred(), before + 1);
}

#[test]
fn lookup_finds_names_and_tells_about_the_directory() {
    let server = Server::new();
    let directory = server.mkdir(server.root(), "d");
    let file = server.create(directory, "f");
    let found = lookup(&server, at(directory, "f")).expect("found");
    assert_eq!(found.file, file);
    assert_eq!(found.attributes, Some(server.attributes(file)));
    assert_eq!(found.directory, Some(server.attributes(directory)));
    assert_eq!(
        lookup(&server, at(directory, ".")).expect("found").file,
        directory
    );
    let up = lookup(&server, at(directory, "..")).expect("found");
    assert_eq!(up.file, server.root());
    let up = lookup(&server, at(server.root(), "..")).expect("found");
    assert_eq!(up.file, server.root());

    let absent = lookup(&server, at(directory, "absent")).expect_err("nothing");
    assert_eq!(absent.status, Status::NoEnt);
    assert_eq!(absent.rest, Some(server.attributes(directory)));
    assert_eq!(refused(lookup(&server, at(file, "x"))), Status::NotDir);
    let long = "n".repeat(256);
    assert_eq!(
        refused(lookup(&server, at(directory, &long))),
        Status::NameTooLong
    );
    let slash = refused(lookup(&server, at(directory, "a/b")));
    assert!(matches!(
        slash,
        Status::Access | Status::Inval | Status::NoEnt
    ));
}

#[test]
fn create_takes_guards_and_verifies() {
    let server = Server::new();
    let made = create(&server, "f", CreateHow::Unchecked(mode(0o640))).expect("made");
    let file = made.file.expect("a handle");
    assert_eq!(made.attributes.map(|file| file.mode), Some(0o640));
    consistent(&server, made.directory, server.root());
    server.write(file, 0, b"content");

    let again = create(&server, "f", CreateHow::Unchecked(mode(0o600))).expect("taken");
    assert_eq!(again.file, Some(file));
    assert_eq!(again.attributes.map(|file| file.size), Some(7));
    let cut = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    let cut = create(&server, "f", CreateHow::Unchecked(cut)).expect("taken");
    assert_eq!(cut.attributes.map(|file| file.size), Some(0));
    let guarded = create(&server, "f", CreateHow::Guarded(mode(0o640)));
    assert_eq!(refused(guarded), Status::Exist);

    let exclusive = |verifier| create(&server, "e", CreateHow::Exclusive([verifier; 8]));
    let first = exclusive(1).expect("made");
    assert_eq!(exclusive(1).expect("the same call again").file, first.file);
    assert_eq!(refused(exclusive(2)), Status::Exist);
    let over = create(&server, "f", CreateHow::Exclusive([1; 8]));
    assert_eq!(refused(over), Status::Exist);
}

#[test]
fn making_needs_the_right_to_and_says_what_became_of_the_directory() {
    let server = Server::new();
    let directory = server.mkdir(server.root(), "d");
    let arguments = CreateArgs {
        place: at(directory, "f"),
        how: CreateHow::Guarded(mode(0o644)),
    };
    let stranger: CreateResult<'_> = server.nfs_as(&user(9, 9), Procedure::Create, &arguments);
    let failed = stranger.expect_err("no right");
    assert_eq!(failed.status, Status::Access);
    consistent(&server, failed.rest, directory);
}

#[test]
fn directories_go_when_they_are_empty() {
    let server = Server::new();
    let directory = server.mkdir(server.root(), "d");
    server.create(directory, "f");
    let rmdir =
        |name| -> RemoveResult { server.nfs(Procedure::RemoveDirectory, &at(server.root(), name)) };
    assert_eq!(refused(rmdir("d")), Status::NotEmpty);
    let remove =
        |directory, name| -> RemoveResult { server.nfs(Procedure::Remove, &at(directory, name)) };
    assert_eq!(refused(remove(server.root(), "d")), Status::IsDir);
    let removed = remove(directory, "f").expect("removed");
    consistent(&server, removed, directory);
    assert_eq!(refused(remove(directory, "f")), Status::NoEnt);
    rmdir("d").expect("removed");
    assert_eq!(refused(rmdir("d")), Status::NoEnt);
    server.create(server.root(), "f");
    assert_eq!(refused(rmdir("f")), Status::NotDir);
}

#[test]
fn symbolic_links_keep_what_they_say() {
    let server = Server::new();
    let target = "../anywhere \u{1F600}".as_bytes();
    let arguments = SymlinkArgs {
        place: at(server.root(), "l"),
        attributes: SetAttributes::default(),
        target: Payload(target),
    };
    let made: CreateResult<'static> = server.nfs(Procedure::Symlink, &arguments);
    let link = made.expect("made").file.expect("a handle");
    assert_eq!(server.attributes(link).kind, FileType::Symlink);
    let said: ReadLinkResult<'static> = server.nfs(Procedure::ReadLink, &link);
    assert_eq!(said.expect("read").target.0, target);
    let file = server.create(server.root(), "f");
    let said: ReadLinkResult<'static> = server.nfs(Procedure::ReadLink, &file);
    assert_eq!(refused(said), Status::Inval);
}

#[test]
fn special_files_are_made_and_ordinary_ones_are_not() {
    let server = Server::new();
    let make = |name, what| -> Result<CreateOk<'static>, _> {
        let place = at(server.root(), name);
        let made: CreateResult<'static> =
            server.nfs(Procedure::MakeNode, &MakeNodeArgs { place, what });
        made
    };
    let pipe = make("p", MakeNode::Fifo(mode(0o600))).expect("made");
    assert_eq!(pipe.attributes.map(|pipe| pipe.kind), Some(FileType::Fifo));
    let socket = make("s", MakeNode::Socket(mode(0o600))).expect("made");
    assert_eq!(
        socket.attributes.map(|made| made.kind),
        Some(FileType::Socket)
    );
    let device = odafs_common::wire::nfs3::Device { major: 1, minor: 3 };
    let null = make("c", MakeNode::Character(mode(0o666), device)).expect("made");
    assert_eq!(null.attributes.map(|null| null.device), Some(device));
    for kind in [FileType::Regular, FileType::Directory, FileType::Symlink] {
        assert_eq!(refused(make("x", MakeNode::Other(kind))), Status::BadType);
    }
}

#[test]
fn rename_moves_and_replaces() {
    let server = Server::new();
    let (one, two) = (
        server.mkdir(server.root(), "one"),
        server.mkdir(server.root(), "two"),
    );
    let file = server.create(one, "f");
    let old = server.create(two, "g");
    let moved = rename(&server, at(one, "f"), at(two, "g")).expect("moved");
    consistent(&server, moved.from, one);
    consistent(&server, moved.to, two);
    assert_eq!(lookup(&server, at(two, "g")).expect("found").file, file);
    assert_eq!(refused(lookup(&server, at(one, "f"))), Status::NoEnt);
    let gone = server.nfs(Procedure::GetAttributes, &old);
    assert_eq!(
        refused::<odafs_common::wire::nfs3::Attributes, ()>(gone),
        Status::Stale
    );

    let within = rename(&server, at(two, "g"), at(two, "h")).expect("moved");
    assert_eq!(within.from, within.to);
    consistent(&server, within.to, two);
    let absent = rename(&server, at(two, "g"), at(one, "g"));
    assert_eq!(refused(absent), Status::NoEnt);
    let into_itself = rename(&server, at(server.root(), "two"), at(two, "x"));
    assert_eq!(refused(into_itself), Status::Inval);
    let over_full = rename(&server, at(server.root(), "one"), at(server.root(), "two"));
    assert_eq!(refused(over_full), Status::NotEmpty);
}

#[test]
fn links_are_counted() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let link = |file, name| -> LinkResult {
        let place = at(server.root(), name);
        server.nfs(Procedure::Link, &LinkArgs { file, place })
    };
    let linked = link(file, "g").expect("linked");
    assert_eq!(linked.attributes.map(|file| file.links), Some(2));
    consistent(&server, linked.directory, server.root());
    let failed = link(file, "g").expect_err("taken");
    assert_eq!(failed.status, Status::Exist);
    assert!(failed.rest.attributes.is_some());
    let removed: RemoveResult = server.nfs(Procedure::Remove, &at(server.root(), "f"));
    removed.expect("removed");
    assert_eq!(server.attributes(file).links, 1);
    let directory = server.mkdir(server.root(), "d");
    assert!(matches!(
        refused(link(directory, "e")),
        Status::IsDir | Status::Perm | Status::Inval
    ));
}
