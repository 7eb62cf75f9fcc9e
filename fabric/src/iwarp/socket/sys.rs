//! The system calls that have no safe form.

#![allow(unsafe_code)]

use crate::memory::mapping::Mapping;
use crate::memory::{Stretch, Vectors};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sends as much of the ranges as the socket takes, in one system call. The kernel has copied those bytes when this
/// returns.
pub fn send<'a>(
    socket: BorrowedFd<'_>,
    stretches: impl Iterator<Item = Stretch<'a>>,
) -> io::Result<usize> {
    let vectors = Vectors::of(stretches);
    let vectors = vectors.as_slice();
    // SAFETY: all zeroes is a valid `msghdr`: no name, no vectors, no control data.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = vectors.as_ptr().cast_mut();
    message.msg_iovlen = vectors.len() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the kernel only reads from the vectors, which lie in slices and mappings that `'a` keeps alive, and it may read memory that others write.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives without waiting: at most `length` bytes to `at` in the memory, which must be writable, and the bytes behind
/// them into `rest`. Returns the total.
pub fn receive(
    socket: BorrowedFd<'_>,
    memory: &Mapping,
    at: usize,
    length: usize,
    rest: &mut [u8],
) -> io::Result<usize> {
    let mut vectors = [
        libc::iovec {
            iov_base: memory.address_mut(at, length).cast(),
            iov_len: length,
        },
        libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len(),
        },
    ];
    // SAFETY: all zeroes is a valid `msghdr`: no name, no vectors, no control data.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    // SAFETY: the kernel writes within a range of a mapping, checked just now, that others may read and write meanwhile, and within a slice that is ours.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Makes the kernel report input to a poller only when at least `bytes` of it are there.
pub fn set_low_water(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads a `c_int` from `value`, whose size it is told.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Payload of the connection's TCP segments, in bytes.
pub fn segment_max(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, and the length it used.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw mut value).cast(),
            &mut length,
        )
    };
    match result {
        0 => Ok(value.max(0) as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of sent bytes that the peer's kernel has not acknowledged.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> usize {
    let mut value: libc::c_int = 0;
    // SAFETY: the kernel writes a `c_int` to `value`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut value) };
    match result {
        0 => value.max(0) as usize,
        // Not even a socket any more.
        _ => 0,
    }
}
