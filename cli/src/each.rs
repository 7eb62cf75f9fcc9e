//! Does something to each of several things, and goes on after a failure.

use std::process::ExitCode;

use anyhow::Result;

use crate::{exit_code, is_usage, output};

/// Some failed. Each failure has been printed already.
#[derive(Debug)]
pub struct Told {
    /// All failures were wrong usage.
    is_usage: bool,
}

impl Told {
    /// The exit status: 2 if all failures were wrong usage, else 1.
    pub fn exit_code(&self) -> ExitCode {
        exit_code(self.is_usage)
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not all of it was done")
    }
}

impl std::error::Error for Told {}

/// Calls `act` on each, and prints the failures as they occur. If there is only one thing, its error is returned instead.
/// The loop ends early when stdout can take no more.
pub fn each<T>(things: &[T], mut act: impl FnMut(&T) -> Result<()>) -> Result<()> {
    if let [one] = things {
        return act(one);
    }
    let mut told: Option<Told> = None;
    for thing in things {
        match act(thing) {
            Err(error) if !output::is_over(&error) => {
                eprintln!("odafs: {}", output::causes(&error));
                let others = told.is_none_or(|told| told.is_usage);
                told = Some(Told {
                    is_usage: others && is_usage(&error),
                });
            }
            // The reader of stdout has seen enough, and earlier failures have been printed.
            Err(error) if output::reader_is_gone(&error) && told.is_some() => break,
            done => done?,
        }
    }
    match told {
        Some(told) => Err(told.into()),
        None => Ok(()),
    }
}
