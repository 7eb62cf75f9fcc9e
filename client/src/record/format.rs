//! The text of a trace, version 1, as described in `docs/TRACES.md`. The only IO is reading lines.

use std::{
    fmt,
    io::{self, BufRead, Read as _},
};

/// The first line of a trace.
pub const HEADER: &str = "odafs-trace 1";
/// The most names of a trace.
pub const NAMES_MAX: usize = 1 << 20;
/// The most operations of a trace.
pub const ENTRIES_MAX: usize = 1 << 24;
/// The most threads of a trace.
pub const THREADS_MAX: u32 = 256;
/// The most bytes of one read or write.
pub const LENGTH_MAX: u32 = 1 << 30;
/// The largest offset in bytes. A read or write of any length ends within [`BYTES_MAX`].
pub const OFFSET_MAX: u64 = BYTES_MAX - LENGTH_MAX as u64;
/// The most bytes of a file.
pub const BYTES_MAX: u64 = i64::MAX as u64;
/// The largest time, in nanoseconds.
pub const TIME_MAX: u64 = i64::MAX as u64;
/// The longest path of a name in bytes, as in the file system.
pub const PATH_MAX: usize = 4096;
/// The most bytes of all paths together.
pub const PATHS_MAX: usize = 256 << 20;
/// The longest line in bytes. A path may take three bytes for each of its own.
const LINE_MAX: usize = 3 * PATH_MAX + 64;

/// A trace: names, and the operations on them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The names. Operations refer to them by index.
    pub names: Vec<Name>,
    /// The operations. Those of a thread are in the order in which it made them.
    pub entries: Vec<Entry>,
}

/// The name of a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// What had the name before the first operation.
    pub initial: Initial,
    /// The path from the common root of all names, which itself is `.`. It has no empty component, no `.` and no `..`.
    pub path: Vec<u8>,
}

/// What had a name before the first operation on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// Nothing.
    Absent,
    /// A directory.
    Directory,
    /// A file of this many bytes.
    Bytes(u64),
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When it began, in nanoseconds from the start of the recording.
    pub begin_ns: u64,
    /// How long it took in nanoseconds, if that is known.
    pub took_ns: Option<u64>,
    /// The thread that made it, from 0 on, below [`THREADS_MAX`].
    pub thread: u32,
    /// The operation.
    pub operation: Operation,
    /// Whether it failed.
    pub failed: bool,
}

/// The kind of operation. `file` and similar fields are indexes of [`Trace::names`]. Lengths and offsets are in bytes.
#[allow(missing_docs, reason = "the line above tells what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A file was opened.
    Open { file: u32 },
    /// A file was created, or truncated to 0 bytes.
    Create { file: u32 },
    /// `length` bytes were asked for, and `got` bytes were read.
    Read {
        file: u32,
        offset: u64,
        length: u32,
        got: u32,
        /// Whether it was in one call with the same thread's read before it.
        together: bool,
    },
    /// Bytes were written.
    Write { file: u32, offset: u64, length: u32 },
    /// Written data was brought to stable storage.
    Sync { file: u32 },
    /// The size of a file was set.
    Truncate { file: u32, length: u64 },
    /// Attributes were read.
    Stat { file: u32 },
    /// Attributes other than the size were changed.
    Attributes { file: u32 },
    /// A directory was listed.
    List { file: u32 },
    /// A directory was created.
    Mkdir { file: u32 },
    /// A directory was removed.
    Rmdir { file: u32 },
    /// A file was removed.
    Remove { file: u32 },
    /// A file or directory was renamed.
    Rename { from: u32, to: u32 },
    /// A file got another name (a hard link).
    Link { from: u32, to: u32 },
}

