//! A file read on this machine without any server: `pread`, and `mmap` with a
//! copy out of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::floors::memory::{LARGE_PAGE, Mapping};
use crate::random::Random;

/// Writes a file of random bytes.
///
/// # Errors
/// What creating or writing it says.
pub fn write_random(path: &Path, bytes: u64, mut wrote: impl FnMut(u64)) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut random = Random::new(bytes);
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(block.len() as u64) as usize;
        random.fill(&mut block[..now]);
        file.write_all(&block[..now])?;
        left -= now as u64;
        wrote(now as u64);
    }
    Ok(())
}

/// A local file with a known page size behind it.
pub struct LocalFile {
    file: File,
    map: Mapping,
    backing: u64,
    path: PathBuf,
}

impl LocalFile {
    /// Opens and maps a file. With `large`, asks for 2 MiB pages behind it;
    /// [`LocalFile::backing_bytes`] tells what came of it.
    ///
    /// # Errors
    /// What opening or mapping it says.
    pub fn open(path: &Path, large: bool) -> io::Result<Self> {
        let file = File::open(path)?;
        let map = Mapping::of(&file)?;
        map.touch();
        let backing = if large && map.collapse() {
            LARGE_PAGE
        } else {
            4096
        };
        map.touch();
        Ok(Self {
            file,
            map,
            backing,
            path: path.to_owned(),
        })
    }

    /// Page size behind the file, in bytes: 4096 or 2097152.
    pub fn backing_bytes(&self) -> u64 {
        self.backing
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes, mapped.
    pub fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    /// One `pread`.
    ///
    /// # Errors
    /// What the call says, end of file included.
    pub fn pread(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    /// One copy out of the mapping (the C library's `memcpy`).
    pub fn copy(&self, offset: u64, into: &mut [u8]) {
        let offset = offset as usize;
        into.copy_from_slice(&self.map.bytes()[offset..offset + into.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn both_ways_of_reading_agree() {
        let directory = Scratch::for_bytes(4 << 20).unwrap();
        let path = directory.path().join("file");
        write_random(&path, 4 << 20, |_| {}).unwrap();
        for large in [false, true] {
            let local = LocalFile::open(&path, large).unwrap();
            let (mut a, mut b) = ([0; 100], [0; 100]);
            local.pread(4 << 10, &mut a).unwrap();
            local.copy(4 << 10, &mut b);
            assert_eq!(a, b);
            assert!([4096, LARGE_PAGE].contains(&local.backing_bytes()));
            assert_eq!(local.bytes().as_ptr().align_offset(LARGE_PAGE as usize), 0);
        }
    }
}
