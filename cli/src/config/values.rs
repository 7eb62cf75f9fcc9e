//! The values of options of `odafs serve` that are words.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::ValueEnum;
use clap::builder::{OsStringValueParser, TypedValueParser};
use ipnet::IpNet;
use odafs_server::config::{Credits, Direct, MinorVersions, Squash, Strategy};
use serde::Deserialize;

use crate::Usage;

/// A value of `--allow`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allow {
    Network(IpNet),
    NoLoopback,
}

impl Allow {
    pub fn network(&self) -> Option<IpNet> {
        match self {
            Self::Network(network) => Some(*network),
            Self::NoLoopback => None,
        }
    }
}

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "no-loopback" {
            return Ok(Self::NoLoopback);
        }
        let network = text
            .parse()
            .or_else(|_| text.parse().map(|address: IpAddr| address.into()));
        network
            .map(Self::Network)
            .map_err(|_| "give a network such as 10.0.0.0/8, an address, or no-loopback".to_owned())
    }
}

/// A value of `--shm`.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Shm {
    /// Not served, though it is among the defaults. A file can say so.
    Off,
    /// Through the default socket.
    Default,
    /// Through this socket.
    At(PathBuf),
}

impl Shm {
    /// What stands for the default socket: no argument of a program can contain this byte.
    pub const NO_VALUE: &str = "\0";

    /// Parses the value of the command line.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|value| match value.as_os_str() {
            none if none == Self::NO_VALUE => Ok(Self::Default),
            empty if empty.is_empty() => Err("name a socket, or leave the value out"),
            socket => Ok(Self::At(socket.into())),
        })
    }

    /// The socket, if it is named.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::At(socket) => Some(socket),
            Self::Off | Self::Default => None,
        }
    }
}

/// A value of `--nfs2`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
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
    pub fn all_of(named: &[Self]) -> Result<MinorVersions> {
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

#[derive(Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SquashName {
    /// Every caller acts as the user that runs the server, or as nobody if that is root
    All,
    /// Callers keep their ids, but root acts as nobody
    Root,
    /// Callers keep their ids, root too
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum IdmapName {
    /// As numbers, which is what Linux' server does for AUTH_SYS callers
    Numeric,
    /// As names, if this host knows one; as numbers otherwise
    Names,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DirectName {
    /// One-sided on this machine for root and the user that runs the server, who may read the files anyway; guarded for
    /// all others
    Auto,
    /// The server's engine checks every request and moves the data
    Guarded,
    /// As auto, and one-sided for all admitted clients of other machines: they read the whole cache's memory
    OneSided,
    /// No direct reads, only calls
    Off,
}

impl From<SquashName> for Squash {
    fn from(name: SquashName) -> Self {
        match name {
            SquashName::All => Self::All,
            SquashName::Root => Self::Root,
            SquashName::None => Self::None,
        }
    }
}

impl From<DirectName> for Direct {
    fn from(name: DirectName) -> Self {
        match name {
            DirectName::Auto => Self::Auto,
            DirectName::Guarded => Self::Guarded,
            DirectName::OneSided => Self::OneSided,
            DirectName::Off => Self::Off,
        }
    }
}

impl From<RegistrationName> for Strategy {
    fn from(name: RegistrationName) -> Self {
        match name {
            RegistrationName::PerOperation => Self::PerOperation,
            RegistrationName::Pooled => Self::Pooled,
            RegistrationName::Cached => Self::Cached,
            RegistrationName::AllPhysical => Self::AllPhysical,
        }
    }
}

/// Adaptive credits: for all clients together, and at most for one.
const ADAPTIVE: Credits = Credits::Adaptive {
    all: 1024,
    max: 256,
};
/// The most credits that a client may have.
const CREDITS_MAX: u32 = 1024;

/// A number, or `adaptive`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CreditsOption(pub Credits);

impl FromStr for CreditsOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "adaptive" {
            return Ok(Self(ADAPTIVE));
        }
        match text.parse() {
            Ok(credits @ 1..=CREDITS_MAX) => Ok(Self(Credits::Fixed(credits))),
            _ => Err(format!(
                "give a number from 1 to {CREDITS_MAX}, or adaptive"
            )),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DesignName {
    /// The server reads and writes the client's memory, and exposes none of its own
    ReadWrite,
    /// Clients that support it fetch replies from the server's memory, and tell the server when they have them
    ReadRead,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReadOrderName {
    /// No order: clients ask for a page's stamp after they have the page
    Fence,
    /// From front to back within a read: clients read a page and the stamp behind it at once
    Rising,
    /// As rising, and reads in the order of their posts: clients ask for page and stamp together
    Ordered,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RegistrationName {
    /// Memory that is registered for each call
    PerOperation,
    /// Memory that is registered once, and gets a fresh tag for each call
    Pooled,
    /// Memory that is registered once and used again
    Cached,
    /// Free frames of the page cache, which are registered with it
    AllPhysical,
}
