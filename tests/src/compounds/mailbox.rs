//! Connections whose clients hear callbacks, and answer some of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use odafs_fabric::Peer;
use odafs_fabric::sync::{Arc, Mutex};
use odafs_nic::calls::{Back, Caller, Calls as _, Notes, Outcome, Placements, Transport};
use odafs_server::rpc::Service;

use super::REPLY_BYTES_MAX;
use super::answers::{asks_for_attributes, callback_reply};

/// How many questions for attributes each client leaves without an answer. The server waits for each.
const IGNORED_MAX: u32 = 1;

/// Callbacks that came over a connection.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<VecDeque<Vec<u8>>>);

impl Mailbox {
    pub fn next(&self) -> Option<Vec<u8>> {
        self.0.lock().pop_front()
    }

    pub fn count(&self) -> u64 {
        self.0.lock().len() as u64
    }

    /// The next callback, if it asks for attributes.
    fn question(&self) -> Option<Vec<u8>> {
        let mut messages = self.0.lock();
        messages.pop_front_if(|message| asks_for_attributes(message))
    }
}

impl Back for Mailbox {
    fn send(&self, message: Vec<u8>) -> bool {
        self.0.lock().push_back(message);
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

/// A connection.
pub(super) struct Line {
    pub caller: Caller,
    pub mailbox: Arc<Mailbox>,
    /// How its client answered last.
    pub how: u8,
    ignored: AtomicU32,
}

impl Line {
    pub fn new(connection: u64) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let hears = connection > 0;
        let caller = Caller {
            peer: Peer::Simulated(connection as u32),
            local: None,
            connection,
            transport: Transport::Sim,
            reply_bytes_max: REPLY_BYTES_MAX,
            placements: Placements::default(),
            apart: None,
            back: hears.then(|| Arc::clone(&mailbox) as Arc<dyn Back>),
            notes: Notes::default(),
        };
        Self {
            caller,
            mailbox,
            how: 4,
            ignored: AtomicU32::new(0),
        }
    }

    /// Answers a question for attributes as its client answered the last callback, but seldom not at all.
    fn answer(&self, service: &Service) {
        let Some(question) = self.mailbox.question() else {
            return;
        };
        let mut how = self.how;
        if how.is_multiple_of(8) {
            let ignores = how.is_multiple_of(64);
            if ignores && self.ignored.fetch_add(1, SeqCst) < IGNORED_MAX {
                return;
            }
            how += 4;
        }
        let answer = callback_reply(&question, how).expect("a callback that can be read");
        let mut nothing = Vec::new();
        let mut outcome = service.call(&self.caller, &answer, &mut nothing);
        while let Outcome::Deferred(job) = outcome {
            outcome = job.run(&mut nothing);
        }
        assert!(matches!(outcome, Outcome::Dropped), "{outcome:?}");
    }
}

/// Set when the call is over, also if it panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Serves a call, while clients are asked what they have made of files.
pub(super) fn answering<T>(service: &Service, lines: &[Line], call: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                lines.iter().for_each(|line| line.answer(service));
                thread::sleep(Duration::from_micros(50));
            }
        });
        let _over = Over(&over);
        call()
    })
}
