//! The same tests for every implementation.

use std::collections::HashMap;

use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::AccessKey;
use odafs_fabric::memory::ArenaConfig;
use odafs_fabric::sync::{Mutex, thread};

use super::*;
use crate::capability::ReaderClass;

struct Pages {
    entries: Mutex<HashMap<u32, TptEntry>>,
    dirty: Mutex<Vec<FrameNumber>>,
}

impl PageCache for Pages {
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception> {
        self.entries
            .lock()
            .get(&handle.0)
            .copied()
            .ok_or(Exception::NotResident)
    }

    fn dirty(&self, frame: FrameNumber) {
        self.dirty.lock().push(frame);
    }
}

struct Host {
    arena: Arc<Arena>,
    pages: Arc<Pages>,
}

impl Host {
    fn new() -> Host {
        let config = ArenaConfig {
            frames: 4,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let pages = Pages {
            entries: Mutex::default(),
            dirty: Mutex::default(),
        };
        Host {
            arena: Arc::new(Arena::create(&config).unwrap()),
            pages: Arc::new(pages),
        }
    }

    fn publish(&self, frame: u32) -> TptEntry {
        let epoch = self.arena.publish(FrameNumber(frame));
        let entry = TptEntry {
            frame: FrameNumber(frame),
            address: u64::from(frame) << 12,
            length: 4096,
            key: AccessKey(epoch.0),
            epoch,
            class: ReaderClass(0),
        };
        self.pages.entries.lock().insert(frame, entry);
        entry
    }

    fn shared(&self) -> SharedVm {
        SharedVm::new(
            Arc::clone(&self.arena),
            Arc::clone(&self.pages) as Arc<dyn PageCache>,
        )
    }
}

fn on_both(test: impl Fn(&Host, Box<dyn HostVm>)) {
    let host = Host::new();
    test(&host, Box::new(host.shared()));
    let host = Host::new();
    test(&host, Box::new(QueuedVm::new(Arc::new(host.shared()))));
}

#[test]
fn fault() {
    on_both(|host, vm| {
        assert_eq!(vm.fault(Handle(1)), Err(Exception::NotResident));
        let entry = host.publish(1);
        assert_eq!(vm.fault(Handle(1)), Ok(entry));
    });
}

#[test]
fn lock_holds_the_frame_until_unlock() {
    on_both(|host, vm| {
        let entry = host.publish(1);
        let pin = vm.lock(&entry, entry.epoch).expect("published");
        assert!(host.arena.is_pinned(entry.frame));
        assert!(
            host.arena.revoke(entry.frame),
            "a revocation hears of the pin"
        );
        vm.unlock(pin);
        // The next call that is answered comes after what was only posted.
        assert_eq!(vm.lock(&entry, entry.epoch).err(), Some(Exception::Stale));
        assert!(!host.arena.is_pinned(entry.frame));
    });
}

#[test]
fn lock_checks_both_epochs() {
    on_both(|host, vm| {
        let old = host.publish(1);
        host.arena.revoke(old.frame);
        let new = host.publish(1);
        assert_eq!(
            vm.lock(&old, new.epoch).err(),
            Some(Exception::Stale),
            "the entry is old"
        );
        assert_eq!(
            vm.lock(&new, old.epoch).err(),
            Some(Exception::Stale),
            "the client's word is old"
        );
        vm.unlock(vm.lock(&new, new.epoch).expect("both are of now"));
        host.arena.unpublish(new.frame);
        assert_eq!(
            vm.lock(&new, new.epoch).err(),
            Some(Exception::Stale),
            "unpublished"
        );
    });
}

#[test]
fn reference_and_dirty_reach_the_host() {
    on_both(|host, vm| {
        let entry = host.publish(2);
        host.arena.take_referenced(entry.frame);
        vm.reference(entry.frame);
        vm.dirty(entry.frame);
        assert_eq!(vm.fault(Handle(2)), Ok(entry));
        assert!(host.arena.take_referenced(entry.frame));
        assert_eq!(*host.pages.dirty.lock(), [entry.frame]);
    });
}

#[test]
fn many_nics_at_once() {
    on_both(|host, vm| {
        let vm: Arc<dyn HostVm> = Arc::from(vm);
        let threads: Vec<_> = (0..4)
            .map(|frame| {
                let entry = host.publish(frame);
                let vm = Arc::clone(&vm);
                thread::spawn(move || {
                    for _ in 0..200 {
                        assert_eq!(vm.fault(Handle(frame)), Ok(entry));
                        vm.unlock(vm.lock(&entry, entry.epoch).expect("published"));
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        drop(vm);
        assert!((0..4).all(|frame| !host.arena.is_pinned(FrameNumber(frame))));
    });
}
