//! File handles: what clients keep to name an object, across restarts of both ends.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1-3 | 0 |
//! | 4-7 | the upper half of the store's number |
//! | 8-15 | inode number, big-endian |
//! | 16-23 | generation, big-endian |
//! | 24-39 | MAC: HMAC-SHA-256 over the above and the store's number, cut to 128 bits |
//!
//! A handle names an object and grants nothing, because the server checks rights with every call. The MAC keeps clients
//! from naming objects that they were never shown.

use std::fmt;
use std::ops::Deref;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::store::state::HandleKey;
use crate::store::{ObjectId, Status};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 24;
const MAC_BYTES: usize = 16;

/// The bytes of a handle, fewer than the 64 that NFS version 3 allows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleBytes([u8; HEAD_BYTES + MAC_BYTES]);

impl Deref for HandleBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for HandleBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The tag of the export that a handle names, without a look at its MAC: a handle that was not made here may name any.
pub(crate) fn tag(handle: &[u8]) -> u16 {
    let tag = handle.get(16..18).and_then(|tag| tag.try_into().ok());
    tag.map_or(0, u16::from_be_bytes)
}

/// Makes and checks the handles of one store's objects.
pub(crate) struct HandleMaker {
    /// [`Store::number`](crate::store::Store::number).
    store: u64,
    /// The state of the MAC after the key.
    mac: Hmac<Sha256>,
}

impl HandleMaker {
    pub fn new(key: &HandleKey, store: u64) -> Self {
        // HMAC pads a short key with zeros to the hash's block. Padded here, the key cannot be refused.
        let mut block = Zeroizing::new([0; 64]);
        block[..32].copy_from_slice(key.bytes());
        Self {
            store,
            mac: Hmac::new((&*block).into()),
        }
    }

    pub fn make(&self, object: ObjectId) -> HandleBytes {
        let mut bytes = [0; HEAD_BYTES + MAC_BYTES];
        bytes[0] = VERSION;
        bytes[4..8].copy_from_slice(&self.store.to_be_bytes()[..4]);
        bytes[8..16].copy_from_slice(&object.ino.to_be_bytes());
        bytes[16..24].copy_from_slice(&object.generation.to_be_bytes());
        let tag = self.over(&bytes[..HEAD_BYTES]).finalize().into_bytes();
        bytes[HEAD_BYTES..].copy_from_slice(&tag[..MAC_BYTES]);
        HandleBytes(bytes)
    }

    /// The object of a handle. BADHANDLE if it was not made here. Compares the MAC in constant time before anything else.
    pub fn open(&self, handle: &[u8]) -> Result<ObjectId, Status> {
        let (head, tag) = handle
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(Status::BadHandle)?;
        if tag.len() != MAC_BYTES {
            return Err(Status::BadHandle);
        }
        self.over(head)
            .verify_truncated_left(tag)
            .map_err(|_| Status::BadHandle)?;
        let [VERSION, _, _, _, _, _, _, _, numbers @ ..] = head else {
            return Err(Status::BadHandle);
        };
        let number =
            |bytes: &[[u8; 8]]| bytes.first().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let (numbers, _) = numbers.as_chunks::<8>();
        Ok(ObjectId {
            ino: number(numbers),
            generation: number(&numbers[1..]),
        })
    }

    fn over(&self, head: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&self.store.to_be_bytes());
        mac.update(head);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId {
        ino: 0x0123_4567_89ab_cdef,
        generation: 42,
    };

    fn maker(key: u8, store: u64) -> HandleMaker {
        HandleMaker::new(&HandleKey::from([key; 32]), store)
    }

    #[test]
    fn a_handle_tells_the_tag_of_its_export() {
        let tagged = ObjectId {
            generation: 0x1234 << 48 | 42,
            ..OBJECT
        };
        let maker = maker(1, 99);
        assert_eq!(tag(&maker.make(tagged)), 0x1234);
        assert_eq!(tag(&maker.make(OBJECT)), 0);
        assert_eq!(tag(&[7; 17]), 0);
    }

    #[test]
    fn round_trip() {
        let maker = maker(1, 99);
        assert_eq!(maker.open(&maker.make(OBJECT)), Ok(OBJECT));
        assert_eq!(maker.make(OBJECT).len(), 40);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let maker = maker(1, 99);
        let handle = maker.make(OBJECT);
        for bit in 0..handle.len() * 8 {
            let mut forged = handle.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(maker.open(&forged), Err(Status::BadHandle), "bit {bit}");
        }
        for length in 0..handle.len() {
            assert_eq!(maker.open(&handle[..length]), Err(Status::BadHandle));
        }
        let mut longer = handle.to_vec();
        longer.push(0);
        assert_eq!(maker.open(&longer), Err(Status::BadHandle));
    }

    #[test]
    fn other_keys_and_stores_refuse() {
        let handle = maker(1, 99).make(OBJECT);
        assert!(maker(1, 99).open(&handle).is_ok());
        assert!(maker(2, 99).open(&handle).is_err());
        // The upper halves are the same, so only the MAC tells the difference.
        assert!(maker(1, 98).open(&handle).is_err());
    }

    #[test]
    fn the_mac_is_hmac_sha_256_of_the_documented_bytes() {
        let handle = maker(7, 0x1111_2222_3333_4444).make(OBJECT);
        assert_eq!(handle[..8], [1, 0, 0, 0, 0x11, 0x11, 0x22, 0x22]);
        let mut mac = Hmac::<Sha256>::new_from_slice(&[7; 32]).unwrap();
        mac.update(&0x1111_2222_3333_4444_u64.to_be_bytes());
        mac.update(&handle[..24]);
        assert_eq!(handle[24..], mac.finalize().into_bytes()[..16]);
    }
}
