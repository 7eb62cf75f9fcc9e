//! Drops pages from the kernel when others have changed a file that is open here.
//!
//! The kernel looks at a file's length and times now and then when a program reads, but never when a program touches a mapping.
//! So a thread looks at each such file once in [`LOOK_EVERY`]. If others have changed it, the thread tells the kernel to drop
//! its pages. Over shared memory such a look is a load of the file's change counter; elsewhere it is a direct read of the
//! counter, or GETATTR.
//!
//! The thread holds no lock while it asks the server or tells the kernel. The kernel lets it wait for pages that are being
//! read or written back, until the threads that answer the kernel are done with them. These never wait for this thread.

use crate::{
    files::Open,
    inodes::{Inode, locked},
};
use fuser::{INodeNo, Notifier};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Condvar, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// Pause between two looks at the open files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The open files, by their numbers.
pub type OpenFiles = Arc<Mutex<HashMap<u64, Arc<Open>>>>;

/// What wakes the thread.
#[derive(Default)]
pub struct Alarm {
    state: Mutex<State>,
    rings: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether the kernel may have pages of an open file.
    pages: bool,
    /// Whether the mount has ended.
    ended: bool,
}

impl Alarm {
    /// Notes that the kernel gets its first page of a file.
    pub fn pages_come(&self) {
        locked(&self.state).pages = true;
        self.rings.notify_one();
    }

    /// Ends the thread, after the mount has ended.
    pub fn end(&self) {
        locked(&self.state).ended = true;
        self.rings.notify_one();
    }

    /// Waits until it is time for the next look. Returns false if the mount has ended.
    fn next_look(&self) -> bool {
        let state = locked(&self.state);
        let state = self
            .rings
            .wait_while(state, |state| !state.pages && !state.ended);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let pause = self
            .rings
            .wait_timeout_while(state, LOOK_EVERY, |state| !state.ended);
        let (mut state, _) = pause.unwrap_or_else(PoisonError::into_inner);
        state.pages = false;
        !state.ended
    }

    fn has_ended(&self) -> bool {
        locked(&self.state).ended
    }
}

/// The thread that looks.
pub struct Watcher {
    pub alarm: Arc<Alarm>,
    pub open: OpenFiles,
    pub notifier: Arc<OnceLock<Notifier>>,
}

impl Watcher {
    /// Looks until the mount has ended.
    pub fn run(&self) {
        while self.alarm.next_look() {
            let mut seen = HashSet::new();
            let open: Vec<_> = locked(&self.open).values().cloned().collect();
            for open in open {
                if self.alarm.has_ended() {
                    return;
                }
                if open.inode.has_pages() && seen.insert(open.inode.number) {
                    self.look(&open);
                    self.alarm.pages_come();
                }
            }
        }
    }

    /// Looks at one file. If the server does not answer, or the file is gone, its pages stay.
    fn look(&self, open: &Open) {
        let Open { inode, file } = open;
        if let Some(watched) = inode.watched()
            && let Ok(false) | Err(_) = file.changed_by_others(&watched)
        {
            return;
        }
        // Pages that come from here on are not older than the version that is asked for now.
        inode.drops_pages();
        match file.snapshot() {
            Ok(now) => {
                inode.watch_from(now);
                self.drop_pages(inode);
            }
            Err(_) => {
                inode.gets_pages();
            }
        }
    }

    /// Lets the kernel drop the pages of a file, and its length and times.
    fn drop_pages(&self, inode: &Inode) {
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(INodeNo(inode.number), 0, 0)
        {
            tracing::debug!("the kernel keeps pages of a file that others have changed: {error}");
            inode.gets_pages();
        }
    }
}
