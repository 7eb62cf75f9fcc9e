//! DELEGATE, and what it takes to hold [delegations](crate::delegation).

use crate::{
    calls::Trusting,
    delegation::{Asking, Changing, Given, lease_clock},
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
    sync::atomic::Ordering::*,
};

const DELEGATE: Procedure = Procedure {
    name: "DELEGATE",
    number: Number::Odafs(odafs::Procedure::Delegate),
    // A repetition may give a delegation of which nobody knows, and which ends by itself.
    idempotent: true,
    asks: Asks::NOTHING,
};

impl Shared {
    /// Whether the file is delegated to this client. Asks for that if it may.
    #[inline]
    pub fn is_delegated(&self, file: &FileState, asking: &mut Asking) -> bool {
        self.delegates() && (file.delegation.stands() || self.ask_to_delegate(file, asking))
    }

    /// As [`is_delegated`](Self::is_delegated), without waiting. `None`: it would have to ask.
    #[inline]
    pub fn is_delegated_at_once(&self, file: &FileState) -> Option<bool> {
        if !self.delegates() {
            return Some(false);
        }
        let delegation = &file.delegation;
        match delegation.stands() {
            true => Some(true),
            false if delegation.rests() || self.delegations.rests() => Some(false),
            false => None,
        }
    }

    #[cold]
    fn ask_to_delegate(&self, file: &FileState, asking: &mut Asking) -> bool {
        let delegation = &file.delegation;
        if delegation.rests() || self.delegations.rests() {
            return false;
        }
        let mut last = delegation.last.lock();
        if delegation.stands() {
            return true;
        }
        if delegation.rests() || self.delegations.rests() || delegation.changes.load(Acquire) > 0 {
            return false;
        }
        let Some(session) = self.tended_session() else {
            delegation.rest();
            return false;
        };
        let Some(deadline) = asking.next() else {
            return false;
        };
        let before = last.take();
        let arguments = DelegateArgs {
            session: session.id,
            returned: Vec::from_iter(before.map(|before| before.number)),
            file: Some(file.handle.wire()),
        };
        let sent = lease_clock();
        match self.delegate(&arguments, deadline) {
            Some(Ok(Some(given))) => {
                *last = Some(self.given(file, sent, &given));
                return delegation.stands();
            }
            Some(Err(OdafsStatus::TryLater)) if before.is_some() => {
                self.delegations.recalled.fetch_add(1, Relaxed);
            }
            Some(_) => {}
            None => self.delegations.were_not_answered(),
        }
        delegation.rest();
        false
    }

    fn given(&self, file: &FileState, sent: Nanos, given: &Delegated) -> Given {
        // First what is kept is made to be of this version. A quarter less, for clocks that run at different speeds.
        file.observe(Some(given.change), Some(&given.attributes.into()));
        let span = Nanos::from_millis(u64::from(given.lease_ms) * 3 / 4);
        let until = (sent + span).0;
        let ends = lease_clock() + Nanos::from_millis(given.lease_ms.into());
        self.delegations.until.fetch_max(ends.0, AcqRel);
        self.delegations.granted.fetch_add(1, Relaxed);
        file.delegation.until.store(until, Release);
        Given {
            number: given.number,
            ends,
        }
    }

    /// `None`: no answer. The server then waits until the leases are over.
    fn delegate(&self, arguments: &DelegateArgs<'_>, deadline: Nanos) -> Option<DelegateResult> {
        let deadline = deadline.min(self.calls.deadline());
        self.calls
            .call_until(deadline, &DELEGATE, arguments, &Trusting, |r| {
                DelegateResult::decode(r)
            })
            .inspect_err(|error| tracing::debug!(%error, "no delegation"))
            .ok()
    }

    /// Before this client changes a file: gives its delegation back. None is asked for until the change has ended, and for a
    /// while after it if there was one.
    pub fn changes<'a>(&self, file: &'a FileState) -> Changing<'a> {
        if !self.delegates() {
            return Changing::nothing();
        }
        let delegation = &file.delegation;
        let mut last = delegation.last.lock();
        let mut changing = Changing::begin(delegation);
        delegation.until.store(0, Release);
        // It may stand at the server for longer than here.
        if let Some(before) = last.take()
            && lease_clock() < before.ends
        {
            changing.gave_back = true;
            self.give_back(vec![before.number], before.ends);
        }
        changing
    }

    /// Before this client changes names, and so perhaps files that it does not know: gives all delegations back.
    pub fn changes_names(&self) {
        let all_end = Nanos(self.delegations.until.swap(0, AcqRel));
        if lease_clock() >= all_end {
            return;
        }
        let mut numbers = Vec::new();
        for file in self.known_files() {
            let delegation = &file.delegation;
            let mut last = delegation.last.lock();
            delegation.until.store(0, Release);
            numbers.extend(last.take().map(|before| before.number));
        }
        for numbers in numbers.chunks(MAX_RETURNED as usize) {
            self.give_back(numbers.to_vec(), all_end);
        }
    }

    /// Waits no longer than until they have ended by themselves.
    fn give_back(&self, returned: Vec<u64>, ended: Nanos) {
        let left = ended.since(lease_clock());
        let Some(session) = self.session().filter(|_| left > Nanos(0)) else {
            return;
        };
        let arguments = DelegateArgs {
            session: session.id,
            returned,
            file: None,
        };
        self.delegate(&arguments, clock::now() + left);
    }

    /// Number of files that are delegated now.
    pub fn delegations_held(&self) -> u64 {
        let files = self.known_files();
        files.iter().filter(|file| file.delegation.stands()).count() as u64
    }
}
