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
//! NFS version 2 has handles of 32 bytes, no more and no fewer. Its clients keep the last 32 of such a handle, whose version
//! is 2: all that is left out the server knows, and the MAC covers it.
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
/// Of those that are kept without their beginning.
const SHORT_VERSION: u8 = 2;
const HEAD_BYTES: usize = 24;
const MAC_BYTES: usize = 16;
/// What clients of NFS version 2 do not keep.
const KNOWN_BYTES: usize = 8;

/// A handle as clients of NFS version 2 keep it.
pub type ShortHandle = [u8; HEAD_BYTES + MAC_BYTES - KNOWN_BYTES];

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

    /// What tells this server from all others: the key's MAC over the store's number and a text that is shorter than the beginning of
    /// a handle. It says nothing about the key.
    pub fn server(&self) -> [u8; MAC_BYTES] {
        let tag = self.over(b"server").finalize().into_bytes();
        *tag.first_chunk().unwrap_or(&[0; MAC_BYTES])
    }

    pub fn make(&self, object: ObjectId) -> HandleBytes {
        HandleBytes(self.sealed(VERSION, object))
    }

    /// The handle for clients of NFS version 2.
    pub fn make_short(&self, object: ObjectId) -> ShortHandle {
        let mut short = ShortHandle::default();
        short.copy_from_slice(&self.sealed(SHORT_VERSION, object)[KNOWN_BYTES..]);
        short
    }

    /// The object of a handle. BADHANDLE if it was not made here.
    pub fn open(&self, handle: &[u8]) -> Result<ObjectId, Status> {
        self.unsealed(VERSION, handle)
    }

    /// The object of a short handle. BADHANDLE if it was not made here, by [`HandleMaker::make_short`].
    pub fn open_short(&self, handle: &ShortHandle) -> Result<ObjectId, Status> {
        let known = self.known(SHORT_VERSION);
        let mut whole = [0; HEAD_BYTES + MAC_BYTES];
        whole[..KNOWN_BYTES].copy_from_slice(&known);
        whole[KNOWN_BYTES..].copy_from_slice(handle);
        self.unsealed(SHORT_VERSION, &whole)
    }

    /// What handles begin with.
    fn known(&self, version: u8) -> [u8; KNOWN_BYTES] {
        let mut known = [version, 0, 0, 0, 0, 0, 0, 0];
        known[4..].copy_from_slice(&self.store.to_be_bytes()[..4]);
        known
    }

    fn sealed(&self, version: u8, object: ObjectId) -> [u8; HEAD_BYTES + MAC_BYTES] {
        let mut bytes = [0; HEAD_BYTES + MAC_BYTES];
        bytes[..KNOWN_BYTES].copy_from_slice(&self.known(version));
        bytes[8..16].copy_from_slice(&object.ino.to_be_bytes());
        bytes[16..24].copy_from_slice(&object.generation.to_be_bytes());
        let tag = self.over(&bytes[..HEAD_BYTES]).finalize().into_bytes();
        bytes[HEAD_BYTES..].copy_from_slice(&tag[..MAC_BYTES]);
        bytes
    }

    /// The object of a handle of this version. Compares the MAC in constant time before anything else.
    fn unsealed(&self, version: u8, handle: &[u8]) -> Result<ObjectId, Status> {
        let (head, tag) = handle
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(Status::BadHandle)?;
        if tag.len() != MAC_BYTES {
            return Err(Status::BadHandle);
        }
        self.over(head)
            .verify_truncated_left(tag)
            .map_err(|_| Status::BadHandle)?;
        let [found, _, _, _, _, _, _, _, numbers @ ..] = head;
        if *found != version {
            return Err(Status::BadHandle);
        }
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
    fn handles_of_32_bytes_are_others() {
        let maker = maker(1, 0x1111_2222_3333_4444);
        let short = maker.make_short(OBJECT);
        assert_eq!(maker.open_short(&short), Ok(OBJECT));
        assert_eq!(short[..8], OBJECT.ino.to_be_bytes());
        for bit in 0..short.len() * 8 {
            let mut forged = short;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                maker.open_short(&forged),
                Err(Status::BadHandle),
                "bit {bit}"
            );
        }
        // Neither kind stands for the other.
        let whole = [&[2, 0, 0, 0, 0x11, 0x11, 0x22, 0x22][..], &short].concat();
        assert_eq!(maker.open(&whole), Err(Status::BadHandle));
        assert_eq!(maker.open(&short), Err(Status::BadHandle));
        let mut end = short;
        end.copy_from_slice(&maker.make(OBJECT)[8..]);
        assert_eq!(maker.open_short(&end), Err(Status::BadHandle));
        // The MAC is that of the documented bytes.
        let mut mac = Hmac::<Sha256>::new_from_slice(&[1; 32]).unwrap();
        mac.update(&0x1111_2222_3333_4444_u64.to_be_bytes());
        mac.update(&whole[..24]);
        assert_eq!(short[16..], mac.finalize().into_bytes()[..16]);
    }

    #[test]
    fn other_keys_and_stores_refuse() {
        let handle = maker(1, 99).make(OBJECT);
        assert!(maker(1, 99).open(&handle).is_ok());
        assert!(maker(2, 99).open(&handle).is_err());
        // The upper halves are the same, so only the MAC tells the difference.
        assert!(maker(1, 98).open(&handle).is_err());
        let short = maker(1, 99).make_short(OBJECT);
        assert!(maker(2, 99).open_short(&short).is_err());
        assert!(maker(1, 98).open_short(&short).is_err());
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
