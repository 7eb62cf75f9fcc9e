//! The data cache: pages kept in this process, least recently used out first.
//!
//! Sans-IO, and one shard of it: the client has several, each behind a lock of its own. A page is kept under its file's
//! generation, which moves whenever the file is found changed, so that a file's pages are dropped in one step and age
//! out. Who fills it must have checked that the file has not changed since before the page was read.

use lru::LruCache;

/// Which page of which file; a file's number is this client's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageKey {
    /// Number of the file.
    pub file: u64,
    /// Index of the page.
    pub page: u64,
}

/// What a lookup found.
#[derive(Debug, PartialEq, Eq)]
pub enum Cached<'a> {
    /// The page's valid bytes.
    Hit(&'a [u8]),
    /// Nothing.
    Miss,
    /// Nothing, but the page would still be here had there been a little more memory.
    Ghost,
}

/// One shard.
#[derive(Debug)]
pub struct DataCache {
    pages: LruCache<PageKey, Page>,
    ghosts: LruCache<PageKey, ()>,
    bytes: u64,
    limit: u64,
}

#[derive(Debug)]
struct Page {
    generation: u64,
    data: Box<[u8]>,
}

/// Bytes that a page takes besides its data: map and list entries, allocator.
const OVERHEAD: u64 = 112;

impl DataCache {
    /// An empty shard that may grow to `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            pages: LruCache::unbounded(),
            ghosts: LruCache::unbounded(),
            bytes: 0,
            limit,
        }
    }

    /// The page, if it is there in the file's present generation.
    pub fn get(&mut self, key: PageKey, generation: u64) -> Cached<'_> {
        if self
            .pages
            .peek(&key)
            .is_some_and(|page| page.generation != generation)
        {
            self.remove(key);
        }
        match self.pages.get(&key) {
            Some(page) => Cached::Hit(&page.data),
            None if self.ghosts.pop(&key).is_some() => Cached::Ghost,
            None => Cached::Miss,
        }
    }

    /// Keeps a page's valid bytes, if there is room for it at all.
    pub fn put(&mut self, key: PageKey, generation: u64, data: &[u8]) {
        self.remove(key);
        let bytes = data.len() as u64 + OVERHEAD;
        if bytes > self.limit {
            return;
        }
        self.shrink(self.limit - bytes);
        self.bytes += bytes;
        self.ghosts.pop(&key);
        self.pages.put(
            key,
            Page {
                generation,
                data: data.into(),
            },
        );
    }

    /// Drops a page.
    pub fn remove(&mut self, key: PageKey) {
        if let Some(page) = self.pages.pop(&key) {
            self.bytes -= page.data.len() as u64 + OVERHEAD;
        }
    }

    /// Grows or shrinks what it may use.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.shrink(limit);
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn shrink(&mut self, to: u64) {
        while self.bytes > to {
            let Some((key, page)) = self.pages.pop_lru() else {
                return;
            };
            self.bytes -= page.data.len() as u64 + OVERHEAD;
            self.ghosts.put(key, ());
            // Ghosts stand for an eighth more memory.
            while self.ghosts.len() > self.pages.len() / 8 + 1 {
                self.ghosts.pop_lru();
            }
        }
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
