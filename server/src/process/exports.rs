//! Opens what is served: one directory or archive, or several as a table of exports.
//!
//! Each export of a table has a tag, which all file handles of its objects contain. The file `exports` of the state
//! directory keeps the tags. Its first line has a number that all handles contain, too. Each further line has a tag, a
//! digest of the path, and the name. No other export ever gets the same tag, so a handle of an export that was removed,
//! or whose name now stands for another directory, is STALE. If the file is removed, the next server makes a new number,
//! and all handles of before are unknown.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use odafs_fabric::entropy;
use sha2::{Digest as _, Sha256};

use crate::process::config::{ExportOptions, ServerConfig};
use crate::store::state::StateDir;
use crate::store::table::{self, Entry};
use crate::store::{Among, LocalOptions, LocalStore, Store, StoreTable, TarStore, Time};
use crate::vfs::export::Place;

/// The file of tags in the state directory.
const TAGS: &str = "exports";
/// The longest file of tags, in bytes.
const TAGS_BYTES_MAX: u64 = 16 << 20;

/// Opens a directory, or else an archive.
pub(super) fn open_one(
    path: &Path,
    state: &StateDir,
    options: LocalOptions,
) -> io::Result<Arc<dyn Store>> {
    if path.is_file() {
        return Ok(Arc::new(TarStore::open(path)?));
    }
    Ok(Arc::new(LocalStore::open(path, state, options)?))
}

/// Where the host has a directory, from now on. `None` for an archive, and for a directory that is gone.
pub(super) fn place(tag: u16, directory: &Path) -> Option<Place> {
    let real = std::fs::canonicalize(directory).ok()?;
    let absolute = std::path::absolute(directory).ok()?;
    // With `..` behind a symbolic link it would not be what it looks like.
    let plain = !absolute
        .components()
        .any(|part| part == Component::ParentDir);
    let named = if plain { absolute } else { real.clone() };
    real.is_dir().then_some(Place { tag, named, real })
}

/// Opens all exports of `config` below one root.
pub(super) fn open(config: &ServerConfig, state: &StateDir) -> io::Result<Arc<dyn Store>> {
    let exports = &config.exports;
    let places = ExportSource::apart(exports)?;
    let mut tags = Tags::read(&state.path().join(TAGS))?;
    let before = tags.text();
    let mut named = Vec::new();
    for (export, place) in exports.iter().zip(&places) {
        let name = table::normalized(&export.name).map_err(io::Error::other)?;
        named.push((tags.tag(&name, place.digest())?, name));
    }
    // The tags must be on stable storage before a client gets a handle with one of them.
    if tags.is_new || tags.text() != before {
        let kept = state.replace(TAGS, tags.text().as_bytes());
        kept.map_err(io::Error::other)?;
    }
    let mut entries = Vec::new();
    for ((tag, name), export) in named.into_iter().zip(exports) {
        let options = LocalOptions {
            read_only: config.read_only || export.read_only,
            among: Some(Among {
                tag,
                stores: exports.len(),
            }),
        };
        let store = open_one(&export.directory, state, options);
        let store = store.map_err(|error| about(export, &error))?;
        entries.push(Entry { name, tag, store });
    }
    let table = StoreTable::new(entries, tags.number, now()).map_err(io::Error::other)?;
    Ok(Arc::new(table))
}

fn about(export: &ExportOptions, error: &io::Error) -> io::Error {
    let directory = export.directory.display();
    io::Error::new(
        error.kind(),
        format!("{} from {directory}: {error}", export.name),
    )
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Time {
        seconds: since.as_secs().cast_signed(),
        nanoseconds: since.subsec_nanos(),
    }
}

/// The directory or archive of an export.
struct ExportSource {
    path: PathBuf,
    device: u64,
    ino: u64,
}

impl ExportSource {
    fn of(export: &ExportOptions) -> io::Result<Self> {
        let path = std::fs::canonicalize(&export.directory)?;
        let found = std::fs::metadata(&path)?;
        Ok(Self {
            path,
            device: found.dev(),
            ino: found.ino(),
        })
    }

