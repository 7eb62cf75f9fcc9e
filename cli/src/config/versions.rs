//! The versions of NFS that are served.

use std::str::FromStr;

use anyhow::{Result, bail};
use clap::ValueEnum;
use odafs_server::config::MinorVersions;
use serde::Deserialize;

use crate::Usage;

/// A value of `--nfs2`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Nfs2 {
    /// RFC 1094, with MOUNT versions 1 and 2
    On,
    /// Version 3 and minor versions of 4 alone
    Off,
}

/// A value of `--nfs4`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Nfs4Version {
    /// RFC 7530
    #[value(name = "4.0")]
    Minor0,
    /// RFC 8881
    #[value(name = "4.1")]
    Minor1,
    /// RFC 7862
    #[value(name = "4.2")]
    Minor2,
    /// Version 3 only
    Off,
}

impl FromStr for Nfs4Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ValueEnum::from_str(text, false)
            .map_err(|_| format!("{text:?} is not 4.0, 4.1, 4.2 or off"))
    }
}

impl Nfs4Version {
    pub(super) fn all_of(named: &[Self]) -> Result<MinorVersions> {
        if named.contains(&Self::Off) && named.len() > 1 {
            bail!(Usage(
                "--nfs4: off excludes every version; name either versions or off".to_owned()
            ));
        }
        Ok(named
            .iter()
            .fold(MinorVersions::NONE, |all, version| match version {
                Self::Minor0 => all.with(0),
                Self::Minor1 => all.with(1),
                Self::Minor2 => all.with(2),
                Self::Off => all,
            }))
    }
}
