//! The state directory: what survives a restart, and the lock that keeps out a second server.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked with flock(2) while a server runs; contains its process id |
//! | `handle-key` | the key of the MAC in file handles |
//! | `identity` | the server's X25519 secret |
//! | `identity.pub` | its public key, for clients |
//! | `life-number` | the number of lives that this directory has seen |
//! | `boot-number` | the number of the last start of NFS version 4, in its client ids and stateids |
//! | `life` | the life word of the current life (written by the export) |
//! | `handles` | the handle index of a server that cannot open files by handle; `handles-TAG` for each of several exports |
//! | `exports` | the tags of the exports, if the server has several |
//! | `nfs4-clients` | which clients of NFS version 4 may reclaim what they held |
//! | `nfs4-files` | which files these may have changed under a delegation where nobody sees it |
//!
//! Secrets are files of mode 0600 in a directory of mode 0700. Every file is replaced as a whole: the server writes a new
//! file beside it, syncs that, renames it, and syncs the directory.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use odafs_common::session::Identity;
use odafs_fabric::entropy;
use rustix::fs::{FlockOperation, Mode, OFlags};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use super::hex::hex;

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another server uses it.
    #[error(
        "the state directory {path} is in use by {holder}: stop that server, or name another directory with --state"
    )]
    Locked {
        /// The state directory.
        path: PathBuf,
        /// `process N`, or `another process`.
        holder: String,
    },
    /// A file does not contain what was written there.
    #[error(
        "{path} is damaged ({what}): restore it from a backup, or remove it (clients then need to mount again)"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Other users could change its files.
    #[error(
        "other users can write to the state directory {path} (owner {owner}, mode {mode:04o}): make it yours with mode 0700, or name another directory with --state"
    )]
    Unsafe {
        /// The state directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// The environment names no place for one.
    #[error(
        "no default state directory: neither XDG_STATE_HOME nor HOME is set; name one with --state DIR"
    )]
    NoDefault,
    /// The system refused something.
    #[error("cannot {action} {path}: {source} ({})", remedy(source))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        r#source: io::Error,
    },
}

/// The remedy for a directory that the system does not let this process use.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, or name another state directory with --state"
        }
        _ => "with --state, name a directory that this user may create and write to",
    }
}

