//! The header block of a member (POSIX.1-2017, pax, "ustar Interchange Format"), and the numbers in it.

/// Size of a block in bytes. Headers and data begin at multiples of it.
pub(super) const BLOCK: u64 = 512;

/// The first block of a member.
pub(super) struct Header(pub [u8; BLOCK as usize]);

const CHECKSUM: std::ops::Range<usize> = 148..156;

impl Header {
    /// Whether all bytes are 0. Two such blocks end an archive.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// Whether the checksum fits: the sum of all bytes, with spaces in place of the checksum. Some old programs summed
    /// signed bytes.
    pub fn has_good_checksum(&self) -> bool {
        let sum = |value: fn(u8) -> i64| -> i64 {
            let bytes = self.0.iter().enumerate();
            let counted = bytes.map(|(at, byte)| if CHECKSUM.contains(&at) { b' ' } else { *byte });
            counted.map(value).sum()
        };
        let told = number(&self.0[CHECKSUM]);
        [sum(|byte| byte.into()), sum(|byte| (byte as i8).into())].contains(&told.unwrap_or(-1))
    }

    /// The type flag.
    pub fn flag(&self) -> u8 {
        self.0[156]
    }

    /// Permission bits.
    pub fn mode(&self) -> Option<i64> {
        number(&self.0[100..108])
    }

    pub fn uid(&self) -> Option<i64> {
        number(&self.0[108..116])
    }

    pub fn gid(&self) -> Option<i64> {
        number(&self.0[116..124])
    }

    /// Number of bytes that follow. `None` if it is no number, or negative.
    pub fn size(&self) -> Option<u64> {
        number(&self.0[124..136])?.try_into().ok()
    }

    /// Seconds since 1970.
    pub fn mtime(&self) -> Option<i64> {
        number(&self.0[136..148])
    }

    /// Major and minor number.
    pub fn device(&self) -> Option<(u32, u32)> {
        let part = |range| u32::try_from(number(&self.0[range])?).ok();
        Some((part(329..337)?, part(337..345)?))
    }

    pub fn link(&self) -> &[u8] {
        text(&self.0[157..257])
    }

    /// The name, with its prefix before it. (In GNU's own format the field of the prefix has another meaning.)
    pub fn path(&self) -> Vec<u8> {
        let (name, prefix) = (text(&self.0[..100]), text(&self.0[345..500]));
        match &self.0[257..263] {
            b"ustar\0" if !prefix.is_empty() => [prefix, b"/", name].concat(),
            _ => name.to_vec(),
        }
    }

    /// Whether the map of holes of a GNU sparse file continues in the next block.
    pub fn sparse_map_goes_on(&self) -> bool {
        self.0[482] != 0
    }
}

/// The bytes up to the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number in octal digits, or in GNU's base 256 (first bit set, the rest big-endian in two's complement). `None` if it is
/// neither, or takes more than 63 bits.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        let start = if negative {
            i64::from(*first as i8)
        } else {
            i64::from(first & 0x3f)
        };
        return rest.iter().try_fold(start, |value, byte| {
            value.checked_mul(256)?.checked_add(i64::from(*byte))
        });
    }
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| matches!(byte, b' ' | 0));
    let (digits, tail) = digits.split_at(end.unwrap_or(digits.len()));
    if tail.iter().any(|byte| !matches!(byte, b' ' | 0)) {
        return None;
    }
    digits.iter().try_fold(0i64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"77777777777"), Some(0o77_777_777_777));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"0000648\0"), None);
        assert_eq!(number(b"06\x004\0\0\0\0"), None);
        assert_eq!(number(b"-0000001"), None);
        assert_eq!(number(&[0x80, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        let large = [0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1];
        assert_eq!(number(&large), Some((2 << 32) + 1));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(&[0x80 | 0x3f; 12]), None);
    }
}
