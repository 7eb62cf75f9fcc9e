//! Clients of the shared-memory fabric that do what they like. They speak its protocol from
//! here, byte by byte, with nothing of the library's client.

#![cfg(not(any(shuttle, loom)))]
#![allow(unsafe_code)]

use odafs_common::page::{Layout, PageSize};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig, LifeWord};
use odafs_fabric::shm::{self, ConnectOptions, Limits};
use odafs_fabric::{Access, Completion, Listener, QueuePair, Remote, Source, SteeringTag};
use rustix::fs::{
    FallocateFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, open,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, recvmsg, send, sendmsg, socket,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Some tests count the descriptors of the process: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

struct Server {
    directory: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    engine: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Echoes messages, and now and then writes to some steering tag and exposes an arena.
    fn start(limits: Limits) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let mut listener = shm::Listener::bind(&directory.path().join("socket"), limits).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let engine = std::thread::spawn(move || {
            let config = ArenaConfig {
                frames: 4,
                layout: Layout::apart(PageSize::DEFAULT),
                huge: false,
                populate: false,
            };
            let arena = Arc::new(Arena::create(&config).unwrap());
            let life = LifeWord::in_memory(1).unwrap();
            let mut lines: Vec<Box<dyn QueuePair>> = Vec::new();
            while !stopping.load(Ordering::Relaxed) {
                if let Some(incoming) = listener.poll_accept().unwrap()
                    && let Ok(mut line) = incoming.accept(b"", 128)
                {
                    let _ = line.expose(&arena, &life);
                    lines.push(line);
                }
                lines.iter_mut().for_each(|line| serve(&mut **line, &arena));
                lines.retain(|line| !line.is_closed());
                if lines.is_empty() {
                    clock::sleep(Nanos::from_micros(200));
                }
            }
        });
        Server {
            directory,
            stop,
            engine: Some(engine),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn connect(&self) -> std::io::Result<Box<dyn QueuePair>> {
        shm::connect(&self.path(), b"", &ConnectOptions::default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.engine.take().map(std::thread::JoinHandle::join);
        assert!(
            matches!(ended, Some(Ok(()))) || std::thread::panicking(),
            "the server panicked"
        );
    }
}

/// At most some messages, so that nobody keeps the engine from the others.
fn serve(line: &mut dyn QueuePair, arena: &Arc<Arena>) {
    for _ in 0..64 {
        match line.poll() {
            Some(Completion::Recv { .. }) => {
                let answer = line.message().to_vec();
                let tag = SteeringTag(answer.first().map_or(0, |byte| u32::from(*byte) % 16));
                let frame = odafs_fabric::memory::FrameNumber(0);
                let from = Source::Frame {
                    arena,
                    frame,
                    offset: 0,
                    length: 4096,
                };
                let _ = line.post_write(
                    1,
                    from,
                    Remote {
                        tag,
                        offset: answer.len() as u64,
                    },
                );
                let _ = line.post_send(0, &[&answer]);
            }
            Some(_) => {}
            None => break,
        }
    }
    line.flush();
    line.arm();
}

/// A client that the library knows nothing of.
struct Wild {
    socket: OwnedFd,
    rings: File,
}

impl Wild {
    fn hello() -> Vec<u8> {
        [0x4f44_4653u32, 4, 1, 0]
            .map(u32::to_ne_bytes)
            .as_flattened()
            .to_vec()
    }

    fn reach(path: &Path) -> OwnedFd {
        let fd = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
        fd
    }

    /// `None` if the server does not want us.
    fn connect(path: &Path) -> Option<Wild> {
        let socket = Self::reach(path);
        send(&socket, &Self::hello(), SendFlags::NOSIGNAL).ok()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 512];
        recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
        .ok()?;
        let rings = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut received) => received.next(),
            _ => None,
        })?;
        Some(Wild {
            socket,
            rings: rings.into(),
        })
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let _ = self.rings.write_at(bytes, at);
    }

    /// A header as it must look for message `n`, with whatever kind and length.
    fn post(&self, n: u64, kind: u64, length: u64) {
        let header =
            (n + 1) << 48 | (kind & 3) << 30 | (kind >> 2 & 0x1fff) << 17 | (length & 0x1_ffff);
        self.write(256 + n % 256 * 256, &header.to_ne_bytes());
    }
}

