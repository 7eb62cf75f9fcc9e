//! What `strace -f -y -ttt -T -e trace=file,desc,process` writes.
//!
//! Only what a file server would see is kept. Reads and writes without an offset get the one that their descriptor is at,
//! which descriptors of copies (dup, fork) share. Pages that are touched through a mapping are not there to be seen.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use odafs::record::{Initial, Operation};

use super::{Builder, When};

/// What files lie in these directories are no files of a server.
const NOT_FILES: [&[u8]; 3] = [b"/dev/", b"/proc/", b"/sys/"];

/// All processes.
#[derive(Default)]
pub struct Strace {
    /// Threads that share descriptors have one number.
    processes: HashMap<u64, u64>,
    /// Calls that have not come back.
    unfinished: HashMap<u64, (u64, String)>,
    descriptors: HashMap<(u64, u64), usize>,
    places: Vec<DescriptorPosition>,
    directories: HashMap<u64, Vec<u8>>,
}

/// Where a descriptor is.
#[derive(Clone, Copy, Default)]
struct DescriptorPosition {
    offset: u64,
    appends: bool,
}

/// A call that has come back.
struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    result: &'a str,
    process: u64,
    when: When,
}

impl Strace {
    /// Takes a line; false if nothing is made of it.
    pub fn line(&mut self, line: &str, builder: &mut Builder) -> Result<bool> {
        Ok(self.take(line, builder).is_some())
    }

    fn take(&mut self, line: &str, builder: &mut Builder) -> Option<()> {
        let (mut pid, mut rest) = (0, line.trim_start());
        let (first, behind) = rest.split_once(' ')?;
        if let Ok(number) = first.parse() {
            (pid, rest) = (number, behind.trim_start());
        }
        let (time, mut text) = rest.split_once(' ')?;
        let mut begin_ns = seconds(time)?;
        text = text.trim_start();
        self.meet(pid);
        let whole;
        if let Some(begun) = text.strip_suffix("<unfinished ...>") {
            let begun = begun.trim_end().to_owned();
            self.unfinished.insert(pid, (begin_ns, begun));
            return Some(());
        }
        if text.starts_with("<... ") {
            let (_, end) = text.split_once(" resumed>")?;
            let (begun_ns, begun) = self.unfinished.remove(&pid)?;
            whole = format!("{begun}{end}");
            (begin_ns, text) = (begun_ns, &whole);
        }
        let (call, result) = text.rsplit_once(" = ")?;
        let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        let (result, took) = match result.rsplit_once(" <") {
            Some((result, took)) => (result, took.strip_suffix('>').and_then(seconds)),
            None => (result, None),
        };
        let call = Call {
            name,
            arguments: split(arguments),
            result: result.trim(),
            process: self.process(pid),
            when: When {
                begin_ns,
                took_ns: took,
                who: pid,
            },
        };
        self.call(&call, builder)
    }

    fn process(&self, pid: u64) -> u64 {
        self.processes.get(&pid).copied().unwrap_or(pid)
    }

    /// A process of which nothing was seen is a child whose parent's call has not come back.
    fn meet(&mut self, pid: u64) {
        if self.processes.contains_key(&pid) {
            return;
        }
        let makes = |text: &str| {
            ["clone", "fork", "vfork"]
                .iter()
                .any(|m| text.starts_with(m))
        };
        let mut parents = self.unfinished.iter().filter(|(_, (_, t))| makes(t));
        match (parents.next(), parents.next()) {
            (Some((&parent, (_, text))), None) => {
                let shares = text.contains("CLONE_FILES");
                self.born(parent, pid, shares);
            }
            _ => drop(self.processes.insert(pid, pid)),
        }
    }

    fn born(&mut self, parent: u64, child: u64, shares: bool) {
        let parent = self.process(parent);
        if shares {
            self.processes.insert(child, parent);
            return;
        }
        self.processes.insert(child, child);
        let theirs = self.descriptors.iter().filter(|((p, _), _)| *p == parent);
        let copies: Vec<_> = theirs.map(|((_, fd), at)| ((child, *fd), *at)).collect();
        self.descriptors.extend(copies);
        if let Some(directory) = self.directories.get(&parent).cloned() {
            self.directories.insert(child, directory);
        }
    }

