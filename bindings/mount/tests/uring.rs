//! Mounts that the kernel asks by io_uring.

mod mounts;

use odafs_mount::Uring;

const URING: Uring = Uring::Auto;
