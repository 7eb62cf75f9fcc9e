//! Bytes as hexadecimal digits, as the files of the state directory have them.

use std::fmt::Write as _;

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes for which hexadecimal digits stand. `None` if these are no digits, or an odd number of them.
pub fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let clean = digits.iter().all(u8::is_ascii_hexdigit);
    if !digits.len().is_multiple_of(2) || !clean {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}