    fn place(&mut self, process: u64, fd: u64) -> &mut DescriptorPosition {
        let places = &mut self.places;
        let at = *self.descriptors.entry((process, fd)).or_insert_with(|| {
            places.push(DescriptorPosition::default());
            places.len() - 1
        });
        &mut self.places[at]
    }

    fn call(&mut self, call: &Call<'_>, builder: &mut Builder) -> Option<()> {
        let Call {
            name,
            process,
            when,
            result,
            ..
        } = *call;
        let argument = |at: usize| call.arguments.get(at).copied().unwrap_or("");
        let number = |at: usize| argument(at).parse::<u64>().ok();
        for argument in &call.arguments {
            if let Some(directory) = argument.strip_prefix("AT_FDCWD<") {
                let directory = unescaped(directory.strip_suffix('>')?);
                self.directories.insert(process, directory);
            }
        }
        let failed = result.starts_with('-');
        // Others are of this machine or of the moment, and nothing that a replay would meet.
        if failed
            && !["ENOENT", "EEXIST", "ENOTDIR"]
                .iter()
                .any(|e| result.contains(e))
        {
            return None;
        }
        let returned = descriptor(result);
        match name {
            "clone" | "clone3" | "fork" | "vfork" => {
                let child = result.parse().ok()?;
                let shares = call.arguments.iter().any(|a| a.contains("CLONE_FILES"));
                if !self.processes.contains_key(&child) {
                    self.born(when.who, child, shares);
                }
            }
            "chdir" if !failed => {
                let to = self.path(process, None, argument(0))?;
                self.directories.insert(process, to);
            }
            "open" | "creat" | "openat" | "openat2" => {
                let at = usize::from(name.starts_with("openat"));
                let flags = match name {
                    "creat" => "O_CREAT|O_TRUNC|O_WRONLY",
                    _ => argument(at + 1),
                };
                let base = (at == 1).then(|| argument(0));
                self.open(call, base, argument(at), flags, returned, builder)?;
            }
            "close" => {
                let (fd, _) = descriptor(argument(0))?;
                self.descriptors.remove(&(process, fd));
            }
            "dup" | "dup2" | "dup3" => {
                let ((old, _), (new, _)) = (descriptor(argument(0))?, returned?);
                self.copy(process, old, new);
            }
            "fcntl" if argument(1).starts_with("F_DUPFD") => {
                let ((old, _), (new, _)) = (descriptor(argument(0))?, returned?);
                self.copy(process, old, new);
            }
            "lseek" if !failed => {
                let (fd, _) = descriptor(argument(0))?;
                self.place(process, fd).offset = result.parse().ok()?;
            }
            "read" | "readv" | "pread64" | "preadv" | "preadv2" | "write" | "writev"
            | "pwrite64" | "pwritev" | "pwritev2"
                if !failed =>
            {
                self.transfer(call, builder)?;
            }
            "stat" | "lstat" | "newfstatat" | "fstatat64" | "statx" | "access" | "faccessat"
            | "faccessat2" | "fstat" => {
                let file = self.named(call, builder)?;
                match failed {
                    true => builder.is_absent(file),
                    false => {
                        if let Some(found) = found(&call.arguments) {
                            builder.is_there(file, found);
                        }
                    }
                }
                builder.push(when, Operation::Stat { file }, failed);
            }
            "getdents64" | "getdents" => {
                let (fd, path) = descriptor(argument(0))?;
                let file = keep(builder, &path?)?;
                let place = self.place(process, fd);
                if std::mem::replace(&mut place.offset, 1) == 0 {
                    builder.is_there(file, Initial::Directory);
                    builder.push(when, Operation::List { file }, false);
                }
            }
            "mkdir" | "mkdirat" => {
                let file = self.named(call, builder)?;
                match failed {
                    true => builder.is_there(file, Initial::Directory),
                    false => builder.is_made(file),
                }
                builder.push(when, Operation::Mkdir { file }, failed);
            }
            "rmdir" | "unlink" | "unlinkat" => {
                let file = self.named(call, builder)?;
                let is_directory = name == "rmdir" || argument(2).contains("AT_REMOVEDIR");
                let (what, operation) = match is_directory {
                    true => (Initial::Directory, Operation::Rmdir { file }),
                    false => (Initial::Bytes(0), Operation::Remove { file }),
                };
                if !failed {
                    builder.is_there(file, what);
                }
                builder.is_absent(file);
                builder.push(when, operation, failed);
            }
            "rename" | "renameat" | "renameat2" | "link" | "linkat" => {
                let at = usize::from(!matches!(name, "rename" | "link"));
                let base = |from| (at == 1).then(|| argument(from));
                let from = self.path(process, base(0), argument(at))?;
                let to = self.path(process, base(2), argument(2 * at + 1))?;
                let (from, to) = (keep(builder, &from)?, keep(builder, &to)?);
                let is_rename = name.starts_with("rename");
                match failed {
                    true => {}
                    false => {
                        builder.is_there(from, Initial::Bytes(0));
                        let end = builder.known(from).end;
                        builder.is_made(to);
                        builder.known(to).end = end;
                        if is_rename {
                            builder.is_absent(from);
                        }
                    }
                }
                let operation = match is_rename {
                    true => Operation::Rename { from, to },
                    false => Operation::Link { from, to },
                };
                builder.push(when, operation, failed);
            }
            "truncate" | "ftruncate" if !failed => {
                let file = self.named(call, builder)?;
                let length = builder.length(number(1)?);
                let known = builder.known(file);
                (known.is_changed, known.end) = (true, length);
                builder.push(when, Operation::Truncate { file, length }, false);
            }
            "fsync" | "fdatasync" if !failed => {
                let file = self.named(call, builder)?;
                if builder.known(file).initial != Some(Initial::Directory) {
                    builder.push(when, Operation::Sync { file }, false);
                }
            }
            "chmod" | "fchmod" | "fchmodat" | "utimensat" | "utime" | "utimes" | "chown"
            | "lchown" | "fchown" | "fchownat"
                if !failed =>
            {
                let file = self.named(call, builder)?;
                builder.push(when, Operation::Attributes { file }, false);
            }
            _ => return None,
        }
        Some(())
    }

