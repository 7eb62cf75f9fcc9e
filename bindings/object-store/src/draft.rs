//! Objects that are being written: hidden files beside their places, which get their names when they are complete.

use crate::{
    fault::{Fault, Kind},
    lock::Lock,
    modes,
    names::{self, Place},
    objects::{Mode, Objects},
    open::Version,
};
use odafs::{
    File, PathError,
    fs::{Create, FileHandle},
};

const ESTALE: i32 = 116;

/// An object that is not in its place yet. Dropping it removes the file.
pub struct Draft<'a> {
    objects: &'a Objects,
    place: Place,
    directory: FileHandle,
    /// Its hidden name.
    temporary: Option<String>,
    handle: FileHandle,
    pub file: File,
}

impl<'a> Draft<'a> {
    /// An empty file in the directory of the place.
    pub fn make(
        objects: &'a Objects,
        place: &Place,
        directory: FileHandle,
    ) -> Result<Self, PathError> {
        let temporary = names::temporary();
        let how = Create::Guarded(modes::of_file());
        let made = objects.fs.create(&directory, &temporary, &how)?;
        Ok(Self::again(
            objects,
            place,
            (directory, temporary, made.handle),
        ))
    }

    /// The parts, from which [`Draft::again`] assembles it.
    pub fn into_parts(mut self) -> (FileHandle, String, FileHandle) {
        let temporary = self.temporary.take().expect("it is not published");
        (self.directory, temporary, self.handle)
    }

    pub fn again(
        objects: &'a Objects,
        place: &Place,
        (directory, temporary, handle): (FileHandle, String, FileHandle),
    ) -> Self {
        Self {
            objects,
            place: place.clone(),
            directory,
            temporary: Some(temporary),
            handle,
            file: objects.fs.file(&handle),
        }
    }

    /// The file.
    pub fn handle(&self) -> &FileHandle {
        &self.handle
    }

    /// Brings the file to stable storage and into its place. Returns the ETag there, if the server says. Once the file
    /// is in its place, failures are not reported.
    pub fn publish(mut self, mode: &Mode) -> Result<Option<String>, Fault> {
        let synced = self.file.sync();
        synced.map_err(|error| Fault::write("put", &self.place.location, error))?;
        match mode {
            Mode::Overwrite => self.rename()?,
            Mode::Create => self.link()?,
            Mode::Update(e_tag) => self.update(e_tag)?,
        }
        self.objects.open.forget(&self.place.location);
        // The new name changes its attributes. If the object has been replaced already, nobody has seen another ETag.
        match self.objects.fs.getattr(&self.handle) {
            Ok(attributes) => Ok(Some(Version::of(&attributes).e_tag)),
            Err(error) if error.errno() == ESTALE => Ok(Some("\"replaced\"".to_owned())),
            Err(_) => Ok(None),
        }
    }

    fn rename(&mut self) -> Result<(), Fault> {
        let (fs, name) = (&self.objects.fs, self.place.name());
        if let Some(temporary) = &self.temporary {
            let renamed = fs.rename(&self.directory, temporary, &self.directory, name);
            self.unless_in_place(renamed)?;
        }
        self.temporary = None;
        Ok(())
    }

    fn link(&mut self) -> Result<(), Fault> {
        let (fs, name) = (&self.objects.fs, self.place.name());
        self.unless_in_place(fs.link(&self.handle, &self.directory, name))?;
        if let Some(temporary) = self.temporary.take() {
            // If this fails, the file stays like those that killed processes leave.
            let _ = fs.unlink(&self.directory, temporary);
        }
        Ok(())
    }

    fn update(&mut self, e_tag: &String) -> Result<(), Fault> {
        let (objects, location) = (self.objects, &self.place.location);
        let lock = Lock::take(objects, &self.directory, self.place.name(), location)?;
        let now = objects.e_tag(&self.directory, &self.place)?;
        if now.as_ref() != Some(e_tag) {
            let now = now.as_deref().unwrap_or("no object");
            let why = format!("{now} is there, not {e_tag}");
            return Err(Fault::new(Kind::Changed, location, why));
        }
        lock.check(location)?;
        self.rename()
    }

    /// A call that failed may have been done: its answer was lost, or the call was repeated. The name tells.
    fn unless_in_place(&self, done: Result<(), PathError>) -> Result<(), Fault> {
        let Err(error) = done else {
            return Ok(());
        };
        let found = self.objects.fs.lookup(&self.directory, self.place.name());
        match found {
            Ok(found) if found.handle == self.handle => Ok(()),
            _ => Err(Fault::path("put", &self.place.location, error)),
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = self.objects.fs.unlink(&self.directory, temporary);
        }
    }
}
