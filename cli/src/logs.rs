//! What the program tells of its work on stderr.

use std::env::VarError;
use std::io::IsTerminal;

use anyhow::{Result, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

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
    let wrong = |why: &str| {
        Usage(format!(
            "ODAFS_LOG={text}: {why}; say a level (error, warn, info, debug, trace), or a filter such as odafs_server=debug"
        ))
    };
    // One word that is no level would be taken for a place in the program, and silence all others.
    let is_word = text.chars().all(|c| c.is_ascii_alphanumeric());
    match text {
        "" => Ok(EnvFilter::new("warn")),
        _ if is_word && text.parse::<LevelFilter>().is_err() && text != "odafs" => {
            bail!(wrong("that is no level"))
        }
        _ => EnvFilter::try_new(text).map_err(|error| wrong(&error.to_string()).into()),
    }
}
