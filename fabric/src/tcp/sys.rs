//! The two system calls that have no safe form.

#![allow(unsafe_code)]

use crate::iwarp::Stretch;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Stretches of one call. More go with the next.
const STRETCHES: usize = 64;

/// Sends what the socket takes of the stretches, in one system call. The kernel has copied what
/// it took when this returns.
pub fn send<'a>(
    socket: BorrowedFd<'_>,
    stretches: impl Iterator<Item = Stretch<'a>>,
) -> io::Result<usize> {
    let mut vectors = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; STRETCHES];
    let mut count = 0;
    for stretch in stretches.take(STRETCHES) {
        let base = match stretch {
            Stretch::Bytes(bytes) => bytes.as_ptr(),
            Stretch::Memory { memory, at, length } => memory.address(at, length),
        };
        vectors[count].iov_base = base.cast_mut().cast();
        vectors[count].iov_len = stretch.len();
        count += 1;
    }
    // SAFETY: all zeroes is a valid `msghdr`: no name, no vectors, no control data.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = count as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the kernel only reads from the vectors, which lie in slices and mappings that `'a` keeps alive, and it may read memory that others write.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Payload of a TCP segment of the connection, in bytes.
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
