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
    /// Present unless a read goes on.
    memory: Option<Memory>,
    bytes: usize,
}

enum Memory {
    Ours(Own),
    /// Somebody held it after a read, and there was none to replace it. The buffer is empty until there is.
    Lent(Arc<Region>),
}

impl Buffer {
    /// Zeroed memory of this many bytes.
    ///
    /// # Errors
    /// `bytes` is 0, or the system has no memory left.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self {
            memory: Some(Memory::Ours(Own::new(bytes)?)),
            bytes,
        })
    }

    /// Its length in bytes, also while it has no memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes
    }

    /// Lends the memory to `read`, whose access ends with the call, even by a panic.
    ///
    /// # Errors
    /// Somebody still holds the memory after an earlier read, and the system has none left to replace it.
    pub(crate) fn lend<T>(&mut self, read: impl FnOnce(&Arc<Region>) -> T) -> io::Result<T> {
        self.recover()?;
        let Some(Memory::Ours(own)) = self.memory.take() else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let loan = Loan {
            region: Some(own.lend()),
            to: self,
        };
        let done = loan.region.as_ref().map(read);
        drop(loan);
        self.recover()?;
        done.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Makes sure that the memory is the caller's. If somebody still holds it and might write to it, its contents are
    /// copied and it is left to them.
    ///
    /// # Errors
    /// The system has no memory left for the copy.
    pub(crate) fn recover(&mut self) -> io::Result<()> {
        if let Some(Memory::Lent(region)) = &self.memory {
            tracing::debug!("memory of a read is still lent: it is replaced");
            let mut fresh = Own::new(self.bytes)?;
            let whole = region.load(0, fresh.bytes_mut());
            debug_assert!(whole, "a region of the same length");
            self.memory = Some(Memory::Ours(fresh));
        }
        Ok(())
    }
}

/// Memory that is lent until this is dropped.
struct Loan<'a> {
    region: Option<Arc<Region>>,
    to: &'a mut Buffer,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.to.memory = self
            .region
            .take()
            .map(|region| match Own::take_back(region) {
                Ok(own) => Memory::Ours(own),
                Err(region) => Memory::Lent(region),
            });
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Some(Memory::Ours(own)) => own.bytes(),
            _ => &[],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Some(Memory::Ours(own)) => own.bytes_mut(),
            _ => &mut [],
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_after_a_panic() {
        let mut buffer = Buffer::new(4096).expect("memory");
        buffer[7] = 1;
        let panics = || buffer.lend(|_| panic!("as planned"));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(caught.is_err());
        assert_eq!((buffer.len(), buffer[7]), (4096, 1));
        buffer.lend(|_| ()).expect("memory");
    }

    #[test]
    fn memory_that_others_hold_is_replaced() {
        let mut buffer = Buffer::new(4096).expect("memory");
        buffer[7] = 1;
        let held = buffer.lend(Arc::clone).expect("memory");
        assert_eq!((buffer.len(), buffer[7]), (4096, 1));
        assert!(held.store(7, &[2]));
        assert_eq!(buffer[7], 1);
        // As above, when there was no memory at first.
        buffer.memory = Some(Memory::Lent(held));
        assert!(buffer.is_empty());
        buffer.lend(|_| ()).expect("memory");
        assert_eq!((buffer.len(), buffer[7]), (4096, 2));
    }
}
