//! Several things to do, where one that fails does not keep the others from being done.

use anyhow::Result;

use crate::output;

/// Some failed, and it is told already why: the process ends with status 1.
#[derive(Debug)]
pub struct Told;

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not all of it was done")
    }
}

impl std::error::Error for Told {}

/// Does it to each, and tells of those that fail as they do. The error of a single one is handed back.
pub fn each<T>(things: &[T], mut act: impl FnMut(&T) -> Result<()>) -> Result<()> {
    if let [one] = things {
        return act(one);
    }
    let mut failed = false;
    for thing in things {
        match act(thing) {
            Err(error) if !output::reader_is_gone(&error) => {
                eprintln!("odafs: {}", output::causes(&error));
                failed = true;
            }
            done => done?,
        }
    }
    match failed {
        true => Err(Told.into()),
        false => Ok(()),
    }
}
