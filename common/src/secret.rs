//! Secrets that leave no copies of themselves.

use std::ops::Deref;

use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

/// 32 secret bytes. They lie on the heap, so that nothing is left behind where they are moved from, and are wiped when
/// dropped.
#[derive(Clone)]
pub struct Secret(Box<Zeroizing<[u8; 32]>>);

impl Secret {
    /// What `fill` makes of 32 zeros, in place.
    pub fn filled(fill: impl FnOnce(&mut [u8; 32])) -> Secret {
        let mut secret = Secret(Box::new(Zeroizing::new([0; 32])));
        fill(&mut secret.0);
        secret
    }
}

impl From<[u8; 32]> for Secret {
    /// Where `bytes` came from is for its owner to wipe.
    fn from(mut bytes: [u8; 32]) -> Self {
        let secret = Secret::filled(|secret| *secret = bytes);
        bytes.zeroize();
        secret
    }
}

impl Deref for Secret {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        &self.0
    }
}

impl ZeroizeOnDrop for Secret {}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mac::MacKey;
    use crate::session::{Identity, Seed, SessionKey};

    /// A type that no longer wipes its memory does not compile.
    #[test]
    fn what_is_secret_is_wiped() {
        fn wiped<T: ZeroizeOnDrop>() {}
        wiped::<Secret>();
        wiped::<Seed>();
        wiped::<Identity>();
        wiped::<SessionKey>();
        wiped::<MacKey>();
    }

    #[test]
    fn no_secret_is_printed() {
        let secret = Secret::from([0x5a; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(*secret.clone(), [0x5a; 32]);
    }
}
