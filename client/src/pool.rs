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
    /// Whether nothing is kept any more.
    is_closed: bool,
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
            is_closed: false,
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
        let room = |shelf: &mut Shelf<T>| {
            let room = shelf.made < self.max;
            shelf.made += u32::from(room);
            room
        };
        if let Some(lent) = self.wait(deadline, room)? {
            return Ok(lent);
        }
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

    /// Lends the idle connection that was used last, or the first that comes back, and makes none. `NotMade` if there are
    /// none.
    pub fn take_made(&self, deadline: Nanos) -> Result<Lent<'_, T>, TakeError<()>> {
        let lent = self.wait(deadline, |shelf| shelf.made == 0)?;
        lent.ok_or(TakeError::NotMade(()))
    }

    /// Lends the idle connection that was used last, or the first that comes back. `None` once nothing is idle and `ends` says so.
    fn wait<E>(
        &self,
        deadline: Nanos,
        ends: impl Fn(&mut Shelf<T>) -> bool,
    ) -> Result<Option<Lent<'_, T>>, TakeError<E>> {
        let mut shelf = self.shelf.lock();
        loop {
            if let Some(item) = shelf.idle.pop() {
                return Ok(Some(Lent {
                    pool: self,
                    item: Some(item),
                }));
            }
            if ends(&mut shelf) {
                return Ok(None);
            }
            let left = deadline.since(clock::now());
            if left.0 == 0 {
                return Err(TakeError::TimedOut);
            }
            shelf.waiting += 1;
            shelf = self.returned.wait_timeout(shelf, left).0;
            shelf.waiting -= 1;
        }
    }

    /// Drops the idle connections, and those on loan when they come back.
    pub fn close(&self) {
        self.shelf.lock().is_closed = true;
        self.clear();
    }

    /// Drops the idle connections.
    pub fn clear(&self) {
        let idle = {
            let mut shelf = self.shelf.lock();
            let idle = std::mem::take(&mut shelf.idle);
            shelf.made -= idle.len() as u32;
            // One of them may have been meant for a thread that was told of it.
            if shelf.waiting > 0 {
                self.returned.notify_all();
            }
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
        let dropped = match item {
            Some(item) if !shelf.is_closed => {
                shelf.idle.push(item);
                None
            }
            item => {
                shelf.made -= 1;
                item
            }
        };
        let (waiting, made) = (shelf.waiting, shelf.made);
        drop(shelf);
        match (waiting, made) {
            (0, _) => {}
            // Nothing will come back any more.
            (_, 0) => self.pool.returned.notify_all(),
            _ => self.pool.returned.notify_one(),
        }
        drop(dropped);
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
