//! What servers show to the clients of this process, mapped once.
//!
//! A server passes the same memory over each connection. With a mapping for each, a thousand sessions of one process
//! would fault every page in a thousand times, and hardly a read would find its page's entry in the processor's
//! translation buffer, or the page tables in its caches. So they share one mapping, which lasts as long as one of them.

use crate::memory::mapping::Mapping;
use rustix::fs::fstat;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Which memory it is. The kernel gives the number of a mapped inode to no other, unless its counter has run round;
/// then the server's life and the length would have to be the same, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    life: u64,
    device: u64,
    inode: u64,
    length: i64,
}

static MAPPED: Mutex<BTreeMap<Identity, Weak<Mapping>>> = Mutex::new(BTreeMap::new());

/// The mapping that this process has of the memory of `fd`, which the server of that life has passed, or the one that
/// `map` makes. All callers map the whole of a memory, and only to read.
///
/// # Errors
/// The descriptor is useless, or `map` failed.
pub fn once(
    fd: BorrowedFd<'_>,
    life: u64,
    map: impl FnOnce() -> io::Result<Mapping>,
) -> io::Result<Arc<Mapping>> {
    let status = fstat(fd)?;
    let identity = Identity {
        life,
        device: status.st_dev,
        inode: status.st_ino,
        length: status.st_size,
    };
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mapping) = mapped.get(&identity).and_then(Weak::upgrade) {
        return Ok(mapping);
    }
    let mapping = Arc::new(map()?);
    mapped.retain(|_, mapping| mapping.strong_count() > 0);
    mapped.insert(identity, Arc::downgrade(&mapping));
    Ok(mapping)
}
