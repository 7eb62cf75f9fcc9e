//! Several things to do, where one that fails does not keep the others from being done.

use std::process::ExitCode;

use anyhow::Result;

use crate::{exit_code, is_usage, output};

/// Some failed, and each has been told already.
#[derive(Debug)]
pub struct Told {
    /// What was asked for could not be met in any of those that failed.
    is_usage: bool,
}

impl Told {
    /// How the process ends: with status 2 where all that failed was wrong usage.
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

/// Does it to each, and tells of those that fail as they do; where nothing more can be printed it ends. The error of a
/// single one is handed back.
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
            done => done?,
        }
    }
    match told {
        Some(told) => Err(told.into()),
        None => Ok(()),
    }
}
