//! Pages: the unit in which files are cached, referenced and read directly.

use std::ops::RangeInclusive;

/// The page size of an export: a power of two from 4 KiB to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageSize(u8);

/// A page size that is no power of two between 4 KiB and 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page size {0} is not a power of two from 4096 to 65536 bytes")]
pub struct BadPageSize(pub u64);

impl PageSize {
    /// 4 KiB, the default.
    pub const DEFAULT: PageSize = PageSize(12);
    /// 4 KiB.
    pub const MIN: PageSize = PageSize(12);
    /// 64 KiB.
    pub const MAX: PageSize = PageSize(16);

    /// A page of `bytes` bytes.
    pub fn new(bytes: u64) -> Result<PageSize, BadPageSize> {
        let shift = bytes.trailing_zeros();
        let in_range = (u32::from(Self::MIN.0)..=u32::from(Self::MAX.0)).contains(&shift);
        if bytes.is_power_of_two() && in_range {
            Ok(PageSize(shift as u8))
        } else {
            Err(BadPageSize(bytes))
        }
    }

    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        1 << self.0
    }

    /// Base-two logarithm of the size.
    pub const fn shift(self) -> u32 {
        self.0 as u32
    }

    /// Index of the page that holds byte `offset` of a file.
    pub const fn index(self, offset: u64) -> u64 {
        offset >> self.0
    }

    /// Where byte `offset` of a file lies within its page.
    pub const fn within(self, offset: u64) -> usize {
        (offset & ((1 << self.0) - 1)) as usize
    }

    /// Byte offset at which page `index` begins; saturates at the end of the address space.
    pub const fn start(self, index: u64) -> u64 {
        if index > u64::MAX >> self.0 {
            u64::MAX
        } else {
            index << self.0
        }
    }

    /// The pages that `length` bytes from `offset` touch; `None` for an empty span. A span that runs over the
    /// end of the 64-bit offsets is cut there.
    pub fn span(self, offset: u64, length: u64) -> Option<RangeInclusive<u64>> {
        let last = offset.saturating_add(length.checked_sub(1)?);
        Some(self.index(offset)..=self.index(last))
    }
}

/// How an arena's frames and their stamps lie in memory.
///
/// A reference's address counts the bytes of frames alone, whatever lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    page: PageSize,
    /// Bytes between two frames.
    gap: u8,
}

impl Layout {
    /// Bytes between two frames where stamps lie beside them: a cache line, the stamp its first word.
    const GAP: u8 = 64;
    /// Bytes of a stamp.
    pub const STAMP: usize = 8;

    /// Frame behind frame, and stamp behind stamp in other memory.
    pub const fn apart(page: PageSize) -> Layout {
        Layout { page, gap: 0 }
    }

    /// Each frame's stamp right behind it, so that one RDMA Read brings both.
    pub const fn beside(page: PageSize) -> Layout {
        let gap = Self::GAP;
        Layout { page, gap }
    }

    /// Size of a frame.
    pub const fn page(self) -> PageSize {
        self.page
    }

    /// Whether each frame's stamp is right behind it.
    pub const fn is_beside(self) -> bool {
        self.gap > 0
    }

    /// Bytes from one frame to the next.
    pub const fn stride(self) -> usize {
        self.page.bytes() + self.gap as usize
    }

    /// Where the byte at a reference's `address` lies in the memory of the frames. Wraps for invalid addresses.
    #[inline]
    pub const fn place(self, address: u64) -> u64 {
        match self.gap {
            0 => address,
            gap => address.wrapping_add((address >> self.page.shift()).wrapping_mul(gap as u64)),
        }
    }

    /// Where the stamp of the frame at `address` lies in the memory of the stamps, which is that of the frames if they are
    /// beside each other.
    #[inline]
    pub const fn stamp(self, address: u64) -> u64 {
        let frame = address >> self.page.shift();
        match self.gap {
            0 => frame * Self::STAMP as u64,
            _ => (frame.wrapping_mul(self.stride() as u64)).wrapping_add(self.page.bytes() as u64),
        }
    }

    /// Addresses that memory of `bytes` bytes has: whole frames if their stamps are to be beside them.
    pub const fn addresses(self, bytes: u64) -> u64 {
        match self.gap {
            0 => bytes,
            _ => (bytes / self.stride() as u64) << self.page.shift(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(PageSize::new(4096).unwrap().shift(), 12);
        assert_eq!(PageSize::new(65536).unwrap(), PageSize::MAX);
        for bad in [0, 1, 2048, 4097, 131_072, 1 << 40] {
            assert_eq!(PageSize::new(bad), Err(BadPageSize(bad)));
        }
    }

    #[test]
    fn layouts() {
        let page = PageSize::new(8192).unwrap();
        let (apart, beside) = (Layout::apart(page), Layout::beside(page));
        for address in [0, 1, 8191, 8192, 100_000] {
            assert_eq!(apart.place(address), address);
            assert_eq!(apart.stamp(address), address / 8192 * 8);
            assert_eq!(beside.place(address), address + address / 8192 * 64);
            let frame = address / 8192 * 8192;
            assert_eq!(beside.stamp(address), beside.place(frame) + 8192);
        }
        assert_eq!((apart.stride(), beside.stride()), (8192, 8256));
        assert_eq!(apart.addresses(8193), 8193);
        assert_eq!(beside.addresses(2 * 8256 + 8255), 2 * 8192);
        beside.place(u64::MAX);
        beside.stamp(u64::MAX);
    }

    #[test]
    fn spans() {
        let page = PageSize::DEFAULT;
        assert_eq!(page.span(0, 0), None);
        assert_eq!(page.span(0, 1), Some(0..=0));
        assert_eq!(page.span(4095, 2), Some(0..=1));
        assert_eq!(page.span(4096, 4096), Some(1..=1));
        assert_eq!(
            page.span(u64::MAX, 10),
            Some(u64::MAX >> 12..=u64::MAX >> 12)
        );
        assert_eq!(page.within(4097), 1);
        assert_eq!(page.start(3), 12288);
        assert_eq!(page.start(u64::MAX), u64::MAX);
    }
}
