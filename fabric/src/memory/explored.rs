//! The protocol on loom's atomics: every interleaving and every reordering that the memory model allows, as far as loom
//! models it.

mod atomic {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[allow(dead_code)]
#[path = "protocol.rs"]
mod protocol;

use super::schedule_point;
use atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use protocol::{PinRefused, State, close, is_still, opened, pin, publish, revoke, validates};

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

/// A copy that validates for a reference is the whole page for which the reference was issued.
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

/// Content changes in place only when no pin is seen, and a reader that got a pin never sees a change.
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

/// An unpublished frame can be neither pinned nor validated, whatever epoch a hostile client names.
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

/// A frame of a process's own, whose label says what it holds. A reader that finds the stamp unchanged since before it
/// looked at the label has copied what the label says.
#[test]
fn loom_a_kept_page_is_what_its_label_says() {
    loom::model(|| {
        let model = Model::new();
        let label = Arc::new(AtomicU64::new(OLD));
        let keeper = {
            let (model, label) = (model.clone(), label.clone());
            thread::spawn(move || {
                close(&model.stamp);
                model.change();
                label.store(NEW, Ordering::Relaxed);
                publish(&model.stamp, &model.epoch);
            })
        };
        if let Some(epoch) = opened(&model.stamp) {
            let said = label.load(Ordering::Relaxed);
            let copied = model.copy();
            if is_still(&model.stamp, epoch) {
                assert_eq!(copied, [said; 2]);
            }
        }
        keeper.join().unwrap();
    });
}

/// A frame with page A, and the steps of pageout in the server's cache (`retire`, limbo, `allocate`, `publish`) and of
/// the readers beside it.
struct Paging {
    frame: Arc<Model>,
    /// The lock of page A: whether it is in the frame.
    page: Mutex<bool>,
}

impl Paging {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            frame: Model::new(),
            page: Mutex::new(true),
        })
    }

    /// Takes the frame from page A. Unless somebody still sends from it, gives it to page B, whose content is new and
    /// to which a reference is issued.
    fn page_out(&self) {
        let frame = &*self.frame;
        let pinned = {
            let mut resident = self.page.lock().unwrap();
            *resident = false;
            revoke(&frame.stamp, &frame.state, &frame.epoch, true)
        };
        // A frame in limbo is looked at again when the next one is needed.
        if pinned && frame.state.is_pinned() {
            return;
        }
        frame.change();
        frame.publish();
    }

    /// A guarded read by a reference to A.
    fn send_by_reference(&self) {
        if pin(&self.frame.stamp, &self.frame.state, 1).is_ok() {
            self.send();
        }
    }

    /// The reply to a READ of A, which is pinned under the page's lock and sent behind it.
    fn send_reply(&self) {
        let resident = self.page.lock().unwrap();
        if !*resident {
            return;
        }
        let now = self.frame.epoch.load(Ordering::SeqCst);
        let pinned = pin(&self.frame.stamp, &self.frame.state, now);
        drop(resident);
        assert_eq!(pinned, Ok(()));
        self.send();
    }

    /// What is pinned goes out as A.
    fn send(&self) {
        assert_eq!(self.frame.copy(), [OLD; 2]);
        self.frame.state.unpin();
    }

    /// A one-sided read by the newest reference: to A, or to B.
    fn read_one_sided(&self) {
        let epoch = self.frame.issued.load(Ordering::Acquire);
        let copied = self.frame.copy();
        if validates(&self.frame.stamp, epoch) {
            let wanted = if epoch == 1 { OLD } else { NEW };
            assert_eq!(copied, [wanted; 2]);
        }
    }
}

/// Explores a pageout beside two other threads, with at most this many switches away from a thread that could continue.
fn beside_pageout(others: [fn(&Paging); 2]) {
    const SWITCHES: usize = 3;
    let mut explorer = loom::model::Builder::new();
    explorer.preemption_bound = Some(SWITCHES);
    explorer.check(move || {
        let paging = Paging::new();
        let others = others.map(|other| {
            let paging = paging.clone();
            thread::spawn(move || other(&paging))
        });
        paging.page_out();
        for other in others {
            other.join().unwrap();
        }
        // Every pin has come back: a frame that stayed in limbo leaves it.
        assert!(!paging.frame.state.is_pinned());
    });
}

/// A frame gets another page's content only when nobody sends the old one, however it is pinned.
#[test]
fn loom_pageout_reuses_no_frame_that_is_being_sent() {
    beside_pageout([Paging::send_by_reference, Paging::send_reply]);
}

/// A one-sided reader does not take the next page for its own either, while a pin delays the frame.
#[test]
fn loom_pageout_beside_one_sided_readers() {
    beside_pageout([Paging::read_one_sided, Paging::send_by_reference]);
    beside_pageout([Paging::read_one_sided, Paging::send_reply]);
    beside_pageout([Paging::read_one_sided, Paging::read_one_sided]);
}
