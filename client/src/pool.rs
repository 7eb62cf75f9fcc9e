//! A small pool of connections: each is lent to one thread at a time.

use odafs_fabric::{
    clock::{self, Nanos},
    sync::{Condvar, Mutex},
};
use std::ops::{Deref, DerefMut};

/// Connections that are idle, and how many there are in all.
#[derive(Debug)]
pub struct Pool<T> {
    shelf: Mutex<Shelf<T>>,
    returned: Condvar,
    max: u32,
}

#[derive(Debug)]
struct Shelf<T> {
    /// In boxes: they are moved to and fro at each loan.
    idle: Vec<Box<T>>,
    made: u32,
    /// Threads that wait for one to come back. Without any there is nobody to wake, which would be a system call.
    waiting: u32,
}

/// Why nothing was lent.
#[derive(Debug)]
pub enum TakeError<E> {
    /// All are in use, and were until the deadline.
    TimedOut,
    /// A new one could not be made.
    NotMade(E),
}

impl<T> Pool<T> {
    /// An empty pool of at most `max`.
    pub fn new(max: u32) -> Self {
        let shelf = Shelf {
            idle: Vec::new(),
            made: 0,
            waiting: 0,
        };
        Self {
            shelf: Mutex::new(shelf),
            returned: Condvar::new(),
            max: max.max(1),
        }
    }

    /// Lends one: the one used last (its memory is still warm), else a new one, else the first that comes back.
    pub fn take<E>(
        &self,
        deadline: Nanos,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Lent<'_, T>, TakeError<E>> {
        let mut shelf = self.shelf.lock();
        loop {
            if let Some(item) = shelf.idle.pop() {
                return Ok(Lent {
                    pool: self,
                    item: Some(item),
                });
            }
            if shelf.made < self.max {
                shelf.made += 1;
                break;
            }
            let left = deadline.since(clock::now());
            if left.0 == 0 {
                return Err(TakeError::TimedOut);
            }
            shelf.waiting += 1;
            shelf = self.returned.wait_timeout(shelf, left).0;
            shelf.waiting -= 1;
        }
        drop(shelf);
        // The place is given back, by Lent, should making it fail.
        let mut lent = Lent {
            pool: self,
            item: None,
        };
        lent.item = Some(Box::new(make().map_err(TakeError::NotMade)?));
        Ok(lent)
    }

    /// Lends the idle one that was used last, if there is one.
    pub fn idle(&self) -> Option<Lent<'_, T>> {
        let item = self.shelf.lock().idle.pop()?;
        Some(Lent {
            pool: self,
            item: Some(item),
        })
    }

    /// Drops the idle ones.
    pub fn clear(&self) {
        let idle = {
            let mut shelf = self.shelf.lock();
            let idle = std::mem::take(&mut shelf.idle);
            shelf.made -= idle.len() as u32;
            idle
        };
        drop(idle);
    }
}

/// One that is lent; it goes back when dropped.
#[derive(Debug)]
pub struct Lent<'a, T> {
    pool: &'a Pool<T>,
    item: Option<Box<T>>,
}

impl<T> Lent<'_, T> {
    /// It is of no more use.
    pub fn discard(mut self) {
        self.item = None;
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let item = self.item.take();
        let mut shelf = self.pool.shelf.lock();
        match item {
            Some(item) => shelf.idle.push(item),
            None => shelf.made -= 1,
        }
        let awaited = shelf.waiting > 0;
        drop(shelf);
        if awaited {
            self.pool.returned.notify_one();
        }
    }
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.item
            .as_ref()
            .expect("there is one until it is dropped")
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.item
            .as_mut()
            .expect("there is one until it is dropped")
    }
}
