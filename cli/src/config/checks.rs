//! What of the options of `odafs serve` cannot be met, whatever is there.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use odafs_fabric::verbs;
use odafs_server::store::tar;

use super::{DirectName, ServeOptions, SquashName};
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
        for export in &self.export {
            check_export(export.name())?;
        }
        if self.shm_connections == Some(0) {
            bail!(Usage(
                "--shm-connections: at least one is needed".to_owned()
            ));
        }
        Ok(())
    }
}

/// An option that changes nothing where others are as they are.
struct Conditional {
    option: &'static str,
    /// Whether it is said.
    said: fn(&ServeOptions) -> bool,
    /// Whether it changes anything.
    counts: fn(&ServeOptions) -> bool,
    /// What it is for, and what to do.
    remedy: &'static str,
}

const FOR_CALLERS: &str = "it is for callers over TCP and RDMA, and there is only shared memory; leave it out, or name --nfs, --rdma or --verbs";

const fn for_rdma(option: &'static str, said: fn(&ServeOptions) -> bool) -> Conditional {
    Conditional {
        option,
        said,
        counts: ServeOptions::has_rdma,
        remedy: "it is for RDMA, name --rdma or --verbs too, or leave it out",
    }
}

const fn for_shm(option: &'static str, said: fn(&ServeOptions) -> bool) -> Conditional {
    Conditional {
        option,
        said,
        counts: ServeOptions::has_shm,
        remedy: "it is for shared memory, name --shm too, or leave it out",
    }
}

const CONDITIONAL: [Conditional; 12] = [
    Conditional {
        option: "--insecure",
        said: |options| options.insecure,
        counts: |options| matches!(options.squash, Some(SquashName::Root | SquashName::None)),
        remedy: "callers are believed with --squash root or none alone; name one of them, or leave it out",
    },
    Conditional {
        option: "--squash",
        said: |options| options.squash.is_some(),
        counts: ServeOptions::is_on_network,
        remedy: FOR_CALLERS,
    },
    Conditional {
        option: "--allow",
        said: |options| !options.allow.is_empty(),
        counts: ServeOptions::is_on_network,
        remedy: FOR_CALLERS,
    },
    Conditional {
        option: "--portmap",
        said: |options| options.portmap.is_some(),
        counts: |options| options.nfs.is_some() || !options.names_listeners(),
        remedy: "it tells clients where NFS is over TCP, name --nfs too, or leave it out",
    },
    for_rdma("--admit", |options| !options.admit.is_empty()),
    for_shm("--one-sided-for", |options| {
        !options.one_sided_for.is_empty()
    }),
    for_shm("--shm-connections", |options| {
        options.shm_connections.is_some()
    }),
    for_rdma("--credits", |options| options.credits.is_some()),
    for_rdma("--design", |options| options.design.is_some()),
    for_rdma("--registration", |options| options.registration.is_some()),
    for_rdma("--registration-cost", |options| {
        options.registration_cost.is_some()
    }),
    for_rdma("--pinning-cost", |options| options.pinning_cost.is_some()),
];

impl ServeOptions {
    /// The command line's options with the file's for what they leave open. Of those that then change nothing, the
    /// line's are refused; the file's are returned, as what to warn of, since a file may be shared by servers.
    pub fn with_file(self, file: Self) -> Result<(Self, Vec<String>)> {
        let on_line = CONDITIONAL.map(|conditional| (conditional.said)(&self));
        let options = self.or(file);
        let mut warnings = Vec::new();
        for (conditional, on_line) in CONDITIONAL.iter().zip(on_line) {
            if !(conditional.said)(&options) || (conditional.counts)(&options) {
                continue;
            }
            let text = format!("{}: {}", conditional.option, conditional.remedy);
            match on_line {
                true => bail!(Usage(text)),
                false => warnings.push(text),
            }
        }
        Ok((options, warnings))
    }

    fn has_rdma(&self) -> bool {
        self.rdma.is_some() || self.verbs.is_some() || !self.names_listeners()
    }

    fn has_shm(&self) -> bool {
        self.shm.is_some() || !self.names_listeners()
    }

    fn is_on_network(&self) -> bool {
        self.nfs.is_some() || self.has_rdma()
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

/// A directory or an archive; what is missing, closed or neither is told before anything is opened.
pub fn check_served(path: &Path) -> Result<()> {
    let served = || format!("cannot serve {}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {
            let archive = File::open(path)
                .with_context(|| format!("{}: may this user read it?", served()))?;
            tar::check_compression(&archive, path).with_context(served)
        }
        Ok(found) if !found.is_dir() => {
            bail!("{}: it is neither a directory nor a tar archive", served())
        }
        _ => check_directory(path),
    }
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
