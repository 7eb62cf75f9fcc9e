//! Delegations: the server's promise that nobody changes a file without waiting for this client (docs/WIRE.md, section 4.7).
//! While it stands, what is kept of the file is the file, and a read from the data cache is as exact as one at the server.
//!
//! A delegation ends by itself, soon. The next read after that gives it back and asks for another with one call, which also
//! checks what is kept. If the server refuses, others want to change the file, and reads go by the rules of close-to-open
//! for a while.
//!
//! Reads look at nothing but the time up to which the delegation may be used. This client's own changes give it back
//! before they begin and none is asked for until they end, so that no read shows the old data after somebody else has seen
//! the new.

use crate::{
    calls::Trusting,
    nfs::procedure::{Asks, Number, Procedure},
    shared::Shared,
    state::FileState,
};
use odafs_common::wire::{
    odafs::{self, DelegateArgs, DelegateResult, Delegated, MAX_RETURNED, OdafsStatus},
    xdr::Decode as _,
};
use odafs_fabric::{
    clock::{self, Nanos},
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::*},
    },
};

const DELEGATE: Procedure = Procedure {
    name: "DELEGATE",
    number: Number::Odafs(odafs::Procedure::Delegate),
    // A repetition may give a delegation of which nobody knows, and which ends by itself.
    idempotent: true,
    asks: Asks::NOTHING,
};
/// After a refusal none is asked for during this time.
const REST: Nanos = Nanos::from_secs(1);

/// The delegation of one file.
#[derive(Debug, Default)]
pub struct Delegation {
    /// Reads may rely on it before this time; 0 without one.
    until: AtomicU64,
    /// None is asked for before this time.
    not_before: AtomicU64,
    /// Changes of this client under way. None begins without the lock.
    changes: AtomicU32,
    /// The number of the last one that was given, if it was not given back; else 0. Locked by who asks or gives back.
    number: Mutex<u64>,
}

/// The delegations of a client.
#[derive(Debug, Default)]
pub struct Delegations {
    /// The latest time up to which any may stand.
    until: AtomicU64,
    /// Given.
    pub granted: AtomicU64,
    /// Not given again.
    pub recalled: AtomicU64,
}

impl Delegation {
    /// Whether reads may rely on it now.
    #[inline]
    pub fn stands(&self) -> bool {
        // The check comes before the look at the data: what is found then is no older.
        clock::now().0 < self.until.load(Acquire)
    }
}

/// A change by this client is under way.
pub struct Changing<'a>(Option<&'a Delegation>);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(delegation) = self.0 {
            delegation.changes.fetch_sub(1, AcqRel);
        }
    }
}

impl Shared {
    /// Whether the file is delegated to this client. Asks for that if it may.
    #[inline]
    pub fn is_delegated(&self, file: &FileState) -> bool {
        self.delegates() && (file.delegation.stands() || self.ask_to_delegate(file))
    }

    /// As [`is_delegated`](Self::is_delegated), without waiting. `None`: it would have to ask.
    #[inline]
    pub fn is_delegated_at_once(&self, file: &FileState) -> Option<bool> {
        if !self.delegates() {
            return Some(false);
        }
        let delegation = &file.delegation;
        let rests = || clock::now().0 < delegation.not_before.load(Relaxed);
        match delegation.stands() {
            true => Some(true),
            false if rests() => Some(false),
            false => None,
        }
    }

    #[cold]
    fn ask_to_delegate(&self, file: &FileState) -> bool {
        let delegation = &file.delegation;
        let rests = || clock::now().0 < delegation.not_before.load(Relaxed);
        if rests() {
            return false;
        }
        let mut number = delegation.number.lock();
        if delegation.stands() {
            return true;
        }
        if rests() || delegation.changes.load(Acquire) > 0 {
            return false;
        }
        let Some(session) = self.tended_session() else {
            self.rest(delegation);
            return false;
        };
        let before = std::mem::take(&mut *number);
        let arguments = DelegateArgs {
            session: session.id,
            returned: Vec::from_iter((before != 0).then_some(before)),
            file: Some(file.handle.wire()),
        };
        let sent = clock::now();
        match self.delegate(&arguments) {
            Some(Ok(Some(given))) => {
                *number = given.number;
                self.given(file, sent, &given);
                return delegation.stands();
            }
            Some(Err(OdafsStatus::NoSession)) => session.end(),
            Some(Err(_)) if before != 0 => {
                self.delegations.recalled.fetch_add(1, Relaxed);
            }
            _ => {}
        }
        self.rest(delegation);
        false
    }

    fn given(&self, file: &FileState, sent: Nanos, given: &Delegated) {
        // First what is kept is made to be of this version. A quarter less, for clocks that run at different speeds.
        file.observe(Some(given.change), Some(&given.attributes.into()));
        let span = Nanos::from_millis(u64::from(given.lease_ms) * 3 / 4);
        let until = (sent + span).0;
        self.delegations.until.fetch_max(until, AcqRel);
        self.delegations.granted.fetch_add(1, Relaxed);
        file.delegation.until.store(until, Release);
    }

    fn rest(&self, delegation: &Delegation) {
        let until = clock::now() + REST;
        delegation.not_before.store(until.0, Relaxed);
    }

    /// `None`: no answer. The server then waits until the leases are over.
    fn delegate(&self, arguments: &DelegateArgs<'_>) -> Option<DelegateResult> {
        let answer = self.calls.call(&DELEGATE, arguments, &Trusting, |r| {
            DelegateResult::decode(r)
        });
        answer
            .inspect_err(|error| tracing::debug!(%error, "no delegation"))
            .ok()
    }

    /// Before this client changes a file: gives its delegation back. None is asked for until the change has ended.
    pub fn changes<'a>(&self, file: &'a FileState) -> Changing<'a> {
        if !self.delegates() {
            return Changing(None);
        }
        let delegation = &file.delegation;
        let mut number = delegation.number.lock();
        delegation.changes.fetch_add(1, AcqRel);
        let stood = delegation.stands();
        delegation.until.store(0, Release);
        let before = std::mem::take(&mut *number);
        if stood {
            self.give_back(vec![before]);
        }
        Changing(Some(delegation))
    }

    /// Before this client changes names, and so perhaps files that it does not know: gives all delegations back.
    pub fn changes_names(&self) {
        if clock::now().0 >= self.delegations.until.swap(0, AcqRel) {
            return;
        }
        let mut numbers = Vec::new();
        for file in self.known_files() {
            let delegation = &file.delegation;
            let mut number = delegation.number.lock();
            if delegation.until.swap(0, AcqRel) != 0 {
                numbers.push(std::mem::take(&mut *number));
            }
        }
        for numbers in numbers.chunks(MAX_RETURNED as usize) {
            self.give_back(numbers.to_vec());
        }
    }

    fn give_back(&self, returned: Vec<u64>) {
        if let Some(session) = self.session() {
            self.delegate(&DelegateArgs {
                session: session.id,
                returned,
                file: None,
            });
        }
    }

    /// Number of files that are delegated now.
    pub fn delegations_held(&self) -> u64 {
        let files = self.known_files();
        files.iter().filter(|file| file.delegation.stands()).count() as u64
    }
}
