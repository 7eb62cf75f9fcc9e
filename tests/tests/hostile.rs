//! What a hostile peer sends to a running server: each is refused with the right answer and costs nobody else anything.
#![cfg(not(shuttle))]

use odafs_common::direct::{Attached, Request};
use odafs_common::exception::Exception;
use odafs_common::wire::nfs3::{self, DirectoryName, FileHandle, ReadArgs};
use odafs_common::wire::odafs::{self as program, Chunk, OdafsStatus, ReadResult};
use odafs_common::wire::rpc::{self, Rejection};
use odafs_common::wire::xdr::Decode as _;
use odafs_tests::raw::{RawRpc, xdr};
use odafs_tests::raw_direct::{RawDirect, RawSession, ServerPlace};
use odafs_tests::served::{self, Served};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;

const BAD_HANDLES: [u32; 2] = [nfs3::Status::Stale.code(), nfs3::Status::BadHandle.code()];

struct World {
    server: Served,
    directory: TempDir,
    _scratch: TempDir,
}

fn serve() -> World {
    serve_with(&[])
}

fn serve_with(options: &[&str]) -> World {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    fs::write(directory.path().join("file"), b"the content").expect("file");
    fs::write(directory.path().join("secret"), b"for root alone").expect("secret");
    for (path, mode) in [("", 0o755), ("file", 0o644), ("secret", 0o600)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(directory.path().join(path), mode).expect("mode");
    }
    let server = Served::start(directory.path(), scratch.path(), options);
    World {
        server,
        directory,
        _scratch: scratch,
    }
}

/// The server is well: a client that behaves is served.
fn is_well(world: &World) {
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    assert_eq!(rpc.nfs(GETATTR, &xdr(&FileHandle(&root))).0, 0);
}

fn lookup(rpc: &mut RawRpc, directory: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
    let arguments = DirectoryName {
        directory: FileHandle(directory),
        name,
    };
    match rpc.nfs(LOOKUP, &xdr(&arguments)) {
        (0, body) => {
            let length = u32::from_be_bytes(body[..4].try_into().expect("length")) as usize;
            Ok(body[4..4 + length].to_vec())
        }
        (status, _) => Err(status),
    }
}

#[test]
fn garbage_on_the_port_disturbs_nobody() {
    let world = serve();
    let mut word = 0x9e37_79b9_u32;
    for length in [1, 3, 4, 5, 40, 333, 4096, 100_000] {
        let mut rpc = RawRpc::connect(&world.server.nfs);
        let garbage: Vec<u8> = std::iter::repeat_with(|| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 24) as u8
        })
        .take(length)
        .collect();
        let _ = rpc.send(&garbage);
        is_well(&world);
    }
}

#[test]
fn lengths_of_four_gigabytes_allocate_nothing() {
    let world = serve();
    is_well(&world);
    let before = world.server.resident_kib();
    let mut held = Vec::new();
    for mark in [
        0xffff_ffff_u32,
        0x7fff_ffff,
        0x8000_0000 | 1 << 30,
        0x4000_0000,
    ] {
        for _ in 0..8 {
            let mut rpc = RawRpc::connect(&world.server.nfs);
            let _ = rpc.send(&mark.to_be_bytes());
            let _ = rpc.send(&[0; 64]);
            held.push(rpc);
        }
    }
    is_well(&world);
    // Lengths inside of a call: an opaque of 4 GiB as the handle.
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let reply = rpc
        .call((nfs3::PROGRAM, nfs3::VERSION, GETATTR), &[0xff; 4])
        .expect("a reply");
    let answer = rpc::parse_reply(&reply).expect("reply").body;
    assert!(
        matches!(answer, Err(Rejection::GarbageArguments)),
        "{answer:?}"
    );
    is_well(&world);
    let grown = world.server.resident_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "the server grew by {grown} KiB");
}

