//! The protocol once more, on loom's atomics: every interleaving and every reordering that the
//! memory model allows, as far as loom models it.

mod atomic {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[allow(dead_code)]
#[path = "protocol.rs"]
mod protocol;

use super::schedule_point;
use atomic::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;
use protocol::{PinRefused, State, pin, publish, revoke, validates};

const OLD: u64 = 10;
const NEW: u64 = 20;

/// A frame of two words, published at epoch 1 with old content.
struct Model {
    stamp: AtomicU64,
    state: State,
    epoch: AtomicU64,
    content: [AtomicU64; 2],
    /// The epoch of the newest reference that was handed out.
    issued: AtomicU64,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            stamp: AtomicU64::new(1),
            state: State::new(),
            epoch: AtomicU64::new(1),
            content: [AtomicU64::new(OLD), AtomicU64::new(OLD)],
            issued: AtomicU64::new(1),
        })
    }

    fn copy(&self) -> [u64; 2] {
        [
            self.content[0].load(Ordering::Relaxed),
            self.content[1].load(Ordering::Relaxed),
        ]
    }

    fn change(&self) {
        self.content[1].store(NEW, Ordering::Relaxed);
        self.content[0].store(NEW, Ordering::Relaxed);
    }

    fn publish(&self) {
        let epoch = publish(&self.stamp, &self.epoch);
        self.issued.store(epoch, Ordering::Release);
    }
}

/// A copy that validates for a reference is what the reference was issued for, whole.
#[test]
fn loom_a_validated_copy_is_the_page() {
    for unpublish in [false, true] {
        loom::model(move || {
            let model = Model::new();
            let writer = {
                let model = model.clone();
                thread::spawn(move || {
                    revoke(&model.stamp, &model.state, &model.epoch, unpublish);
                    model.change();
                    model.publish();
                })
            };
            let epoch = model.issued.load(Ordering::Acquire);
            let copied = model.copy();
            if validates(&model.stamp, epoch) {
                let wanted = if epoch == 1 { OLD } else { NEW };
                assert_eq!(copied, [wanted; 2]);
            }
            writer.join().unwrap();
        });
    }
}

/// Content is only changed in place when no pin is seen; a pinner that got through never sees a change.
#[test]
fn loom_a_pinned_frame_does_not_change() {
    for unpublish in [false, true] {
        loom::model(move || {
            let model = Model::new();
            let writer = {
                let model = model.clone();
                thread::spawn(move || {
                    if !revoke(&model.stamp, &model.state, &model.epoch, unpublish) {
                        model.change();
                        model.publish();
                    }
                })
            };
            if pin(&model.stamp, &model.state, 1).is_ok() {
                assert_eq!(model.copy(), [OLD; 2]);
                model.state.unpin();
            }
            writer.join().unwrap();
            assert!(!model.state.is_pinned());
        });
    }
}

/// Two pinners: a failed pin of one does not undo the other's, and a later refill waits for both.
#[test]
fn loom_pins_are_counted() {
    loom::model(|| {
        let model = Model::new();
        let pinner = |model: Arc<Model>| {
            thread::spawn(move || {
                if pin(&model.stamp, &model.state, 1).is_ok() {
                    assert_eq!(model.copy(), [OLD; 2]);
                    model.state.unpin();
                }
            })
        };
        let pinners = [pinner(model.clone()), pinner(model.clone())];
        revoke(&model.stamp, &model.state, &model.epoch, true);
        if !model.state.is_pinned() {
            model.change();
        }
        for pinner in pinners {
            pinner.join().unwrap();
        }
        assert!(!model.state.is_pinned());
    });
}

/// What is unpublished can neither be pinned nor validated, whatever epoch a hostile client names.
#[test]
fn loom_unpublished_is_nobodys() {
    loom::model(|| {
        let model = Model::new();
        revoke(&model.stamp, &model.state, &model.epoch, true);
        let pinner = {
            let model = model.clone();
            thread::spawn(move || {
                assert_eq!(
                    pin(&model.stamp, &model.state, u64::MAX),
                    Err(PinRefused::Stale)
                );
                assert!(!validates(&model.stamp, u64::MAX));
            })
        };
        model.change();
        pinner.join().unwrap();
    });
}