impl Entry {
    /// Whether an entry is within the limits. [`Trace::parse`] refuses the line of one that is not.
    pub fn fits(&self) -> bool {
        let times = self.begin_ns.max(self.took_ns.unwrap_or(0));
        let range = |offset, length| offset <= OFFSET_MAX && length <= LENGTH_MAX;
        times <= TIME_MAX
            && self.thread < THREADS_MAX
            && match self.operation {
                Operation::Read {
                    offset,
                    length,
                    got,
                    ..
                } => range(offset, length) && got <= length,
                Operation::Write { offset, length, .. } => range(offset, length),
                Operation::Truncate { length, .. } => length <= BYTES_MAX,
                _ => true,
            }
    }
}

impl Operation {
    /// The word in a line.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Create { .. } => "create",
            Self::Read { together, .. } => match together {
                false => "read",
                true => "read+",
            },
            Self::Write { .. } => "write",
            Self::Sync { .. } => "sync",
            Self::Truncate { .. } => "truncate",
            Self::Stat { .. } => "stat",
            Self::Attributes { .. } => "attributes",
            Self::List { .. } => "list",
            Self::Mkdir { .. } => "mkdir",
            Self::Rmdir { .. } => "rmdir",
            Self::Remove { .. } => "remove",
            Self::Rename { .. } => "rename",
            Self::Link { .. } => "link",
        }
    }

    /// The name that the operation is about, and the second one if there is one.
    pub fn names(&self) -> (u32, Option<u32>) {
        match *self {
            Self::Open { file }
            | Self::Create { file }
            | Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Truncate { file, .. }
            | Self::Stat { file }
            | Self::Attributes { file }
            | Self::List { file }
            | Self::Mkdir { file }
            | Self::Rmdir { file }
            | Self::Remove { file } => (file, None),
            Self::Rename { from, to } | Self::Link { from, to } => (from, Some(to)),
        }
    }

    /// Whether it changes files or directories.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Open { .. } | Self::Read { .. } | Self::Stat { .. } | Self::List { .. }
        )
    }
}

/// A line that does not have the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TraceError {
    /// Its number, starting at 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl Trace {
    /// Reads a trace from its text.
    ///
    /// # Errors
    /// The first line that does not have the format.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let mut parser = Parser::default();
        text.split(|byte| *byte == b'\n')
            .try_for_each(|line| parser.line(line))?;
        Ok(parser.trace)
    }

    /// Reads a trace line by line, without holding its text in memory.
    ///
    /// # Errors
    /// `InvalidData` with a [`TraceError`] for the first line that does not have the format, or the error of `input`.
    pub fn read(mut input: impl BufRead) -> io::Result<Self> {
        let (mut parser, mut line) = (Parser::default(), Vec::new());
        loop {
            line.clear();
            // With its end, a line may have one byte more.
            let most = LINE_MAX as u64 + 2;
            let bytes = input.by_ref().take(most).read_until(b'\n', &mut line)?;
            if bytes == 0 && parser.lines > 0 {
                return Ok(parser.trace);
            }
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            parser.line(line).map_err(invalid)?;
        }
    }
}

/// The state after some lines of a trace.
struct Parser {
    trace: Trace,
    /// Number of lines parsed.
    lines: usize,
    /// Bytes of all paths.
    path_bytes: usize,
    /// For each thread, the file of its last operation if that was a read that another may continue.
    reads: [Option<u32>; THREADS_MAX as usize],
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            trace: Trace::default(),
            lines: 0,
            path_bytes: 0,
            reads: [None; THREADS_MAX as usize],
        }
    }
}

impl Parser {
    /// Parses the next line, without its end.
    fn line(&mut self, line: &[u8]) -> Result<(), TraceError> {
        self.lines += 1;
        let taken = match std::str::from_utf8(line) {
            _ if self.lines == 1 => match line.trim_ascii_end() == HEADER.as_bytes() {
                true => Ok(()),
                false => Err(format!("this is no trace: {HEADER:?} is missing")),
            },
            _ if line.len() > LINE_MAX => Err(format!("longer than {LINE_MAX} bytes")),
            Ok(text) => match text.trim_end() {
                "" => Ok(()),
                text if text.starts_with('#') => Ok(()),
                text => self.content(text),
            },
            Err(_) => Err("not text".to_owned()),
        };
        let line = self.lines;
        taken.map_err(|what| TraceError { line, what })
    }

