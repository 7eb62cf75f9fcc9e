//! Uploads in parts: each is written to its offset in a hidden file, in any order.

use crate::{
    draft::Draft,
    fault::{Fault, Kind},
    names::Place,
    objects::{Mode, Objects},
};
use bytes::Bytes;
use odafs::fs::FileHandle;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// An object that is written in parts.
pub struct Parts {
    objects: Arc<Objects>,
    place: Place,
    draft: Mutex<Option<(FileHandle, String, FileHandle)>>,
    file: odafs::File,
    /// Bytes of the parts that were written.
    written: AtomicU64,
}

impl Parts {
    pub fn begin(objects: Arc<Objects>, location: &str) -> Result<Self, Fault> {
        let place = Place::of(location)?;
        let draft = objects.draft(&place)?;
        let file = draft.file.clone();
        let draft = Mutex::new(Some(draft.into_parts()));
        Ok(Self {
            objects,
            place,
            draft,
            file,
            written: AtomicU64::new(0),
        })
    }

    pub fn write(&self, data: &[Bytes], offset: u64) -> Result<(), Fault> {
        let mut at = offset;
        for part in data {
            let written = self.file.write_at(part, at);
            written.map_err(|error| Fault::write("put", &self.place.location, error))?;
            at += part.len() as u64;
        }
        self.written.fetch_add(at - offset, Relaxed);
        Ok(())
    }

    fn take(&self) -> Option<Draft<'_>> {
        let parts = self
            .draft
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .take()?;
        Some(Draft::again(&self.objects, &self.place, parts))
    }

    /// Moves the object to its place. Returns the ETag, if the server says. `bytes` is the length that was to be
    /// written.
    pub fn complete(&self, bytes: u64) -> Result<Option<String>, Fault> {
        let location = &self.place.location;
        let Some(draft) = self.take() else {
            let why = "the upload was completed or aborted before";
            return Err(Fault::new(Kind::NotSupported, location, why));
        };
        // The length does not tell: a part after the missing one may have been written.
        if self.written.load(Relaxed) != bytes {
            let why = "a part was not written (await every part, begin again if one fails)";
            return Err(Fault::new(Kind::Other, location, why));
        }
        draft.publish(&Mode::Overwrite)
    }

    pub fn abort(&self) {
        drop(self.take());
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let parts = self
            .draft
            .get_mut()
            .unwrap_or_else(|e| e.into_inner())
            .take();
        if let Some(parts) = parts {
            let (objects, place) = (Arc::clone(&self.objects), self.place.clone());
            crate::block::detach(move || drop(Draft::again(&objects, &place, parts)));
        }
    }
}