impl StateError {
    fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// The key of the MAC in file handles. Wiped when dropped.
#[derive(Clone)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct HandleKey(Zeroizing<[u8; 32]>);

impl HandleKey {
    /// A random key.
    pub fn random() -> Self {
        let words: [u64; 4] = std::array::from_fn(|_| entropy::word());
        Self(Zeroizing::new(
            words
                .map(u64::to_ne_bytes)
                .as_flattened()
                .try_into()
                .unwrap_or_default(),
        ))
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for HandleKey {
    fn from(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey")
    }
}

/// An open, locked state directory. The lock ends when this is dropped, or when the process ends in any way.
pub struct StateDir {
    path: PathBuf,
    directory: File,
    handle_key: HandleKey,
    identity: Zeroizing<[u8; 32]>,
    life: u64,
    /// Device and inode numbers of the directories that no export may show.
    private: Vec<(u64, u64)>,
    _lock: File,
}

impl StateDir {
    /// The default place for a server of `served`: `/var/lib/odafs/HASH` for root, else `$XDG_STATE_HOME/odafs/HASH`
    /// (`~/.local/state` if that is not set). HASH comes from the directory's device and inode number.
    pub fn default_path(served: &Path) -> Result<PathBuf, StateError> {
        let found = std::fs::metadata(served).map_err(|e| StateError::io("look at", served, e))?;
        let mut digest = Sha256::new();
        digest.update(found.dev().to_be_bytes());
        digest.update(found.ino().to_be_bytes());
        let hash = hex(&digest.finalize()[..8]);
        Ok(default_parent()?.join(hash))
    }

    /// Opens and locks `path`, or the default for `served`, and makes what is missing. Each success begins another life.
    pub fn open(path: Option<&Path>, served: &Path) -> Result<Self, StateError> {
        Self::open_or(path, || Self::default_path(served))
    }

    /// The same for a server of several exports. Its default is the directory `exports` beside the defaults of single
    /// exports, and stays the same when exports are added or removed.
    pub fn open_of_exports(path: Option<&Path>) -> Result<Self, StateError> {
        Self::open_or(path, || Ok(default_parent()?.join("exports")))
    }

    fn open_or(
        path: Option<&Path>,
        default: impl FnOnce() -> Result<PathBuf, StateError>,
    ) -> Result<Self, StateError> {
        let mut private = Vec::new();
        let path = match path {
            Some(path) => path.to_owned(),
            None => {
                let path = default()?;
                // Other servers of this user keep their keys beside these.
                let parent = default_parent()?;
                make_private_directory(&parent)?;
                private.push(identify(&parent)?);
                path
            }
        };
        make_private_directory(&path)?;
        private.push(identify(&path)?);
        let directory = File::open(&path).map_err(|e| StateError::io("open", &path, e))?;
        check_owner(&directory, &path)?;
        let lock = lock(&path)?;
        let files = Files {
            path: &path,
            directory: &directory,
        };
        let handle_key = HandleKey::from(*files.secret("handle-key")?);
        let identity = files.secret("identity")?;
        files.show("identity.pub", &Identity::from_secret(*identity).public().0)?;
        let life = files.next_life()?;
        Ok(Self {
            handle_key,
            identity,
            life,
            private,
            _lock: lock,
            directory,
            path,
        })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key of the MAC in file handles.
    pub fn handle_key(&self) -> &HandleKey {
        &self.handle_key
    }

    /// The server's X25519 secret, 32 bytes.
    pub fn identity(&self) -> &Zeroizing<[u8; 32]> {
        &self.identity
    }

    /// The number of this life: 1 at first, and one more at each opening.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The path of the life word.
    pub fn life_file(&self) -> PathBuf {
        self.path.join("life")
    }

    /// The path of the handle index.
    pub fn handle_index_file(&self) -> PathBuf {
        self.path.join("handles")
    }

    /// The path of the handle index of the export with this tag.
    pub fn handle_index_file_of(&self, tag: u16) -> PathBuf {
        self.path.join(format!("handles-{tag}"))
    }

    /// Device and inode numbers of the directories that hold keys. A store must not show them, even if they lie inside of
    /// what it serves.
    pub fn private_directories(&self) -> &[(u64, u64)] {
        &self.private
    }

    /// A number that grows with each call, also over restarts, and while the clock is set back. It is at least `seconds` (since 1970),
    /// so that it also grows if the directory was lost.
    ///
    /// # Errors
    /// The last number cannot be read, or this one cannot be kept.
    pub fn next_boot(&self, seconds: u64) -> Result<u32, StateError> {
        let name = "boot-number";
        let last = self.files().read::<4>(name)?.map(u32::from_be_bytes);
        let boot = match last {
            Some(last) => last.wrapping_add(1).max(seconds as u32),
            // Earlier servers kept no such number, and added that of the life to the seconds.
            None => seconds.wrapping_add(self.life) as u32,
        };
        self.files().write(name, &boot.to_be_bytes())?;
        Ok(boot)
    }

    /// Replaces the file `name` as a whole. It is on stable storage when this returns.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), StateError> {
        self.files().replace(name, content)
    }

    fn files(&self) -> Files<'_> {
        Files {
            path: &self.path,
            directory: &self.directory,
        }
    }
}

impl std::fmt::Debug for StateDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateDir")
            .field("path", &self.path)
            .field("life", &self.life)
            .finish()
    }
}

fn default_parent() -> Result<PathBuf, StateError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/odafs"));
    }
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or(StateError::NoDefault)?;
    Ok(state.join("odafs"))
}

fn make_private_directory(path: &Path) -> Result<(), StateError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| StateError::io("make the directory", path, e))
}

fn identify(path: &Path) -> Result<(u64, u64), StateError> {
    let found = std::fs::metadata(path).map_err(|e| StateError::io("look at", path, e))?;
    Ok((found.dev(), found.ino()))
}

fn check_owner(directory: &File, path: &Path) -> Result<(), StateError> {
    let found = directory
        .metadata()
        .map_err(|e| StateError::io("look at", path, e))?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    let me = rustix::process::geteuid().as_raw();
    if (owner != me && owner != 0) || mode & 0o022 != 0 {
        return Err(StateError::Unsafe {
            path: path.to_owned(),
            owner,
            mode,
        });
    }
    Ok(())
}

