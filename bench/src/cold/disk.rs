//! A file on a disk, which can be dropped from the kernel's page cache.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, fadvise, statfs};

use crate::floors::local;
use crate::progress;
use crate::scratch::Scratch;

/// The file's name in the served directory.
pub const FILE: &str = "file";

/// The file. Dropping this removes it.
pub struct OnDisk {
    file: File,
    directory: Scratch,
}

impl OnDisk {
    /// Writes the file in its own directory below `base`, or below the directory for temporary files if that is on a
    /// disk, else below `/var/tmp`.
    ///
    /// # Errors
    /// The file cannot be written, or would be in memory.
    pub fn write(base: Option<&Path>, bytes: u64, tick: &mut dyn FnMut(&str)) -> Result<Self> {
        let base = match base {
            Some(base) => base.to_owned(),
            None => {
                let usual = std::env::temp_dir();
                match is_memory(&usual) {
                    true => PathBuf::from("/var/tmp"),
                    false => usual,
                }
            }
        };
        ensure!(
            !is_memory(&base),
            "files in {} are in memory, not on a disk: name a directory on one with --dir",
            base.display()
        );
        let cannot = || format!("cannot write a file in {}", base.display());
        let directory = Scratch::within(&base).with_context(cannot)?;
        let path = directory.path().join(FILE);
        let wrote = progress::percents("writing the file", bytes, tick);
        local::write_random(&path, bytes, wrote).with_context(cannot)?;
        // If root runs the server, callers over TCP act as nobody.
        let all = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        all(directory.path(), 0o755).and_then(|()| all(&path, 0o644))?;
        let file = File::open(&path)?;
        Ok(Self { file, directory })
    }

    /// Drops the file from the kernel's page cache, so that the next reader reads it from the disk. Nobody has it
    /// mapped.
    ///
    /// # Errors
    /// The file cannot be synced, or the kernel refused to drop it.
    pub fn forget(&self) -> io::Result<()> {
        // What is not on the disk yet would stay.
        self.file.sync_all()?;
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }

    /// The directory that holds the file.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Opens the file again, for system calls.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(&self) -> io::Result<File> {
        File::open(self.directory.path().join(FILE))
    }
}

/// Whether a directory is in a file system that is only in memory: tmpfs or ramfs.
fn is_memory(directory: &Path) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    statfs(directory).is_ok_and(|status| [TMPFS, RAMFS].contains(&(status.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_no_disk() {
        assert!(!is_memory(Path::new("/proc")));
        let shm = Path::new("/dev/shm");
        if is_memory(shm) {
            let error = OnDisk::write(Some(shm), 4096, &mut |_| {}).err().unwrap();
            assert!(error.to_string().contains("--dir"), "{error}");
        }
    }
}
