//! What goes to stdout and stderr: tables, JSON, progress.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use odafs_bench::table::Table;
use odafs_fabric::entropy;
use serde::Serialize;

use crate::unfinished::Unfinished;

/// Prints `value` as JSON, indented.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// As [`json`], of what there is of several; nothing where the one that was asked for failed.
pub fn json_of_some<T: Serialize>(values: &[T], all: &Result<()>) -> Result<()> {
    match values.is_empty() && all.is_err() {
        true => Ok(()),
        false => json(&values),
    }
}

/// Prints a table.
pub fn table(table: &Table) -> Result<()> {
    text(&table.render())
}

/// Prints text as it is.
pub fn text(text: &str) -> Result<()> {
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Whether it failed because whoever read our output has had enough of it
/// (`odafs cat URL | head`), which is no failure.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(|e| e.io_error_kind());
        json.or(cause.downcast_ref::<io::Error>().map(io::Error::kind))
    };
    error
        .chain()
        .any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe) && !is_ours(cause))
}

/// A broken pipe of a connection to a server is wrapped in one of the
/// client's errors and does not reach the chain bare.
fn is_ours(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<odafs::CallError>()
}

/// An error and its causes, each told once: many tell their own.
pub fn causes(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// A bar over `length` bytes on stderr; nothing unless that is a terminal.
pub fn byte_progress(length: u64, what: &str) -> ProgressBar {
    bar(
        length,
        what,
        "{msg:<12} {wide_bar} {bytes:>10} / {total_bytes:<10} {bytes_per_sec:>12}",
    )
}

/// A bar over `length` steps on stderr; nothing unless that is a terminal.
pub fn step_progress(length: u64, what: &str) -> ProgressBar {
    bar(
        length,
        what,
        "{msg:<28} {wide_bar} {pos:>4} / {len:<4} {elapsed:>4}",
    )
}

fn bar(length: u64, what: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(4));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

/// A name for a table: control characters and what is no UTF-8 as escapes, so that no name can steer the terminal, and
/// backslashes too, so that no two names look the same.
pub fn printable(name: &OsStr) -> String {
    let mut printed = String::new();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() || c == '\\' {
                true => printed.extend(c.escape_default()),
                false => printed.push(c),
            }
        }
        for byte in chunk.invalid() {
            printed += &format!("\\x{byte:02x}");
        }
    }
    printed
}

/// A file that is written beside its place and moved there when it is whole: until then, what is there stays. What is no
/// file (`/dev/stdout`, a pipe) is written itself.
pub struct Whole {
    place: PathBuf,
    file: fs::File,
    beside: Option<(PathBuf, Unfinished)>,
}

impl Whole {
    /// Makes sure that it can be written.
    pub fn begin(place: &Path) -> Result<Self> {
        // Behind links is the file that they name.
        let place = fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
        let cannot = || format!("cannot write {}", place.display());
        let found = fs::metadata(&place).ok();
        let (file, beside) = match (&found, place.file_name()) {
            (Some(found), _) if !found.is_file() => {
                let file = fs::File::options().write(true).open(&place);
                (file.with_context(cannot)?, None)
            }
            (_, Some(name)) => {
                let mut hidden = std::ffi::OsString::from(".");
                hidden.push(name);
                hidden.push(format!(".{:016x}", entropy::word()));
                let beside = place.with_file_name(hidden);
                let (file, unfinished) = create(&beside).with_context(cannot)?;
                (file, Some((beside, unfinished)))
            }
            (_, None) => anyhow::bail!("{}: it names no file", cannot()),
        };
        if let (Some(found), Some(_)) = (found, &beside) {
            file.set_permissions(found.permissions())?;
        }
        Ok(Self {
            place,
            file,
            beside,
        })
    }

    /// Writes all of it.
    pub fn finish(mut self, text: &str) -> Result<()> {
        let cannot = || format!("cannot write {}", self.place.display());
        self.file.write_all(text.as_bytes()).with_context(cannot)?;
        match self.beside {
            None => Ok(()),
            Some((beside, unfinished)) => unfinished
                .finish(|| fs::rename(beside, &self.place))
                .with_context(cannot),
        }
    }
}

/// Makes a file of a name that nobody else has; it is removed again unless it is finished.
pub fn create(path: &Path) -> io::Result<(fs::File, Unfinished)> {
    let gone = path.to_owned();
    // If it is not removed, nothing is lost with it.
    let unfinished = Unfinished::new(move || drop(fs::remove_file(gone)))?;
    Ok((fs::File::create_new(path)?, unfinished))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn what_is_there_stays_until_the_new_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("page.html");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("page.html", &link).unwrap();
        let files = || fs::read_dir(directory.path()).unwrap().count();
        fs::write(&place, "old").unwrap();
        drop(Whole::begin(&place).unwrap());
        assert_eq!((fs::read(&place).unwrap(), files()), (b"old".to_vec(), 2));
        Whole::begin(&link).unwrap().finish("new").unwrap();
        assert_eq!((fs::read(&place).unwrap(), files()), (b"new".to_vec(), 2));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        Whole::begin(Path::new("/dev/null"))
            .unwrap()
            .finish("x")
            .unwrap();
        assert!(Whole::begin(&directory.path().join("no/page")).is_err());
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no such file")
            .context("cannot open a")
            .context("get");
        assert_eq!(causes(&error), "get: cannot open a: no such file");
        let error = anyhow!("refused").context("cannot reach b: refused (is it there?)");
        assert_eq!(causes(&error), "cannot reach b: refused (is it there?)");
    }
}
