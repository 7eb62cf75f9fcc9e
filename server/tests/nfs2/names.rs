//! Names: LOOKUP, CREATE and what makes, moves and removes; links; READDIR.

use odafs_common::wire::nfs2::{
    ChangeResult, DirectoryName, FileHandle, FileType, LinkArgs, ObjectResult, Payload, Procedure,
    ReadDirArgs, ReadDirResult, ReadLinkResult, RenameArgs, SetAttributes, Status, SymlinkArgs,
};

use crate::harness::{Server, at, mode, user};

fn symlink(server: &Server, name: &str, target: &[u8]) -> ChangeResult {
    let arguments = SymlinkArgs {
        place: at(server.root(), name),
        target: Payload(target),
        attributes: SetAttributes::default(),
    };
    server.nfs(Procedure::Symlink, &arguments)
}

fn rename(server: &Server, from: DirectoryName<'_>, to: DirectoryName<'_>) -> ChangeResult {
    server.nfs(Procedure::Rename, &RenameArgs { from, to })
}

fn list(
    server: &Server,
    directory: FileHandle<'_>,
    cookie: u32,
    count: u32,
) -> ReadDirResult<'static> {
    let arguments = ReadDirArgs {
        directory,
        cookie,
        count,
    };
    server.nfs(Procedure::ReadDir, &arguments)
}

#[test]
fn what_is_made_is_found_and_removed() {
    let server = Server::new();
    let root = server.root();
    let file = server.create(root, "f");
    let found = server.lookup(root, "f").expect("found");
    assert_eq!(found.file, file);
    assert_eq!(found.attributes, server.attributes(file));
    assert_eq!(found.attributes.mode, 0o100644);
    let directory = server.mkdir(root, "d");
    assert_eq!(server.attributes(directory).kind, FileType::Directory);
    assert_eq!(server.lookup(directory, "..").expect("found").file, root);
    assert_eq!(server.lookup(root, "absent").err(), Some(Status::NoEnt));
    let change = |procedure, name: &str| -> ChangeResult { server.nfs(procedure, &at(root, name)) };
    assert_eq!(change(Procedure::Remove, "absent"), Err(Status::NoEnt));
    assert_eq!(change(Procedure::RemoveDirectory, "f"), Err(Status::NotDir));
    server.create(directory, "inside");
    assert_eq!(
        change(Procedure::RemoveDirectory, "d"),
        Err(Status::NotEmpty)
    );
    let removed: ChangeResult = server.nfs(Procedure::Remove, &at(directory, "inside"));
    assert_eq!(removed, Ok(()));
    assert_eq!(change(Procedure::RemoveDirectory, "d"), Ok(()));
    assert_eq!(change(Procedure::Remove, "f"), Ok(()));
    let again = server.make(Procedure::MakeDirectory, at(root, "d"), mode(0o700));
    assert_eq!(again.expect("made").attributes.mode, 0o040700);
    let twice = server.make(Procedure::MakeDirectory, at(root, "d"), mode(0o700));
    assert_eq!(twice.err(), Some(Status::Exist));
    let long = "n".repeat(256);
    assert_eq!(server.lookup(root, &long).err(), Some(Status::NameTooLong));
    let made = server.make(Procedure::Create, at(root, &long), mode(0o644));
    assert_eq!(made.err(), Some(Status::NameTooLong));
}

#[test]
fn create_takes_a_file_that_is_there_and_cuts_it() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, b"content").expect("written");
    let again = server.make(Procedure::Create, at(server.root(), "f"), mode(0o600));
    let again = again.expect("taken");
    assert_eq!((again.file, again.attributes.size), (file, 7));
    assert_eq!(again.attributes.mode, 0o100644, "it keeps its mode");
    let cut = SetAttributes {
        size: Some(0),
        ..mode(0o100600)
    };
    let cut = server.make(Procedure::Create, at(server.root(), "f"), cut);
    assert_eq!(cut.expect("cut").attributes.size, 0);
    assert_eq!(server.content(file), b"");
    server.mkdir(server.root(), "d");
    let over = server.make(Procedure::Create, at(server.root(), "d"), mode(0o600));
    assert_eq!(over.err(), Some(Status::Exist));
}

#[test]
fn the_mode_of_a_create_says_which_special_file_it_is() {
    let server = Server::new();
    let make = |name: &str, bits, size| {
        let attributes = SetAttributes { size, ..mode(bits) };
        let made = server.make(Procedure::Create, at(server.root(), name), attributes);
        made.map(|made| {
            let told = made.attributes;
            (told.kind, told.mode, told.device, told.size)
        })
    };
    let pipe = (FileType::Character, 0o020644, u32::MAX, 0);
    assert_eq!(make("pipe", 0o010644, None), Ok(pipe));
    assert_eq!(make("sunpipe", 0o020644, None), Ok(pipe));
    let socket = (FileType::None, 0o140600, 0, 0);
    assert_eq!(make("socket", 0o140600, None), Ok(socket));
    // 1, 3 and 8, 0x12345 as Linux numbers them.
    let null = (FileType::Character, 0o020666, 0x103, 0);
    assert_eq!(make("null", 0o020666, Some(0x103)), Ok(null));
    let disk = (FileType::Block, 0o060600, 0x1230_0845, 0);
    assert_eq!(make("disk", 0o060600, Some(0x1230_0845)), Ok(disk));
    // Again, which is no harm; or as something else.
    assert_eq!(make("pipe", 0o010644, None), Ok(pipe));
    assert_eq!(make("pipe", 0o060644, Some(1)), Err(Status::Exist));
    assert_eq!(make("pipe", 0o100644, None), Err(Status::Exist));
    // Whether it may be written to.
    assert_eq!(make("pipe", 0o644, Some(0)), Ok(pipe));
    let arguments = odafs_common::wire::nfs2::CreateArgs {
        place: at(server.root(), "pipe"),
        attributes: mode(0o644),
    };
    let stranger: ObjectResult<'static> =
        server.nfs_as(&user(4321, 4321), Procedure::Create, &arguments);
    assert_eq!(stranger.err(), Some(Status::Access));
    for bits in [0o040755, 0o120777, 0o170000] {
        assert_eq!(make("other", bits, None), Err(Status::Io), "{bits:o}");
    }
}

