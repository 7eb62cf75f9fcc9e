//! Reads through the mount, by /dev/fuse and by io_uring, beside the same reads through a file system that does nothing but pass
//! them on to a local file, by /dev/fuse: what FUSE itself costs. Root, /dev/fuse; and for io_uring `echo Y
//! >/sys/module/fuse/parameters/enable_uring`:
//!
//!     cargo run --release -p odafs-mount --example pass_through

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry,
    ReplyOpen, Request,
};
use memmap2::MmapMut;
use odafs::Client;
use odafs_mount::Uring;
use odafs_server::{config::ServerConfig, server::Server};
use std::{
    cell::RefCell,
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

/// Length of the file, in bytes.
const FILE: usize = 256 << 20;
/// As the mount has them.
const THREADS: usize = 8;
/// Rounds; all are measured in each.
const ROUNDS: u64 = 7;
/// O_DIRECT: past the kernel's cache (x86-64).
const DIRECT: i32 = 0x4000;

/// One file, passed on.
struct PassThrough {
    file: File,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl PassThrough {
    fn attributes(number: u64) -> FileAttr {
        let is_root = number == INodeNo::ROOT.0;
        let time = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: INodeNo(number),
            size: if is_root { 0 } else { FILE as u64 },
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: match is_root {
                true => FileType::Directory,
                false => FileType::RegularFile,
            },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for PassThrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "file" {
            true => reply.entry(&Duration::from_secs(1), &Self::attributes(2), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(1), &Self::attributes(number.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(size as usize, 0);
            match self.file.read_at(buffer, offset) {
                Ok(bytes) => reply.data(&buffer[..bytes]),
                Err(_) => reply.error(Errno::EIO),
            }
        });
    }
}

/// What a file system does.
#[derive(Clone, Copy)]
struct Figures {
    /// The median time of a read of 4 KiB at random, us.
    p50: f64,
    /// The rate of reads of 1 MiB in sequence, MiB/s.
    rate: f64,
}

fn measured(at: &Path, seed: u64) -> io::Result<Figures> {
    let file = File::options()
        .read(true)
        .custom_flags(DIRECT)
        .open(at.join("file"))?;
    let mut buffer = MmapMut::map_anon(1 << 20)?;
    let mut random = seed;
    let mut times = Vec::new();
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let page = (random >> 33) % (FILE as u64 >> 12);
        let began = Instant::now();
        file.read_exact_at(&mut buffer[..4096], page << 12)?;
        times.push(began.elapsed());
        let stamp = buffer[..8].try_into().map(u64::from_le_bytes);
        assert_eq!(stamp.ok(), Some(page), "another page's bytes");
    }
    times.sort_unstable();
    let began = Instant::now();
    for offset in (0..FILE).step_by(buffer.len()) {
        file.read_exact_at(&mut buffer, offset as u64)?;
    }
    Ok(Figures {
        p50: times[times.len() / 2].as_secs_f64() * 1e6,
        rate: (FILE >> 20) as f64 / began.elapsed().as_secs_f64(),
    })
}

/// Prints the median of the rounds, the lowest and the highest.
fn show(name: &str, values: impl Iterator<Item = f64>) {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    let (lowest, middle, highest) = (all[0], all[all.len() / 2], all[all.len() - 1]);
    println!("  {name:40} {middle:9.2}   ({lowest:.2}, {highest:.2})");
}

/// Prints one figure of each file system, and its ratio to that of the last one.
fn compare(names: &[&str], rounds: &[Vec<Figures>], figure: impl Fn(&Figures) -> f64) {
    for (which, name) in names.iter().enumerate() {
        show(name, rounds.iter().map(|round| figure(&round[which])));
    }
    let last = names.len() - 1;
    for (which, name) in names[..last].iter().enumerate() {
        let ratio = |round: &Vec<Figures>| figure(&round[which]) / figure(&round[last]);
        show(&format!("{name}: ratio"), rounds.iter().map(ratio));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir_in("/dev/shm")?;
    let [files, device, ring, floor] =
        ["files", "device", "ring", "floor"].map(|name| scratch.path().join(name));
    for directory in [&files, &device, &ring, &floor] {
        fs::create_dir(directory)?;
    }
    let mut data = vec![0; FILE];
    for (page, bytes) in (0u64..).zip(data.chunks_mut(4096)) {
        bytes[..8].copy_from_slice(&page.to_le_bytes());
    }
    fs::write(files.join("file"), data)?;

    let socket = scratch.path().join("sock");
    let server = Server::start(ServerConfig {
        shm: Some(socket.clone()),
        state: Some(scratch.path().join("state")),
        cache_bytes: FILE as u64 * 5 / 4,
        ..ServerConfig::new(&files)
    })?;
    let options = odafs::Options {
        cache: odafs::Cache::Off,
        ..odafs::Options::default()
    };
    let url = format!("odafs+shm://{}?/", socket.display()).parse()?;
    let client = Client::connect_with(&url, options)?;
    let mount = |at: &Path, uring| {
        let options = odafs_mount::Options {
            uring,
            ..odafs_mount::Options::default()
        };
        odafs_mount::mount(&client, at, &options)
    };
    let by_device = mount(&device, Uring::Off)?;
    let by_ring = mount(&ring, Uring::Auto)?;

    let mut config = Config::default();
    config.mount_options = vec![MountOption::DefaultPermissions, MountOption::RO];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let file = File::open(files.join("file"))?;
    let passing = fuser::spawn_mount(PassThrough { file }, &floor, &config)?;

    let mut measured_ones = vec![("this mount, /dev/fuse", &device)];
    match by_ring.uses_io_uring() {
        true => measured_ones.push(("this mount, io_uring", &ring)),
        false => println!("SKIPPED: io_uring, which the kernel does not offer"),
    }
    measured_ones.push(("pass-through, /dev/fuse", &floor));
    // The first round brings the references.
    measured(&device, 0)?;
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        let figures = measured_ones.iter().map(|(_, at)| measured(at, round));
        rounds.push(figures.collect::<io::Result<Vec<_>>>()?);
    }
    println!(
        "A file of {} MiB, O_DIRECT, {ROUNDS} rounds: median (lowest, highest)",
        FILE >> 20
    );
    let names: Vec<_> = measured_ones.iter().map(|(name, _)| *name).collect();
    println!("4 KiB at random, p50, us");
    compare(&names, &rounds, |figures| figures.p50);
    println!("1 MiB in sequence, MiB/s");
    compare(&names, &rounds, |figures| figures.rate);

    passing.umount_and_join()?;
    by_ring.unmount()?;
    by_device.unmount()?;
    server.shutdown();
    Ok(())
}
