//! Checks of the options of `odafs serve` before anything is opened.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use odafs_fabric::verbs;
use odafs_server::config::{ExportOptions, ServerConfig, Squash};
use odafs_server::store::tar;

use super::exports::Exported;
use super::{DirectName, Nfs4Version, ServeOptions, Shm, SquashName};
use crate::Usage;

impl ServeOptions {
    /// Refuses options that can never work.
    pub(super) fn check(&self) -> Result<()> {
        if self.verbs.is_some() && !verbs::BUILT_IN {
            bail!(Usage(format!("--verbs: {}", verbs::NOT_BUILT_IN)));
        }
        for (given, option) in [
            (self.odp(), "--odp"),
            (self.read_order.is_some(), "--read-order"),
        ] {
            if given && self.verbs.is_none() {
                bail!(Usage(format!(
                    "{option}: this option is for RDMA devices; add --verbs ADDR:PORT, or leave the option out"
                )));
            }
        }
        if !self.one_sided_for.is_empty()
            && matches!(self.direct, Some(DirectName::Guarded | DirectName::Off))
        {
            bail!(Usage(
                "--one-sided-for: --direct guarded and --direct off grant no one-sided reads; leave out one of the two options".to_owned()
            ));
        }
        for export in &self.export {
            check_export(export.name())?;
            if let Exported::Directory(options) = export {
                self.check_rights(options)?;
            }
        }
        if self.shm_connections == Some(0) {
            bail!(Usage("--shm-connections: must be 1 or more".to_owned()));
        }
        Ok(())
    }
}

impl ServeOptions {
    /// Refuses options of an export that change nothing, or shut everybody out.
    fn check_rights(&self, export: &ExportOptions) -> Result<()> {
        let name = &export.name;
        let squash = export.squash.or(self.squash.map(Squash::from));
        if export.insecure && squash.unwrap_or_default() == Squash::All {
            bail!(Usage(format!(
                "--export {name}=...,insecure: callers keep their ids only with squash=root or squash=none; name one of these, or leave insecure out"
            )));
        }
        if export.no_loopback && export.allow.as_ref().is_some_and(Vec::is_empty) {
            bail!(Usage(format!(
                "--export {name}=...,allow=no-loopback: this admits nobody over TCP and RDMA; name a network with allow= too"
            )));
        }
        Ok(())
    }
}

/// An option that has an effect only together with others.
struct Conditional {
    option: &'static str,
    /// Whether it is given.
    said: fn(&ServeOptions) -> bool,
    /// Whether it has an effect.
    counts: fn(&ServeOptions) -> bool,
    /// What it is for, and what to do.
    remedy: &'static str,
}

const FOR_CALLERS: &str = "meant for callers over TCP and RDMA, but only shared memory is served; leave it out, or name --nfs, --rdma or --verbs too";

const fn for_rdma(option: &'static str, said: fn(&ServeOptions) -> bool) -> Conditional {
    Conditional {
        option,
        said,
        counts: ServeOptions::has_rdma,
        remedy: "this option is for RDMA; name --rdma or --verbs too, or leave it out",
    }
}

const fn for_shm(option: &'static str, said: fn(&ServeOptions) -> bool) -> Conditional {
    Conditional {
        option,
        said,
        counts: ServeOptions::has_shm,
        remedy: "this option is for shared memory; name --shm too, or leave it out",
    }
}

/// An option of NFS version 4, which programs on shared memory do not speak.
const fn for_nfs4(option: &'static str, said: fn(&ServeOptions) -> bool) -> Conditional {
    Conditional {
        option,
        said,
        counts: |options| options.is_on_network() && options.has_nfs4(),
        remedy: "this option is for NFS version 4 over TCP and RDMA, which is not served; leave it out, or name --nfs, --rdma or --verbs, without --nfs4 off",
    }
}

