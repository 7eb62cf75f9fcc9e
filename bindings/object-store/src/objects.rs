//! Operations on objects, on threads that may block.

use crate::{
    draft::Draft,
    fault::{Fault, Kind},
    modes,
    names::{self, Place},
    open::{Open, OpenObjects, Version},
    ranges,
    slabs::Slabs,
};
use bytes::Bytes;
use odafs::{
    Changes, Client, File, FileKind, PathError,
    fs::{Cookie, Entry, FileHandle, FileSystem},
};
use std::{ops::Range, sync::Arc};

/// How often a get begins again because the object changed.
const TRIES: u32 = 16;
/// Number of bytes that are read, and checked to be of one version, before the consumer gets any of them.
pub const PIECE: u64 = 8 << 20;
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const EISDIR: i32 = 21;
const ELOOP: i32 = 40;

/// The objects of one URL.
pub struct Objects {
    pub client: Client,
    pub fs: FileSystem,
    pub open: OpenObjects,
    /// Memory of ranges.
    slabs: Arc<Slabs>,
}

/// The result of a get: the first part of the range, and the open file for the rest.
pub struct Got {
    pub open: Arc<Open>,
    pub range: Range<u64>,
    pub first: Bytes,
}

/// The condition of a put.
#[derive(Debug, Clone)]
pub enum Mode {
    Overwrite,
    Create,
    /// The object with this ETag is there.
    Update(String),
}

/// One name of a listing.
pub enum Listed {
    Object(String, Version),
    Directory(String),
}

impl Objects {
    pub fn new(client: Client) -> Self {
        Self {
            fs: FileSystem::new(&client),
            client,
            open: OpenObjects::default(),
            slabs: Arc::default(),
        }
    }

    // Reading

