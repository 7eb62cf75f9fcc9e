//! How a file system makes its own handles of inode number and generation.
//!
//! name_to_handle_at(2) shows the generation, which stat(2) does not. For the file systems known here, the handle can be
//! made again from [`ObjectId`] alone, so the server need not remember anything to open an object.

use super::sys::KernelHandle;
use crate::store::ObjectId;

/// The encoding of a file system. Numbers are in host order, as the kernel writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// ext2 to ext4 and most others: inode number and generation, 32 bits each (`FILEID_INO32_GEN`).
    Ino32Generation,
    /// tmpfs: generation, then both halves of the inode number. Its type is `FILEID_INO32_GEN`, too.
    GenerationIno64,
    /// XFS: 64 bits of inode number, 32 of generation (`FILEID_INO32_GEN | XFS_FILEID_TYPE_64FLAG`).
    Ino64Generation,
    /// btrfs: object id, subvolume and 32 bits of generation (`FILEID_BTRFS_WITHOUT_PARENT`).
    Btrfs {
        /// The subvolume of the export's root.
        subvolume: u64,
    },
}

const INO32_GENERATION: i32 = 1;
const BTRFS_WITHOUT_PARENT: i32 = 0x4d;
const INO64_GENERATION: i32 = 0x81;

impl Scheme {
    /// Finds the encoding from the handle of an object whose inode number is known.
    pub fn find(handle: &KernelHandle, ino: u64) -> Option<Self> {
        let scheme = match (handle.kind, handle.bytes.len()) {
            (INO32_GENERATION, 8) => Self::Ino32Generation,
            (INO32_GENERATION, 12) => Self::GenerationIno64,
            (INO64_GENERATION, 12) => Self::Ino64Generation,
            (BTRFS_WITHOUT_PARENT, 20) => Self::Btrfs {
                subvolume: word64(handle, 2),
            },
            _ => return None,
        };
        scheme.generation(handle, ino).map(|_| scheme)
    }

    /// The generation in a handle. `None` if the handle has another encoding, or is of another object.
    pub fn generation(self, handle: &KernelHandle, ino: u64) -> Option<u64> {
        let generation = match self {
            Self::Ino32Generation if ino > u64::from(u32::MAX) => return None,
            Self::Ino32Generation => 1,
            Self::GenerationIno64 => 0,
            Self::Ino64Generation => 2,
            Self::Btrfs { .. } => 4,
        };
        let generation = u64::from(word32(handle, generation));
        (self.handle(ObjectId { ino, generation }) == *handle).then_some(generation)
    }

    /// The handle of an object.
    pub fn handle(self, object: ObjectId) -> KernelHandle {
        let (ino, generation) = (
            object.ino.to_ne_bytes(),
            (object.generation as u32).to_ne_bytes(),
        );
        let low = (object.ino as u32).to_ne_bytes();
        let high = ((object.ino >> 32) as u32).to_ne_bytes();
        let (kind, bytes) = match self {
            Self::Ino32Generation => (INO32_GENERATION, [low, generation].concat()),
            Self::GenerationIno64 => (INO32_GENERATION, [generation, low, high].concat()),
            Self::Ino64Generation => (INO64_GENERATION, [&ino[..], &generation].concat()),
            Self::Btrfs { subvolume } => (
                BTRFS_WITHOUT_PARENT,
                [&ino[..], &subvolume.to_ne_bytes(), &generation].concat(),
            ),
        };
        KernelHandle { kind, bytes }
    }
}

/// The 32-bit word at an index, or 0 beyond the end.
fn word32(handle: &KernelHandle, index: usize) -> u32 {
    let (words, _) = handle.bytes.as_chunks::<4>();
    words.get(index).map_or(0, |word| u32::from_ne_bytes(*word))
}

/// The 64-bit word that begins at an index of 32-bit words.
fn word64(handle: &KernelHandle, index: usize) -> u64 {
    let bytes = [
        word32(handle, index).to_ne_bytes(),
        word32(handle, index + 1).to_ne_bytes(),
    ];
    u64::from_ne_bytes(bytes.as_flattened().try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_made_again_and_others_refused() {
        let object = ObjectId {
            ino: 0x1_2345_6789,
            generation: 0xfeed_beef,
        };
        let small = ObjectId { ino: 77, ..object };
        let schemes = [
            (Scheme::Ino32Generation, small),
            (Scheme::GenerationIno64, object),
            (Scheme::Ino64Generation, object),
            (Scheme::Btrfs { subvolume: 5 }, object),
        ];
        for (scheme, object) in schemes {
            let handle = scheme.handle(object);
            assert_eq!(Scheme::find(&handle, object.ino), Some(scheme));
            assert_eq!(
                scheme.generation(&handle, object.ino),
                Some(object.generation)
            );
            assert_eq!(scheme.generation(&handle, object.ino ^ 2), None);
        }
        // An inode number that does not fit must not be taken for another.
        let cut = Scheme::Ino32Generation.handle(object);
        assert_eq!(Scheme::Ino32Generation.generation(&cut, object.ino), None);
        let elsewhere = Scheme::Btrfs { subvolume: 6 }.handle(object);
        assert_eq!(
            Scheme::Btrfs { subvolume: 5 }.generation(&elsewhere, object.ino),
            None
        );
        assert_eq!(
            Scheme::find(
                &KernelHandle {
                    kind: 1,
                    bytes: vec![0; 9]
                },
                0
            ),
            None
        );
    }
}
