//! A small pool of connections. Each is lent to one thread at a time.

use odafs_fabric::{
    clock::{self, Nanos},
    sync::{Condvar, Mutex},
};
use std::ops::{Deref, DerefMut};

/// The idle connections, and the number of all.
#[derive(Debug)]
pub struct Pool<T> {
    shelf: Mutex<Shelf<T>>,
    returned: Condvar,
    max: u32,
}

#[derive(Debug)]
struct Shelf<T> {
    /// In boxes, because each loan moves them.
    idle: Vec<Box<T>>,
    made: u32,
    /// Number of threads that wait for a connection. If there are none, nobody is woken, which saves a system call.
    waiting: u32,
}

/// Why nothing was lent.
#[derive(Debug)]
pub enum TakeError<E> {
    /// All connections are in use, and stayed so until the deadline.
    TimedOut,
    /// A new connection could not be made.
    NotMade(E),
}

impl<T> Pool<T> {
    /// An empty pool of at most `max` connections.
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

    /// Lends the idle connection that was used last (its memory is still warm), or a new one, or the first that comes
    /// back.
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
        // Dropping `Lent` gives the slot back if making the connection fails.
        let mut lent = Lent {
            pool: self,
            item: None,
        };
        lent.item = Some(Box::new(make().map_err(TakeError::NotMade)?));
        Ok(lent)
    }

    /// Lends the idle connection that was used last, if there is one.
    pub fn idle(&self) -> Option<Lent<'_, T>> {
        let item = self.shelf.lock().idle.pop()?;
        Some(Lent {
            pool: self,
            item: Some(item),
        })
    }

    /// Drops the idle connections.
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

/// A connection on loan. Dropping this gives it back.
#[derive(Debug)]
pub struct Lent<'a, T> {
    pool: &'a Pool<T>,
    item: Option<Box<T>>,
}

impl<T> Lent<'_, T> {
    /// Marks the connection as useless, so that it is not given back.
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