/// A client over TCP names memory for the data, as if it were on RDMA: that is in the reply, and no frame is kept for it.
#[test]
fn a_chunk_over_tcp_keeps_no_frames() {
    const MIB: usize = 1 << 20;
    let world = serve_with(&["--cache", "2MiB"]);
    let content: Vec<u8> = (0..4 * MIB).map(|at| (at >> 12) as u8).collect();
    fs::write(world.directory.path().join("long"), &content).expect("file");
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let file = lookup(&mut rpc, &root, b"long").expect("LOOKUP");
    let procedure = program::Procedure::Read.code();
    for round in 0..200 {
        let at = round % 4 * MIB;
        let arguments = program::ReadArgs {
            file: FileHandle(&file),
            offset: at as u64,
            count: MIB as u32,
            session: 0,
            want_references: false,
            chunk: Some(Chunk {
                tag: 1,
                offset: 0,
                length: MIB as u32,
            }),
        };
        let reply = rpc
            .call(
                (program::PROGRAM, program::VERSION, procedure),
                &xdr(&arguments),
            )
            .expect("a reply");
        let results = rpc::parse_reply(&reply).expect("a reply").body;
        let results = results.expect("accepted").rest();
        let done = ReadResult::from_bytes(results).expect("a result");
        let done = done.expect("read");
        assert!(done.data.0 == &content[at..at + MIB], "round {round}");
    }
    // A frame for every page that is asked for, still: there are references, and they read it.
    let place = ServerPlace::Shm(world.server.shm.clone());
    let mut session = RawSession::open(&place);
    let mut line = session.attach();
    let number = session.number;
    for page in (0..content.len()).step_by(4096) {
        let found = session.references_at(&file, page as u64, number);
        let reference = found.iter().find(|found| found.page == page as u64 >> 12);
        let reference = reference.expect("the page is in memory").reference;
        let request = session.request(&mut line, &reference);
        let read = line.read(&session.seal(&request)).expect("resident");
        assert_eq!(read, content[page..page + 4096]);
    }
}

#[test]
fn idle_and_half_said_connections_cost_little() {
    let world = serve();
    is_well(&world);
    let before = world.server.resident_kib();
    let idle: Vec<RawRpc> = (0..200)
        .map(|i| {
            let mut rpc = RawRpc::connect(&world.server.nfs);
            let _ = rpc.send(&0x8000_0100_u32.to_be_bytes()[..i % 5]);
            rpc
        })
        .collect();
    is_well(&world);
    let grown = world.server.resident_kib().saturating_sub(before);
    assert!(grown < 200 * 64, "200 idle connections cost {grown} KiB");
    drop(idle);
    is_well(&world);
}

#[test]
fn forged_and_foreign_handles_open_nothing() {
    let world = serve();
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let file = lookup(&mut rpc, &root, b"file").expect("file");
    for bit in 0..file.len() * 8 {
        let mut forged = file.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let (status, _) = rpc.nfs(GETATTR, &xdr(&FileHandle(&forged)));
        assert!(
            BAD_HANDLES.contains(&status),
            "bit {bit} flipped: status {status}"
        );
    }
    for short in 0..file.len() {
        let (status, _) = rpc.nfs(GETATTR, &xdr(&FileHandle(&file[..short])));
        assert!(
            BAD_HANDLES.contains(&status),
            "{short} bytes of a handle: status {status}"
        );
    }
    assert_eq!(rpc.nfs(GETATTR, &xdr(&FileHandle(&file))).0, 0);
}

#[test]
fn nothing_leads_out_of_the_export() {
    let world = serve();
    let outside = tempfile::tempdir().expect("outside");
    fs::write(outside.path().join("treasure"), b"not yours").expect("treasure");
    std::os::unix::fs::symlink(outside.path(), world.directory.path().join("way-out"))
        .expect("link");
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let up = lookup(&mut rpc, &root, b"..");
    assert!(
        up.as_ref().is_ok_and(|h| *h == root) || up.is_err(),
        ".. leaves the export"
    );
    for name in [
        &b"way-out/treasure"[..],
        b"../treasure",
        b"/etc/passwd",
        b"file\0",
        b"a/../file",
    ] {
        assert!(
            lookup(&mut rpc, &root, name).is_err(),
            "{:?}",
            name.escape_ascii().to_string()
        );
    }
    // The link itself is an object like others, but no directory and nothing to be read through.
    let link = lookup(&mut rpc, &root, b"way-out").expect("the link");
    assert!(lookup(&mut rpc, &link, b"treasure").is_err());
    let read = ReadArgs {
        file: FileHandle(&link),
        offset: 0,
        count: 100,
    };
    assert_ne!(rpc.nfs(READ, &xdr(&read)).0, 0);
}

