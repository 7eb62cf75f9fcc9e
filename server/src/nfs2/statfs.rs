//! STATFS (RFC 1094, section 2.2.18).

use odafs_common::wire::nfs2::{FileHandle, MAX_DATA, StatFsOk};

use super::{Context, Done};
use crate::vfs::Space;
use crate::vfs::attributes::space;

pub(super) fn statfs(context: &Context<'_>, root: FileHandle<'_>) -> Done<StatFsOk> {
    let object = context.object(root)?;
    Ok(told(&space(context.export, object, context.effort)?))
}

/// The smallest block in a reply, in bytes.
const BLOCK_BYTES: u32 = 4096;
/// The most blocks, because clients take the number for one with a sign.
const BLOCKS_MAX: u64 = i32::MAX as u64;

/// The space in blocks of such a size that 32 bits can count them.
fn told(space: &Space) -> StatFsOk {
    let most = (space.total_bytes)
        .max(space.free_bytes)
        .max(space.available_bytes);
    let mut block_bytes = BLOCK_BYTES;
    while most / u64::from(block_bytes) > BLOCKS_MAX && block_bytes < 1 << 30 {
        block_bytes <<= 1;
    }
    let blocks = |bytes: u64| (bytes / u64::from(block_bytes)).min(BLOCKS_MAX) as u32;
    StatFsOk {
        transfer_bytes: MAX_DATA,
        block_bytes,
        blocks: blocks(space.total_bytes),
        free_blocks: blocks(space.free_bytes),
        available_blocks: blocks(space.available_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_so_large_that_their_number_can_be_told() {
        let space = |total_bytes| Space {
            total_bytes,
            free_bytes: total_bytes / 2,
            available_bytes: total_bytes / 4,
            total_files: 0,
            free_files: 0,
            available_files: 0,
        };
        let blocks = |total_bytes| {
            let told = told(&space(total_bytes));
            (told.block_bytes, told.blocks, told.available_blocks)
        };
        assert_eq!(blocks(1 << 30), (4096, 1 << 18, 1 << 16));
        // 8 TiB less a block is the most in blocks of 4 KiB.
        assert_eq!(
            blocks((1 << 43) - 1),
            (4096, i32::MAX as u32, (1 << 29) - 1)
        );
        assert_eq!(blocks(1 << 43), (8192, 1 << 30, 1 << 28));
        assert_eq!(
            blocks(u64::MAX),
            (1 << 30, i32::MAX as u32, i32::MAX as u32)
        );
    }
}