    fn open(
        &mut self,
        call: &Call<'_>,
        base: Option<&str>,
        path: &str,
        flags: &str,
        returned: Option<(u64, Option<Vec<u8>>)>,
        builder: &mut Builder,
    ) -> Option<()> {
        let has = |flag| {
            flags
                .split('|')
                .any(|f| f.trim_matches(['{', '}']).ends_with(flag))
        };
        let Some((fd, opened)) = returned else {
            // It was not there; what was there and must not be is seen by nobody else.
            let path = self.path(call.process, base, path)?;
            let file = keep(builder, &path)?;
            if !has("O_CREAT") && !has("O_DIRECTORY") {
                builder.is_absent(file);
                builder.push(call.when, Operation::Open { file }, true);
            }
            return Some(());
        };
        self.descriptors.remove(&(call.process, fd));
        self.place(call.process, fd).appends = has("O_APPEND");
        let file = keep(builder, &opened?)?;
        let operation = Operation::Create { file };
        if has("O_DIRECTORY") || has("O_PATH") || has("O_TMPFILE") {
            return Some(());
        }
        match (has("O_CREAT"), has("O_TRUNC") || has("O_EXCL")) {
            (true, true) => {
                builder.is_made(file);
                builder.push(call.when, operation, false);
            }
            (true, false) => builder.open_or_make(call.when, file),
            (false, truncates) => {
                builder.is_there(file, Initial::Bytes(0));
                match truncates {
                    true => {
                        builder.is_made(file);
                        builder.push(call.when, operation, false);
                    }
                    false => builder.push(call.when, Operation::Open { file }, false),
                }
            }
        }
        Some(())
    }

    fn transfer(&mut self, call: &Call<'_>, builder: &mut Builder) -> Option<()> {
        let argument = |at: usize| call.arguments.get(at).copied().unwrap_or("");
        let (fd, path) = descriptor(argument(0))?;
        // What the program was started with is where it was: a terminal, or a log.
        if fd <= 2 && !self.descriptors.contains_key(&(call.process, fd)) {
            return None;
        }
        let file = keep(builder, &path?)?;
        let done: u64 = call.result.parse().ok()?;
        let is_read = call.name.contains("read");
        let has_offset = call.name.starts_with('p');
        let wanted = match call.name.contains('v') {
            true => done,
            false => argument(2).parse().unwrap_or(done).max(done),
        };
        let end = builder.known(file).end;
        let place = self.place(call.process, fd);
        let offset = match has_offset {
            true => argument(3).parse().ok()?,
            false if place.appends && !is_read => end,
            false => place.offset,
        };
        if !has_offset {
            place.offset = offset.saturating_add(done);
        }
        match is_read {
            true => builder.read(call.when, file, offset, (wanted, done)),
            false => builder.write(call.when, file, offset, done),
        }
        Some(())
    }