    /// Parses a line that is neither empty nor a comment.
    fn content(&mut self, text: &str) -> Result<(), String> {
        if let Some(name) = text.strip_prefix("name ") {
            let name = self.trace.name(name)?;
            self.path_bytes += name.path.len();
            if self.path_bytes > PATHS_MAX {
                return Err(format!("PATHs have more than {PATHS_MAX} bytes together"));
            }
            self.trace.names.push(name);
            return Ok(());
        }
        let entry = self.trace.entry(text)?;
        let last = &mut self.reads[entry.thread as usize];
        match entry.operation {
            Operation::Read { file, together, .. } => {
                if together && *last != Some(file) {
                    return Err(format!(
                        "read+ does not follow a read of name {file} by thread {}",
                        entry.thread
                    ));
                }
                *last = Some(file);
            }
            _ => *last = None,
        }
        self.trace.entries.push(entry);
        Ok(())
    }
}

impl Trace {
    fn name(&self, text: &str) -> Result<Name, String> {
        let mut words = Words::of(text);
        let number: usize = words.number("NUMBER", NAMES_MAX as u64 - 1)? as usize;
        if number != self.names.len() {
            return Err(format!(
                "name {number} where name {} is due",
                self.names.len()
            ));
        }
        let initial = match words.next("SIZE")? {
            "absent" => Initial::Absent,
            "directory" => Initial::Directory,
            size => Initial::Bytes(number_of(size, "SIZE", BYTES_MAX)?),
        };
        let path = decoded(words.next("PATH")?)?;
        words.end()?;
        Ok(Name { initial, path })
    }

    fn entry(&self, text: &str) -> Result<Entry, String> {
        if self.entries.len() >= ENTRIES_MAX {
            return Err(format!("more than {ENTRIES_MAX} operations"));
        }
        let mut words = Words::of(text);
        let begin_ns = words.number("TIME", TIME_MAX)?;
        let took_ns = match words.next("TOOK")? {
            "-" => None,
            took => Some(number_of(took, "TOOK", TIME_MAX)?),
        };
        let thread = words.number("THREAD", u64::from(THREADS_MAX) - 1)? as u32;
        let verb = words.next("OPERATION")?;
        let file = words.name(self)?;
        let operation = match verb {
            "open" => Operation::Open { file },
            "create" => Operation::Create { file },
            "read" | "read+" => {
                let (offset, length) = words.range()?;
                Operation::Read {
                    file,
                    offset,
                    length,
                    got: words.number("GOT", u64::from(length))? as u32,
                    together: verb == "read+",
                }
            }
            "write" => {
                let (offset, length) = words.range()?;
                Operation::Write {
                    file,
                    offset,
                    length,
                }
            }
            "sync" => Operation::Sync { file },
            "truncate" => Operation::Truncate {
                file,
                length: words.number("LENGTH", BYTES_MAX)?,
            },
            "stat" => Operation::Stat { file },
            "attributes" => Operation::Attributes { file },
            "list" => Operation::List { file },
            "mkdir" => Operation::Mkdir { file },
            "rmdir" => Operation::Rmdir { file },
            "remove" => Operation::Remove { file },
            "rename" => Operation::Rename {
                from: file,
                to: words.name(self)?,
            },
            "link" => Operation::Link {
                from: file,
                to: words.name(self)?,
            },
            _ => return Err(format!("{verb:?} is no operation")),
        };
        let failed = words.left.peek() == Some(&"failed");
        if failed {
            words.left.next();
        }
        words.end()?;
        Ok(Entry {
            begin_ns,
            took_ns,
            thread,
            operation,
            failed,
        })
    }
}

