//! Clients that change files, and record what they do.

use std::sync::atomic::Ordering::Relaxed;

use odafs::{Changes, Client, CreateOptions, File};

use super::files::Files;
use super::reader::is_gone;
use super::run::Run;
use crate::pages::{PAGE, Register};
use crate::random::Random;

/// Maximum number of pages of a write.
const MOST: usize = 16;

/// A client, and the files that are its own.
pub struct Writer<'a> {
    run: &'a Run,
    name: &'static str,
    client: Client,
    owned: Vec<Owned>,
    random: Random,
    buffer: Vec<u8>,
}

struct Owned {
    file: usize,
    /// `None` if the file does not exist.
    handle: Option<File>,
}

impl<'a> Writer<'a> {
    /// Writer `number` of `all`, who owns every file whose number leaves the same rest.
    pub fn new(
        run: &'a Run,
        name: &'static str,
        client: Client,
        (number, all): (usize, usize),
    ) -> Self {
        let owned = (number..run.files.len())
            .step_by(all)
            .map(|file| Owned { file, handle: None });
        Self {
            run,
            name,
            client,
            owned: owned.collect(),
            random: Random::new(number as u64),
            buffer: vec![0; MOST * PAGE],
        }
    }

    /// Changes files until the run is over.
    pub fn until_the_end(mut self) {
        while self.run.goes_on() {
            let at = self.random.below(self.owned.len() as u64) as usize;
            match self.owned[at].handle.clone() {
                None => self.make(at),
                Some(handle) => match self.random.below(100) {
                    0..80 => self.write(at, &handle),
                    80..92 => self.sync(&handle),
                    92..97 => self.cut(at),
                    _ => self.remove(at),
                },
            }
        }
    }

    fn failed(&self, what: &dyn std::fmt::Display) {
        let name = self.name;
        self.run.failed(format!("the writer over {name}: {what}"));
        // Nothing is made better by haste.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }

    fn count(&self) {
        self.run.counts.changes.fetch_add(1, Relaxed);
    }

    fn write(&mut self, at: usize, handle: &File) {
        let (files, file) = (&self.run.files, self.owned[at].file);
        let first = self.random.below(files.each() as u64) as usize;
        let most = MOST.min(files.each() - first) as u64;
        let pages = match self.random.below(2) {
            0 => 1,
            _ => 1 + self.random.below(most) as usize,
        };
        let is_stable = self.random.below(8) == 0;
        let data = &mut self.buffer[..pages * PAGE];
        files.next(file, first, data);
        let offset = (first * PAGE) as u64;
        let wrote = match is_stable {
            true => handle.write_stable_at(data, offset),
            false => handle.write_at(data, offset),
        };
        if let Err(error) = wrote {
            return self.failed(&error);
        }
        self.run.counts.writes.fetch_add(1, Relaxed);
        (first..first + pages).for_each(|page| files.page(file, page).done());
    }

    fn sync(&mut self, handle: &File) {
        match handle.sync() {
            Ok(()) => self.count(),
            Err(error) => self.failed(&error),
        }
    }

    /// Cuts the file, or makes it longer by a hole.
    fn cut(&mut self, at: usize) {
        let (files, file) = (&self.run.files, self.owned[at].file);
        let pages = self.random.below(files.each() as u64 + 1) as usize;
        let behind = || (pages..files.each()).map(|page| files.page(file, page));
        for page in behind() {
            page.begin(false);
        }
        let changes = Changes {
            size: Some((pages * PAGE) as u64),
            ..Changes::default()
        };
        match self.client.set_attributes(Files::name(file), &changes) {
            Ok(_) => {
                behind().for_each(Register::done);
                self.count();
            }
            Err(error) => self.failed(&error),
        }
    }

    fn remove(&mut self, at: usize) {
        let (files, file) = (&self.run.files, self.owned[at].file);
        let all = || (0..files.each()).map(|page| files.page(file, page));
        files.there(file).begin(false);
        for page in all() {
            page.begin(false);
        }
        self.owned[at].handle = None;
        match self.client.remove(Files::name(file)) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => {
                let what = format!("remove: file {file} is gone, and was not removed");
                let name = self.name;
                self.run.wrong(format!("the writer over {name}: {what}"));
            }
            Err(error) => return self.failed(&error),
        }
        all().for_each(Register::done);
        files.there(file).done();
        self.count();
    }

    fn make(&mut self, at: usize) {
        let (files, file) = (&self.run.files, self.owned[at].file);
        let options = CreateOptions {
            mode: 0o666,
            ..CreateOptions::default()
        };
        files.there(file).begin(true);
        match self.client.create_with(Files::name(file), &options) {
            Ok(made) => {
                files.there(file).done();
                self.owned[at].handle = Some(made);
                self.count();
            }
            Err(error) => self.failed(&error),
        }
    }
}
