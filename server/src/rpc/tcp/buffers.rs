//! Buffers of one thread, shared by its connections. A silent connection holds none.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

/// Bytes read from a socket at once.
const SCRATCH_BYTES: usize = 256 << 10;
/// Bytes of unused reply buffers that are kept, because a fresh mebibyte costs a page fault for each page.
const KEPT_BYTES: usize = 16 << 20;

/// The buffers of one thread.
#[derive(Clone)]
pub struct Buffers(Rc<Pool>);

struct Pool {
    /// The connection that was served last, and how often in a row.
    busy: Cell<(u64, u32)>,
    scratch: RefCell<Vec<u8>>,
    unused: RefCell<Unused>,
}

#[derive(Default)]
struct Unused {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// Holds only the scratch buffer at first.
    pub fn new() -> Self {
        Self(Rc::new(Pool {
            busy: Cell::default(),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES]),
            unused: RefCell::new(Unused::default()),
        }))
    }

    /// The thread serves this connection.
    pub fn serves(&self, connection: u64) {
        let row = self.in_a_row(connection).saturating_add(1);
        self.0.busy.set((connection, row));
    }

    /// How often in a row this connection was served.
    pub fn in_a_row(&self, connection: u64) -> u32 {
        match self.0.busy.get() {
            (busy, row) if busy == connection => row,
            _ => 0,
        }
    }

    /// The memory that a connection reads into, while it looks at what it has read.
    pub fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        self.0.scratch.borrow_mut()
    }

    /// An empty buffer: the one that was returned last, whose memory is the warmest.
    pub fn take(&self) -> Vec<u8> {
        let mut unused = self.0.unused.borrow_mut();
        let buffer = unused.buffers.pop().unwrap_or_default();
        unused.bytes -= buffer.capacity();
        buffer
    }

    /// Returns a buffer.
    pub fn give(&self, mut buffer: Vec<u8>) {
        let mut unused = self.0.unused.borrow_mut();
        if unused.bytes + buffer.capacity() <= KEPT_BYTES {
            buffer.clear();
            unused.bytes += buffer.capacity();
            unused.buffers.push(buffer);
        }
    }
}