#[test]
fn a_swapped_directory_does_not_lead_out_either() {
    let world = serve();
    let outside = tempfile::tempdir().expect("outside");
    fs::write(outside.path().join("file"), b"not yours").expect("file");
    let inner = world.directory.path().join("inner");
    fs::create_dir(&inner).expect("inner");
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let handle = lookup(&mut rpc, &root, b"inner").expect("inner");
    fs::remove_dir(&inner).expect("remove");
    std::os::unix::fs::symlink(outside.path(), &inner).expect("link");
    assert!(lookup(&mut rpc, &handle, b"file").is_err());
}

#[test]
fn reads_of_any_range_are_bounded() {
    let world = serve();
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let file = lookup(&mut rpc, &root, b"file").expect("file");
    for (offset, count) in [
        (0, u32::MAX),
        (u64::MAX, 1),
        (u64::MAX - 3, u32::MAX),
        (1 << 63, 4096),
        (5, 0),
    ] {
        let read = ReadArgs {
            file: FileHandle(&file),
            offset,
            count,
        };
        let (status, body) = rpc.nfs(READ, &xdr(&read));
        assert!(
            body.len() < 4096,
            "offset {offset}, count {count}: status {status}"
        );
    }
}

#[test]
fn another_user_reads_what_the_squashed_one_may() {
    if !rustix::process::geteuid().is_root() {
        return; // Without root every caller acts as the serving user, who owns the file.
    }
    let world = serve();
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let secret = lookup(&mut rpc, &root, b"secret").expect("secret");
    let read = ReadArgs {
        file: FileHandle(&secret),
        offset: 0,
        count: 100,
    };
    assert_eq!(rpc.nfs(READ, &xdr(&read)).0, nfs3::Status::Access.code());
}

#[test]
fn wrong_programs_versions_and_procedures_get_their_answers() {
    let world = serve();
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let answer = |rpc: &mut RawRpc, which| {
        let reply = rpc.call(which, &[]).expect("a reply");
        format!(
            "{:?}",
            rpc::parse_reply(&reply)
                .expect("reply")
                .body
                .expect_err("rejected")
        )
    };
    assert!(answer(&mut rpc, (200_000, 1, 0)).contains("ProgramUnavailable"));
    assert!(answer(&mut rpc, (nfs3::PROGRAM, 9, 0)).contains("ProgramMismatch"));
    assert!(answer(&mut rpc, (nfs3::PROGRAM, 3, 99)).contains("ProcedureUnavailable"));
    assert!(answer(&mut rpc, (nfs3::PROGRAM, 3, GETATTR)).contains("GarbageArguments"));
    is_well(&world);
}

#[test]
fn garbage_on_the_local_socket_disturbs_nobody() {
    let world = serve();
    for length in [0, 1, 24, 80, 5000] {
        if let Ok(mut stream) = UnixStream::connect(&world.server.shm) {
            let _ = stream.write_all(&vec![0xa5; length]);
        }
    }
    is_well(&world);
    let client = odafs::Client::connect(&world.server.shm_url("/")).expect("a client that behaves");
    let file = client.open("/file").expect("open");
    let mut content = [0; 11];
    file.read_exact_at(&mut content, 0).expect("read");
    assert_eq!(&content, b"the content");
}

