//! The log on stderr.

use std::env::VarError;
use std::io::IsTerminal;

use anyhow::{Result, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::Usage;

/// Starts the log with the filter in `ODAFS_LOG`, or with warnings and errors if that is not set. It has colours only on a
/// terminal, and only if `NO_COLOR` is not set (the formatter checks that itself).
pub fn start() -> Result<()> {
    let filter = match std::env::var("ODAFS_LOG") {
        Ok(text) => filter(&text)?,
        Err(VarError::NotPresent) => filter("")?,
        Err(VarError::NotUnicode(text)) => {
            bail!(wrong(&text.to_string_lossy(), "not UTF-8"))
        }
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

fn wrong(text: &str, why: &str) -> Usage {
    Usage(format!(
        "ODAFS_LOG={text}: {why}; give a level (off, error, warn, info, debug, trace), or a filter such as odafs_server=debug"
    ))
}

fn filter(text: &str) -> Result<EnvFilter> {
    let text = text.trim();
    // The filter would take a single word that is no level for the name of a crate, and silence all others.
    let is_word = text.chars().all(|c| c.is_ascii_alphanumeric());
    // Brackets enclose spans and their values, which may contain anything.
    let targets = text.split(['[', '{']).next().unwrap_or(text);
    match text {
        "" => Ok(EnvFilter::new("warn")),
        _ if is_word && text.parse::<LevelFilter>().is_err() && text != "odafs" => bail!(wrong(
            text,
            &format!("not a level (to name a part of the program, write {text}=trace)")
        )),
        // No crate has a hyphen in its name here, so such a filter would silence all of them.
        _ if targets.contains('-') => {
            bail!(wrong(text, "names have underscores instead of hyphens"))
        }
        _ => EnvFilter::try_new(text).map_err(|error| wrong(text, &error.to_string()).into()),
    }
}
