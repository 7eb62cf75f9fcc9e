//! What the program tells of its work on stderr.

use std::env::VarError;
use std::io::IsTerminal;

use anyhow::{Result, bail};
use tracing_subscriber::EnvFilter;

use crate::Usage;

/// Tells what `ODAFS_LOG` asks for, warnings and errors where that is not set; in colour on a terminal alone (and where
/// `NO_COLOR` is not set, which the formatter looks at by itself).
pub fn start() -> Result<()> {
    let filter = match std::env::var("ODAFS_LOG") {
        Ok(text) => filter(&text)?,
        Err(VarError::NotPresent) => filter("")?,
        Err(VarError::NotUnicode(text)) => filter(&text.to_string_lossy())?,
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match std::io::stderr().is_terminal() {
        true => lines.init(),
        false => lines.with_ansi(false).init(),
    }
    Ok(())
}

fn filter(text: &str) -> Result<EnvFilter> {
    match EnvFilter::try_new(if text.is_empty() { "warn" } else { text }) {
        Ok(filter) => Ok(filter),
        Err(error) => bail!(Usage(format!(
            "ODAFS_LOG={text}: {error}; say a level (error, warn, info, debug, trace), or a filter such as odafs_server=debug"
        ))),
    }
}
