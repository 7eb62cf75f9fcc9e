//! Operations that minor version 0 counts for each owner: OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE, LOCK and LOCKU (RFC
//! 7530, section 9.1.7).

use odafs_common::wire::nfs4::{
    LockArgs, Locker, OpCode, OpenToLockOwner, Operation, ResultWriter, Status,
};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Condvar;
use odafs_fabric::sync::atomic::{AtomicUsize, Ordering};

use super::compound::{Compound, CurrentObject, Done, Stop, Written, plain};
use super::object::Object;
use super::state::{OwnerTurn, State, Turn};
use super::{Nfs4, lock, open};
use crate::vfs::ObjectId;
use crate::vfs::promises::{self, Party};

/// How many operations may wait for others of their owners.
const WAITING_MAX: usize = 2;
/// How long one waits.
const WAIT_MAX: Nanos = Nanos::from_secs(2);

/// Where operations wait while another of their owner is under way. A client that sends both at once, or repeats one over
/// another way than the duplicate request cache knows, could not tell whether a refusal was counted. So they are refused only
/// when many wait.
#[derive(Default)]
pub(super) struct TurnQueue {
    /// How many wait. Changes under the lock of the state.
    pub waiting: AtomicUsize,
    /// An operation has ended its turn.
    ended: Condvar,
}

/// An owner's turn, which is given back however the operation ends.
struct Taken<'a> {
    server: &'a Nfs4,
    turn: Option<OwnerTurn>,
    code: OpCode,
    /// LOCK names a lock owner too, which counts it as well.
    locker: Option<OpenToLockOwner<'a>>,
}

impl Taken<'_> {
    /// Ends the turn. A repetition gets this result, from the status on, and `file` for the current one if that is not 0.
    fn end(&mut self, status: Status, file: u128, result: &[u8]) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let of = self.code.code().to_be_bytes();
        let kept = [&file.to_be_bytes(), &of[..], result].concat();
        let mut state = self.server.state.lock();
        let client = turn.client;
        state.end_turn(turn, status, &kept);
        // A client counts for no owner of another.
        if let Some(new) = (self.locker.as_ref()).filter(|new| new.owner.client_id == client) {
            state.count_lock(clock::awake(), &new.owner, new.lock_sequence, status);
        }
        let queue = &self.server.turn_queue;
        let is_awaited = queue.waiting.load(Ordering::Relaxed) > 0;
        drop(state);
        if is_awaited {
            queue.ended.notify_all();
        }
    }
}

impl Drop for Taken<'_> {
    /// Of an operation that panicked nobody knows what it has done: it never runs again, and its repetitions hear of a fault.
    fn drop(&mut self) {
        let fault = Status::ServerFault;
        self.end(fault, 0, &fault.code().to_be_bytes());
    }
}