#[test]
fn a_reference_is_good_for_one_session_one_key_one_connection_and_once() {
    let world = serve();
    is_good_for_one(&world, &ServerPlace::Shm(world.server.shm.clone()));
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn a_reference_is_good_for_one_over_verbs_too() {
    let options = served::verbs_options();
    let world = serve_with(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let address = world.server.verbs.parse().expect("an address");
    is_good_for_one(&world, &ServerPlace::Verbs(address));
}

fn is_good_for_one(world: &World, place: &ServerPlace) {
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let file = lookup(&mut rpc, &root, b"file").expect("file");
    let (mut mine, mut other) = (RawSession::open(place), RawSession::open(place));
    let reference = mine.references(&file, mine.number)[0].reference;
    let (mut line, mut theirs) = (mine.attach(), other.attach());
    let content = Ok(b"the content".to_vec());
    // Each refusal is followed by a read that is served, on the same connection: no exception ends it.
    let well = |line: &mut RawDirect| {
        let request = mine.request(line, &reference);
        let sealed = mine.seal(&request);
        assert_eq!(line.read(&sealed), content);
        sealed
    };
    let first = well(&mut line);

    // Once.
    assert_eq!(line.read(&first), Err(Exception::Replayed));
    let second = well(&mut line);
    for old in [&first, &second, &first] {
        assert_eq!(line.read(old), Err(Exception::Replayed));
    }
    // On this connection: not on another of the same session, nor on another's, nor on one of no session.
    let mut mine_too = mine.attach();
    assert_eq!(mine_too.read(&first), Err(Exception::Denied));
    well(&mut mine_too);
    assert_eq!(theirs.read(&first), Err(Exception::Denied));
    let mut nobodys = RawDirect::connect(place);
    assert_eq!(nobodys.read(&first), Err(Exception::Denied));
    // With this session's key, under its own number, as it was sealed.
    let request = mine.request(&mut line, &reference);
    assert_eq!(line.read(&other.seal(&request)), Err(Exception::Denied));
    well(&mut line);
    let wrong = Request {
        session: other.number,
        ..mine.request(&mut line, &reference)
    };
    for sealed in [mine.seal(&wrong), other.seal(&wrong)] {
        assert_eq!(line.read(&sealed), Err(Exception::Denied));
        well(&mut line);
    }
    let mut bent = mine.seal(&mine.request(&mut line, &reference));
    bent[24] ^= 1;
    assert_eq!(line.read(&bent), Err(Exception::Denied));
    well(&mut line);
    // By this session: another one, key and all, has not been admitted to the file's readers.
    let stolen = other.request(&mut theirs, &reference);
    assert_eq!(theirs.read(&other.seal(&stolen)), Err(Exception::Denied));
    // Until it reads the file itself. The frame has one access key.
    let own = other.references(&file, other.number)[0].reference;
    let request = other.request(&mut theirs, &own);
    assert_eq!(theirs.read(&other.seal(&request)), content);

    // An attach message is good for one connection.
    let attach = mine.attach_message(&line.nonce);
    let refused = Attached::refuse(Exception::Denied);
    for line in [&mut nobodys, &mut line] {
        assert_eq!(line.exchange(&attach), refused);
    }
    well(&mut line);
    // A number that names no session brings no references.
    let nobodys = mine.number.wrapping_add(1000).max(1);
    assert!(mine.references(&file, nobodys).is_empty());
    assert_eq!(mine.ask(nobodys), Err(OdafsStatus::NoSession));
    is_well(world);
}

#[test]
fn nothing_of_another_users_server_is_mapped() {
    if !rustix::process::geteuid().is_root() {
        return; // It takes root to have another user's server.
    }
    let with = |route| odafs::Options {
        route,
        cache: odafs::Cache::Off,
        ..odafs::Options::default()
    };
    for (user, trusted) in [(0, true), (65_534, false)] {
        let (directory, scratch) = (
            tempfile::tempdir().expect("dir"),
            tempfile::tempdir().expect("dir"),
        );
        fs::write(directory.path().join("file"), b"the content").expect("file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), mode).expect("mode");
        let direct = ["--direct", "one-sided"];
        let server = Served::start_as(user, directory.path(), scratch.path(), &direct);
        let url = server.shm_url("/").parse().expect("a URL");
        let asked = odafs::Client::connect_with(&url, with(odafs::Route::OneSided));
        assert_eq!(asked.is_ok(), trusted, "user {user}");
        drop(asked);
        let client = odafs::Client::connect_with(&url, with(odafs::Route::Policy));
        let client = client.expect("a client");
        let file = client.open("/file").expect("open");
        for _ in 0..3 {
            let mut content = [0; 11];
            file.read_exact_at(&mut content, 0).expect("read");
            assert_eq!(&content, b"the content");
        }
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        let state = scratch.path().join("state");
        let mapped = maps.contains(&state.display().to_string());
        assert_eq!(mapped, trusted, "user {user}:\n{maps}");
    }
}
