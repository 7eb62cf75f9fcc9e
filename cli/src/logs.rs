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
        Err(VarError::NotUnicode(text)) => {
            bail!(wrong(&text.to_string_lossy(), "that is no UTF-8"))
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
        "ODAFS_LOG={text}: {why}; say a level (off, error, warn, info, debug, trace), or a filter such as odafs_server=debug"
    ))
}

fn filter(text: &str) -> Result<EnvFilter> {
    let text = text.trim();
    // One word that is no level would be taken for a part of the program, and silence all others.
    let is_word = text.chars().all(|c| c.is_ascii_alphanumeric());
    // What stands in brackets are spans and their values, which may be anything.
    let targets = text.split(['[', '{']).next().unwrap_or(text);
    match text {
        "" => Ok(EnvFilter::new("warn")),
        _ if is_word && text.parse::<LevelFilter>().is_err() && text != "odafs" => bail!(wrong(
            text,
            &format!("that is no level (for a part of the program: {text}=trace)")
        )),
        // No part of a program has a hyphen in its name: it would silence all of them.
        _ if targets.contains('-') => {
            bail!(wrong(text, "names have underscores in place of hyphens"))
        }
        _ => EnvFilter::try_new(text).map_err(|error| wrong(text, &error.to_string()).into()),
    }
}
