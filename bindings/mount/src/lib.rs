//! Mounts the files of an ODAFS or NFS version 3 server through the kernel's FUSE.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = odafs::Options { cache: odafs::Cache::Off, ..Default::default() };
//! let client = odafs::Client::connect_with(&"odafs+shm:///".parse()?, options)?;
//! let mounted = odafs_mount::mount(&client, "/mnt".as_ref(), &odafs_mount::Options::default())?;
//! println!("{:?}", std::fs::read_dir("/mnt")?.next());
//! mounted.unmount()?;
//! # Ok(())
//! # }
//! ```
//!
//! The client best keeps no pages itself ([`odafs::Cache::Off`], as above): the kernel's page cache does, as
//! [`Options::cache`] says.
//!
//! The package's page says what programs see, under that heading: bindings/mount/README.md.
//!
//! # Inside
//! | module | what lives there |
//! |---|---|
//! | `operations` | what the kernel asks, and its answers |
//! | `names`, `data`, `listing` | what each operation does |
//! | `files`, `inodes` | what they share; the kernel's numbers of files |
//! | `attributes` | attributes and errors, as the kernel wants them |
//! | `unmount` | from the mount point to the end |
#![forbid(unsafe_code)]

/// The programs of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod attributes;
mod data;
mod files;
mod inodes;
mod listing;
mod names;
mod operations;
mod unmount;

use files::Files;
use fuser::{Config, MountOption, Session, SessionACL};
use odafs::{Client, FileKind, PathError, fs::FileSystem};
use std::{io, path::Path};
use thiserror::Error;
pub use unmount::{Mounted, Unmounter};

/// How to mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// Refuse changes. False by default.
    pub read_only: bool,
    /// What the kernel keeps. The default is [`Cache::CloseToOpen`].
    pub cache: Cache,
    /// Other users may use the mount, as far as the modes of files let them. By default if root mounts. Others need
    /// `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// Threads that answer the kernel, 8 by default and 1 at least: so many calls to the server are under way at once.
    pub threads: usize,
    /// Honour set-user-id bits. False by default.
    pub set_id: bool,
    /// Device files work. False by default.
    pub devices: bool,
    /// Programs may be executed. True by default.
    pub execute: bool,
    /// What /proc/mounts shows as the source: the URL, say.
    pub source: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            cache: Cache::CloseToOpen,
            allow_other: rustix::process::geteuid().is_root(),
            threads: 8,
            set_id: false,
            devices: false,
            execute: true,
            source: "odafs".to_owned(),
        }
    }
}

/// What the kernel keeps of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Cache {
    /// Pages, checked when a file is opened; names and attributes for 1 s.
    #[default]
    CloseToOpen,
    /// Nothing: each read and each `stat` asks the server. Pages of files that are mapped into memory are kept all the same.
    Off,
}

/// Why nothing was mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// A mount whose program has ended is still there.
    #[error(
        "{dir}: the program that had mounted it ended without unmounting it (`umount -l {dir}` clears it)"
    )]
    Stale {
        /// The mount point.
        dir: String,
    },
    /// There is no such directory.
    #[error("{dir}: not a directory to mount on: {why} (`mkdir -p {dir}` makes one)")]
    NoDirectory {
        /// The mount point.
        dir: String,
        /// What the system says.
        why: io::Error,
    },
    /// The kernel has no FUSE, or not for this user.
    #[error(
        "/dev/fuse: {0} (`modprobe fuse` makes it, and `chmod 666 /dev/fuse` is for users other than root; a container needs `--device /dev/fuse --cap-add SYS_ADMIN`)"
    )]
    NoFuse(io::Error),
    /// The URL's path is not a directory.
    #[error("the server has no directory at the URL's path")]
    NotADirectory,
    /// The server refused the URL's path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The system refused the mount.
    #[error(
        "mount {dir}: {why} (root mounts; other users need the program fusermount3, of the package fuse3)"
    )]
    System {
        /// The mount point.
        dir: String,
        /// What the system says.
        why: io::Error,
    },
}

/// Mounts the directory of a client's URL on a local one, and returns when it is mounted. Threads of this process answer the
/// kernel until it is unmounted.
///
/// # Errors
/// Nothing is mounted then.
pub fn mount(client: &Client, dir: &Path, options: &Options) -> Result<Mounted, MountError> {
    let shown = dir.display().to_string();
    let dir = unmount::checked(dir)?;
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(why) = device {
        return Err(MountError::NoFuse(why));
    }
    let fs = FileSystem::new(client);
    let root = fs.resolve(".", true)?;
    if root.attributes.kind != FileKind::Directory {
        return Err(MountError::NotADirectory);
    }
    let files = Files::new(fs, root.handle, options);
    let notifier = files.notifier.clone();
    Session::new(files, &dir, &config(options))
        .and_then(|session| {
            // Nobody has set it before.
            let _ = notifier.set(session.notifier());
            Mounted::start(session, dir)
        })
        .map_err(|why| MountError::System { dir: shown, why })
}

/// An option's value, as fusermount3 reads it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn config(options: &Options) -> Config {
    let mut config = Config::default();
    let which = |yes, then, or| if yes { then } else { or };
    // Root's mount(2) takes it as it is; fusermount3 finds it in a list with commas.
    let source = match rustix::process::geteuid().is_root() {
        true => options.source.clone(),
        false => escaped(&options.source),
    };
    config.mount_options = vec![
        MountOption::FSName(source),
        MountOption::CUSTOM("subtype=odafs".to_owned()),
        MountOption::DefaultPermissions,
        which(options.read_only, MountOption::RO, MountOption::RW),
        which(options.set_id, MountOption::Suid, MountOption::NoSuid),
        which(options.devices, MountOption::Dev, MountOption::NoDev),
        which(options.execute, MountOption::Exec, MountOption::NoExec),
    ];
    config.acl = match options.allow_other {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_source_stays_one_option() {
        assert_eq!(super::escaped(r"nfs://a/b,c\d"), r"nfs://a/b\,c\\d");
    }
}
