//! The resources that a process has and has used, according to `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

/// Bytes of memory that a process has.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    /// Its own.
    pub own: u64,
    /// Shared, of which the page cache is one part.
    pub shared: u64,
}

impl MemoryUse {
    /// Of the process with this id; `None` is this one.
    ///
    /// # Errors
    /// There is none.
    pub fn of(process: Option<u32>) -> Result<Self> {
        let text = fs::read_to_string(place(process, "status"))
            .context("cannot see what memory a process has")?;
        let bytes = |name| first_number(&text, name).unwrap_or(0) << 10;
        Ok(Self {
            own: bytes("RssAnon:"),
            shared: bytes("RssShmem:"),
        })
    }

    /// Both together.
    pub fn all(self) -> u64 {
        self.own + self.shared
    }
}

/// Bytes that the process with this id (`None`: this one) had the kernel fetch from a disk, read ahead included; `None`
/// where the kernel does not count them.
pub fn disk_bytes(process: Option<u32>) -> Option<u64> {
    let text = fs::read_to_string(place(process, "io")).ok()?;
    first_number(&text, "read_bytes:")
}

/// Files, sockets and the like that a process has open.
///
/// # Errors
/// There is no such process.
pub fn descriptors(process: Option<u32>) -> Result<u64> {
    let open = fs::read_dir(place(process, "fd")).context("cannot see what a process has open")?;
    Ok(open.count() as u64)
}

/// Threads of a process.
///
/// # Errors
/// There is no such process.
pub fn threads(process: Option<u32>) -> Result<u64> {
    let text = fs::read_to_string(place(process, "status"))
        .context("cannot see how many threads a process has")?;
    first_number(&text, "Threads:").context("the kernel does not count threads")
}

fn place(process: Option<u32>, name: &str) -> String {
    let process = process.map_or_else(|| "self".to_owned(), |id| id.to_string());
    format!("/proc/{process}/{name}")
}

/// The number in the line that begins so.
fn first_number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_taken_is_seen() {
        let before = MemoryUse::of(None).unwrap();
        let taken = vec![1u8; 64 << 20];
        let after = MemoryUse::of(Some(std::process::id())).unwrap();
        assert!(after.own >= before.own + (32 << 20), "{before:?} {after:?}");
        drop(taken);
        assert!(MemoryUse::of(Some(u32::MAX)).is_err());
        assert_eq!(disk_bytes(Some(u32::MAX)), None);
        assert!(descriptors(None).unwrap() > 2 && descriptors(Some(u32::MAX)).is_err());
        assert!(threads(None).unwrap() > 0 && threads(Some(u32::MAX)).is_err());
        assert_eq!(
            first_number("a: 1\nread_bytes: 20 kB\n", "read_bytes:"),
            Some(20)
        );
    }
}