const CONDITIONAL: [Conditional; 20] = [
    Conditional {
        option: "--insecure",
        said: |options| options.insecure(),
        counts: |options| {
            let keeps = matches!(options.squash, Some(SquashName::Root | SquashName::None));
            keeps || options.export.iter().any(Exported::keeps_ids)
        },
        remedy: "callers keep their ids only with --squash root or none; name one of these, or leave --insecure out",
    },
    Conditional {
        option: "--squash",
        said: |options| options.squash.is_some(),
        counts: ServeOptions::is_on_network,
        remedy: FOR_CALLERS,
    },
    Conditional {
        option: "--anonuid and --anongid",
        said: |options| options.anonuid.or(options.anongid).is_some(),
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
        option: "--export /NAME=DIR with allow=, squash=, anonuid=, anongid= or insecure",
        said: |options| options.export.iter().any(Exported::has_rights),
        counts: ServeOptions::is_on_network,
        remedy: FOR_CALLERS,
    },
    Conditional {
        option: "--nfs2",
        said: |options| options.nfs2.is_some(),
        counts: ServeOptions::is_on_network,
        remedy: FOR_CALLERS,
    },
    Conditional {
        option: "--nfs4",
        said: |options| !options.nfs4.is_empty(),
        counts: ServeOptions::is_on_network,
        remedy: FOR_CALLERS,
    },
    // Locks of version 3 are reclaimed for as long, too.
    Conditional {
        option: "--lease",
        said: |options| options.lease.is_some(),
        counts: ServeOptions::is_on_network,
        remedy: FOR_CALLERS,
    },
    for_nfs4("--idmap", |options| options.idmap.is_some()),
    for_nfs4("--idmap-domain", |options| options.idmap_domain.is_some()),
    Conditional {
        option: "--portmap",
        said: |options| options.portmap.is_some(),
        counts: |options| options.nfs.is_some() || !options.names_listeners(),
        remedy: "it tells clients where NFS over TCP is; name --nfs too, or leave it out",
    },
    for_rdma("--admit", |options| !options.admit.is_empty()),
    for_shm("--one-sided-for", |options| {
        !options.one_sided_for.is_empty()
    }),
    Conditional {
        option: "--one-sided-for",
        said: |options| !options.one_sided_for.is_empty(),
        counts: |options| !options.has_shm() || rustix::process::geteuid().is_root(),
        remedy: "programs accept one-sided reads only from a server of root or of their own user; serve as root, or leave it out",
    },
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
    /// The command line's options, and the file's where the command line has none. An option without effect is an error
    /// if it is on the command line. If it is in the file, which several servers may share, it is returned as a warning.
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
        match self.shm {
            Some(Shm::Off) => false,
            Some(Shm::Default | Shm::At(_)) => true,
            None => !self.names_listeners(),
        }
    }

    fn has_nfs4(&self) -> bool {
        !self.nfs4.contains(&Nfs4Version::Off)
    }

    fn is_on_network(&self) -> bool {
        self.nfs.is_some() || self.has_rdma()
    }
}

/// Tells of listeners for other machines where no other machine is admitted.
pub fn without_admission(config: &ServerConfig) -> Option<String> {
    let admits =
        |export: &ExportOptions| !export.allow.as_ref().unwrap_or(&config.allow).is_empty();
    let admits_some = match config.exports.is_empty() {
        true => !config.allow.is_empty(),
        false => config.exports.iter().any(admits),
    };
    if admits_some {
        return None;
    }
    let listeners = [
        ("--nfs", config.nfs),
        ("--rdma", config.rdma),
        ("--verbs", config.verbs),
    ];
    let beyond = listeners.into_iter().filter_map(|(option, address)| {
        let address = address.filter(|address| !address.ip().to_canonical().is_loopback())?;
        Some(format!("{option} {address}"))
    });
    let beyond: Vec<_> = beyond.collect();
    match beyond.is_empty() {
        true => None,
        false => Some(format!(
            "{}: other machines reach this address, but only loopback is admitted; name their network with --allow, as in \
             --allow 10.0.0.0/8",
            beyond.join(" and ")
        )),
    }
}

/// Clients look an export up component by component, and none of them asks for `.` or `..`.
fn check_export(export: &str) -> Result<()> {
    if !export.starts_with('/') {
        bail!(Usage(format!(
            "--export {export}: the name of an export begins with a slash: --export /{export}"
        )));
    }
    if export.split('/').any(|name| name == "." || name == "..") {
        bail!(Usage(format!(
            "--export {export}: `.` and `..` cannot be part of the name; leave them out"
        )));
    }
    Ok(())
}

/// The longest path of a socket that the system accepts, in bytes.
const SOCKET_PATH_MAX: usize = 107;

/// Refuses a path that is too long for a socket.
pub fn check_socket(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_MAX {
        bail!(Usage(format!(
            "--shm: the path of a socket has at most {SOCKET_PATH_MAX} bytes, but {} has {bytes}; name a shorter one",
            path.display()
        )));
    }
    Ok(())
}

/// Refuses a path that is missing, that this user may not read, or that is neither a directory nor an archive.
pub fn check_served(path: &Path) -> Result<()> {
    let served = || format!("cannot serve {}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {
            let archive = File::open(path)
                .with_context(|| format!("{}: this user may not read it", served()))?;
            tar::check_compression(&archive, path).with_context(served)
        }
        Ok(found) if !found.is_dir() => {
            bail!("{}: it is neither a directory nor a tar archive", served())
        }
        _ => check_directory(path),
    }
}

/// Refuses a directory that is missing or that this user may not read.
pub fn check_directory(dir: &Path) -> Result<()> {
    let metadata = match std::fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "cannot serve {}: there is no such directory; create it, or name another",
            dir.display()
        ),
        found => found.with_context(|| format!("cannot serve {}", dir.display()))?,
    };
    if !metadata.is_dir() {
        bail!("cannot serve {}: it is not a directory", dir.display());
    }
    std::fs::read_dir(dir)
        .with_context(|| format!("cannot serve {}: this user may not read it", dir.display()))?;
    Ok(())
}
