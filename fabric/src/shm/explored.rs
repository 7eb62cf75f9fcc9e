//! The words of the rings on loom's atomics.

mod atomic {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[path = "protocol.rs"]
mod protocol;

use atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::sync::Notify;
use loom::thread;
use protocol::{Header, Sleeper, doze, end, is_ended, must_wake, rise};

const SEVEN: Header = Header {
    heard: 5,
    kind: 3,
    place: 9,
    length: 7,
};

/// A consumer that looks, announces its sleep, looks again and sleeps is woken for every message.
#[test]
fn loom_no_wake_up_is_lost() {
    loom::model(|| {
        let (word, asleep, bell) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicU32::new(0)),
            Arc::new(Notify::new()),
        );
        let producer = {
            let (word, asleep, bell) = (word.clone(), asleep.clone(), bell.clone());
            thread::spawn(move || {
                SEVEN.publish(&word, 0);
                if must_wake(&asleep).is_some() {
                    bell.notify();
                }
            })
        };
        if Header::of(&word, 0).is_none() {
            doze(&asleep, Sleeper::Socket);
            // A wait may end by itself. A lost wake-up is a deadlock, which loom reports.
            while Header::of(&word, 0).is_none() {
                bell.wait();
            }
            rise(&asleep);
        }
        assert_eq!(Header::of(&word, 0), Some(SEVEN));
        producer.join().unwrap();
    });
}

/// The same for one that sleeps on the word: the kernel lets it sleep only while the word has not changed.
#[test]
fn loom_no_change_of_the_word_is_lost() {
    loom::model(|| {
        let (word, asleep, bell) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicU32::new(0)),
            Arc::new(Notify::new()),
        );
        let producer = {
            let (word, asleep, bell) = (word.clone(), asleep.clone(), bell.clone());
            thread::spawn(move || {
                SEVEN.publish(&word, 0);
                if must_wake(&asleep) == Some(Sleeper::Word) {
                    bell.notify();
                }
            })
        };
        if Header::of(&word, 0).is_none() {
            doze(&asleep, Sleeper::Word);
            if Header::of(&word, 0).is_none() && asleep.load(Ordering::Relaxed) != 0 {
                bell.wait();
            }
            rise(&asleep);
        }
        producer.join().unwrap();
        assert_eq!(Header::of(&word, 0), Some(SEVEN));
    });
}

/// A producer ends while the consumer goes to sleep: it is woken, or sees the end before.
#[test]
fn loom_no_end_is_slept_through() {
    loom::model(|| {
        let (ended, asleep, bell) = (
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicU32::new(0)),
            Arc::new(Notify::new()),
        );
        let producer = {
            let (ended, asleep, bell) = (ended.clone(), asleep.clone(), bell.clone());
            thread::spawn(move || {
                end(&ended);
                if must_wake(&asleep) == Some(Sleeper::Word) {
                    bell.notify();
                }
            })
        };
        doze(&asleep, Sleeper::Word);
        if !is_ended(&ended) && asleep.load(Ordering::Relaxed) != 0 {
            bell.wait();
        }
        rise(&asleep);
        producer.join().unwrap();
        assert!(is_ended(&ended));
    });
}

/// A ring of one slot: a message is read whole before its slot is written again.
#[test]
fn loom_messages_are_whole() {
    loom::model(|| {
        let ring = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)));
        let producer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let (word, bytes, consumed) = &*ring;
                for n in 0..2 {
                    if consumed.load(Ordering::Acquire) < n {
                        return;
                    }
                    bytes.store(10 + n, Ordering::Relaxed);
                    SEVEN.publish(word, n);
                }
            })
        };
        let (word, bytes, consumed) = &*ring;
        for n in 0..2 {
            if Header::of(word, n).is_none() {
                break;
            }
            assert_eq!(bytes.load(Ordering::Relaxed), 10 + n);
            consumed.store(n + 1, Ordering::Release);
        }
        producer.join().unwrap();
    });
}
