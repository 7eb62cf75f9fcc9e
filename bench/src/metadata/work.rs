//! What one client does, each operation timed by itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::caller::Caller;
use super::plan::{Mix, Plan};
use super::row::{Done, Operation};
use crate::clock;
use crate::random::Random;

/// A caller in a directory of its own.
pub struct Client {
    caller: Caller,
    directory: PathBuf,
    random: Random,
    /// Files of postmark and reopen: numbers of their names, and their lengths.
    pool: Vec<(u64, u64)>,
    next: u64,
    data: Vec<u8>,
    buffer: Vec<u8>,
}

impl Client {
    /// Makes its directory, which must not exist.
    ///
    /// # Errors
    /// The call failed.
    pub fn new(caller: Caller, directory: String, plan: &Plan, seed: u64) -> Result<Self> {
        let directory = PathBuf::from(directory);
        caller.mkdir(&directory)?;
        let (mut random, most) = (Random::new(seed), plan.bytes[1] as usize);
        let mut data = vec![0; most];
        random.fill(&mut data);
        Ok(Self {
            caller,
            directory,
            random,
            pool: Vec::new(),
            next: 0,
            data,
            buffer: vec![0; most],
        })
    }

    /// Works for this long, and finishes what it has begun.
    ///
    /// # Errors
    /// A call failed, or returned wrong data.
    pub fn slice(&mut self, mix: Mix, plan: &Plan, time: Duration) -> Result<Done> {
        let mut done = Done::default();
        let begin = Instant::now();
        while begin.elapsed() < time {
            match mix {
                Mix::Fileop => self.tree(plan.files, &mut done)?,
                Mix::Postmark => self.transaction(plan, &mut done)?,
                Mix::Reopen => self.reopen(&mut done)?,
            }
        }
        done.elapsed_ns = clock::nanos(begin, Instant::now());
        Ok(done)
    }

    /// One tree of fileop.
    fn tree(&mut self, files: usize, done: &mut Done) -> Result<()> {
        let caller = &self.caller;
        let tree = self.directory.join("tree");
        let names = |prefix: &str| -> Vec<PathBuf> {
            (0..files)
                .map(|number| tree.join(format!("{prefix}{number}")))
                .collect()
        };
        let (first, second, further) = (names("file"), names("renamed"), names("link"));
        done.time(Operation::Mkdir, || caller.mkdir(&tree))?;
        for path in &first {
            done.time(Operation::Create, || caller.create(path, &[]))?;
        }
        for path in &first {
            done.time(Operation::Open, || caller.open(path))?;
        }
        for path in &first {
            let length = done.time(Operation::Stat, || caller.stat(path))?;
            ensure!(length == 0, "an empty file is {length} bytes long");
        }
        // One a tree would be few to take percentiles of.
        for _ in 0..files.div_ceil(10) {
            let listed = done.time(Operation::Readdir, || caller.read_dir(&tree))?;
            ensure!(listed == files, "{listed} of {files} names were listed");
        }
        for path in &first {
            done.time(Operation::Chmod, || caller.chmod(path, 0o600))?;
        }
        for (from, to) in first.iter().zip(&second) {
            done.time(Operation::Rename, || caller.rename(from, to))?;
        }
        for (existing, new) in second.iter().zip(&further) {
            done.time(Operation::Link, || caller.link(existing, new))?;
        }
        for path in second.iter().chain(&further) {
            done.time(Operation::Unlink, || caller.unlink(path))?;
        }
        done.time(Operation::Rmdir, || caller.rmdir(&tree))
    }

    fn name(&self, number: u64) -> PathBuf {
        self.directory.join(format!("file{number}"))
    }

    /// A number of bytes that a file of the pool may have.
    fn length(&mut self, [least, most]: [u64; 2]) -> u64 {
        least + self.random.below(most - least + 1)
    }

    /// Fills the pool, which is not measured.
    ///
    /// # Errors
    /// A call failed.
    pub fn fill(&mut self, plan: &Plan) -> Result<()> {
        while self.pool.len() < plan.pool {
            self.create(plan, &mut Done::default())?;
        }
        Ok(())
    }

    fn create(&mut self, plan: &Plan, done: &mut Done) -> Result<()> {
        let (length, path) = (self.length(plan.bytes), self.name(self.next));
        let data = &self.data[..length as usize];
        done.time(Operation::Create, || self.caller.create(&path, data))?;
        self.pool.push((self.next, length));
        self.next += 1;
        Ok(())
    }

    /// Opens a file of the pool, reads it and closes it.
    fn reopen(&mut self, done: &mut Done) -> Result<()> {
        let at = self.random.below(self.pool.len() as u64) as usize;
        let (number, length) = self.pool[at];
        let path = self.name(number);
        self.read(&path, length, done)
    }

    fn read(&mut self, path: &Path, length: u64, done: &mut Done) -> Result<()> {
        let (caller, into) = (&self.caller, &mut self.buffer[..length as usize]);
        done.time(Operation::Read, || caller.read(path, into))?;
        // Appended bytes are those that stand there in `data`, so a file is always its beginning.
        let expected = self
            .data
            .get(..length as usize)
            .context("a file too long")?;
        ensure!(
            self.buffer[..length as usize] == *expected,
            "a read returned bytes that differ from those written"
        );
        Ok(())
    }

    /// A transaction of postmark: a file is made or deleted, and one is read or appended to.
    fn transaction(&mut self, plan: &Plan, done: &mut Done) -> Result<()> {
        let begin = Instant::now();
        // The pool stays about as large as it was made.
        let most = plan.pool * 2;
        let wants_more = self.random.below(2) == 0;
        if self.pool.len() < 2 || (wants_more && self.pool.len() < most) {
            self.create(plan, done)?;
        } else {
            let at = self.random.below(self.pool.len() as u64) as usize;
            let (number, _) = self.pool.swap_remove(at);
            let path = self.name(number);
            done.time(Operation::Delete, || self.caller.unlink(&path))?;
        }
        let at = self.random.below(self.pool.len() as u64) as usize;
        let (number, length) = self.pool[at];
        let path = self.name(number);
        let room = plan.bytes[1] - length;
        if self.random.below(2) == 0 || room == 0 {
            self.read(&path, length, done)?;
        } else {
            let more = 1 + self.random.below(room);
            let data = &self.data[length as usize..(length + more) as usize];
            done.time(Operation::Append, || {
                self.caller.append(&path, length, data)
            })?;
            self.pool[at].1 += more;
        }
        done.took(Operation::Transaction, clock::nanos(begin, Instant::now()));
        Ok(())
    }
}
