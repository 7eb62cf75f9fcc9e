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
//! The client should keep no pages itself ([`odafs::Cache::Off`], as above), because the kernel's page cache does, as
//! [`Options::cache`] says.
//!
//! bindings/mount/README.md describes what programs see.
//!
//! # Inside
//! | module | what lives there |
//! |---|---|
//! | `operations`, `uring` | what the kernel asks by /dev/fuse and by io_uring, and its answers |
//! | `names`, `data`, `listing` | what each operation does |
//! | `files`, `inodes` | what they share; the kernel's numbers of files |
//! | `watch` | changes by others, of which the kernel is told |
//! | `attributes`, `acls` | attributes, errors and access control lists, as the kernel wants them |
//! | `unmount` | from the mount point to the end |
#![deny(unsafe_code)]

/// The programs in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod acls;
mod attributes;
mod data;
mod files;
mod inodes;
mod listing;
mod names;
mod operations;
mod unmount;
mod uring;
mod watch;

use files::Files;
use fuser::{Config, MountOption, Session, SessionACL};
use odafs::{Client, FileKind, PathError, fs::FileSystem};
use operations::Device;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::{io, os::fd::AsFd as _, path::Path, sync::Arc};
use thiserror::Error;
pub use unmount::{Mounted, Unmounter};
use uring::Rings;

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// Refuse changes. False by default.
    pub read_only: bool,
    /// What the kernel keeps. The default is [`Cache::CloseToOpen`].
    pub cache: Cache,
    /// Whether other users may use the mount, as far as the modes of files let them. True by default if root mounts.
    /// Others need `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// Whether the kernel judges by the access control lists that files have at the server, and not by their modes alone.
    /// It asks for the list of a file that it judges for another user than its owner, and again when it asks for the
    /// attributes again: one call more for each. False by default.
    pub acls: bool,
    /// Number of threads that answer the kernel, which is the number of calls that may be under way at once: by io_uring, for
    /// each processor, or fewer where there are many processors. 8 by default, 1 at least.
    pub threads: usize,
    /// How the kernel is answered. The default is [`Uring::Auto`].
    pub uring: Uring,
    /// Honour set-user-id bits. False by default.
    pub set_id: bool,
    /// Whether device files work. False by default.
    pub devices: bool,
    /// Whether programs may be executed. True by default.
    pub execute: bool,
    /// The source that /proc/mounts shows, such as the URL.
    pub source: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            cache: Cache::CloseToOpen,
            allow_other: rustix::process::geteuid().is_root(),
            acls: false,
            threads: 8,
            uring: Uring::Auto,
            set_id: false,
            devices: false,
            execute: true,
            source: "odafs".to_owned(),
        }
    }
}

/// What the kernel caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Cache {
    /// Pages, which are checked when a file is opened and once a second while it is open, and names and attributes for
    /// 1 s.
    #[default]
    CloseToOpen,
    /// Nothing: each read and each `stat` asks the server. The kernel still keeps pages of files that are mapped into
    /// memory, and these are checked once a second.
    Off,
}

/// How the kernel is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Uring {
    /// By FUSE over io_uring if the kernel offers it, and otherwise by /dev/fuse. [`Mounted::uses_io_uring`] says which it is.
    #[default]
    Auto,
    /// By /dev/fuse.
    Off,
}

/// Why nothing was mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// An earlier mount, whose program has ended, is still there.
    #[error(
        "{dir}: an earlier mount was left there by a program that ended without unmounting (`umount -l {dir}` removes it)"
    )]
    Stale {
        /// The mount point.
        dir: String,
    },
    /// There is no such directory.
    #[error("cannot mount on {dir}: {why} ({})", instead(.dir, .why))]
    NoDirectory {
        /// The mount point.
        dir: String,
        /// The system's error.
        why: io::Error,
    },
    /// The kernel has no FUSE, or not for this user.
    #[error(
        "cannot open /dev/fuse: {0} (`modprobe fuse` creates it, and `chmod 666 /dev/fuse` opens it to users other than root; a container needs `--device /dev/fuse --cap-add SYS_ADMIN`)"
    )]
    NoFuse(io::Error),
    /// The URL's path is not a directory.
    #[error("the path of the URL is not a directory; mount a directory")]
    NotADirectory,
    /// The server refused the URL's path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The system refused the mount.
    #[error(
        "cannot mount on {dir}: {why} (users other than root need the program fusermount3, from the package fuse3)"
    )]
    System {
        /// The mount point.
        dir: String,
        /// The system's error.
        why: io::Error,
    },
}

/// What to do where there is no directory to mount on.
fn instead(dir: &str, why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::NotFound => format!("`mkdir -p {dir}` creates the directory"),
        _ => "name another directory".to_owned(),
    }
}

/// Mounts the directory of a client's URL on a local directory. Threads of this process answer the kernel until it is
/// unmounted.
///
/// # Errors
/// If nothing was mounted.
pub fn mount(client: &Client, dir: &Path, options: &Options) -> Result<Mounted, MountError> {
    let shown = dir.display().to_string();
    let dir = unmount::checked(dir)?;
    let fs = FileSystem::new(client);
    let root = fs.resolve(".", true).map_err(|error| {
        let path = OsStr::from_bytes(&client.url().path);
        error.about("mount", Path::new(path))
    })?;
    if root.attributes.kind != FileKind::Directory {
        return Err(MountError::NotADirectory);
    }
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(why) = device {
        return Err(MountError::NoFuse(why));
    }
    let files = Arc::new(Files::new(fs, root.handle, options));
    let rings = match options.uring {
        Uring::Off => None,
        Uring::Auto => Rings::new(options.threads.max(1), &files)
            .inspect_err(|why| tracing::debug!("no FUSE over io_uring: {why}"))
            .ok()
            .map(Arc::new),
    };
    let notifier = files.notifier.clone();
    let watcher = files.watcher();
    let device = Device {
        files: files.clone(),
        rings: rings.clone(),
    };
    Session::new(device, &dir, &config(options))
        .and_then(|session| {
            // Nobody has set it before.
            let _ = notifier.set(session.notifier());
            // Nothing may ask for a file before this: the kernel lets it wait for the rings.
            let threads = match rings {
                Some(rings) if rings.agreed() => Some(rings.start(session.as_fd())?),
                Some(rings) => {
                    rings.dismiss();
                    None
                }
                None => None,
            };
            // Those that answer have it. It ends with the last of them.
            drop(files);
            std::thread::Builder::new()
                .name("odafs-watch".to_owned())
                .spawn(move || watcher.run())?;
            Mounted::start(session, threads, dir)
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
    // Root's mount(2) takes the text as it is; fusermount3 finds it in a list separated by commas.
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
