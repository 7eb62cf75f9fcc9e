//! The files that are read: a generated tree, or what a directory holds.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::random::Random;

/// What a generated tree looks like.
#[derive(Clone, Copy, Debug)]
pub struct TreePlan {
    /// How many files.
    pub files: usize,
    /// How many bytes they hold together, about.
    pub bytes: u64,
    /// The same seed makes the same tree.
    pub seed: u64,
}

impl Default for TreePlan {
    fn default() -> Self {
        Self {
            files: 300,
            bytes: 128 << 20,
            seed: 1,
        }
    }
}

impl TreePlan {
    /// Writes the tree below `root` and returns the bytes written. Sizes are
    /// spread over five powers of four and are no multiples of a page, so
    /// that short last pages are read too.
    ///
    /// # Errors
    /// The first file or directory that could not be written.
    pub fn write(&self, root: &Path, mut wrote: impl FnMut(u64)) -> io::Result<u64> {
        let mut random = Random::new(self.seed);
        let weights: Vec<u64> = (0..self.files).map(|i| 1 << (2 * (i % 5))).collect();
        let unit = self.bytes / weights.iter().sum::<u64>().max(1);
        let mut total = 0;
        let mut block = vec![0; 1 << 20];
        for (i, weight) in weights.iter().enumerate() {
            let directory = root.join(format!("part-{:02}", i / 20));
            fs::create_dir_all(&directory)?;
            let mut left = (weight * unit + random.below(8192))
                .saturating_sub(4096)
                .max(1);
            let mut file = fs::File::create(directory.join(format!("file-{i:03}")))?;
            while left > 0 {
                let now = left.min(block.len() as u64) as usize;
                random.fill(&mut block[..now]);
                file.write_all(&block[..now])?;
                left -= now as u64;
                total += now as u64;
                wrote(now as u64);
            }
        }
        Ok(total)
    }
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    size: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The state that these attributes show.
    pub fn of(metadata: &fs::Metadata) -> Self {
        Self {
            size: metadata.size(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file to read.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where it lies below the root.
    pub path: PathBuf,
    /// Bytes when it was found.
    pub size: u64,
    /// Its state when it was found.
    pub stamp: Stamp,
}

/// Regular files below a directory, and what was left out.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The files with at least one byte, in the order of their paths.
    pub files: Vec<Found>,
    /// Symbolic links left out.
    pub links: u64,
    /// Sockets, devices and pipes left out.
    pub special: u64,
    /// Files and directories that may not be read, or went away meanwhile.
    pub unreadable: u64,
    /// Files without a byte.
    pub empty: u64,
    /// Further names of files that are listed already.
    pub names: u64,
    /// Files on other file systems (mount points below the root).
    pub elsewhere: u64,
}

impl Listing {
    /// Lists `root` and everything below it on the same file system.
    ///
    /// # Errors
    /// `root` itself cannot be read.
    pub fn of(root: &Path) -> io::Result<Self> {
        let device = fs::metadata(root)?.dev();
        let mut listing = Self::default();
        let mut seen = HashSet::new();
        let mut pending = vec![(PathBuf::new(), fs::read_dir(root)?)];
        while let Some((below, entries)) = pending.pop() {
            for entry in entries {
                let Ok(entry) = entry else {
                    listing.unreadable += 1;
                    continue;
                };
                let path = below.join(entry.file_name());
                let Ok(metadata) = entry.metadata() else {
                    listing.unreadable += 1;
                    continue;
                };
                if metadata.is_symlink() {
                    listing.links += 1;
                } else if metadata.dev() != device {
                    listing.elsewhere += 1;
                } else if metadata.is_dir() {
                    match fs::read_dir(entry.path()) {
                        Ok(entries) => pending.push((path, entries)),
                        Err(_) => listing.unreadable += 1,
                    }
                } else if !metadata.is_file() {
                    listing.special += 1;
                } else if metadata.len() == 0 {
                    listing.empty += 1;
                } else if fs::File::open(entry.path()).is_err() {
                    listing.unreadable += 1;
                } else if !seen.insert(metadata.ino()) {
                    listing.names += 1;
                } else {
                    let stamp = Stamp::of(&metadata);
                    listing.files.push(Found {
                        path,
                        size: metadata.len(),
                        stamp,
                    });
                }
            }
        }
        listing.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size).sum()
    }

    /// What was left out, in words; `None` if nothing was.
    pub fn skipped(&self) -> Option<String> {
        let parts: Vec<String> = [
            (self.links, "symbolic links"),
            (self.special, "sockets, devices or pipes"),
            (self.unreadable, "not readable"),
            (self.empty, "empty"),
            (self.names, "further hard links"),
            (self.elsewhere, "on other file systems"),
        ]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", crate::table::count(*n)))
        .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Draws pages at random, each page of the set with the same chance.
#[derive(Clone, Debug)]
pub struct Pages {
    page_bytes: u64,
    /// Pages in all files up to and with this one.
    ends: Vec<u64>,
    sizes: Vec<u64>,
    random: Random,
}

/// One read to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Which file, as an index into the listing.
    pub file: usize,
    /// The first byte, at the start of a page.
    pub offset: u64,
    /// Bytes to ask for: a page, or what is left of the file.
    pub length: usize,
}

impl Pages {
    /// Pages of `page_bytes` over files of these sizes.
    pub fn new(sizes: impl IntoIterator<Item = u64>, page_bytes: u64, seed: u64) -> Self {
        let sizes: Vec<u64> = sizes.into_iter().collect();
        let mut total = 0;
        let ends = sizes
            .iter()
            .map(|size| {
                total += size.div_ceil(page_bytes);
                total
            })
            .collect();
        Self {
            page_bytes,
            ends,
            sizes,
            random: Random::new(seed),
        }
    }

    /// How many pages there are.
    pub fn count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The next page; `None` if there is no page at all.
    pub fn draw(&mut self) -> Option<Draw> {
        if self.count() == 0 {
            return None;
        }
        let page = self.random.below(self.count());
        let file = self.ends.partition_point(|&end| end <= page);
        let first = if file == 0 { 0 } else { self.ends[file - 1] };
        let offset = (page - first) * self.page_bytes;
        let length = self.page_bytes.min(self.sizes[file] - offset) as usize;
        Some(Draw {
            file,
            offset,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_tree_is_about_as_large_as_planned_and_found_again() {
        let root = tempfile::tempdir().unwrap();
        let plan = TreePlan {
            files: 40,
            bytes: 4 << 20,
            seed: 3,
        };
        let written = plan.write(root.path(), |_| {}).unwrap();
        assert!(written > 3 << 20 && written < 5 << 20, "{written}");
        let listing = Listing::of(root.path()).unwrap();
        assert_eq!(listing.files.len(), 40);
        assert_eq!(listing.bytes(), written);
        assert_eq!(listing.skipped(), None);
    }

    #[test]
    fn links_pipes_empty_files_and_second_names_are_left_out_and_told() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("a"), b"x").unwrap();
        fs::write(at("empty"), b"").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let listing = Listing::of(root.path()).unwrap();
        assert_eq!(listing.files.len(), 1);
        let skipped = listing.skipped().unwrap();
        for part in ["1 symbolic links", "1 sockets", "1 empty", "1 further"] {
            assert!(skipped.contains(part), "{skipped}");
        }
    }

    #[test]
    fn every_page_is_drawn_and_the_last_is_short() {
        let mut pages = Pages::new([5000, 1, 8192], 4096, 1);
        assert_eq!(pages.count(), 5);
        let drawn: HashSet<(usize, u64, usize)> = (0..1000)
            .map(|_| pages.draw().unwrap())
            .map(|d| (d.file, d.offset, d.length))
            .collect();
        let all = [
            (0, 0, 4096),
            (0, 4096, 904),
            (1, 0, 1),
            (2, 0, 4096),
            (2, 4096, 4096),
        ];
        assert_eq!(drawn, HashSet::from(all));
        assert_eq!(Pages::new([], 4096, 1).draw(), None);
    }
}
