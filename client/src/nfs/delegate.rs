//! DELEGATE, and what it takes to hold [delegations](crate::delegation).

use crate::{
    calls::Trusting,
    delegation::{Changing, Delegation},
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
/// After a refusal none is asked for during this time.
const REST: Nanos = Nanos::from_secs(1);

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
        match delegation.stands() {
            true => Some(true),
            false if delegation.rests() => Some(false),
            false => None,
        }
    }

    #[cold]
    fn ask_to_delegate(&self, file: &FileState) -> bool {
        let delegation = &file.delegation;
        if delegation.rests() {
            return false;
        }
        let mut number = delegation.number.lock();
        if delegation.stands() {
            return true;
        }
        if delegation.rests() || delegation.changes.load(Acquire) > 0 {
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
            Some(Err(status)) if before != 0 && status != OdafsStatus::NoSession => {
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
        let latest = clock::now() + Nanos::from_millis(given.lease_ms.into());
        self.delegations.until.fetch_max(latest.0, AcqRel);
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
            return Changing::nothing();
        }
        let delegation = &file.delegation;
        let mut number = delegation.number.lock();
        let changing = Changing::begin(delegation);
        delegation.until.store(0, Release);
        // It may stand at the server for longer than here.
        let before = std::mem::take(&mut *number);
        if before != 0 {
            self.give_back(vec![before]);
        }
        changing
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
            delegation.until.store(0, Release);
            let before = std::mem::take(&mut *number);
            numbers.extend((before != 0).then_some(before));
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