#[test]
fn links_of_both_kinds() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let link = |place| -> ChangeResult { server.nfs(Procedure::Link, &LinkArgs { file, place }) };
    assert_eq!(link(at(server.root(), "hard")), Ok(()));
    assert_eq!(link(at(server.root(), "hard")), Err(Status::Exist));
    assert_eq!(
        server.lookup(server.root(), "hard").expect("found").file,
        file
    );
    assert_eq!(server.attributes(file).links, 2);

    assert_eq!(symlink(&server, "soft", b"a/b/c"), Ok(()));
    let soft = server.lookup(server.root(), "soft").expect("found");
    assert_eq!(soft.attributes.kind, FileType::Symlink);
    assert_eq!(soft.attributes.mode & 0o170000, 0o120000);
    let said: ReadLinkResult<'static> = server.nfs(Procedure::ReadLink, &soft.file);
    assert_eq!(said.expect("read").0, b"a/b/c");
    let said: ReadLinkResult<'static> = server.nfs(Procedure::ReadLink, &file);
    assert_eq!(said.err(), Some(Status::Io));
    let long = vec![b'n'; 1024];
    assert_eq!(symlink(&server, "long", &long), Ok(()));
    let found = server.lookup(server.root(), "long").expect("found");
    let said: ReadLinkResult<'static> = server.nfs(Procedure::ReadLink, &found.file);
    assert_eq!(said.expect("read").0, long);
    let longer = vec![b'n'; 1025];
    assert_eq!(
        symlink(&server, "longer", &longer),
        Err(Status::NameTooLong)
    );
}

#[test]
fn names_move() {
    let server = Server::new();
    let root = server.root();
    let file = server.create(root, "f");
    let directory = server.mkdir(root, "d");
    assert_eq!(rename(&server, at(root, "f"), at(directory, "g")), Ok(()));
    assert_eq!(server.lookup(root, "f").err(), Some(Status::NoEnt));
    assert_eq!(server.lookup(directory, "g").expect("found").file, file);
    server.create(root, "over");
    assert_eq!(
        rename(&server, at(directory, "g"), at(root, "over")),
        Ok(())
    );
    assert_eq!(server.lookup(root, "over").expect("found").file, file);
    let refused = rename(&server, at(root, "absent"), at(root, "x"));
    assert_eq!(refused, Err(Status::NoEnt));
    // Below itself: no status of the RFC says so.
    let below = rename(&server, at(root, "d"), at(directory, "d"));
    assert_eq!(below, Err(Status::Io));
}

#[test]
fn a_directory_is_listed_completely_and_once() {
    let server = Server::new();
    let directory = server.mkdir(server.root(), "d");
    let mut expected: Vec<String> = (0..700).map(|n| format!("entry-number-{n}")).collect();
    for name in &expected {
        server.create(directory, name);
    }
    expected.extend([".".to_owned(), "..".to_owned()]);
    expected.sort();
    for count in [64, 512, 4096, 8192, u32::MAX] {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let part = list(&server, directory, cookie, count).expect("listed");
            for entry in &part.entries {
                let name = String::from_utf8(entry.name.to_vec()).expect("text");
                let found = server.lookup(directory, &name).expect("found");
                assert_eq!(found.attributes.fileid, entry.fileid);
                names.push(name);
                cookie = entry.cookie;
            }
            if part.eof {
                break;
            }
            assert!(!part.entries.is_empty(), "no progress");
        }
        names.sort();
        assert_eq!(names, expected, "{count}");
    }
    // What is removed as it is listed does not hide what follows.
    let mut left = 700;
    let mut cookie = 0;
    loop {
        let part = list(&server, directory, cookie, 300).expect("listed");
        for entry in part.entries {
            cookie = entry.cookie;
            if entry.name.starts_with(b"entry") {
                let name = DirectoryName {
                    directory,
                    name: entry.name,
                };
                let removed: ChangeResult = server.nfs(Procedure::Remove, &name);
                assert_eq!(removed, Ok(()));
                left -= 1;
            }
        }
        if part.eof {
            break;
        }
    }
    assert_eq!(left, 0);
    let file = server.create(server.root(), "f");
    assert_eq!(list(&server, file, 0, 512).err(), Some(Status::NotDir));
    for (cookie, count) in [(0, 0), (0, 27), (1 << 31, 512), (u32::MAX, 512)] {
        let refused = list(&server, directory, cookie, count).err();
        assert_eq!(refused, Some(Status::Io), "{cookie} {count}");
    }
}
