//! From URLs on the command line to connected clients.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use odafs::{Client, Options, Route, Url};

use crate::units;

/// Options of every command that talks to a server.
#[derive(Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArguments {
    /// How reads travel
    #[arg(long, value_enum, default_value = "policy", value_name = "ROUTE")]
    route: RouteName,
    /// Give a call up after this long
    #[arg(long, value_parser = units::duration, default_value = "30s", value_name = "TIME")]
    deadline: Duration,
}

/// The routes by name.
#[derive(Clone, Copy, ValueEnum)]
pub enum RouteName {
    /// Direct where it pays
    Policy,
    /// Calls only
    Rpc,
    /// The server's engine checks and moves the data
    Guarded,
    /// The client moves the data and checks
    OneSided,
}

impl From<RouteName> for Route {
    fn from(name: RouteName) -> Self {
        match name {
            RouteName::Policy => Self::Policy,
            RouteName::Rpc => Self::Rpc,
            RouteName::Guarded => Self::Guarded,
            RouteName::OneSided => Self::OneSided,
        }
    }
}

impl ConnectionArguments {
    /// The client's options.
    pub fn options(&self) -> Options {
        Options {
            route: self.route.into(),
            deadline: self.deadline,
            ..Options::default()
        }
    }
}

impl ConnectionArguments {
    /// Whether reads were asked to be direct.
    pub fn is_direct(&self) -> bool {
        matches!(self.route, RouteName::Guarded | RouteName::OneSided)
    }
}

/// Parses a URL, as clap wants it.
pub fn url(text: &str) -> Result<Url, String> {
    text.parse::<Url>().map_err(|error| error.why.to_owned())
}

/// The path that a URL names.
pub fn path(url: &Url) -> PathBuf {
    PathBuf::from(OsString::from_vec(url.path.clone()))
}

/// Clients for the URLs of one command, one for each server and export.
pub struct Clients {
    options: Options,
    connected: Vec<(Url, Client)>,
}

impl Clients {
    /// None connected yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            connected: Vec::new(),
        }
    }

    /// The client for a URL, and the path to ask it for.
    pub fn at(&mut self, url: &Url) -> Result<(Client, PathBuf)> {
        let known = self.connected.iter().find(|(other, client)| {
            (&other.server, other.mount_port, other.crc) == (&url.server, url.mount_port, url.crc)
                && inside(&client.server().export, &url.path)
        });
        if let Some((_, client)) = known {
            return Ok((client.clone(), path(url)));
        }
        let client =
            Client::connect_with(url, self.options.clone()).map_err(|error| anyhow!(error))?;
        self.connected.push((url.clone(), client.clone()));
        Ok((client, path(url)))
    }
}

fn inside(export: &str, path: &[u8]) -> bool {
    let export = export.trim_end_matches('/').as_bytes();
    path.strip_prefix(export)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::inside;

    #[test]
    fn paths_of_exports() {
        assert!(inside("/", b"/a/b"));
        assert!(inside("/data", b"/data"));
        assert!(inside("/data", b"/data/x"));
        assert!(!inside("/data", b"/database/x"));
    }
}
