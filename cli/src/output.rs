//! Output to stdout and stderr: tables, JSON, errors and progress.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use odafs_bench::machine::Machine;
use odafs_bench::table::{Table, counted};
use odafs_fabric::entropy;
use serde::Serialize;

use crate::unfinished::Unfinished;

/// Prints `value` as JSON, indented.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = Stdout::lock();
    // The error of the writer itself, which says that stdout failed.
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Prints the values that were found, as JSON or as `print` does, and returns what became of `all` that were asked for. As JSON
/// it prints nothing if there are none because of a failure.
pub fn found<T: Serialize>(
    values: &[T],
    as_json: bool,
    print: impl FnOnce(&[T]) -> Result<()>,
    all: Result<()>,
) -> Result<()> {
    let printed = match as_json {
        true if values.is_empty() && all.is_err() => Ok(()),
        true => json(&values),
        false => print(values),
    };
    with_result(printed, all)
}

/// Warns on stderr if the time given for a measurement, such as `--seconds`, is too short to mean anything. Each of the
/// `rows` needs the time `each`.
pub fn warn_if_short(option: &str, given: Duration, rows: u32, each: Duration) {
    let needed = each * rows;
    if given < needed {
        eprintln!(
            "odafs: {option} {}: too short, so the figures mean little; {} need{} {} s or more",
            given.as_secs_f64(),
            counted(rows, "row"),
            if rows == 1 { "s" } else { "" },
            (needed.as_secs_f64() * 10.0).ceil() / 10.0
        );
    }
}

/// Prints a report as JSON, and a warning to stderr if the machine was busy. (Tables have that warning in their heads.)
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

/// The widest line of a bench's table, characters.
pub const WIDTH: usize = 100;

/// Prints a table of figures, in parts if it is wider than [`WIDTH`].
pub fn figures(table: &Table) -> Result<()> {
    text(&table.render_within(WIDTH))
}

/// Prints text as it is.
pub fn text(text: &str) -> Result<()> {
    let mut out = Stdout::lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Whether the error is that the reader of stdout has closed it (`odafs cat URL | head`), which is no failure.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    of_stdout(error) == Some(io::ErrorKind::BrokenPipe)
}

/// Whether stdout failed, such as by a full disk behind it. Further output would fail too.
pub fn is_over(error: &anyhow::Error) -> bool {
    of_stdout(error).is_some()
}

/// The kind of a failure of stdout. Other pipes and files fail for reasons of their own.
fn of_stdout(error: &anyhow::Error) -> Option<io::ErrorKind> {
    error.chain().find_map(|cause| {
        let error = cause.downcast_ref::<io::Error>()?;
        let is_ours = error.get_ref().is_some_and(|inner| inner.is::<ToStdout>());
        is_ours.then(|| error.kind())
    })
}

/// What came of the work and of printing its result. A reader that has seen enough does not hide that the work failed.
pub fn with_result(printed: Result<()>, work: Result<()>) -> Result<()> {
    match printed {
        Err(error) if work.is_ok() || !reader_is_gone(&error) => Err(error),
        _ => work,
    }
}

/// Stdout, whose errors say that stdout failed.
pub struct Stdout(io::StdoutLock<'static>);

impl Stdout {
    /// Locks stdout for this thread.
    pub fn lock() -> Self {
        Self(io::stdout().lock())
    }
}

/// A failure of stdout.
#[derive(Debug)]
struct ToStdout(io::Error);

impl std::fmt::Display for ToStdout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write to stdout: {}", self.0)
    }
}

impl std::error::Error for ToStdout {}

fn to_stdout(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), ToStdout(error))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(to_stdout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(to_stdout)
    }
}

/// An error and its causes in one line, each cause once, since many errors already include theirs. The numbers of system
/// errors are left out: their words are enough.
pub fn causes(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    without_error_numbers(&told)
}

/// Removes each ` (os error N)`, which the standard library adds to the words of a system error.
pub fn without_error_numbers(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut parts = text.split(BEGIN);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                plain += rest;
            }
            _ => plain = plain + BEGIN + part,
        }
    }
    plain
}

/// A progress bar over `length` bytes on stderr. It is shown only on a terminal.
pub fn byte_progress(length: u64, what: &str) -> ProgressBar {
    bar(
        length,
        what,
        "{msg:<12} {wide_bar} {bytes:>10} / {total_bytes:<10} {bytes_per_sec:>12}",
    )
}