/// The words of a line.
struct Words<'a> {
    left: std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            left: text.split_ascii_whitespace().peekable(),
        }
    }

    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.left.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn number(&mut self, what: &str, most: u64) -> Result<u64, String> {
        number_of(self.next(what)?, what, most)
    }

    fn name(&mut self, trace: &Trace) -> Result<u32, String> {
        let number = self.number("NAME", NAMES_MAX as u64)?;
        match (number as usize) < trace.names.len() {
            true => Ok(number as u32),
            false => Err(format!("name {number} was not told before")),
        }
    }

    fn range(&mut self) -> Result<(u64, u32), String> {
        let offset = self.number("OFFSET", OFFSET_MAX)?;
        Ok((offset, self.number("LENGTH", u64::from(LENGTH_MAX))? as u32))
    }

    fn end(&mut self) -> Result<(), String> {
        match self.left.next() {
            None => Ok(()),
            Some(word) => Err(format!("{word:?} is too much")),
        }
    }
}

/// Digits only, without a sign.
fn number_of(word: &str, what: &str, most: u64) -> Result<u64, String> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    match word.parse() {
        Ok(number) if digits && number <= most => Ok(number),
        _ => Err(format!("{what} is {word:?}, not a number up to {most}")),
    }
}

/// Decodes and checks a path.
fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let (mut path, bytes) = (Vec::with_capacity(text.len()), text.as_bytes());
    let digit = |at: usize| {
        let byte = bytes.get(at)?;
        (*byte as char).to_digit(16)
    };
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                path.push((high * 16 + low) as u8);
                at += 3;
            }
            (b'%', ..) => return Err(format!("PATH {text:?} has % without two digits")),
            _ => {
                path.push(byte);
                at += 1;
            }
        }
    }
    match is_path(&path) {
        true => Ok(path),
        false => Err(format!(
            "PATH {text:?} is none: it is relative, has no `.`, `..` or NUL, and {PATH_MAX} bytes at most"
        )),
    }
}

fn is_path(path: &[u8]) -> bool {
    let component = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    path == b"." || (path.len() <= PATH_MAX && path.split(|byte| *byte == b'/').all(component))
}

/// The normal form of a path: components only, joined by `/`. `..` removes one. `None` if the path is too long or
/// contains a NUL.
pub fn path_of(path: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = match parts.is_empty() {
        true => b".".to_vec(),
        false => parts.join(&b'/'),
    };
    is_path(&path).then_some(path)
}

/// The line of a name, with its number.
pub fn name_line(number: u32, name: &Name) -> impl fmt::Display + '_ {
    struct Line<'a>(u32, &'a Name);
    impl fmt::Display for Line<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self(number, Name { initial, path }) = self;
            match initial {
                Initial::Absent => write!(f, "name {number} absent ")?,
                Initial::Directory => write!(f, "name {number} directory ")?,
                Initial::Bytes(bytes) => write!(f, "name {number} {bytes} ")?,
            }
            for &byte in path {
                match byte.is_ascii_graphic() && byte != b'%' {
                    true => write!(f, "{}", byte as char)?,
                    false => write!(f, "%{byte:02x}")?,
                }
            }
            Ok(())
        }
    }
    Line(number, name)
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.begin_ns)?;
        match self.took_ns {
            Some(took) => write!(f, "{took}")?,
            None => f.write_str("-")?,
        }
        let (first, second) = self.operation.names();
        write!(f, " {} {} {first}", self.thread, self.operation.verb())?;
        match (self.operation, second) {
            (
                Operation::Read {
                    offset,
                    length,
                    got,
                    ..
                },
                _,
            ) => write!(f, " {offset} {length} {got}")?,
            (Operation::Write { offset, length, .. }, _) => write!(f, " {offset} {length}")?,
            (Operation::Truncate { length, .. }, _) => write!(f, " {length}")?,
            (_, Some(to)) => write!(f, " {to}")?,
            _ => {}
        }
        f.write_str(if self.failed { " failed" } else { "" })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        for (name, number) in self.names.iter().zip(0..) {
            writeln!(f, "{}", name_line(number, name))?;
        }
        self.entries
            .iter()
            .try_for_each(|entry| writeln!(f, "{entry}"))
    }
}
