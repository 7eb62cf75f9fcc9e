//! File handles: what clients keep to name an object, across restarts of both ends.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | length of the file system's own handle, 0 to 24 |
//! | 2-3 | its type, big-endian |
//! | 4-7 | export: the upper half of its number |
//! | 8-15 | inode number, big-endian |
//! | 16-23 | generation, big-endian |
//! | 24-39 | MAC: HMAC-SHA-256 over all other bytes and the export's number, cut to 128 bits |
//! | 40-63 | the file system's own handle, where there is one |
//!
//! A handle is a capability for nothing: it names an object, and rights are checked with every call. The MAC
//! keeps clients from naming objects that they were never shown.

use std::fmt;
use std::ops::Deref;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::ObjectId;

/// The longest handle, bytes (`NFS3_FHSIZE`).
pub const MAX_HANDLE_BYTES: usize = 64;
/// The most bytes of a file system's own handle that fit.
pub(crate) const MAX_INNER_BYTES: usize = 24;
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 24;
const MAC_BYTES: usize = 16;

/// A handle's bytes, at most 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleBytes {
    length: u8,
    bytes: [u8; MAX_HANDLE_BYTES],
}

impl Deref for HandleBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for HandleBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Bytes that are no handle of this export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a file handle of this export")]
pub struct HandleError;

/// What a file system calls an object (`struct file_handle` of name_to_handle_at(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InnerHandle {
    /// `handle_type`; those in use fit into 16 bits.
    pub kind: u16,
    pub length: u8,
    pub bytes: [u8; MAX_INNER_BYTES],
}

impl InnerHandle {
    /// `None` if it does not fit.
    pub fn new(kind: u16, bytes: &[u8]) -> Option<Self> {
        let mut inner = Self {
            kind,
            length: u8::try_from(bytes.len()).ok()?,
            ..Self::default()
        };
        inner.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(inner)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub object: ObjectId,
    pub inner: Option<InnerHandle>,
}

/// The key of the MAC in file handles. Wiped when dropped.
#[derive(Clone)]
pub struct HandleKey(Zeroizing<[u8; 32]>);

impl From<[u8; 32]> for HandleKey {
    fn from(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey")
    }
}

/// Makes and checks the handles of one export.
pub(crate) struct HandleMaker {
    export: u64,
    /// The key's state, before any byte.
    mac: Hmac<Sha256>,
}

impl HandleMaker {
    pub fn new(key: &HandleKey, export: u64) -> Self {
        // A 32-byte key is shorter than the hash's block, so this is `new_from_slice` that cannot fail.
        let mut block = Zeroizing::new([0; 64]);
        block[..32].copy_from_slice(&key.0[..]);
        Self {
            export,
            mac: Hmac::new((&*block).into()),
        }
    }

    pub fn make(&self, opened: &Opened) -> HandleBytes {
        let inner = opened.inner.unwrap_or_default();
        let end = HEAD_BYTES + MAC_BYTES;
        let mut bytes = [0; MAX_HANDLE_BYTES];
        bytes[0] = VERSION;
        bytes[1] = inner.length;
        bytes[2..4].copy_from_slice(&inner.kind.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.export.to_be_bytes()[..4]);
        bytes[8..16].copy_from_slice(&opened.object.ino.to_be_bytes());
        bytes[16..24].copy_from_slice(&opened.object.generation.to_be_bytes());
        bytes[end..end + inner.bytes().len()].copy_from_slice(inner.bytes());
        let length = end + inner.bytes().len();
        let tag = self
            .over(&bytes[..HEAD_BYTES], inner.bytes())
            .finalize()
            .into_bytes();
        bytes[HEAD_BYTES..end].copy_from_slice(&tag[..MAC_BYTES]);
        HandleBytes {
            length: length as u8,
            bytes,
        }
    }

    /// Compares the MAC in constant time, before it looks at anything else.
    pub fn open(&self, handle: &[u8]) -> Result<Opened, HandleError> {
        let (head, rest) = handle
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(HandleError)?;
        let (tag, inner) = rest.split_first_chunk::<MAC_BYTES>().ok_or(HandleError)?;
        if inner.len() > MAX_INNER_BYTES {
            return Err(HandleError);
        }
        self.over(head, inner)
            .verify_truncated_left(tag)
            .map_err(|_| HandleError)?;
        if head[0] != VERSION || usize::from(head[1]) != inner.len() {
            return Err(HandleError);
        }
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let kind = u16::from_be_bytes([head[2], head[3]]);
        Ok(Opened {
            object: ObjectId {
                ino: number(8),
                generation: number(16),
            },
            inner: if inner.is_empty() {
                None
            } else {
                InnerHandle::new(kind, inner)
            },
        })
    }

    fn over(&self, head: &[u8], inner: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&self.export.to_be_bytes());
        mac.update(head);
        mac.update(inner);
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

    fn maker(key: u8, export: u64) -> HandleMaker {
        HandleMaker::new(&HandleKey::from([key; 32]), export)
    }

    fn samples() -> [Opened; 3] {
        [
            Opened {
                object: OBJECT,
                inner: None,
            },
            Opened {
                object: OBJECT,
                inner: InnerHandle::new(1, &[7; 8]),
            },
            Opened {
                object: OBJECT,
                inner: InnerHandle::new(0x4d, &[9; 24]),
            },
        ]
    }

    #[test]
    fn round_trip_within_64_bytes() {
        let maker = maker(1, 99);
        for (opened, length) in samples().iter().zip([40, 48, 64]) {
            let handle = maker.make(opened);
            assert_eq!(handle.len(), length);
            assert_eq!(maker.open(&handle), Ok(*opened));
        }
        assert!(InnerHandle::new(1, &[0; 25]).is_none());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let maker = maker(1, 99);
        for opened in &samples() {
            let handle = maker.make(opened);
            for bit in 0..handle.len() * 8 {
                let mut forged = handle.to_vec();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(maker.open(&forged), Err(HandleError), "bit {bit}");
            }
            for length in 0..handle.len() {
                assert_eq!(maker.open(&handle[..length]), Err(HandleError));
            }
            let mut longer = handle.to_vec();
            longer.push(0);
            assert_eq!(maker.open(&longer), Err(HandleError));
        }
    }

    #[test]
    fn other_keys_and_exports_refuse() {
        let handle = maker(1, 99).make(&samples()[1]);
        assert!(maker(1, 99).open(&handle).is_ok());
        assert!(maker(2, 99).open(&handle).is_err());
        // The same upper half: only the MAC knows.
        assert!(maker(1, 98).open(&handle).is_err());
    }
}
