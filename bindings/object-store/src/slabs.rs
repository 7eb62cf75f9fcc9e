//! Memory of results, which is used again once nobody has any of them.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// Length of a slab in bytes. A range that is kept keeps no more than that, or than its own length.
pub const SLAB: usize = 1 << 20;
/// The most slabs that wait for their next use: 64 MiB.
const WAITING_MAX: usize = 64;

/// Slabs that wait for their next use. The system clears new memory page by page, which takes longer than to read from
/// shared memory into memory that is there.
#[derive(Default)]
pub struct Slabs(Arc<Waiting>);

#[derive(Default)]
struct Waiting(Mutex<Vec<Vec<u8>>>);

impl Waiting {
    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of any content, which belongs to its slabs again when it is dropped.
pub struct Slab {
    bytes: Vec<u8>,
    from: Weak<Waiting>,
}

impl Slabs {
    /// Memory of at least this many bytes, of any content. It is no slab if it would be mostly unused, or too short.
    pub fn take(&self, bytes: usize) -> Slab {
        if !(SLAB / 2..=SLAB).contains(&bytes) {
            return Slab {
                bytes: vec![0; bytes],
                from: Weak::new(),
            };
        }
        let waiting = self.0.all().pop();
        Slab {
            bytes: waiting.unwrap_or_else(|| vec![0; SLAB]),
            from: Arc::downgrade(&self.0),
        }
    }
}

impl Slab {
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Some(from) = self.from.upgrade() else {
            return;
        };
        let mut waiting = from.all();
        if waiting.len() < WAITING_MAX {
            waiting.push(mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_slab_is_used_again_when_nobody_has_a_part_of_it() {
        let slabs = Slabs::default();
        // New memory is all zeros.
        let mut slab = slabs.take(SLAB);
        slab.bytes()[7] = 9;
        let memory = Bytes::from_owner(slab);
        let kept = memory.slice(5..8);
        drop(memory);
        let meanwhile = slabs.take(SLAB);
        assert_eq!(meanwhile.as_ref()[7], 0);
        assert_eq!(kept[..], [0, 0, 9]);
        drop(kept);
        assert_eq!(slabs.take(SLAB / 2).as_ref()[7], 9);
    }

    #[test]
    fn few_slabs_wait_and_none_without_a_store() {
        let slabs = Slabs::default();
        let many: Vec<_> = (0..WAITING_MAX + 3).map(|_| slabs.take(SLAB)).collect();
        drop(many);
        assert_eq!(slabs.0.all().len(), WAITING_MAX);
        drop((slabs.take(1), slabs.take(SLAB + 1)));
        assert_eq!(slabs.0.all().len(), WAITING_MAX);
        let waiting = Arc::downgrade(&slabs.0);
        let used = slabs.take(SLAB);
        drop(slabs);
        drop(used);
        assert!(waiting.upgrade().is_none());
    }
}
