//! The completions: of posts, of messages, and of the connection.

use super::{EVENTS, Event, Flight, Pair, What};
use crate::clock::{self, Nanos};
use crate::fabric::{Completion, Fault};
use crate::verbs::cm::CmEventKind;
use crate::verbs::domain::SLOT_BYTES;
use crate::verbs::queue::{DEPTH, Done, Side};
use crate::verbs::waiting::Ready;
use ibverbs_sys::ibv_wc_status;

/// Number of empty looks between two looks for the end of the connection.
const LOOKS: u32 = 64;

/// How long a device may take to complete work requests. It takes microseconds, or for ever if it is gone.
const FLUSH: Nanos = Nanos::from_millis(100);

const GONE: &str = "the device has gone";

impl Pair {
    /// Processes messages and completions.
    pub(super) fn look(&mut self) {
        if self.closed {
            return;
        }
        let before = self.events.len();
        self.gather();
        let sends = self.told > 0 || self.starved || self.flights.len() > DEPTH / 2;
        if sends && !self.closed {
            self.reap();
        }
        if self.events.len() == before && !self.closed {
            self.looks += 1;
            if self.looks >= LOOKS {
                self.heed(self.waiting.ready(), EVENTS);
                self.wakeup();
                self.keep_alive();
            }
        }
    }

    /// Looks for messages. Returns whether there may be more.
    pub(super) fn gather(&mut self) -> bool {
        let mut failed = None;
        let (receives, events) = (&mut self.receives, &mut self.events);
        let mut came = 0;
        let more = self.queue.poll(Side::Receives, |done| {
            let Some(slot) = receives.pop_front() else {
                return;
            };
            if !done.is_ok() {
                failed.get_or_insert(done.status);
                return;
            }
            came += 1;
            events.push_back(Event::Came {
                slot,
                bytes: done.bytes.min(SLOT_BYTES as u32),
                invalidated: done.invalidated,
            });
        });
        if came > 0 {
            self.silent_until = None;
        }
        if let Some(status) = failed {
            self.close_failed(&Status(status));
        }
        more
    }

    /// Looks for the ends of what was posted.
    pub(super) fn reap(&mut self) {
        let mut over = std::mem::take(&mut self.over);
        while self.queue.poll(Side::Sends, |done| over.push(done)) {}
        let mut failed = None;
        for done in over.drain(..) {
            if !done.is_ok() {
                failed.get_or_insert(done.status);
            }
            self.landed(done);
        }
        self.over = over;
        if self.flights.len() <= DEPTH / 2 {
            self.starved = false;
        }
        if let Some(status) = failed {
            self.close_failed(&Status(status));
        }
    }

    /// All work requests up to this one have ended, except RDMA Reads, which are reported by themselves: on iWARP after
    /// later posts, which end when TCP has accepted them.
    fn landed(&mut self, done: Done) {
        let mut reading = Vec::new();
        while let Some(flight) = self.flights.pop_front() {
            if flight.number > done.number {
                self.flights.push_front(flight);
                break;
            }
            if flight.number == done.number {
                self.tell(&flight.what, outcome(&done));
            } else if matches!(flight.what, What::Read(_)) {
                reading.push(flight);
            } else {
                self.tell(&flight.what, Ok(()));
            }
        }
        for flight in reading.into_iter().rev() {
            self.flights.push_front(flight);
        }
    }

    fn tell(&mut self, what: &What, result: Result<(), Fault>) {
        let completion = match *what {
            What::Quiet => return,
            What::Write(id) => Completion::Write { id, result },
            What::Read(id) => {
                self.reads -= 1;
                self.wakeup.read_ended();
                Completion::Read { id, result }
            }
        };
        self.told -= 1;
        self.events.push_back(Event::Over(completion));
    }

    /// The connection has ended because the device failed to do something. Such failures may show before RDMA-CM
    /// reports that the device has gone, so ask the device whether it is still there.
    pub(super) fn close_failed(&mut self, why: &dyn std::fmt::Display) {
        if self.closed {
            return;
        }
        match self.domain.context().has_gone() {
            true => self.close(&GONE),
            false => self.close(why),
        }
    }

    /// The connection has ended. Earlier messages can still be polled.
    pub(super) fn close(&mut self, why: &dyn std::fmt::Display) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        tracing::debug!(peer = %self.peer, %why, "connection closed");
        while self.gather() {}
        self.reap();
        self.queue.fail();
        self.drain();
        // The device was not told about the rest, or it is gone.
        while let Some(flight) = self.flights.pop_front() {
            self.tell(&flight.what, Err(Fault::Flushed));
            self.left.push(flight.kept);
        }
        self.id.disconnect();
    }

    /// Waits until the device has ended everything that uses the caller's memory, which the caller may reuse after that
    /// report.
    fn drain(&mut self) {
        let posted = self.next - self.chain.len() as u64;
        let until = clock::now() + FLUSH;
        loop {
            self.reap();
            let uses =
                |flight: &Flight| flight.number < posted && !matches!(flight.what, What::Quiet);
            if !self.flights.iter().any(uses) || clock::now() >= until {
                return;
            }
            clock::sleep(Nanos::from_micros(20));
        }
    }

    /// Takes the events of the connection, and so many of those that were asked for; more keep the channel readable.
    pub(super) fn heed(&mut self, ready: Ready, events: usize) {
        self.looks = 0;
        // There are no others. To find that out would take a system call too.
        let events = events.min(self.waiting.awaited());
        for _ in 0..events * usize::from(ready.completions) {
            let Some(side) = self.queue.event() else {
                break;
            };
            self.waiting.came(side);
        }
        while ready.connection && !self.closed {
            match self.channel.poll() {
                Ok(None) => return,
                Ok(Some(event)) => match event.kind {
                    CmEventKind::Disconnected => self.close(&"the peer closed it"),
                    CmEventKind::Removed => {
                        self.domain.lose();
                        self.close(&GONE);
                    }
                    CmEventKind::Rejected | CmEventKind::Unreachable | CmEventKind::Failed => {
                        self.close(&"it did not come about");
                    }
                    _ => {}
                },
                Err(error) => self.close_failed(&error),
            }
        }
    }
}

fn outcome(done: &Done) -> Result<(), Fault> {
    match done.status {
        ibv_wc_status::IBV_WC_SUCCESS => Ok(()),
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR
        | ibv_wc_status::IBV_WC_REM_INV_REQ_ERR
        | ibv_wc_status::IBV_WC_REM_OP_ERR => Err(Fault::RemoteAccess),
        _ => Err(Fault::Flushed),
    }
}

/// The end of a work request that ended the connection.
struct Status(ibv_wc_status::Type);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a work request ended with status {}", self.0)
    }
}
