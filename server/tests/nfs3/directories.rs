//! READDIR and READDIRPLUS.

use std::collections::BTreeMap;

use odafs_common::wire::nfs3::{
    FileHandle, Procedure, ReadArgs, ReadDirArgs, ReadDirOk, ReadDirPlusArgs, ReadDirPlusOk,
    ReadDirPlusResult, ReadDirResult, ReadOk, ReadResult, Status,
};
use odafs_common::wire::xdr::Encode as _;
use odafs_server::store::{OutsideChange, Store as _};

use crate::harness::{Server, refused};

const FILES: usize = 300;

/// A directory of 300 files, with names of 1 to 255 bytes.
fn crowded(server: &Server) -> FileHandle<'static> {
    let directory = server.mkdir(server.root(), "d");
    for number in 0..FILES {
        let name = format!("{number:0width$}", width = 3.max(number % 256));
        server.create(directory, name.leak());
    }
    directory
}

fn part(server: &Server, arguments: ReadDirArgs<'_>) -> ReadDirOk<'static> {
    let result: ReadDirResult<'static> = server.nfs(Procedure::ReadDir, &arguments);
    result.expect("listed")
}

fn part_plus(server: &Server, arguments: ReadDirPlusArgs<'_>) -> ReadDirPlusOk<'static> {
    let result: ReadDirPlusResult<'static> = server.nfs(Procedure::ReadDirPlus, &arguments);
    result.expect("listed")
}

#[test]
fn a_directory_is_listed_once_and_completely_whatever_the_size_of_the_parts() {
    let server = Server::new();
    let directory = crowded(&server);
    for count in [512, 1000, 8192, 1 << 20, u32::MAX] {
        let mut seen = BTreeMap::new();
        let (mut cookie, mut verifier) = (0, [0; 8]);
        loop {
            let arguments = ReadDirArgs {
                directory,
                cookie,
                verifier,
                count,
            };
            let part = part(&server, arguments);
            assert!(part.to_bytes().len() <= count as usize);
            assert!(part.eof || !part.entries.is_empty());
            for entry in &part.entries {
                assert!(seen.insert(entry.name, entry.fileid).is_none());
                cookie = entry.cookie;
            }
            verifier = part.verifier;
            if part.eof {
                break;
            }
        }
        assert_eq!(seen.len(), FILES + 2);
        assert_eq!(seen[&b"."[..]], server.attributes(directory).fileid);
        assert_eq!(seen[&b".."[..]], server.attributes(server.root()).fileid);
    }
}

#[test]
fn attributes_and_handles_come_along() {
    let server = Server::new();
    let directory = crowded(&server);
    for (directory_count, max_count) in [(200, 1000), (u32::MAX, 4096), (512, 1 << 20), (0, 1000)] {
        let mut seen = BTreeMap::new();
        let (mut cookie, mut verifier) = (0, [0; 8]);
        loop {
            let arguments = ReadDirPlusArgs {
                directory,
                cookie,
                verifier,
                directory_count,
                max_count,
            };
            let part = part_plus(&server, arguments);
            assert!(part.to_bytes().len() <= max_count as usize);
            for plus in &part.entries {
                let attributes = plus.attributes.expect("attributes");
                assert_eq!(attributes.fileid, plus.entry.fileid);
                let file = plus.file.expect("a handle");
                assert!(seen.insert(plus.entry.name, file).is_none());
                cookie = plus.entry.cookie;
            }
            verifier = part.verifier;
            if part.eof {
                break;
            }
        }
        assert_eq!(seen.len(), FILES + 2);
        assert_eq!(seen[&b".."[..]], server.root());
        let file = seen[&b"001"[..]];
        assert_eq!(server.attributes(file).size, 0);
    }
}

#[test]
fn an_outside_change_that_is_listed_is_taken_note_of() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, b"old");
    let read = || -> ReadOk<'static> {
        let arguments = ReadArgs {
            file,
            offset: 0,
            count: 100,
        };
        let result: ReadResult<'static> = server.nfs(Procedure::Read, &arguments);
        result.expect("read")
    };
    assert_eq!(read().data.0, b"old");
    let object = server.object(file);
    let change = OutsideChange::Write {
        offset: 0,
        data: b"new",
    };
    server
        .store
        .outside_change(object, change)
        .expect("changed");
    let all = ReadDirPlusArgs {
        directory: server.root(),
        cookie: 0,
        verifier: [0; 8],
        directory_count: 4096,
        max_count: 4096,
    };
    let listed = part_plus(&server, all);
    let shown = listed.entries.last().and_then(|entry| entry.attributes);
    assert_eq!(
        shown,
        Some(server.store.getattr(object).expect("there").into())
    );
    // Who has seen the new times must not get the old bytes.
    assert_eq!(read().data.0, b"new");
}

#[test]
fn too_little_room_and_wrong_places_are_refused() {
    let server = Server::new();
    let list = |directory, cookie, verifier, count| -> ReadDirResult<'static> {
        let arguments = ReadDirArgs {
            directory,
            cookie,
            verifier,
            count,
        };
        server.nfs(Procedure::ReadDir, &arguments)
    };
    assert_eq!(
        refused(list(server.root(), 0, [0; 8], 20)),
        Status::TooSmall
    );
    let file = server.create(server.root(), "f");
    assert_eq!(refused(list(file, 0, [0; 8], 1000)), Status::NotDir);
    let first = list(server.root(), 0, [0; 8], 1000).expect("listed");
    let wrong = list(server.root(), first.entries[0].cookie, [0xAA; 8], 1000);
    assert_eq!(refused(wrong), Status::BadCookie);
    let arguments = ReadDirPlusArgs {
        directory: server.root(),
        cookie: 0,
        verifier: [0; 8],
        directory_count: 1000,
        max_count: 20,
    };
    let plus: ReadDirPlusResult<'static> = server.nfs(Procedure::ReadDirPlus, &arguments);
    assert_eq!(refused(plus), Status::TooSmall);
}
