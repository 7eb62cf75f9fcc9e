//! Events of several stores for one waiting thread. A thread of its own waits at each store.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};

use super::outer;
use crate::store::{OutsideEvent, Store};

/// The most events that nobody has taken yet. Beyond that they are dropped, and an overflow is reported.
const WAITING_MAX: usize = 1 << 16;
/// How long a thread waits at its store at a time. Some stores look for changes only while a thread waits.
const AT_A_TIME: Duration = Duration::from_millis(500);

/// The threads, and the events that they have received.
pub(super) struct Events {
    heard: Arc<Heard>,
    waiting: Vec<(Arc<dyn Store>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Heard {
    events: Mutex<Queue>,
    news: Condvar,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<OutsideEvent>,
    interrupted: bool,
}

impl Queue {
    /// Takes more events, or drops those that wait, if these are too many.
    fn extend(&mut self, events: impl ExactSizeIterator<Item = OutsideEvent>) {
        if self.events.len() + events.len() <= WAITING_MAX {
            self.events.extend(events);
            return;
        }
        // A file whose watch has ended must be known as such: nothing else will report its changes.
        let removed = |event: OutsideEvent| match event {
            OutsideEvent::Removed(object) => Some(object),
            _ => None,
        };
        let removed: BTreeSet<_> = self
            .events
            .drain(..)
            .chain(events)
            .filter_map(removed)
            .collect();
        self.events
            .extend(removed.into_iter().map(OutsideEvent::Removed));
        self.events.push_back(OutsideEvent::Overflow);
    }
}

impl Events {
    /// Starts to wait at these stores, which have these tags.
    pub fn start(stores: Vec<(u16, Arc<dyn Store>)>) -> io::Result<Self> {
        // If a thread cannot be started, dropping this ends the others.
        let mut all = Self {
            heard: Arc::default(),
            waiting: Vec::new(),
        };
        for (tag, store) in stores {
            let (heard, listened) = (Arc::clone(&all.heard), Arc::clone(&store));
            let thread = thread::Builder::new().name(format!("odafs-events-{tag}"));
            let thread = thread.spawn(move || heard.listen(tag, &*listened))?;
            all.waiting.push((store, thread));
        }
        Ok(all)
    }

    /// See [`Store::wait_events`].
    pub fn wait(&self, timeout: Duration) -> Vec<OutsideEvent> {
        let mut queue = self.heard.events.lock();
        if queue.events.is_empty() && !queue.interrupted {
            queue = self.heard.news.wait_timeout(queue, timeout.into()).0;
        }
        queue.interrupted = false;
        queue.events.drain(..).collect()
    }

    /// See [`Store::interrupt`].
    pub fn interrupt(&self) {
        self.heard.events.lock().interrupted = true;
        self.heard.news.notify_all();
    }
}

impl Heard {
    fn listen(&self, tag: u16, store: &dyn Store) {
        while !self.stopping.load(Ordering::Acquire) {
            let events = store.wait_events(AT_A_TIME);
            if events.is_empty() {
                continue;
            }
            let events = events.into_iter().map(|event| tagged(tag, event));
            self.events.lock().extend(events);
            self.news.notify_all();
        }
    }
}

fn tagged(tag: u16, event: OutsideEvent) -> OutsideEvent {
    match event {
        OutsideEvent::Written(object) => OutsideEvent::Written(outer(tag, object)),
        OutsideEvent::Changed(object) => OutsideEvent::Changed(outer(tag, object)),
        OutsideEvent::Removed(object) => OutsideEvent::Removed(outer(tag, object)),
        OutsideEvent::Overflow => OutsideEvent::Overflow,
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.heard.stopping.store(true, Ordering::Release);
        for (store, _) in &self.waiting {
            store.interrupt();
        }
        for (_, thread) in self.waiting.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ObjectId;

    #[test]
    fn ended_watches_survive_an_overflow() {
        let object = |ino| ObjectId { ino, generation: 0 };
        let mut queue = Queue::default();
        queue.extend(
            [
                OutsideEvent::Removed(object(1)),
                OutsideEvent::Changed(object(2)),
            ]
            .into_iter(),
        );
        queue.extend((0..WAITING_MAX).map(|_| OutsideEvent::Removed(object(3))));
        let left = [
            OutsideEvent::Removed(object(1)),
            OutsideEvent::Removed(object(3)),
            OutsideEvent::Overflow,
        ];
        assert_eq!(queue.events, left);
    }
}