    fn copy(&mut self, process: u64, old: u64, new: u64) {
        self.place(process, old);
        let at = self.descriptors[&(process, old)];
        self.descriptors.insert((process, new), at);
    }

    /// The name that a call is about: by a descriptor, by a path, or by both.
    fn named(&mut self, call: &Call<'_>, builder: &mut Builder) -> Option<u32> {
        let (first, second) = (call.arguments.first()?, call.arguments.get(1));
        let path = match second {
            _ if first.starts_with('"') => self.path(call.process, None, first)?,
            Some(second) if second.starts_with('"') => {
                self.path(call.process, Some(first), second)?
            }
            _ => descriptor(first)?.1?,
        };
        keep(builder, &path)
    }

    /// A path, from the root on.
    fn path(&self, process: u64, base: Option<&str>, text: &str) -> Option<Vec<u8>> {
        let text = text.strip_prefix('"')?.strip_suffix('"')?;
        let path = unescaped(text);
        if path.starts_with(b"/") {
            return Some(path);
        }
        let base = match base {
            Some(base) if !base.starts_with("AT_FDCWD") => descriptor(base)?.1?,
            _ => self.directories.get(&process)?.clone(),
        };
        Some([&base[..], &path].join(&b'/'))
    }
}

/// The number of a name, if it is one of a server.
fn keep(builder: &mut Builder, path: &[u8]) -> Option<u32> {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    if !path.starts_with(b"/") || NOT_FILES.iter().any(|not| path.starts_with(not)) {
        return None;
    }
    let under = builder.kept.under.clone();
    let under = under.strip_suffix(b"/").unwrap_or(&under);
    let rest = path.strip_prefix(under)?;
    match rest {
        [] | [b'/', ..] => builder.name(rest),
        _ => None,
    }
}

/// A descriptor and the path that is open there, if it is one: `3</a/b>`.
fn descriptor(text: &str) -> Option<(u64, Option<Vec<u8>>)> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, rest) = text.split_at(digits.unwrap_or(text.len()));
    let path = rest.strip_prefix('<').and_then(|r| r.strip_suffix('>'));
    let path = path.map(unescaped).filter(|path| path.starts_with(b"/"));
    Some((number.parse().ok()?, path))
}

/// What a structure of attributes says was found.
fn found(arguments: &[&str]) -> Option<Initial> {
    let attributes = arguments.iter().find(|a| a.contains("_mode=S_IF"))?;
    if attributes.contains("_mode=S_IFDIR") {
        return Some(Initial::Directory);
    }
    let (_, size) = attributes.split_once("_size=")?;
    let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
    attributes
        .contains("_mode=S_IFREG")
        .then_some(Initial::Bytes(digits.parse().ok()?))
}

/// Arguments, which commas part outside of strings, structures and paths.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0u32);
    let (mut quoted, mut escaped, mut path, mut last) = (false, false, false, ' ');
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' if !path => quoted = !quoted,
            _ if quoted => {}
            '>' if path => path = false,
            _ if path => {}
            '<' if last.is_ascii_digit() || last == 'D' => path = true,
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        last = c;
    }
    parts.push(text[from..].trim());
    parts
}

/// A string as C writes it: octal digits and letters behind a backslash.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut left) = (Vec::new(), text.as_bytes());
    let octal: HashSet<u8> = (b'0'..=b'7').collect();
    while let Some((&byte, rest)) = left.split_first() {
        left = rest;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let digits = left
            .iter()
            .take(3)
            .take_while(|b| octal.contains(b))
            .count();
        if digits > 0 {
            let value = left[..digits]
                .iter()
                .fold(0u32, |v, d| v * 8 + u32::from(d - b'0'));
            bytes.push(value as u8);
            left = &left[digits..];
        } else if let Some((&letter, rest)) = left.split_first() {
            bytes.push(match letter {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'v' => 11,
                b'f' => 12,
                other => other,
            });
            left = rest;
        }
    }
    bytes
}

/// Nanoseconds of seconds with a fraction.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let unit = 10u64.pow(9 - fraction.len() as u32);
    let whole: u64 = whole.parse().ok()?;
    whole
        .checked_mul(1_000_000_000)?
        .checked_add(fraction.parse::<u64>().ok()? * unit)
}
