//! Public keys of clients, from files.

use std::path::Path;

use anyhow::{Context, Result, bail};
use odafs_common::session::PublicKey;

use crate::Usage;

/// The public keys in a file.
pub fn keys(path: &Path) -> Result<Vec<PublicKey>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the key file {}", path.display()))?;
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let digits = line.split('#').next().unwrap_or_default().trim();
        if digits.is_empty() {
            continue;
        }
        match key(digits) {
            Some(key) => keys.push(key),
            None => bail!(Usage(format!(
                "{}, line {number}: this is no public key, which has 64 hexadecimal digits",
                path.display()
            ))),
        }
    }
    if keys.is_empty() {
        bail!(Usage(format!(
            "{}: the file lists no key; write one on each line, as 64 hexadecimal digits",
            path.display()
        )));
    }
    Ok(keys)
}

fn key(digits: &str) -> Option<PublicKey> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(PublicKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let write = |text: String| std::fs::write(&path, text).unwrap();
        write(format!(
            "# ours\n\n{}  # a host\n{}\n",
            "0a".repeat(32),
            "Ff".repeat(32)
        ));
        let found = keys(&path).unwrap();
        assert_eq!(found, [PublicKey([10; 32]), PublicKey([255; 32])]);
        for wrong in [
            "",
            "# none",
            &"0a".repeat(31),
            &"0g".repeat(32),
            &"é".repeat(32),
        ] {
            write(wrong.to_owned());
            assert!(keys(&path).is_err(), "{wrong:?}");
        }
    }
}
