use super::Region;
use super::mapping::Mapping;
use crate::sync::Arc;
use std::io;

/// Memory with one owner, who has it as slices except while peers may use it as a [`Region`].
pub struct Own(Region);

impl Own {
    /// Zeroed memory. `length` must not be 0.
    ///
    /// # Errors
    /// There is no memory left.
    pub fn new(length: usize) -> io::Result<Own> {
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no bytes"));
        }
        Ok(Own(Region::own(Mapping::new(length)?)))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is reached through its region alone, and that is in no hands but `self`'s.
        unsafe { self.0.memory().bytes() }
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { self.0.memory_mut().bytes_mut() }
    }

    /// The region, which queue pairs [bind](crate::QueuePair::bind). It has no tag of its own.
    pub fn lend(self) -> Arc<Region> {
        Arc::new(self.0)
    }

    /// Takes back what was lent, if nobody holds the region any more. Whoever lets a peer reach a region holds on to
    /// it.
    ///
    /// # Errors
    /// The region, if somebody still holds it or it was never this process's own.
    pub fn take_back(region: Arc<Region>) -> Result<Own, Arc<Region>> {
        if !region.is_own() {
            return Err(region);
        }
        Arc::try_unwrap(region).map(Own)
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use crate::fabric::SteeringTag;

    #[test]
    fn lent_memory_is_nobodys_own() {
        let mut own = Own::new(100).unwrap();
        own.bytes_mut()[99] = 7;
        let region = own.lend();
        let held = Arc::clone(&region);
        let Err(region) = Own::take_back(region) else {
            panic!("somebody holds it")
        };
        assert!(held.store(0, &[1, 2, 3]));
        drop(held);
        let Ok(own) = Own::take_back(region) else {
            panic!("nobody holds it")
        };
        assert_eq!(own.bytes().len(), 100);
        assert_eq!(
            (own.bytes()[..4].to_vec(), own.bytes()[99]),
            (vec![1, 2, 3, 0], 7)
        );
    }

    /// Memory that peers may have mapped becomes no slice.
    #[test]
    fn regions_of_queue_pairs_are_not_taken() {
        let region = Region::new(Mapping::new(8).unwrap(), SteeringTag(1));
        assert!(Own::take_back(Arc::new(region)).is_err());
        assert!(Own::new(0).is_err());
    }
}
