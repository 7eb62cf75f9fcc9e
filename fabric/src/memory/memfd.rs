//! Sealed memory in descriptors.

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs,
    ftruncate, memfd_create, open,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A new memfd of `length` bytes, which can neither shrink nor grow from now on.
pub fn create(name: &str, length: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before Linux 6.3 do not know the flag that forbids execution.
    let fd = match memfd_create(
        name,
        flags | MemfdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL),
    ) {
        Err(rustix::io::Errno::INVAL) => memfd_create(name, flags)?,
        made => made?,
    };
    ftruncate(&fd, length)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

/// Forbids every way to write except through existing mappings: new writable mappings, `write`, holes. Then forbids
/// further seals, and removes the write permission from the mode, which a reopening through `/proc` would need.
pub fn freeze(fd: &OwnedFd) -> io::Result<()> {
    fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    Ok(fchmod(fd, Mode::RUSR)?)
}

/// Forbids further seals, so that nobody can take away the peer's right to write.
pub fn settle(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_add_seals(fd, SealFlags::SEAL)?)
}

/// Another descriptor of the same memory, which can only be read.
pub fn reopen_read_only(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// `f_type` of a memfd of ordinary pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The length, if the memory is sealed against shrinking and does not have huge pages. Then loads from it cannot fault
/// for lack of a page, and a mapping has the length that was asked for. (The kernel rounds that of huge pages up, over
/// whatever follows.)
pub fn sealed_length(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let ordinary = fstatfs(fd)?.f_type as u64 & 0xFFFF_FFFF == TMPFS_MAGIC;
    if !ordinary || !fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the peer's memory is not sealed",
        ));
    }
    u64::try_from(fstat(fd)?.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn only_sealed_memory_of_ordinary_pages_counts() {
        let ours = create("odafs-test", 4096).unwrap();
        assert_eq!(sealed_length(ours.as_fd()).unwrap(), 4096);

        let unsealed = memfd_create("odafs-test", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(sealed_length(unsealed.as_fd()).is_err());

        // Nothing to refuse if the kernel has no huge pages.
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        if let Ok(huge) = memfd_create("odafs-test", flags) {
            ftruncate(&huge, 4 << 20).unwrap();
            fcntl_add_seals(&huge, SealFlags::SHRINK | SealFlags::GROW).unwrap();
            assert!(sealed_length(huge.as_fd()).is_err());
        }
    }
}