impl Compound<'_> {
    /// Runs an operation that minor version 0 counts for its owner, on a thread that may block. A repetition gets the result
    /// of the first time. The file of an OPEN is kept with its result, because the operations behind it work on that file.
    pub(super) fn in_turn(
        &mut self,
        operation: &Operation<'_>,
        w: &mut ResultWriter<'_, '_>,
    ) -> Written {
        if self.minor > 0 {
            return self.stateful(operation, w);
        }
        let code = operation.code();
        match self.turn(operation)? {
            Turn::Replay(kept) => {
                let kept = kept.split_first_chunk::<16>();
                let kept =
                    kept.and_then(|(file, rest)| Some((file, rest.split_first_chunk::<4>()?)));
                let Some((file, (of, result))) = kept else {
                    return Err(Status::ServerFault.into());
                };
                // Another operation with this number is no repetition.
                if u32::from_be_bytes(*of) != code.code() {
                    return Err(Status::BadSeqId.into());
                }
                let number = u128::from_be_bytes(*file);
                if number != 0 {
                    let file = Object::Real(ObjectId {
                        ino: (number >> 64) as u64,
                        generation: number as u64,
                    });
                    // The rules may have changed since the first time.
                    match self.acting.check(file.tag(self.export)) {
                        Ok(()) => self.set_current(file),
                        Err(_) => self.current = CurrentObject::default(),
                    }
                }
                w.start(code).opaque_fixed(result);
                let status = result
                    .first_chunk::<4>()
                    .map(|code| u32::from_be_bytes(*code));
                Ok(status.and_then(Status::from_code).unwrap_or(Status::Ok))
            }
            Turn::Execute(turn) => {
                // The owner tells whose operation it is, who may reclaim what others wait for.
                let _acting = promises::changing_for(Party::Returning(Some(turn.client)));
                let mut taken = Taken {
                    server: self.server,
                    turn: Some(turn),
                    code,
                    locker: match operation {
                        Operation::Lock(LockArgs {
                            locker: Locker::New(new),
                            ..
                        }) => Some(*new),
                        _ => None,
                    },
                };
                let status = match self.stateful(operation, w) {
                    Ok(status) => status,
                    Err(Stop::Status(status)) => {
                        w.fail(code, status);
                        status
                    }
                    // There is no further effort: the client asks again.
                    Err(Stop::Blocks) => {
                        w.fail(code, Status::Delay);
                        Status::Delay
                    }
                };
                let file = match self.object().ok() {
                    Some(Object::Real(file)) if code == OpCode::Open && status == Status::Ok => {
                        u128::from(file.ino) << 64 | u128::from(file.generation)
                    }
                    _ => 0,
                };
                taken.end(status, file, w.result());
                Ok(status)
            }
        }
    }

    /// Takes the turn of the owner, once no other operation has it. Few wait, and not for long, because they take threads of the
    /// pool from everybody else. Others are refused and not counted.
    fn turn(&mut self, operation: &Operation<'_>) -> Done<Turn> {
        let queue = &self.server.turn_queue;
        let until = clock::now() + WAIT_MAX;
        let mut state = self.server.state.lock();
        loop {
            state.begin();
            match take_turn(&mut state, self.now, operation) {
                Ok(Some(turn)) => return Ok(turn),
                Ok(None) => {}
                Err(Status::Delay) if state.is_held_up() => {
                    drop(state);
                    if !self.server.messenger.keep_records() {
                        return Err(Status::Delay.into());
                    }
                    // Each time more clients are forgotten, so this ends.
                    state = self.server.state.lock();
                    continue;
                }
                Err(status) => return Err(status.into()),
            }
            let left = until.since(clock::now());
            if left == Nanos(0) || queue.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
                return Err(Status::Delay.into());
            }
            queue.waiting.fetch_add(1, Ordering::Relaxed);
            state = queue.ended.wait_timeout(state, left).0;
            queue.waiting.fetch_sub(1, Ordering::Relaxed);
            self.now = clock::awake();
        }
    }

    fn stateful(&mut self, operation: &Operation<'_>, w: &mut ResultWriter<'_, '_>) -> Written {
        let code = operation.code();
        self.has_room_for(operation, w)?;
        match operation {
            Operation::Open(arguments) => {
                let room = self.has_room_for_delegation(w);
                let opened = open::open(self, arguments, room)?;
                plain(w, code, opened)
            }
            Operation::OpenConfirm(arguments) => {
                let state = open::confirm(self, arguments)?;
                plain(w, code, state)
            }
            Operation::OpenDowngrade(arguments) => {
                let state = open::downgrade(self, arguments)?;
                plain(w, code, state)
            }
            Operation::Close(arguments) => {
                let state = open::close(self, arguments)?;
                plain(w, code, state)
            }
            Operation::Lock(arguments) => lock::lock(self, arguments, w),
            Operation::Unlock(arguments) => {
                let state = lock::unlock(self, arguments)?;
                plain(w, code, state)
            }
            _ => Err(Status::ServerFault.into()),
        }
    }
}

/// Takes the turn of the owner that an operation names. `None`: another operation has it.
fn take_turn(
    state: &mut State,
    now: Nanos,
    operation: &Operation<'_>,
) -> Result<Option<Turn>, Status> {
    let (named, sequence) = match operation {
        Operation::Open(open) => return state.owner_turn(now, &open.owner, open.sequence),
        Operation::OpenConfirm(confirm) => (confirm.state, confirm.sequence),
        Operation::OpenDowngrade(downgrade) => (downgrade.state, downgrade.sequence),
        Operation::Close(close) => (close.state, close.sequence),
        Operation::Unlock(unlock) => (unlock.lock, unlock.sequence),
        Operation::Lock(lock) => match &lock.locker {
            Locker::New(new) => (new.open, new.open_sequence),
            Locker::Existing(existing) => (existing.lock, existing.lock_sequence),
        },
        _ => return Err(Status::ServerFault),
    };
    state.state_turn(now, &named, sequence)
}
