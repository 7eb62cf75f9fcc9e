//! What a reader may find in the files at any time.

use crate::pages::{PAGE, Pages, Register, Since};

/// The state of the files and of their pages.
pub struct Files {
    /// Whether each file exists.
    there: Vec<Register>,
    /// The pages of all files.
    pages: Pages,
    /// Maximum number of pages of a file.
    each: usize,
}

/// The state of a file when an open of it began.
pub struct Opened {
    there: Since,
    /// Of every page; only for readers that keep pages.
    pages: Vec<Since>,
}

/// The state of pages when a read of them began.
pub struct Asked {
    first: usize,
    since: Vec<Since>,
}

impl Files {
    /// `files` files, none of which exists yet, with a maximum of `each` pages.
    pub fn new(files: usize, each: usize) -> Self {
        Self {
            there: (0..files).map(|_| Register::default()).collect(),
            pages: Pages::new(files * each),
            each,
        }
    }

    /// Number of files, whether they exist or not.
    pub fn len(&self) -> usize {
        self.there.len()
    }

    /// Maximum number of pages of a file.
    pub fn each(&self) -> usize {
        self.each
    }

    /// A file's name.
    pub fn name(file: usize) -> String {
        format!("file {file}")
    }

    /// Whether a file exists.
    pub fn there(&self, file: usize) -> &Register {
        &self.there[file]
    }

    /// A page of a file.
    pub fn page(&self, file: usize, page: usize) -> &Register {
        self.pages.of(file * self.each + page)
    }

    /// Fills a buffer with the next versions of pages of a file, whose write begins now.
    pub fn next(&self, file: usize, first: usize, into: &mut [u8]) {
        for (number, page) in into.chunks_exact_mut(PAGE).enumerate() {
            self.pages.next(file * self.each + first + number, page);
        }
    }

    /// To be called before a file is opened.
    pub fn open(&self, file: usize, keeps: bool) -> Opened {
        let pages = if keeps { 0..self.each } else { 0..0 };
        Opened {
            there: self.there[file].since(),
            pages: pages.map(|page| self.page(file, page).since()).collect(),
        }
    }

    /// To be called before `pages` pages, from `first` on, are read of an open file.
    pub fn ask(&self, file: usize, opened: &Opened, first: usize, pages: usize) -> Asked {
        let since = (first..first + pages).map(|page| match opened.pages.get(page) {
            Some(since) => *since,
            None => self.page(file, page).since(),
        });
        Asked {
            first,
            since: since.collect(),
        }
    }

    /// Whether this result of an open is right.
    pub fn allows_open(&self, file: usize, opened: &Opened, was_there: bool) -> bool {
        match was_there {
            true => self.there[file].allows_presence(opened.there),
            false => self.there[file].allows_absence(opened.there),
        }
    }

    /// Whether an open file may have been removed.
    pub fn may_be_gone(&self, file: usize, opened: &Opened) -> bool {
        self.there[file].has_changed(opened.there)
    }

