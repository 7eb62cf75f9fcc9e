//! The files and directories that exist before a trace begins.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use odafs::record::{Initial, Operation, Trace};
use odafs::{Client, Url};

use crate::floors::local;
use crate::scratch::Scratch;

/// A directory with these files.
pub struct Tree {
    scratch: Scratch,
    changes: bool,
}

/// Number of names that exist before.
pub fn found(trace: &Trace) -> u64 {
    let there = |initial| initial != Initial::Absent;
    trace.names.iter().filter(|n| there(n.initial)).count() as u64
}

/// The most bytes that the files take, before the trace and after its writes.
pub fn needed(trace: &Trace) -> u64 {
    let mut ends: Vec<u64> = trace
        .names
        .iter()
        .map(|name| match name.initial {
            Initial::Bytes(bytes) => bytes,
            Initial::Absent | Initial::Directory => 0,
        })
        .collect();
    for entry in &trace.entries {
        let (file, end) = match entry.operation {
            Operation::Write {
                file,
                offset,
                length,
            } => (file, offset + u64::from(length)),
            Operation::Truncate { file, length } => (file, length),
            _ => continue,
        };
        let known = &mut ends[file as usize];
        *known = end.max(*known);
    }
    ends.iter().fold(0, |sum, end| sum.saturating_add(*end))
}

impl Tree {
    /// Makes the files and directories, in memory if there is room.
    ///
    /// # Errors
    /// A file could not be written, or two names contradict each other.
    pub fn new(trace: &Trace, needed: u64) -> Result<Self> {
        let scratch = Scratch::for_bytes(needed).context("cannot make a directory")?;
        let tree = Self {
            changes: trace.entries.iter().any(|e| e.operation.changes()),
            scratch,
        };
        make(trace, &tree.path())?;
        Ok(tree)
    }

    /// The directory to serve.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("served")
    }

    /// Restores everything if the trace changes anything, and makes the server read the files again.
    ///
    /// # Errors
    /// As [`Tree::new`], or the server could not be reached.
    pub fn restore(&self, trace: &Trace, url: &Url) -> Result<()> {
        if !self.changes {
            return Ok(());
        }
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        make(trace, &self.path())?;
        fill(trace, url)
    }
}

/// Reads all files that exist by RPC.
fn fill(trace: &Trace, url: &Url) -> Result<()> {
    let client = Client::connect_with(url, crate::served::by_rpc())?;
    let mut piece = vec![0; 1 << 20];
    for name in &trace.names {
        let Initial::Bytes(bytes) = name.initial else {
            continue;
        };
        let file = client.open(OsStr::from_bytes(&name.path))?;
        let mut offset = 0;
        while offset < bytes {
            match file.read_at(&mut piece, offset)? {
                0 => break,
                read => offset += read as u64,
            }
        }
    }
    Ok(())
}

fn make(trace: &Trace, root: &Path) -> Result<()> {
    // A server that root runs may serve callers as nobody.
    let all = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let directory = |path: &Path| {
        fs::create_dir_all(path)?;
        all(path, 0o777)
    };
    directory(root)?;
    let absent: std::collections::HashSet<&[u8]> = trace
        .names
        .iter()
        .filter(|name| name.initial == Initial::Absent)
        .map(|name| &name.path[..])
        .collect();
    for name in &trace.names {
        let relative = Path::new(OsStr::from_bytes(&name.path));
        let parents = relative.ancestors().skip(1).collect::<Vec<_>>();
        let made = parents.iter().rev().try_for_each(|parent| {
            // The trace makes this directory and its files.
            let waits = absent.contains(parent.as_os_str().as_bytes());
            match name.initial == Initial::Absent && waits {
                true => Err(io::ErrorKind::Other.into()),
                false => directory(&root.join(parent)),
            }
        });
        let path = root.join(relative);
        let result = match (made, name.initial) {
            (_, Initial::Absent) => Ok(()),
            (Err(error), _) => Err(error),
            (Ok(()), Initial::Directory) => directory(&path),
            (Ok(()), Initial::Bytes(bytes)) => {
                local::write_random(&path, bytes, |_| {}).and_then(|()| all(&path, 0o666))
            }
        };
        result.with_context(|| format!("cannot make {} of the trace", relative.display()))?;
    }
    Ok(())
}
