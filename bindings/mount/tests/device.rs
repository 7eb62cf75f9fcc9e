//! Mounts that the kernel asks by /dev/fuse.

mod mounts;

use odafs_mount::Uring;

const URING: Uring = Uring::Off;