    /// Says what is wrong with the result of a read: `data` was returned for `wanted` bytes, which begin `within` bytes
    /// into the first page.
    pub fn check(
        &self,
        file: usize,
        asked: &Asked,
        (within, wanted): (usize, usize),
        data: &[u8],
    ) -> Option<String> {
        let end = within + data.len();
        if data.len() < wanted && !end.is_multiple_of(PAGE) && !data.is_empty() {
            return Some(format!(
                "a part of a page, {} of {wanted} bytes",
                data.len()
            ));
        }
        for (number, since) in asked.since.iter().enumerate() {
            let page = asked.first + number;
            let (from, to) = (number * PAGE, ((number + 1) * PAGE).min(end));
            let from = from.max(within);
            if from >= to {
                // The read ended before.
                if !self.page(file, page).allows_absence(*since) {
                    return Some(format!("page {page} is behind the end of the file"));
                }
                continue;
            }
            let read = &data[from - within..to - within];
            if !self.pages.allows(file * self.each + page, *since, read) {
                let mut first = [0; 8];
                first.copy_from_slice(&read[..8]);
                let (register, found) = (self.page(file, page), u64::from_le_bytes(first));
                let is_whole = read.chunks_exact(8).all(|word| word == first);
                return Some(format!(
                    "page {page} begins with {found:#018x}{}, after {since:?} and before {register:?}",
                    if is_whole {
                        ""
                    } else {
                        " and goes on otherwise"
                    }
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two files of four pages; three of the second were written.
    fn files() -> (Files, Vec<u8>) {
        let files = Files::new(2, 4);
        files.there(1).begin(true);
        files.there(1).done();
        let mut data = vec![0; 3 * PAGE];
        files.next(1, 0, &mut data);
        (0..3).for_each(|page| files.page(1, page).done());
        (files, data)
    }

    #[test]
    fn every_page_of_a_read_is_checked() {
        let (files, data) = files();
        let opened = files.open(1, false);
        let ask = |first, pages| files.ask(1, &opened, first, pages);
        let whole = (0, 4 * PAGE);
        assert_eq!(files.check(1, &ask(0, 4), whole, &data), None);
        // The fourth page is a hole.
        let long = [&data[..], &[0; PAGE]].concat();
        assert_eq!(files.check(1, &ask(0, 4), whole, &long), None);
        assert_eq!(
            files.check(1, &ask(1, 1), (64, 640), &data[PAGE + 64..PAGE + 704]),
            None
        );
        let short = files.check(1, &ask(0, 4), whole, &data[..2 * PAGE]);
        assert!(short.unwrap().contains("page 2 is behind"));
        let part = files.check(1, &ask(0, 4), whole, &data[..PAGE + 8]);
        assert!(part.unwrap().contains("a part of a page"));
        let none = files.check(1, &ask(1, 1), (64, 640), &[]);
        assert!(none.unwrap().contains("page 1 is behind"));
        let mut torn = data.clone();
        torn[2 * PAGE + 800] ^= 1;
        let torn = files.check(1, &ask(0, 3), (0, 3 * PAGE), &torn).unwrap();
        assert!(
            torn.contains("page 2") && torn.contains("otherwise"),
            "{torn}"
        );
        let moved = files.check(1, &ask(1, 2), (0, 2 * PAGE), &data[..2 * PAGE]);
        assert!(moved.unwrap().contains("page 1"));
        let of_other = files.check(0, &files.ask(0, &opened, 0, 1), (0, PAGE), &data[..PAGE]);
        assert!(of_other.is_some());
    }

    #[test]
    fn who_keeps_pages_may_see_those_of_the_last_open() {
        let (files, data) = files();
        let (keeps, not) = (files.open(1, true), files.open(1, false));
        let mut newer = vec![0; PAGE];
        files.next(1, 0, &mut newer);
        files.page(1, 0).done();
        let read = (0, PAGE);
        assert_eq!(
            files.check(1, &files.ask(1, &keeps, 0, 1), read, &data[..PAGE]),
            None
        );
        assert_eq!(
            files.check(1, &files.ask(1, &keeps, 0, 1), read, &newer),
            None
        );
        let old = files.check(1, &files.ask(1, &not, 0, 1), read, &data[..PAGE]);
        assert!(old.is_some());
        let again = files.open(1, true);
        assert!(
            files
                .check(1, &files.ask(1, &again, 0, 1), read, &data[..PAGE])
                .is_some()
        );
    }

    #[test]
    fn files_come_and_go() {
        let (files, _) = files();
        let opened = files.open(1, false);
        assert!(files.allows_open(1, &opened, true) && !files.allows_open(1, &opened, false));
        assert!(
            !files.may_be_gone(1, &opened) && !files.allows_open(0, &files.open(0, false), true)
        );
        files.there(1).begin(false);
        assert!(files.may_be_gone(1, &opened) && files.allows_open(1, &opened, false));
    }
}
