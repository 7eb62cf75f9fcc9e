use crate::fabric::SteeringTag;

/// Memory that a peer may read and write at any time. All access is by relaxed word copies: what
/// comes out is untrusted bytes, perhaps torn, never undefined behaviour.
pub struct Region {}

impl Region {
    /// Bytes.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name under which the peer reaches it.
    pub fn tag(&self) -> SteeringTag {
        todo!()
    }

    /// Copies from the region. `false` (and nothing done) if the range is beyond it.
    #[must_use]
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        todo!("{offset} {into:?}")
    }

    /// Copies into the region. `false` (and nothing done) if the range is beyond it.
    #[must_use]
    pub fn store(&self, offset: usize, from: &[u8]) -> bool {
        todo!("{offset} {from:?}")
    }
}
