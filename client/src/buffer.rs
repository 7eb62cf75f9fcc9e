//! Memory that a caller reads into without a copy.

use odafs_fabric::{Region, memory::Own, sync::Arc};
use std::{
    io,
    ops::{Deref, DerefMut},
};

/// Registered memory. [`File::read_into`](crate::File::read_into) has the server write to it by RDMA, under a tag for
/// that read alone, which is no longer valid when it returns. Between reads the memory is the caller's, as a slice.
///
/// A buffer belongs to no connection: any client may read into it.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let file = odafs::Client::connect("odafs://server/")?.open("/data/table")?;
/// let mut buffer = odafs::Buffer::new(1 << 20)?;
/// let bytes = file.read_into(&mut buffer, 0..1 << 20, 0)?;
/// println!("{} zeros", buffer[..bytes].iter().filter(|byte| **byte == 0).count());
/// # Ok(())
/// # }
/// ```
pub struct Buffer {
    /// Present unless it is lent.
    memory: Option<Own>,
    bytes: usize,
}

impl Buffer {
    /// Zeroed memory of this many bytes.
    ///
    /// # Errors
    /// `bytes` is 0, or the system has no memory left.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self {
            memory: Some(Own::new(bytes)?),
            bytes,
        })
    }

    /// Lends the memory to `read`, whose access ends with the call.
    pub(crate) fn lend<T>(&mut self, read: impl FnOnce(&Arc<Region>) -> T) -> T {
        let own = self.memory.take().expect("it is there between reads");
        let region = own.lend();
        let done = read(&region);
        self.memory = Some(match Own::take_back(region) {
            Ok(own) => own,
            Err(region) => self.copied(&region),
        });
        done
    }

    /// Somebody still holds the memory and might write to it. So copy its contents and leave it to them.
    fn copied(&self, region: &Region) -> Own {
        tracing::debug!("memory of a read is still lent: it is replaced");
        let mut fresh = Own::new(self.bytes).expect("there is memory for what was read");
        let whole = region.load(0, fresh.bytes_mut());
        debug_assert!(whole, "a region of the same length");
        fresh
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Own::bytes)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], Own::bytes_mut)
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}
