//! From a path to a file: one LOOKUP for each name. Symbolic links are followed here, as NFS clients do.

use crate::{
    error::{PathError, Status},
    handle::FileHandle,
    nfs::{
        NfsError,
        mount::{names, within},
    },
    shared::Shared,
    types::{Entry, FileKind},
    url::NAME_MAX,
};
use std::{collections::VecDeque, os::unix::ffi::OsStrExt as _, path::Path};

/// The most symbolic links on a path, as on Linux.
const LINKS_MAX: u32 = 40;

/// A walk down a path.
pub struct Walk<'a> {
    /// The client.
    pub shared: &'a Shared,
    /// The operation, for messages.
    pub verb: &'static str,
}

/// A name in a directory. The file need not exist.
pub struct EntryName {
    /// The directory.
    pub directory: FileHandle,
    /// The name.
    pub name: Vec<u8>,
}

impl Walk<'_> {
    /// The file at `path`. A link at its end is followed only if `follow` is set.
    pub fn find(&self, path: &Path, follow: bool) -> Result<Entry, PathError> {
        let names = self.names(path.as_os_str().as_bytes(), path)?;
        let mut above = Vec::new();
        self.descend(path, names, follow, &mut above)
    }

    /// The directory and the name of `path`. The directory must exist.
    pub fn place(&self, path: &Path) -> Result<EntryName, PathError> {
        let (names, name) = self.split(path)?;
        let mut above = Vec::new();
        let directory = self.descend(path, names, true, &mut above)?;
        if directory.attributes.kind != FileKind::Directory {
            return Err(NfsError::from(Status::NOT_DIR).at(self.verb, &path.to_string_lossy()));
        }
        Ok(EntryName {
            directory: directory.handle,
            name,
        })
    }

    /// The places of two paths. A directory that both name alike is looked up once.
    pub fn places(&self, first: &Path, second: &Path) -> Result<[EntryName; 2], PathError> {
        let place = self.place(first)?;
        let (names, name) = self.split(second)?;
        let other = match self.split(first)?.0 == names {
            true => EntryName {
                directory: place.directory,
                name,
            },
            false => self.place(second)?,
        };
        Ok([place, other])
    }

    /// The file at `existing`, whose link at the end is not followed, and the place of a further name for it. A directory
    /// that both name alike is looked up once.
    pub fn file_and_place(
        &self,
        existing: &Path,
        new: &Path,
    ) -> Result<(FileHandle, EntryName), PathError> {
        let (name, last) = match (self.split(new), self.split(existing)) {
            (Ok((names, name)), Ok((of, last))) if of == names => (name, last),
            _ => {
                let found = self.find(existing, false)?;
                return Ok((found.handle, self.place(new)?));
            }
        };
        let directory = self.place(existing)?.directory;
        let found = self.shared.nfs().lookup(&directory, &last);
        let found = found.map_err(|error| error.at(self.verb, &existing.to_string_lossy()))?;
        Ok((found.handle, EntryName { directory, name }))
    }

    /// The names on the way to the directory of `path`, and the name in it.
    fn split(&self, path: &Path) -> Result<(VecDeque<Vec<u8>>, Vec<u8>), PathError> {
        let mut names = self.names(path.as_os_str().as_bytes(), path)?;
        let name = names.pop_back().filter(|name| name != b"..");
        let name = name.ok_or_else(|| self.bad(path, "it ends in no name"))?;
        Ok((names, name))
    }

    /// The names of a path below the export. A relative path starts at that of the URL.
    fn names(&self, bytes: &[u8], path: &Path) -> Result<VecDeque<Vec<u8>>, PathError> {
        if bytes.is_empty() {
            return Err(self.bad(path, "it is empty"));
        }
        let mut whole = Vec::new();
        if !bytes.starts_with(b"/") {
            whole.extend_from_slice(&self.shared.url.path);
            whole.push(b'/');
        }
        whole.extend_from_slice(bytes);
        if whole.contains(&0) {
            return Err(self.bad(path, "it holds a NUL"));
        }
        if names(&whole).any(|name| name.len() > NAME_MAX) {
            return Err(self.bad(path, "a name in it is longer than 255 bytes"));
        }
        let export = &self.shared.mounted.export;
        let below = within(&whole, export).ok_or_else(|| PathError::OutsideExport {
            verb: self.verb,
            path: path.to_string_lossy().into_owned(),
            export: String::from_utf8_lossy(export).into_owned(),
        })?;
        Ok(below.into_iter().map(<[u8]>::to_vec).collect())
    }

    fn bad(&self, path: &Path, why: &'static str) -> PathError {
        PathError::BadPath {
            verb: self.verb,
            path: path.to_string_lossy().into_owned(),
            why,
        }
    }

    /// Looks up name by name. `above` are the directories on the way, for `..`, which never leads out of the export.
    fn descend(
        &self,
        path: &Path,
        mut names: VecDeque<Vec<u8>>,
        follow: bool,
        above: &mut Vec<FileHandle>,
    ) -> Result<Entry, PathError> {
        let nfs = self.shared.nfs();
        let at = |error: NfsError| error.at(self.verb, &path.to_string_lossy());
        let mut here = self.shared.mounted.root;
        let mut found = None;
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            if name == b".." {
                here = above.pop().unwrap_or(self.shared.mounted.root);
                found = None;
                continue;
            }
            let next = nfs.lookup(&here, &name).map_err(at)?;
            if next.attributes.kind == FileKind::Symlink && (follow || !names.is_empty()) {
                links += 1;
                if links > LINKS_MAX {
                    let path = path.to_string_lossy().into_owned();
                    return Err(PathError::Loop {
                        verb: self.verb,
                        path,
                    });
                }
                let target = nfs.read_link(&next.handle).map_err(at)?;
                let ahead = self.target(&target, path)?;
                if target.starts_with(b"/") {
                    here = self.shared.mounted.root;
                    above.clear();
                    found = None;
                }
                ahead
                    .into_iter()
                    .rev()
                    .for_each(|name| names.push_front(name));
                continue;
            }
            above.push(here);
            here = next.handle;
            found = Some(next);
        }
        match found {
            Some(found) => Ok(found),
            None => Ok(Entry {
                handle: here,
                attributes: nfs.attributes(&here).map_err(at)?,
            }),
        }
    }

    /// The names in a link. A link that begins with `/` is a path on the server, as in URLs.
    fn target(&self, target: &[u8], path: &Path) -> Result<VecDeque<Vec<u8>>, PathError> {
        if target.starts_with(b"/") {
            return self.names(target, path);
        }
        Ok(names(target).map(<[u8]>::to_vec).collect())
    }
}