    /// The places of the exports, which must show no file twice. A file that two exports show would be two objects to the
    /// server, and a write through one would become visible late through the other.
    fn apart(exports: &[ExportOptions]) -> io::Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        for export in exports {
            let place = Self::of(export).map_err(|error| about(export, &error))?;
            if let Some(at) = all.iter().position(|other| other.overlaps(&place)) {
                let other = &exports[at];
                return Err(io::Error::other(format!(
                    "{} and {} show the same files ({} and {}): leave one of them out",
                    other.name,
                    export.name,
                    other.directory.display(),
                    export.directory.display()
                )));
            }
            all.push(place);
        }
        Ok(all)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let same = (self.device, self.ino) == (other.device, other.ino);
        same || self.path.starts_with(&other.path) || other.path.starts_with(&self.path)
    }

    /// Identifies the path in a few bytes, since a path may be long and contain any byte.
    fn digest(&self) -> u64 {
        let digest = Sha256::digest(self.path.as_os_str().as_bytes());
        digest.first_chunk().map_or(0, |b| u64::from_be_bytes(*b))
    }
}

/// The tags given so far.
struct Tags {
    number: u64,
    /// Whether there was no file.
    is_new: bool,
    given: Vec<Tag>,
}

struct Tag {
    tag: u16,
    place: u64,
    name: String,
}

impl Tags {
    fn read(file: &Path) -> io::Result<Self> {
        let text = match std::fs::metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    number: entropy::word(),
                    is_new: true,
                    given: Vec::new(),
                });
            }
            Ok(found) if found.len() > TAGS_BYTES_MAX => return Err(damaged(file)),
            _ => std::fs::read_to_string(file)?,
        };
        Self::parse(&text).ok_or_else(|| damaged(file))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let number = lines.next()?.strip_prefix("number ")?;
        Some(Self {
            number: u64::from_str_radix(number, 16).ok()?,
            is_new: false,
            given: lines.map(Tag::parse).collect::<Option<_>>()?,
        })
    }

    /// The tag of an export: its earlier one, or else the next.
    fn tag(&mut self, name: &str, place: u64) -> io::Result<u16> {
        let same = |tag: &&Tag| tag.place == place && tag.name == name;
        if let Some(known) = self.given.iter().find(same) {
            return Ok(known.tag);
        }
        let last = self.given.iter().map(|known| known.tag).max().unwrap_or(0);
        let tag = last.checked_add(1).ok_or_else(|| {
            io::Error::other(
                "this state directory has seen 65,535 exports: name a new one with --state (clients then need to mount again)",
            )
        })?;
        let name = name.to_owned();
        self.given.push(Tag { tag, place, name });
        Ok(tag)
    }

    fn text(&self) -> String {
        let line = |known: &Tag| format!("{} {:016x} {}\n", known.tag, known.place, known.name);
        let lines: String = self.given.iter().map(line).collect();
        format!("number {:016x}\n{lines}", self.number)
    }
}

impl Tag {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ');
        let mut next = || parts.next();
        Some(Self {
            tag: next()?.parse().ok().filter(|tag| *tag != 0)?,
            place: u64::from_str_radix(next()?, 16).ok()?,
            name: next()?.to_owned(),
        })
    }
}

