//! What of the options of `odafs serve` cannot be met, whatever is there.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use odafs_fabric::verbs;

use super::{DirectName, ServeOptions};
use crate::Usage;

impl ServeOptions {
    /// Refuses what cannot be met whatever is there.
    pub(super) fn check(&self) -> Result<()> {
        if self.verbs.is_some() && !verbs::BUILT_IN {
            bail!(Usage(format!("--verbs: {}", verbs::NOT_BUILT_IN)));
        }
        for (given, option) in [
            (self.odp, "--odp"),
            (self.read_order.is_some(), "--read-order"),
        ] {
            if given && self.verbs.is_none() {
                bail!(Usage(format!(
                    "{option}: it is for an RDMA device, name one with --verbs"
                )));
            }
        }
        if !self.one_sided_for.is_empty()
            && matches!(self.direct, Some(DirectName::Guarded | DirectName::Off))
        {
            bail!(Usage(
                "--one-sided-for: nobody reads the cache's memory with that --direct; leave one of them out".to_owned()
            ));
        }
        if let Some(export) = &self.export {
            check_export(export)?;
        }
        if self.shm_connections == Some(0) {
            bail!(Usage(
                "--shm-connections: at least one is needed".to_owned()
            ));
        }
        Ok(())
    }
}

/// Clients look for it component by component, and none of them asks for these two.
fn check_export(export: &str) -> Result<()> {
    if !export.starts_with('/') {
        bail!(Usage(format!(
            "--export {export}: the name begins with a slash: /{export}"
        )));
    }
    if export.split('/').any(|name| name == "." || name == "..") {
        bail!(Usage(format!(
            "--export {export}: `.` and `..` are no names; leave them out"
        )));
    }
    Ok(())
}

/// The longest path that the system takes for a socket.
const SOCKET_PATH_MAX: usize = 107;

/// A socket whose path is too long can be made nowhere.
pub fn check_socket(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_MAX {
        bail!(Usage(format!(
            "--shm: a socket's path takes at most {SOCKET_PATH_MAX} bytes, {} has {bytes}; name a shorter one",
            path.display()
        )));
    }
    Ok(())
}

/// A directory that is missing or closed is told before anything is opened.
pub fn check_directory(dir: &Path) -> Result<()> {
    let metadata = match std::fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "cannot serve {}: there is no such directory; make it, or name another",
            dir.display()
        ),
        found => found.with_context(|| format!("cannot serve {}", dir.display()))?,
    };
    if !metadata.is_dir() {
        bail!("cannot serve {}: it is not a directory", dir.display());
    }
    std::fs::read_dir(dir)
        .with_context(|| format!("cannot serve {}: may this user read it?", dir.display()))?;
    Ok(())
}