/// A progress bar over a length of time on stderr, whose position is in milliseconds. It is shown only on a terminal.
pub fn time_progress(length: Duration, what: &str) -> ProgressBar {
    let seconds = length.as_secs_f64();
    let template = format!("{{msg:<12}} {{wide_bar}} {{elapsed:>4}} of {seconds} s");
    bar(length.as_millis() as u64, what, &template)
}

/// A progress bar over `length` steps on stderr. It is shown only on a terminal.
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

/// A name for a table. Control characters and bytes that are not UTF-8 become escapes, so that no name can control the
/// terminal. Backslashes do too, so that no two names look the same.
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

/// A file that is written beside its place and moved there when it is complete, so that the old one stays until then. A
/// device or a pipe (`/dev/stdout`) is written directly.
pub enum Whole {
    /// A file.
    Beside(Beside),
    /// A device or a pipe, at this path.
    Itself(fs::File, PathBuf),
}

impl Whole {
    /// Opens it, and fails if it cannot be written.
    pub fn begin(place: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", place.display());
        if fs::metadata(place).is_ok_and(|found| !found.is_file()) {
            let file = fs::File::options().write(true).open(place);
            return Ok(Self::Itself(file.with_context(cannot)?, place.to_owned()));
        }
        let beside = behind_links(place).and_then(|place| Beside::begin(&place, "report"));
        Ok(Self::Beside(beside.with_context(cannot)?))
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

/// A new file in the directory of its place. It gets its name when it is finished, or else is removed.
pub struct Beside {
    /// The new file.
    pub file: fs::File,
    path: PathBuf,
    place: PathBuf,
    unfinished: Unfinished,
}

impl Beside {
    /// Creates the file under a unique name ([`beside`]), with the rights of the file at `place` if there is one.
    pub fn begin(place: &Path, what_for: &str) -> io::Result<Self> {
        if place.file_name().is_none() {
            let why = "the path names no file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let path = beside(place, what_for);
        let gone = path.clone();
        let there = fs::metadata(place).ok();
        // A failure to remove the file loses nothing.
        let unfinished = Unfinished::new(move || drop(fs::remove_file(gone)))?;
        let file = fs::File::options()
            .write(true)
            .create_new(true)
            // The file that it replaces may be private to its owner. The kernel takes the umask from either.
            .mode(if there.is_some() { 0o600 } else { 0o666 })
            .open(&path)?;
        if let Some(there) = there {
            inherit(&file, &there)?;
        }
        Ok(Self {
            file,
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

/// Gives a new file the owner, the group and the permission bits of the one that it replaces, as `odafs put` does.
fn inherit(file: &fs::File, there: &fs::Metadata) -> io::Result<()> {
    let shared = fchown(file, None, Some(there.gid())).is_ok();
    // Most users may not change the owner. The new file then belongs to this one.
    let _ = fchown(file, Some(there.uid()), None);
    // Without the set-id bits, and without the group's bits if the group is another one now.
    let kept = if shared { 0o777 } else { 0o707 };
    file.set_permissions(fs::Permissions::from_mode(there.mode() & kept))
}

/// The path that the symbolic links at the end of this one lead to. Nothing need be there.
pub fn behind_links(place: &Path) -> io::Result<PathBuf> {
    /// As many as the kernel follows.
    const LINKS_MAX: usize = 40;
    let mut path = place.to_owned();
    for _ in 0..=LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            // It is no link, or whoever opens it learns why not.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// A name in the directory of `place` for an unfinished file: `.odafs-`, its purpose, and 16 hexadecimal digits. The name
/// is documented, so that a user who finds such a file after a `kill -9` knows that it may be removed.
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
    fn numbers_of_system_errors_are_left_out() {
        let error = io::Error::from_raw_os_error(2);
        let error = anyhow!("cannot reach b: {error} (is it there?)").context(error);
        let said =
            "No such file or directory: cannot reach b: No such file or directory (is it there?)";
        assert_eq!(causes(&error), said);
        assert_eq!(
            without_error_numbers("a (os error x) b"),
            "a (os error x) b"
        );
        assert_eq!(without_error_numbers("a (os error 2"), "a (os error 2");
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