fn damaged(file: &Path) -> io::Error {
    io::Error::other(format!(
        "{} is damaged: restore it from a backup, or remove it (clients then need to mount again)",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exports(directory: &Path, names: &[(&str, &str)]) -> ServerConfig {
        let export =
            |(name, below): &(&str, &str)| ExportOptions::new(*name, directory.join(below));
        ServerConfig {
            exports: names.iter().map(export).collect(),
            ..ServerConfig::new("/")
        }
    }

    fn root_of(store: &dyn Store, name: &str) -> Option<u64> {
        let who = crate::store::Credential::of_this_process();
        let found = store.lookup(&who, store.root(), name.as_bytes()).ok()?;
        Some(found.0.generation)
    }

    #[test]
    fn a_directory_has_the_path_that_was_given_and_its_real_one() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        let place = |path: &Path| super::place(3, path).map(|place| (place.named, place.real));
        assert_eq!(place(&link), Some((link.clone(), real.clone())));
        // `..` may lead elsewhere than it looks.
        let around = link.join("..").join("link");
        assert_eq!(place(&around), Some((real.clone(), real.clone())));
        std::fs::write(scratch.path().join("archive"), "").unwrap();
        assert_eq!(place(&scratch.path().join("archive")), None);
    }

    #[test]
    fn an_export_keeps_its_tag_as_long_as_it_is_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| scratch.path().join(name));
        for directory in [&a, &b, &c] {
            std::fs::create_dir(directory).unwrap();
        }
        let state = scratch.path().join("state");
        let open = |names: &[(&str, &str)]| {
            let state = StateDir::open(Some(&state), Path::new("/")).unwrap();
            super::open(&exports(scratch.path(), names), &state).unwrap()
        };
        let two = open(&[("/one", "a"), ("/two", "b")]);
        let (one, other) = (root_of(&*two, "one"), root_of(&*two, "two"));
        assert!(one.is_some() && other.is_some());
        // The same exports in another order, behind a new one.
        let three = open(&[("/three", "c"), ("/two", "b"), ("/one", "a")]);
        assert_eq!(
            (root_of(&*three, "one"), root_of(&*three, "two")),
            (one, other)
        );
        // A name that stands for another directory has another tag. With its first directory it has the first tag again.
        let changed = open(&[("/one", "c")]);
        assert_ne!(
            root_of(&*changed, "one").map(|g| g >> 48),
            one.map(|g| g >> 48)
        );
        assert_eq!(root_of(&*open(&[("/one", "a")]), "one"), one);
    }

    #[test]
    fn exports_that_show_the_same_files_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(scratch.path().join("a/below")).unwrap();
        let state = StateDir::open(Some(&scratch.path().join("state")), Path::new("/")).unwrap();
        for names in [
            [("/x", "a"), ("/y", "a/below")],
            [("/x", "a"), ("/y", "a/.")],
        ] {
            let refused = open(&exports(scratch.path(), &names), &state)
                .err()
                .unwrap();
            assert!(
                refused.to_string().contains("leave one of them out"),
                "{refused}"
            );
        }
        let missing = open(&exports(scratch.path(), &[("/x", "none")]), &state);
        assert!(missing.err().unwrap().to_string().contains("/x from"));
    }

    #[test]
    fn one_name_has_one_tag_however_it_is_written() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("a")).unwrap();
        let state = StateDir::open(Some(&scratch.path().join("state")), Path::new("/")).unwrap();
        let root = |name| {
            let table = open(&exports(scratch.path(), &[(name, "a")]), &state).unwrap();
            root_of(&*table, "one").map(|generation| (generation, table.number()))
        };
        let first = root("/one");
        assert!(first.is_some());
        assert_eq!((root("/one/"), root("//one")), (first, first));
        // Without the file, handles of before are unknown.
        std::fs::remove_file(state.path().join(TAGS)).unwrap();
        assert_ne!(
            root("/one").map(|(_, number)| number),
            first.map(|(_, number)| number)
        );
    }

    #[test]
    fn a_damaged_file_of_tags_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join(TAGS);
        for text in [
            "",
            "1 00 /a\n",
            "number x\n",
            "number 07\n1\n",
            "number 07\n0 00 /a\n",
            "number 07\nx 00 /a\n",
            "number 07\n1 zz /a\n",
        ] {
            std::fs::write(&file, text).unwrap();
            assert!(Tags::read(&file).is_err(), "{text}");
        }
        let text = "number 0000000000000007\n7 00000000000000ff /a name\n";
        std::fs::write(&file, text).unwrap();
        let mut tags = Tags::read(&file).unwrap();
        assert_eq!(tags.tag("/a name", 255).unwrap(), 7);
        assert_eq!(tags.tag("/a name", 254).unwrap(), 8);
        assert_eq!(tags.text(), format!("{text}8 00000000000000fe /a name\n"));
    }
}
