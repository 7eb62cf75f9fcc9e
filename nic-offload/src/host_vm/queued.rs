//! The host's VM module behind a queue: the NIC posts descriptors, and a thread of the host answers them.

use std::collections::VecDeque;

use odafs_common::exception::Exception;
use odafs_common::reference::{Epoch, Handle};
use odafs_fabric::memory::{FrameNumber, Pinned};
use odafs_fabric::sync::thread::{self, JoinHandle};
use odafs_fabric::sync::{Arc, Condvar, Mutex};

use super::HostVm;
use crate::tpt::TptEntry;

enum Descriptor {
    Fault(Handle, Arc<AnswerSlot<Result<TptEntry, Exception>>>),
    Lock(TptEntry, Epoch, Arc<AnswerSlot<Result<Pinned, Exception>>>),
    Unlock(Pinned),
    Reference(FrameNumber),
    Dirty(FrameNumber),
}

/// Where the answer to a descriptor appears.
struct AnswerSlot<T> {
    answer: Mutex<Option<T>>,
    there: Condvar,
}

impl<T> AnswerSlot<T> {
    fn new() -> Arc<AnswerSlot<T>> {
        Arc::new(AnswerSlot {
            answer: Mutex::new(None),
            there: Condvar::new(),
        })
    }

    fn put(&self, answer: T) {
        *self.answer.lock() = Some(answer);
        self.there.notify_one();
    }

    fn take(&self) -> T {
        let mut answer = self.answer.lock();
        loop {
            match answer.take() {
                Some(answer) => return answer,
                None => answer = self.there.wait(answer),
            }
        }
    }
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    doorbell: Condvar,
}

#[derive(Default)]
struct QueueState {
    descriptors: VecDeque<Descriptor>,
    stopped: bool,
}

impl Queue {
    fn post(&self, descriptor: Descriptor) {
        self.state.lock().descriptors.push_back(descriptor);
        self.doorbell.notify_one();
    }

    /// The next descriptor, or `None` when stopped and empty.
    fn next(&self) -> Option<Descriptor> {
        let mut state = self.state.lock();
        loop {
            if let Some(descriptor) = state.descriptors.pop_front() {
                return Some(descriptor);
            }
            if state.stopped {
                return None;
            }
            state = self.doorbell.wait(state);
        }
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.doorbell.notify_one();
    }
}

/// Any [`HostVm`], reached through a queue and a thread. Each NIC engine waits for one call at a time, so the queue is
/// short: waiting bounds the number of `fault` and `lock` calls, and each call without an answer follows one that had
/// one.
pub struct QueuedVm {
    queue: Arc<Queue>,
    /// For calls that need nothing of the host.
    vm: Arc<dyn HostVm>,
    host: Option<JoinHandle<()>>,
}

impl QueuedVm {
    /// Starts the host's thread.
    pub fn new(vm: Arc<dyn HostVm>) -> QueuedVm {
        let queue = Arc::new(Queue::default());
        let (served, host) = (Arc::clone(&queue), Arc::clone(&vm));
        let host = thread::spawn(move || {
            while let Some(descriptor) = served.next() {
                serve(&*host, descriptor);
            }
        });
        QueuedVm {
            queue,
            vm,
            host: Some(host),
        }
    }
}

fn serve(vm: &dyn HostVm, descriptor: Descriptor) {
    match descriptor {
        Descriptor::Fault(handle, slot) => slot.put(vm.fault(handle)),
        Descriptor::Lock(entry, request, slot) => slot.put(vm.lock(&entry, request)),
        Descriptor::Unlock(pin) => vm.unlock(pin),
        Descriptor::Reference(frame) => vm.reference(frame),
        Descriptor::Dirty(frame) => vm.dirty(frame),
    }
}

impl HostVm for QueuedVm {
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception> {
        let slot = AnswerSlot::new();
        self.queue
            .post(Descriptor::Fault(handle, Arc::clone(&slot)));
        slot.take()
    }

    fn may_keep(&self, handle: Handle) -> bool {
        self.vm.may_keep(handle)
    }

    fn lock(&self, entry: &TptEntry, request: Epoch) -> Result<Pinned, Exception> {
        let slot = AnswerSlot::new();
        self.queue
            .post(Descriptor::Lock(*entry, request, Arc::clone(&slot)));
        slot.take()
    }

    fn unlock(&self, pin: Pinned) {
        self.queue.post(Descriptor::Unlock(pin));
    }

    fn reference(&self, frame: FrameNumber) {
        self.queue.post(Descriptor::Reference(frame));
    }

    fn dirty(&self, frame: FrameNumber) {
        self.queue.post(Descriptor::Dirty(frame));
    }
}

impl Drop for QueuedVm {
    /// Serves what was posted, then ends the thread.
    fn drop(&mut self) {
        self.queue.stop();
        if let Some(host) = self.host.take() {
            let _ = host.join();
        }
    }
}
