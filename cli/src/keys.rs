//! Keys of clients and servers, from files.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use odafs::Options;
use odafs_common::session::PublicKey;

use crate::Usage;

/// The keys of a session with a server on another machine.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyArguments {
    /// Our secret key, for a server that admits clients by key (`odafs identity` makes one); it needs --server-key
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// The server's public key, a copy of identity.pub in its state directory: if the server has another one, everything
    /// goes by RPC
    #[arg(long, value_name = "FILE")]
    pub server_key: Option<PathBuf>,
}

impl KeyArguments {
    /// Adds the keys to a client's options.
    pub fn give(&self, options: Options) -> Result<Options> {
        if self.identity.is_some() && self.server_key.is_none() {
            bail!(Usage(
                "--identity: name the server's public key too, with --server-key: no other server may see who we are"
                    .to_owned()
            ));
        }
        let server_key = self.server_key.as_deref().map(server_key);
        Ok(Options {
            identity: self.identity.as_deref().map(identity).transpose()?,
            server_key: server_key.transpose()?,
            ..options
        })
    }
}

/// The secret key in a file.
pub fn identity(path: &Path) -> Result<[u8; 32]> {
    let shown = path.display();
    let mut text = String::new();
    let mode = std::fs::File::open(path).and_then(|mut file| {
        file.read_to_string(&mut text)?;
        Ok(file.metadata()?.mode())
    });
    let mode = mode.with_context(|| format!("cannot read the key file {shown}"))?;
    if mode & 0o007 != 0 {
        bail!(
            "{shown}: all users of this machine may read this secret key, or change it: chmod 600 {shown}"
        );
    }
    match key(text.trim()) {
        Some(key) => Ok(key),
        None => bail!(Usage(format!(
            "{shown}: this is no secret key, which has 64 hexadecimal digits (`odafs identity FILE` makes one)"
        ))),
    }
}

/// The only public key in a file.
fn server_key(path: &Path) -> Result<[u8; 32]> {
    match keys(path)?.as_slice() {
        [PublicKey(key)] => Ok(*key),
        _ => bail!(Usage(format!(
            "{}: the file lists several keys; a server has one",
            path.display()
        ))),
    }
}

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
            Some(key) => keys.push(PublicKey(key)),
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

fn key(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_keys() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String, mode| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Some(path)
        };
        let secret = file("secret", "0a".repeat(32) + "\n", 0o640);
        let public = file("public", "0b".repeat(32) + "\n", 0o644);
        let give = |identity: &Option<PathBuf>, server_key: &Option<PathBuf>| {
            let (identity, server_key) = (identity.clone(), server_key.clone());
            let arguments = KeyArguments {
                identity,
                server_key,
            };
            arguments.give(Options::default())
        };
        let options = give(&secret, &public).unwrap();
        assert_eq!(options.identity, Some([10; 32]));
        assert_eq!(options.server_key, Some([11; 32]));
        assert_eq!(give(&None, &public).unwrap().server_key, Some([11; 32]));
        assert_eq!(give(&None, &None).unwrap().identity, None);
        let said = |wrong: Result<Options>| wrong.unwrap_err().to_string();
        assert!(said(give(&secret, &None)).contains("--server-key"));
        assert!(said(give(&public, &public)).contains("chmod 600"));
        let cut = file("cut", "0a".repeat(31), 0o600);
        assert!(said(give(&cut, &public)).contains("no secret key"));
        let two = file("two", ("0b".repeat(32) + "\n").repeat(2), 0o644);
        assert!(said(give(&secret, &two)).contains("several keys"));
        let none = Some(directory.path().join("none"));
        assert!(said(give(&none, &public)).contains("cannot read"));
    }

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
