//! What goes to stdout and stderr: tables, JSON, progress.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use odafs_bench::machine::Machine;
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

/// Says on stderr that a `--seconds`, say, of a measurement is too short to mean anything: each of its rows wants so long in
/// all.
pub fn warn_if_short(option: &str, given: Duration, rows: u32, each: Duration) {
    let needed = each * rows;
    if given < needed {
        let many = if rows == 1 { "" } else { "s" };
        eprintln!(
            "odafs: {option} {}: too short, the figures mean little; {rows} row{many} want{} {} or more",
            given.as_secs_f64(),
            if rows == 1 { "s" } else { "" },
            (needed.as_secs_f64() * 10.0).ceil() / 10.0
        );
    }
}

/// Prints a report as JSON, and on stderr that the machine was busy, if it was. (Tables say it in their heads.)
pub fn report(report: &impl Serialize, machine: &Machine) -> Result<()> {
    if let Some(warning) = machine.warning() {
        eprintln!("odafs: {warning}");
    }
    json(report)
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
    of_system(error) == Some(io::ErrorKind::BrokenPipe)
}

/// Whether it failed on this side, as a full disk behind stdout does: what else is printed fails too.
pub fn is_over(error: &anyhow::Error) -> bool {
    of_system(error).is_some()
}

/// What this system said. What it said of a connection to a server is wrapped in one of the client's errors, and does not
/// reach the chain bare.
fn of_system(error: &anyhow::Error) -> Option<io::ErrorKind> {
    error.chain().find_map(|cause| {
        let json = cause
            .downcast_ref()
            .and_then(serde_json::Error::io_error_kind);
        json.or(cause.downcast_ref().map(io::Error::kind))
    })
}

/// Writes to stdout, and says so where that fails.
pub struct Stdout(io::StdoutLock<'static>);

impl Stdout {
    /// Stdout, for this thread alone.
    pub fn lock() -> Self {
        Self(io::stdout().lock())
    }
}

fn to_stdout(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to stdout: {error}"))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(to_stdout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(to_stdout)
    }
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
pub enum Whole {
    /// A file.
    Beside(Beside),
    /// No file, at this path.
    Itself(fs::File, PathBuf),
}

impl Whole {
    /// Makes sure that it can be written.
    pub fn begin(place: &Path) -> Result<Self> {
        // Behind links is the file that they name.
        let place = fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
        let cannot = || format!("cannot write {}", place.display());
        let found = fs::metadata(&place).ok();
        match &found {
            Some(found) if !found.is_file() => {
                let file = fs::File::options().write(true).open(&place);
                Ok(Self::Itself(file.with_context(cannot)?, place))
            }
            _ => {
                let beside = Beside::begin(&place, "report").with_context(cannot)?;
                if let Some(found) = found {
                    beside.file.set_permissions(found.permissions())?;
                }
                Ok(Self::Beside(beside))
            }
        }
    }

    /// Writes all of it.
    pub fn finish(self, text: &str) -> Result<()> {
        let (place, written) = match self {
            Self::Itself(mut file, place) => (place, file.write_all(text.as_bytes())),
            Self::Beside(mut beside) => {
                let written = beside.file.write_all(text.as_bytes());
                let place = beside.place.clone();
                (place, written.and_then(|()| beside.finish()))
            }
        };
        written.with_context(|| format!("cannot write {}", place.display()))
    }
}

/// A new file in the directory of its place, where it appears when it is finished; otherwise it is removed again.
pub struct Beside {
    /// To be written.
    pub file: fs::File,
    path: PathBuf,
    place: PathBuf,
    unfinished: Unfinished,
}

impl Beside {
    /// Makes the file, under a name that nobody else has ([`beside`]).
    pub fn begin(place: &Path, what_for: &str) -> io::Result<Self> {
        if place.file_name().is_none() {
            let why = "it names no file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let path = beside(place, what_for);
        let gone = path.clone();
        // If it is not removed, nothing is lost with it.
        let unfinished = Unfinished::new(move || drop(fs::remove_file(gone)))?;
        Ok(Self {
            file: fs::File::create_new(&path)?,
            path,
            place: place.to_owned(),
            unfinished,
        })
    }

    /// Moves it to its place.
    pub fn finish(self) -> io::Result<()> {
        self.unfinished.finish(|| fs::rename(self.path, self.place))
    }
}

/// A name in the directory of `place` for a file that is not finished: `.odafs-`, what it is for, and 16 hexadecimal
/// digits. It is documented: who finds one after a `kill -9` may remove it.
pub fn beside(place: &Path, what_for: &str) -> PathBuf {
    place.with_file_name(format!(".odafs-{what_for}-{:016x}", entropy::word()))
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
