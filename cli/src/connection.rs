//! From URLs on the command line to connected clients.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use odafs::{CallError, Client, ConnectError, Metadata, Options, Route, Url};

use crate::keys::KeyArguments;
use crate::units;

/// Options of every command that talks to a server.
#[derive(Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArguments {
    /// How long to wait for the answer to a call; a bare number is seconds
    #[arg(long, value_parser = units::deadline, default_value = "30s", value_name = "TIME")]
    deadline: Duration,
    #[command(flatten)]
    keys: KeyArguments,
}

/// The routes, by name.
#[derive(Clone, Copy, ValueEnum)]
pub enum RouteName {
    /// Directly where that is faster, else by RPC
    Policy,
    /// By RPC only
    Rpc,
    /// Directly: the server's engine checks each request and moves the data
    Guarded,
    /// Directly: the client copies the data from the server's memory, then checks it
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
    pub fn options(&self) -> Result<Options> {
        self.keys.give(Options {
            deadline: self.deadline,
            ..Options::default()
        })
    }
}

/// Options of the commands that read files.
#[derive(Args)]
#[command(next_help_heading = "Connection")]
pub struct ReadArguments {
    /// How to read
    #[arg(long, value_enum, default_value = "policy", value_name = "ROUTE")]
    route: RouteName,
    #[command(flatten)]
    connection: ConnectionArguments,
}

impl ReadArguments {
    /// The client's options.
    pub fn options(&self) -> Result<Options> {
        Ok(Options {
            route: self.route.into(),
            ..self.connection.options()?
        })
    }

    /// Whether the caller asked for a direct route.
    pub fn is_direct(&self) -> bool {
        matches!(self.route, RouteName::Guarded | RouteName::OneSided)
    }
}

/// Parses a URL for clap.
pub fn url(text: &str) -> Result<Url, String> {
    text.parse::<Url>().map_err(|error| error.why.to_owned())
}

/// The path that a URL names.
pub fn path(url: &Url) -> PathBuf {
    PathBuf::from(OsString::from_vec(url.path.clone()))
}

/// Whether a path ends in a slash: then it names a directory or nothing.
pub fn wants_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

/// A path without the slash at its end.
pub fn without_slash(path: &Path) -> PathBuf {
    match path.file_name() {
        Some(name) => path.with_file_name(name),
        None => path.to_owned(),
    }
}

fn shown(path: &Path) -> String {
    without_slash(path).display().to_string()
}

/// Whether both are one file, whatever their paths are.
pub fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.filesystem_id, one.file_id) == (other.filesystem_id, other.file_id)
}

/// Fails unless `path` is a directory, or a symbolic link to one.
pub fn check_directory(client: &Client, path: &Path) -> Result<()> {
    match client.stat(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => bail!("{} is not a directory", shown(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no directory {}", shown(path))
        }
        Err(error) => Err(error.into()),
    }
}

/// Fails unless the directory in which `path` is or would be exists.
pub fn check_parent(client: &Client, path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => check_directory(client, parent),
        None => Ok(()),
    }
}

/// The metadata of what a command removes or renames. Symbolic links are not followed. A path that ends in a slash must
/// be a directory, not a symbolic link to one. Errors name the operation `verb`.
pub fn stat_itself(client: &Client, path: &Path, verb: &'static str) -> Result<Metadata> {
    let found = match client.stat_link(path) {
        Err(error) if wants_directory(path) && error.kind() == ErrorKind::NotFound => {
            bail!("there is no directory {}", shown(path))
        }
        found => found.map_err(|error| error.about(verb, path))?,
    };
    if wants_directory(path) && found.is_symlink() {
        bail!("{} is not a directory, but a symbolic link", shown(path));
    }
    if wants_directory(path) && !found.is_dir() {
        bail!("{} is not a directory", shown(path));
    }
    Ok(found)
}

/// The clients of one command: one for each server and export.
pub struct Clients {
    options: Options,
    connected: Vec<(Url, Client)>,
    /// URLs whose servers did not answer. Another attempt would again take the whole deadline.
    unreachable: Vec<Url>,
}

impl Clients {
    /// None connected yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            connected: Vec::new(),
            unreachable: Vec::new(),
        }
    }

    /// The client for a URL, and the path to ask it for. A path that ends in a slash is checked to be a directory.
    pub fn at(&mut self, url: &Url) -> Result<(Client, PathBuf)> {
        let (client, path) = self.to(url)?;
        if wants_directory(&path) {
            check_directory(&client, &path)?;
        }
        Ok((client, path))
    }

    /// As [`at`](Self::at), without the check.
    pub fn to(&mut self, url: &Url) -> Result<(Client, PathBuf)> {
        let known = self.connected.iter().find(|(other, client)| {
            is_same_server(other, url) && inside(&client.server().export, &url.path)
        });
        if let Some((_, client)) = known {
            return Ok((client.clone(), path(url)));
        }
        if self
            .unreachable
            .iter()
            .any(|other| is_same_server(other, url))
        {
            bail!("{url}: not tried, because its server did not answer before");
        }
        let client = match Client::connect_with(url, self.options.clone()) {
            Ok(client) => client,
            Err(error) => {
                if is_unreachable(&error) {
                    self.unreachable.push(url.clone());
                }
                return Err(anyhow!(error));
            }
        };
        self.connected.push((url.clone(), client.clone()));
        Ok((client, path(url)))
    }
}

fn is_same_server(one: &Url, other: &Url) -> bool {
    (&one.server, one.mount_port, one.crc) == (&other.server, other.mount_port, other.crc)
}

/// Whether a server did not answer. A server that refused one path may still accept another.
fn is_unreachable(error: &ConnectError) -> bool {
    use CallError::{Lost, Silent, TimedOut};
    matches!(
        error,
        ConnectError::Unreachable { .. }
            | ConnectError::Call(TimedOut { .. } | Lost { .. } | Silent { .. })
    )
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
