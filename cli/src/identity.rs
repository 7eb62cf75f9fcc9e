//! `odafs identity`: a client's key, for servers that admit clients by key.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::{keys, output};

/// Print the public key by which servers admit this client, and make its secret key at first
#[derive(Args)]
#[command(after_help = "Examples:
  odafs identity ~/.config/odafs.key
      print the line for the server's key file (`odafs serve --admit KEYFILE`)
  odafs ls --identity ~/.config/odafs.key --server-key server.pub odafs://192.0.2.1/
      use it; server.pub is a copy of identity.pub in the server's state directory")]
pub struct Arguments {
    /// The secret key; keep it from others
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let file = &arguments.file;
    make(file).with_context(|| format!("cannot make {}", file.display()))?;
    let public = odafs::public_key(&keys::identity(file)?);
    output::text(&format!("{}\n", hex(&public)))
}

/// Makes a key, if there is no such file.
fn make(file: &Path) -> std::io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    let mut made = match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    };
    let mut key = [0; 32];
    odafs_fabric::entropy::fill(&mut key);
    let written = writeln!(made, "{}", hex(&key)).and_then(|()| made.sync_all());
    if written.is_err() {
        // Half a key is none. If it stays, the next run says what is wrong with it.
        let _ = std::fs::remove_file(file);
    }
    written
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        make(&file).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        let key = keys::identity(&file).unwrap();
        make(&file).unwrap();
        assert_eq!(keys::identity(&file).unwrap(), key);
        make(&directory.path().join("other")).unwrap();
        let other = keys::identity(&directory.path().join("other")).unwrap();
        assert_ne!(other, key);
    }
}