/// One at a time, everything that a wild client might do to its rings and socket.
fn scribble(wild: &Wild, random: &mut Random, n: &mut u64) {
    let length = wild.rings.metadata().unwrap().len();
    match random.below(12) {
        0 => wild.write(random.below(length), &random.next().to_ne_bytes()),
        1 => wild.write(
            random.below(length),
            &vec![random.next() as u8; random.below(9000) as usize],
        ),
        2 => wild.write(random.below(8) * 64, &random.next().to_ne_bytes()),
        3 => wild.write(length / 2 + 128, &(*n + random.below(3)).to_ne_bytes()),
        4 => wild.write(0, &1u32.to_ne_bytes()),
        5 => {
            let packet = vec![random.next() as u8; random.below(700) as usize];
            let _ = send(
                &wild.socket,
                &packet,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
        }
        6 => {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [wild.rings.as_fd(), wild.socket.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = sendmsg(&wild.socket, &[IoSlice::new(&[0])], &mut control, flags);
        }
        7 => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(
                &wild.rings,
                flags,
                random.below(length),
                1 + random.below(100_000),
            );
        }
        8 => {
            // A registration, of any length.
            let wanted = [random.next() >> random.below(64), 1];
            wild.write(
                256 + *n % 256 * 256 + 8,
                wanted.map(u64::to_ne_bytes).as_flattened(),
            );
            wild.post(
                *n,
                1,
                [12, 12, 12, random.below(100)][random.below(4) as usize],
            );
            *n += 1;
        }
        _ => {
            let length = match random.below(8) {
                0 => random.next(),
                1 => 68 << 10,
                2 => (68 << 10) + 1,
                _ => random.below(70_000),
            };
            wild.post(
                *n,
                if random.below(40) == 0 {
                    random.below(256)
                } else {
                    0
                },
                length,
            );
            *n += 1;
        }
    }
}

/// Random scribbling, while an honest client's traffic goes on unharmed.
#[test]
fn scribbling() {
    let _alone = alone();
    let server = Server::start(Limits::default());
    let seconds = std::env::var("ODAFS_FUZZ_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(4);
    let stop_at = clock::now() + Nanos::from_secs(seconds);
    std::thread::scope(|scope| {
        for seed in 1..=2 {
            let path = server.path();
            scope.spawn(move || {
                let mut random = Random(seed * 0x1234_5678_9abc_def1);
                while clock::now() < stop_at {
                    let Some(wild) = Wild::connect(&path) else {
                        continue;
                    };
                    let mut n = 0;
                    for _ in 0..random.below(3000) {
                        scribble(&wild, &mut random, &mut n);
                    }
                }
            });
        }
        let mut honest = server.connect().unwrap();
        let mut rounds = 0u32;
        while clock::now() < stop_at {
            let message: Vec<u8> = (0..200 + rounds % 5000)
                .map(|at| (at ^ rounds) as u8)
                .collect();
            honest.post_send(0, &[&message]).unwrap();
            honest.flush();
            while honest.poll().is_none() {
                honest.wait(Some(Nanos::from_secs(5))).unwrap();
            }
            assert!(honest.message() == message, "round {rounds}");
            rounds += 1;
        }
        assert!(rounds > 10);
    });
    let mut honest = server.connect().unwrap();
    assert!(
        honest.register(4096, Access::BOTH).is_ok(),
        "and new ones are served"
    );
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:odafs"))
        .count()
}

/// Connections that end, however, give everything back.
#[test]
fn nothing_leaks() {
    let _alone = alone();
    let limits = Limits {
        connections_per_uid: 3,
        memory_per_uid: 3 << 20,
        ..Limits::default()
    };
    let server = Server::start(limits);
    // What a process needs once, it has then: the first thing that a client hears is where exposed memory lies.
    let mut first = server.connect().unwrap();
    first.register(4096, Access::BOTH).unwrap();
    drop(first);
    let settle = || {
        let give_up = clock::now() + Nanos::from_secs(10);
        move |what: &dyn Fn() -> usize, wanted: usize| {
            while what() > wanted {
                assert!(clock::now() < give_up, "{} instead of {wanted}", what());
                clock::sleep(Nanos::from_millis(2));
            }
        }
    };
    settle()(&mappings, 2);
    let before = descriptors();
    for round in 0..50 {
        let give_up = clock::now() + Nanos::from_secs(10);
        // Until the server has noticed the ends of those before.
        let mut client = loop {
            match server.connect() {
                Ok(client) => break client,
                Err(error) => assert!(clock::now() < give_up, "round {round}: {error}"),
            }
        };
        client.register(1 << 20, Access::BOTH).unwrap();
        if let Some(wild) = Wild::connect(&server.path()) {
            wild.post(0, 7, 7);
            drop(wild);
        }
        drop(Wild::reach(&server.path()));
    }
    settle()(&mappings, 2);
    settle()(&descriptors, before);
}

/// An error names the cap.
#[test]
fn caps() {
    let _alone = alone();
    let limits = Limits {
        connections_per_uid: 2,
        memory_per_uid: 4 << 20,
        regions_per_connection: 3,
        ..Limits::default()
    };
    let server = Server::start(limits);
    let mut first = server.connect().unwrap();
    let _second = server.connect().unwrap();
    let error = server.connect().err().unwrap();
    assert!(
        error.to_string().contains("all its 2 connections"),
        "{error}"
    );
    let error = first.register(1 << 30, Access::BOTH).err().unwrap();
    assert!(
        error.to_string().contains("bytes of shared memory"),
        "{error}"
    );
    assert!(first.register(usize::MAX, Access::BOTH).is_err());
    for _ in 0..3 {
        first.register(100, Access::BOTH).unwrap();
    }
    let error = first.register(100, Access::BOTH).err().unwrap();
    assert!(error.to_string().contains("all its 3 regions"), "{error}");
}

/// Clients that connect and say nothing keep nobody out but themselves.
#[test]
fn silence() {
    let _alone = alone();
    let server = Server::start(Limits::default());
    let _silent: Vec<OwnedFd> = (0..20).map(|_| Wild::reach(&server.path())).collect();
    let garbage = Wild::reach(&server.path());
    send(&garbage, &[0xff; 300], SendFlags::NOSIGNAL).unwrap();
    server.connect().unwrap();
}

/// Registrations without end, whose answers nobody takes: the server ends the connection.
#[test]
fn who_was_silent_for_too_long_gives_way() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let limits = Limits {
        connections_per_uid: 2,
        ..Limits::default()
    };
    let mut listener = shm::Listener::bind(&path, limits).unwrap();
    let silent = [Wild::reach(&path), Wild::reach(&path)];
    assert!(listener.poll_accept().unwrap().is_none());
    // Nobody looks until their time is over.
    clock::sleep(Nanos::from_millis(5100));
    let connecting =
        std::thread::spawn(move || shm::connect(&path, b"", &ConnectOptions::default()).map(drop));
    while !connecting.is_finished() {
        if let Some(incoming) = listener.poll_accept().unwrap() {
            incoming.accept(b"", 0).unwrap();
        }
        clock::sleep(Nanos::from_millis(1));
    }
    let connected = connecting.join().unwrap();
    assert!(connected.is_ok(), "{connected:?}");
    drop(silent);
}

#[test]
fn answers_that_nobody_takes() {
    let _alone = alone();
    let server = Server::start(Limits {
        regions_per_connection: u32::MAX,
        ..Limits::default()
    });
    let wild = Wild::connect(&server.path()).unwrap();
    let request = [4096u64, 1].map(u64::to_ne_bytes);
    let give_up = clock::now() + Nanos::from_secs(20);
    let mut n = 0;
    while send(
        &wild.socket,
        &[0],
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    ) != Err(rustix::io::Errno::PIPE)
    {
        assert!(clock::now() < give_up, "still connected after {n}");
        wild.write(256 + n % 256 * 256 + 8, request.as_flattened());
        wild.post(n, 1, 12);
        n += 1;
        // A ring of 256: a server that is not scheduled for that long would be lapped, and wait for ever.
        clock::sleep(Nanos::from_millis(1));
    }
    server.connect().unwrap();
}

/// What the seals of the arena stop, for a client that is root and so passes every check of modes.
#[test]
fn the_arena_is_read_only() {
    let config = ArenaConfig {
        frames: 4,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: false,
        populate: false,
    };
    let arena = Arena::create(&config).unwrap();
    let shared = arena.share().unwrap();
    for fd in [&shared.data, &shared.stamps] {
        let reopened = open(
            format!("/proc/self/fd/{}", fd.as_raw_fd()),
            OFlags::RDWR,
            Mode::empty(),
        );
        let mut files = vec![File::from(fd.try_clone().unwrap())];
        // Only root gets this far: the mode is 0400.
        files.extend(reopened.map(File::from));
        for file in files {
            // SAFETY: the mapping is not even made.
            assert!(unsafe { memmap2::MmapMut::map_mut(&file) }.is_err());
            assert!(file.write_at(b"mine", 0).is_err());
            for flags in [
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::COLLAPSE_RANGE,
                FallocateFlags::INSERT_RANGE,
            ] {
                assert!(fallocate(&file, flags, 0, 4096).is_err(), "{flags:?}");
            }
            for length in [0, 100, 1 << 20] {
                assert!(ftruncate(&file, length).is_err());
            }
            assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
        }
    }
    arena.copy_in(
        odafs_fabric::memory::FrameNumber(0),
        0,
        b"the server still writes",
    );
}

/// Neither can a client take the rings away, or the server's right to write to them.
#[test]
fn the_rings_stay() {
    let _alone = alone();
    let server = Server::start(Limits::default());
    let wild = Wild::connect(&server.path()).unwrap();
    for length in [0, 4096, 1 << 30] {
        assert!(ftruncate(&wild.rings, length).is_err());
    }
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE, SealFlags::SHRINK] {
        assert!(fcntl_add_seals(&wild.rings, seal).is_err());
    }
}

/// What is no socket is not taken for one that a dead server left.
#[test]
fn a_file_in_the_way_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("file"), directory.path().join("link"));
    std::fs::write(&file, "precious").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        let error = shm::Listener::bind(path, Limits::default()).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    }
    assert_eq!(std::fs::read(&link).unwrap(), b"precious");
}
