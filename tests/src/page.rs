//! Pages that say what they are, so that a wrong, old or torn one is seen at once.

/// Bytes of a page in the tests.
pub const PAGE: usize = 4096;

/// Fills a page with `slot` and `version`, repeated in every word.
pub fn fill(page: &mut [u8], slot: u32, version: u32) {
    let word = (u64::from(slot) << 32 | u64::from(version)).to_le_bytes();
    for chunk in page.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word);
    }
}

/// The version that a page of `slot` holds; 0 for one that was never written.
///
/// # Errors
/// The page is torn, or belongs to another slot; the text says how.
pub fn version(page: &[u8], slot: u32) -> Result<u32, String> {
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
    let first = word(&page[..8]);
    if let Some(at) = page.chunks_exact(8).position(|c| word(c) != first) {
        let other = word(&page[at * 8..at * 8 + 8]);
        return Err(format!(
            "torn at byte {}: {first:#x} and {other:#x}",
            at * 8
        ));
    }
    if first != 0 && (first >> 32) as u32 != slot {
        return Err(format!(
            "page of slot {} in place of slot {slot}",
            first >> 32
        ));
    }
    Ok(first as u32)
}

/// The version that each word of a page of `slot` holds, for pages that may be found half written.
///
/// # Errors
/// A word belongs to another slot.
pub fn versions(page: &[u8], slot: u32) -> Result<Vec<u32>, String> {
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
    let mine = |word: u64| match word >> 32 {
        stranger if word != 0 && stranger != u64::from(slot) => {
            Err(format!("word of slot {stranger} in place of slot {slot}"))
        }
        _ => Ok(word as u32),
    };
    page.chunks_exact(8)
        .map(|chunk| mine(word(chunk)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_versions_tears_and_strangers() {
        let mut page = [0; PAGE];
        assert_eq!(version(&page, 7), Ok(0));
        fill(&mut page, 7, 3);
        assert_eq!(version(&page, 7), Ok(3));
        assert!(version(&page, 8).unwrap_err().contains("slot 7"));
        fill(&mut page[2048..], 7, 4);
        assert!(version(&page, 7).unwrap_err().contains("torn at byte 2048"));
        let both = versions(&page, 7).expect("words of slot 7");
        assert_eq!((both[255], both[256]), (3, 4));
        assert!(versions(&page, 8).unwrap_err().contains("slot 7"));
    }
}
