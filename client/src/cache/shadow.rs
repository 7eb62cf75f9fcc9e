//! A cache of names alone, in the order of the data cache. It shows what would be a hit if all pages were kept.

use super::order::{Order, Places, USES_MAX, newness};
use std::{
    cell::Cell,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Names of pages, which are evenly spread 64-bit numbers. There are as many as a cache would have pages.
#[derive(Debug)]
pub struct Shadow {
    names: Names,
    places: HashMap<u64, u32, BuildHasherDefault<Itself>>,
    order: Order,
    free: Vec<u32>,
    capacity: u32,
    came: u64,
}

/// Names are evenly spread, so each is its own hash. A read of a sampled page looks a name up.
#[derive(Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = name;
    }
}

#[derive(Debug, Default)]
struct Names(Vec<Name>);

#[derive(Debug)]
struct Name {
    name: u64,
    uses: Cell<u64>,
    came: u64,
}

impl Shadow {
    /// Room for this many names.
    pub fn new(capacity: u32) -> Self {
        Self {
            names: Names::default(),
            places: HashMap::default(),
            order: Order::default(),
            free: Vec::new(),
            capacity,
            came: 0,
        }
    }

    /// A page is read, and added if it is missing. Returns whether it was there.
    pub fn read(&mut self, name: u64) -> bool {
        if let Some(place) = self.places.get(&name) {
            let held = &self.names.0[*place as usize];
            let is_new = self.came - held.came < newness(self.capacity);
            if held.uses.get() < USES_MAX && !is_new {
                held.uses.set(held.uses.get() + 1);
            }
            return true;
        }
        self.shrink(self.capacity.saturating_sub(1));
        if self.capacity > 0 {
            self.come(name);
        }
        false
    }

    /// Whether one more page would replace another.
    pub fn is_full(&self) -> bool {
        self.places.len() as u32 >= self.capacity
    }

    /// Sets the number of names.
    pub fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.shrink(capacity);
    }

    fn come(&mut self, name: u64) {
        let place = self.free.pop().unwrap_or(self.names.0.len() as u32);
        self.came += 1;
        let held = Name {
            name,
            uses: Cell::new(0),
            came: self.came,
        };
        match self.names.0.get_mut(place as usize) {
            Some(free) => *free = held,
            None => self.names.0.push(held),
        }
        self.order.insert(place, name, &self.names, self.capacity);
        self.places.insert(name, place);
    }

    fn shrink(&mut self, to: u32) {
        while self.places.len() as u32 > to {
            let Some(place) = self.order.evict(&self.names, self.capacity) else {
                return;
            };
            self.places.remove(&self.names.0[place as usize].name);
            self.free.push(place);
        }
    }
}

impl Places for Names {
    fn uses(&self, place: u32) -> u64 {
        self.0[place as usize].uses.get()
    }

    fn set_uses(&self, place: u32, uses: u64) {
        self.0[place as usize].uses.set(uses);
    }

    fn hash(&self, place: u32) -> u64 {
        self.0[place as usize].name
    }
}