    /// The present object.
    pub fn open(&self, location: &str) -> Result<Arc<Open>, Fault> {
        if let Some(open) = self.open.get(location)
            && open.is_still(location)?
        {
            return Ok(open);
        }
        self.open.forget(location);
        Place::of(location)?;
        let failed = |error| Fault::path("get", location, error);
        let mut tries = 0;
        loop {
            let found = self.fs.resolve(location, true).map_err(failed)?;
            if found.attributes.kind != FileKind::Regular {
                return Err(Fault::not_found(location));
            }
            let file = self.fs.file(&found.handle);
            tries += 1;
            match file.snapshot().map_err(failed) {
                Ok(snapshot) => {
                    let open = Arc::new(Open::new(file, snapshot));
                    self.open.put(location, Arc::clone(&open));
                    return Ok(open);
                }
                // The object was replaced between the two calls.
                Err(fault) if fault.kind == Kind::Changed && tries < TRIES => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Calls `read` until all of its result is of one version, as often as the object changes meanwhile.
    fn consistent<T, E: From<Fault>>(
        &self,
        location: &str,
        mut read: impl FnMut(&Arc<Open>) -> Result<T, E>,
        changed: impl Fn(&E) -> bool,
    ) -> Result<(Arc<Open>, T), E> {
        for _ in 0..TRIES {
            let open = self.open(location)?;
            match read(&open) {
                Ok(done) if open.is_still(location)? => return Ok((open, done)),
                Ok(_) => {}
                // A refusal by a version that has gone says nothing about the next one.
                Err(error) if changed(&error) || !open.is_still(location)? => {}
                Err(error) => return Err(error),
            }
            self.open.forget(location);
        }
        Err(Fault::changed(location).into())
    }

    /// Reads the range of `plan` from the present version. Errors of `plan` are the caller's.
    pub fn get<E: From<Fault>>(
        &self,
        location: &str,
        plan: impl Fn(&Version) -> Result<Range<u64>, E>,
    ) -> Result<Got, E> {
        enum Failed<E> {
            Read(Fault),
            Plan(E),
        }
        impl<E> From<Fault> for Failed<E> {
            fn from(fault: Fault) -> Self {
                Self::Read(fault)
            }
        }
        let read = |open: &Arc<Open>| {
            let range = plan(&open.version).map_err(Failed::Plan)?;
            let first = range.start..range.end.min(range.start.saturating_add(PIECE));
            Ok((range, read_piece(&open.file, location, first)?))
        };
        let changed =
            |error: &Failed<E>| matches!(error, Failed::Read(fault) if fault.kind == Kind::Changed);
        match self.consistent(location, read, changed) {
            Ok((open, (range, first))) => Ok(Got { open, range, first }),
            Err(Failed::Read(fault)) => Err(fault.into()),
            Err(Failed::Plan(error)) => Err(error),
        }
    }

    /// Many ranges of one version, all in flight together.
    pub fn get_ranges(&self, location: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Fault> {
        let at = Arc::from(location);
        let read = |open: &Arc<Open>| ranges::read(open, &at, ranges, &self.slabs);
        let changed = |fault: &Fault| fault.kind == Kind::Changed;
        Ok(self.consistent(location, read, changed)?.1)
    }

    // Writing

    /// Puts an object into its place, as a whole or not at all. Returns the ETag, if the server says.
    pub fn put(
        &self,
        location: &str,
        parts: &[Bytes],
        mode: &Mode,
    ) -> Result<Option<String>, Fault> {
        let place = Place::of(location)?;
        let draft = self.draft(&place)?;
        let mut at = 0;
        for part in parts {
            let written = draft.file.write_at(part, at);
            written.map_err(|error| Fault::write("put", location, error))?;
            at += part.len() as u64;
        }
        draft.publish(mode)
    }

    /// A hidden file beside the place of an object, whose directories are created if they are missing.
    pub fn draft(&self, place: &Place) -> Result<Draft<'_>, Fault> {
        let made = self
            .directory_of(place)
            .and_then(|directory| Draft::make(self, place, directory));
        made.map_err(|error| Fault::path("put", &place.location, error))
    }

    /// The directory of an object, which is created if it is missing.
    fn directory_of(&self, place: &Place) -> Result<FileHandle, PathError> {
        let directory = place.directory();
        let found = |path: &str| self.fs.resolve(path, true).map(|found| found.handle);
        match found(directory) {
            Err(error) if error.errno() == ENOENT => {}
            found => return found,
        }
        let how = modes::of_directory();
        let mut at = found(names::directory(""))?;
        let ends = directory.match_indices('/').map(|(end, _)| end);
        let mut from = 0;
        for end in ends.chain([directory.len()]) {
            let above = &directory[..end];
            at = match found(above) {
                Err(error) if error.errno() == ENOENT => {
                    match self.fs.mkdir(&at, &directory[from..end], &how) {
                        Ok(made) => made.handle,
                        // Somebody else created it.
                        Err(error) if error.errno() == EEXIST => found(above)?,
                        Err(error) => return Err(error),
                    }
                }
                found => found?,
            };
            from = end + 1;
        }
        Ok(at)
    }

    /// The ETag of the object in a directory, if there is one. A symbolic link counts as its target, as in a get.
    pub fn e_tag(&self, directory: &FileHandle, place: &Place) -> Result<Option<String>, Fault> {
        let found = match self.fs.lookup(directory, place.name()) {
            Ok(found) if found.attributes.kind == FileKind::Symlink => {
                self.fs.resolve(&place.location, true)
            }
            found => found,
        };
        match found {
            Ok(found) => Ok(Some(Version::of(&found.attributes).e_tag)),
            Err(error) if error.errno() == ENOENT => Ok(None),
            Err(error) => Err(Fault::path("put", &place.location, error)),
        }
    }

    pub fn delete(&self, location: &str) -> Result<(), Fault> {
        let place = Place::of(location)?;
        self.open.forget(location);
        let failed = |error| Fault::path("delete", location, error);
        let directory = self
            .fs
            .resolve(place.directory(), true)
            .map_err(failed)?
            .handle;
        let removed = self.fs.unlink(&directory, place.name());
        self.open.forget(location);
        // A directory is not an object. POSIX has EPERM for one, which others use for what may not be removed.
        let is_directory = |error: &PathError| match error.errno() {
            EISDIR => true,
            EPERM => self
                .fs
                .lookup(&directory, place.name())
                .is_ok_and(|found| found.attributes.kind == FileKind::Directory),
            _ => false,
        };
        removed.map_err(|error| match is_directory(&error) {
            true => Fault::not_found(location),
            false => failed(error),
        })
    }

    /// Copies one version of an object, through this machine.
    pub fn copy(&self, from: &str, to: &str, mode: &Mode) -> Result<(), Fault> {
        let place = Place::of(to)?;
        // Check first, before anything is created.
        self.open(from)?;
        let draft = self.draft(&place)?;
        let copy = |open: &Arc<Open>| {
            let size = open.version.size;
            let mut at = 0;
            while at < size {
                let piece = read_piece(&open.file, from, at..size.min(at + PIECE))?;
                let written = draft.file.write_at(&piece, at);
                written.map_err(|error| Fault::write("copy to", to, error))?;
                at += piece.len() as u64;
            }
            // An earlier attempt may have been of a longer version.
            let cut = Changes {
                size: Some(size),
                ..Changes::default()
            };
            let cut = self.fs.setattr(draft.handle(), &cut, None);
            cut.map_err(|error| Fault::path("copy to", to, error))?;
            Ok(())
        };
        self.consistent(from, copy, |fault: &Fault| fault.kind == Kind::Changed)?;
        draft.publish(mode).map(drop)
    }

    /// Renames an object, with `create` only if there is none at the new place. NFS version 3 has no such rename: the
    /// object gets the new name, which is atomic, and then loses the old one.
    pub fn rename(&self, from: &str, to: &str, create: bool) -> Result<(), Fault> {
        let (source, target) = (Place::of(from)?, Place::of(to)?);
        let failed = |location: &str, error| Fault::path("rename", location, error);
        let at_source = |error| failed(from, error);
        let from_directory = self
            .fs
            .resolve(source.directory(), true)
            .map_err(at_source)?;
        let from_directory = from_directory.handle;
        let found = self
            .fs
            .lookup(&from_directory, source.name())
            .map_err(at_source)?;
        if found.attributes.kind == FileKind::Directory {
            return Err(Fault::not_found(from));
        }
        let to_directory = self
            .directory_of(&target)
            .map_err(|error| failed(to, error))?;
        let done = if create {
            self.fs
                .link(&found.handle, &to_directory, target.name())
                .map_err(|error| failed(to, error))
                .and_then(|()| match self.fs.unlink(&from_directory, source.name()) {
                    // Somebody else did.
                    Err(error) if error.errno() == ENOENT => Ok(()),
                    removed => removed.map_err(at_source),
                })
        } else {
            let (name, new_name) = (source.name(), target.name());
            self.fs
                .rename(&from_directory, name, &to_directory, new_name)
                .map_err(at_source)
        };
        self.open.forget(from);
        self.open.forget(to);
        done
    }

    // Listing

    /// The objects and directories in a directory, without the hidden files. Empty if there is no such directory.
    pub fn list(&self, directory: &str) -> Result<Vec<Listed>, Fault> {
        let mut tries = 0;
        loop {
            let found = self.fs.resolve(names::directory(directory), true);
            let listed = match found {
                Ok(found) if found.attributes.kind == FileKind::Directory => {
                    self.entries(directory, &found.handle)
                }
                Ok(_) => return Ok(Vec::new()),
                Err(error) => Err(Fault::path("list", directory, error)),
            };
            tries += 1;
            match listed {
                Err(fault) if fault.kind == Kind::NotFound => return Ok(Vec::new()),
                // The directory was replaced, or changed so that the listing cannot continue.
                Err(fault) if fault.kind == Kind::Changed => {
                    if tries >= TRIES {
                        let kind = Kind::Other;
                        return Err(Fault { kind, ..fault });
                    }
                }
                listed => return listed,
            }
        }
    }

    /// The entries of the directory that has the name now.
    pub fn entries(&self, directory: &str, handle: &FileHandle) -> Result<Vec<Listed>, Fault> {
        let failed = |error| Fault::path("list", directory, error);
        // What a name stands for, if the listing does not say. It may be gone, or a link that leads nowhere.
        let entry = |found: Result<Entry, PathError>| match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.errno() == ELOOP => Ok(None),
            Err(error) => match failed(error) {
                fault if matches!(fault.kind, Kind::NotFound | Kind::Denied) => Ok(None),
                fault => Err(fault),
            },
        };
        let mut all = Vec::new();
        for listed in self.fs.readdirplus(handle, Cookie::START) {
            let listed = listed.map_err(failed)?;
            let Some(name) = listed.name.to_str() else {
                continue;
            };
            if matches!(name, "." | "..") || names::is_hidden(name) {
                continue;
            }
            let location = match directory {
                "" => name.to_owned(),
                directory => format!("{directory}/{name}"),
            };
            let attributes = match listed.attributes {
                None => entry(self.fs.lookup(handle, name))?.map(|found| found.attributes),
                attributes => attributes,
            };
            let Some(attributes) = attributes else {
                continue;
            };
            if attributes.kind == FileKind::Symlink {
                // A link to an object. One to a directory may lead round in circles.
                let target = entry(self.fs.resolve(&location, true))?;
                if let Some(target) = target
                    && target.attributes.kind == FileKind::Regular
                {
                    all.extend(object(location, &target.attributes));
                }
                continue;
            }
            all.extend(object(location, &attributes));
        }
        Ok(all)
    }
}

fn object(location: String, attributes: &odafs::fs::Attributes) -> Option<Listed> {
    match attributes.kind {
        FileKind::Regular => Some(Listed::Object(location, Version::of(attributes))),
        FileKind::Directory => Some(Listed::Directory(location)),
        _ => None,
    }
}

/// The bytes of a range. Fewer mean that the file has been truncated.
pub fn read_piece(file: &File, location: &str, range: Range<u64>) -> Result<Bytes, Fault> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let read = file.read_at(&mut bytes, range.start);
    let read = read.map_err(|error| Fault::read(location, error))?;
    if read < bytes.len() {
        return Err(Fault::changed(location));
    }
    Ok(bytes.into())
}