/// Takes the lock. It is on a file of its own that is never replaced, so that all contenders use one inode.
fn lock(directory: &Path) -> Result<File, StateError> {
    let path = directory.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
        .map_err(|e| StateError::io("open", &path, e))?;
    let mut file = File::from(fd);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let _ = (&mut file).take(20).read_to_string(&mut text);
            let holder = match text.trim().parse::<u32>() {
                Ok(pid) => format!("process {pid}"),
                Err(_) => "another process".to_owned(),
            };
            return Err(StateError::Locked {
                path: directory.to_owned(),
                holder,
            });
        }
        Err(e) => return Err(StateError::io("lock", &path, e)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|e| StateError::io("write", &path, e))?;
    Ok(file)
}

/// The small files of a state directory. Each is one line of text: its name, its version, the value in hexadecimal, and a
/// checksum over all of these.
struct Files<'a> {
    path: &'a Path,
    directory: &'a File,
}

impl Files<'_> {
    /// Reads a 32-byte secret, or makes one.
    fn secret(&self, name: &'static str) -> Result<Zeroizing<[u8; 32]>, StateError> {
        if let Some(value) = self.read(name)? {
            return Ok(Zeroizing::new(value));
        }
        let mut value = Zeroizing::new([0; 32]);
        getrandom::fill(&mut value[..]).map_err(|e| {
            StateError::io(
                "get randomness for",
                &self.path.join(name),
                io::Error::other(e),
            )
        })?;
        self.write(name, &value[..])?;
        Ok(value)
    }

    /// The public key for people to copy, as hexadecimal digits alone.
    fn show(&self, name: &str, value: &[u8]) -> Result<(), StateError> {
        let line = hex(value) + "\n";
        if std::fs::read_to_string(self.path.join(name)).is_ok_and(|old| old == line) {
            return Ok(());
        }
        self.replace(name, line.as_bytes())
    }

    fn next_life(&self) -> Result<u64, StateError> {
        let name = "life-number";
        let last = self.read::<8>(name)?.map_or(0, u64::from_be_bytes);
        let damaged = || StateError::Damaged {
            path: self.path.join(name),
            what: "the number cannot grow any more",
        };
        let life = last.checked_add(1).ok_or_else(damaged)?;
        self.write(name, &life.to_be_bytes())?;
        Ok(life)
    }

    fn read<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>, StateError> {
        let path = self.path.join(name);
        let mut text = Zeroizing::new(String::new());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(StateError::io("open", &path, e)),
            Ok(fd) => File::from(fd).take(1024).read_to_string(&mut text),
        }
        .map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => StateError::Damaged {
                path: path.clone(),
                what: "it is no text",
            },
            _ => StateError::io("read", &path, e),
        })?;
        let damaged = |what| StateError::Damaged {
            path: path.clone(),
            what,
        };
        let (value, checksum) = text
            .trim_end()
            .rsplit_once(' ')
            .ok_or_else(|| damaged("it is cut short"))?;
        if checksum_of(value) != checksum {
            return Err(damaged("its checksum is wrong"));
        }
        let digits = value
            .strip_prefix(&format!("odafs {name} 1 "))
            .ok_or_else(|| damaged("it is of another kind or version"))?;
        let value = unhex(digits).ok_or_else(|| damaged("its length is wrong"))?;
        Ok(Some(value))
    }

    fn write(&self, name: &str, value: &[u8]) -> Result<(), StateError> {
        let mut text = Zeroizing::new(String::with_capacity(256));
        let mut digits = hex(value);
        let _ = write!(text, "odafs {name} 1 {digits}");
        digits.zeroize();
        let checksum = checksum_of(&text);
        let _ = writeln!(text, " {checksum}");
        self.replace(name, text.as_bytes())
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), StateError> {
        let path = self.path.join(name);
        let beside = self.path.join(format!("{name}.new"));
        let failed = |e: io::Error| StateError::io("write", &path, e);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(&beside, flags, Mode::from_raw_mode(0o600))
            .map_err(|e| failed(e.into()))?;
        let mut file = File::from(fd);
        file.write_all(content)
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        std::fs::rename(&beside, &path).map_err(failed)?;
        self.directory.sync_all().map_err(failed)
    }
}

fn checksum_of(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..8])
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if text.len() != 2 * N || !digits {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
