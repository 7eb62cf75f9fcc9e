//! Opens and locks, beside a plain model: for each byte and owner the lock that it has there.

use proptest::prelude::*;

use super::*;

use crate::vfs::locks::{LockOwner, Side, Span};

const BYTES: u64 = 24;

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock(usize, LockType, u64, u64),
    Unlock(usize, u64, u64),
    Test(usize, LockType, u64, u64),
    /// The owner's open is closed, and opened again.
    Reopen(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..BYTES).prop_flat_map(|first| (Just(first), 1..=BYTES - first));
    let kind = || prop_oneof![Just(LockType::Read), Just(LockType::WriteWait)];
    prop_oneof![
        4 => (0..4usize, kind(), range()).prop_map(|(o, k, (f, n))| Step::Lock(o, k, f, n)),
        3 => (0..4usize, range()).prop_map(|(o, (f, n))| Step::Unlock(o, f, n)),
        1 => (0..4usize, kind(), range()).prop_map(|(o, k, (f, n))| Step::Test(o, k, f, n)),
        1 => (0..4usize).prop_map(Step::Reopen),
    ]
}

/// Whether an owner has locked a byte, and for writing.
type Model = [[Option<bool>; BYTES as usize]; 4];

fn in_the_way(model: &Model, who: usize, write: bool, range: (u64, u64)) -> Option<u64> {
    (range.0..range.0 + range.1).find(|byte| {
        let others = (0..4).filter(|other| *other != who);
        others
            .filter_map(|other| model[other][*byte as usize])
            .any(|theirs| theirs || write)
    })
}

struct Actor {
    client: u64,
    name: [u8; 1],
    open: StateId,
    locks: Option<StateId>,
}

impl Actor {
    fn locker(&self) -> Locker<'_> {
        match self.locks {
            Some(lock) => Locker::Existing(ExistingLockOwner {
                lock,
                lock_sequence: 0,
            }),
            None => Locker::New(OpenToLockOwner {
                open_sequence: 0,
                open: self.open,
                lock_sequence: 0,
                owner: owner(self.client, &self.name),
            }),
        }
    }
}

fn range(kind: LockType, offset: u64, length: u64) -> LockRange {
    LockRange {
        kind,
        offset,
        length,
    }
}

fn run(steps: &[Step]) {
    let state = &mut machine();
    let (one, _) = client(state, at(0), b"one");
    let (two, _) = client(state, at(0), b"two");
    let mut actors: Vec<Actor> = (0..4u8)
        .map(|i| {
            let client = if i < 2 { one } else { two };
            let open = open(state, at(0), client, &[i], (3, 0)).unwrap();
            Actor {
                client,
                name: [i],
                open,
                locks: None,
            }
        })
        .collect();
    let mut model: Model = [[None; BYTES as usize]; 4];
    for step in steps {
        match *step {
            Step::Lock(who, kind, first, count) => {
                let actor = &mut actors[who];
                let write = kind == LockType::WriteWait;
                let sender = Sender::Client(actor.client);
                let asked = range(kind, first, count);
                let locker = actor.locker();
                let locked = state.lock(at(1), sender, FILE, asked, &locker, false);
                match in_the_way(&model, who, write, (first, count)) {
                    None => {
                        actor.locks = Some(locked.unwrap());
                        let bytes = &mut model[who][first as usize..(first + count) as usize];
                        bytes.fill(Some(write));
                    }
                    Some(byte) => {
                        let Err(LockRefused::Denied(conflict)) = locked else {
                            panic!("{locked:?}");
                        };
                        let theirs = conflict.range;
                        let last = theirs.offset + theirs.length - 1;
                        assert!(theirs.offset <= byte.max(first) && last >= byte);
                        let whose = usize::from(conflict.owner[0]);
                        assert_ne!(whose, who);
                        let write = theirs.kind == LockType::Write;
                        assert_eq!(model[whose][byte as usize], Some(write));
                    }
                }
            }
            Step::Unlock(who, first, count) => {
                let actor = &mut actors[who];
                if let Some(lock) = actor.locks {
                    let sender = Sender::Client(actor.client);
                    let asked = range(LockType::Read, first, count);
                    let left = state.unlock(at(1), sender, &lock, FILE, asked);
                    actor.locks = Some(left.unwrap());
                    model[who][first as usize..(first + count) as usize].fill(None);
                }
            }
            Step::Test(who, kind, first, count) => {
                let actor = &actors[who];
                let sender = Sender::Client(actor.client);
                let name = owner(actor.client, &actor.name);
                let asked = range(kind, first, count);
                let free = state.lock_test(at(1), sender, FILE, asked, &name);
                let write = kind == LockType::WriteWait;
                let blocked = in_the_way(&model, who, write, (first, count));
                assert_eq!(free.is_ok(), blocked.is_none());
            }
            Step::Reopen(who) => {
                let actor = &mut actors[who];
                let sender = Sender::Client(actor.client);
                state.close(at(1), sender, &actor.open, FILE).unwrap();
                actor.locks = None;
                actor.open = open(state, at(1), actor.client, &actor.name, (3, 0)).unwrap();
                model[who] = [None; BYTES as usize];
            }
        }
        // Neighbours of one kind are one range, and no more ranges are counted than there are.
        let runs: usize = model
            .iter()
            .map(|bytes| {
                let starts = (0..bytes.len())
                    .filter(|i| bytes[*i].is_some() && (*i == 0 || bytes[*i - 1] != bytes[*i]));
                starts.count()
            })
            .sum();
        assert_eq!(state.counts()[3], runs);
    }
    state.tick(at(72 * 3600));
    for connection in [one, two] {
        state.connection_closed(connection);
    }
    assert_empty(state);
}

proptest! {
    #[test]
    fn locks_are_as_a_table_of_bytes_has_them(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps);
    }
}

#[test]
fn ranges_reach_to_the_end_of_all_files_and_no_further() {
    let state = &mut machine();
    let (one, _) = client(state, at(0), b"one");
    let sender = Sender::Client(one);
    let open = open(state, at(0), one, b"o", (3, 0)).unwrap();
    let locker = Locker::New(OpenToLockOwner {
        open_sequence: 0,
        open,
        lock_sequence: 0,
        owner: owner(one, b"l"),
    });
    let mut lock = |offset, length| {
        let asked = range(LockType::Write, offset, length);
        state.lock(at(0), sender, FILE, asked, &locker, false)
    };
    assert_eq!(lock(0, 0), Err(Status::Inval.into()));
    assert_eq!(lock(3, u64::MAX - 1), Err(Status::Inval.into()));
    lock(1, u64::MAX - 1).unwrap();
    lock(u64::MAX, 1).unwrap();
    lock(u64::MAX, u64::MAX).unwrap();
    lock(0, u64::MAX).unwrap();
    assert_eq!(state.counts()[3], 1);
}

#[test]
fn an_open_is_downgraded_to_what_it_was_opened_for() {
    let state = &mut machine();
    let (one, _) = client(state, at(0), b"one");
    let sender = Sender::Client(one);
    open(state, at(0), one, b"o", (1, 0)).unwrap();
    let both = open(state, at(0), one, b"o", (2, 0)).unwrap();
    assert_eq!(both.sequence, 2);
    let mut to = |given, access| state.open_downgrade(at(0), sender, &given, FILE, access, 0);
    assert_eq!(to(both, 0), Err(Status::Inval));
    assert_eq!(to(both, 4), Err(Status::Inval));
    let both = to(both, 3).unwrap();
    let read = to(both, 1).unwrap();
    assert_eq!(to(both, 1), Err(Status::OldStateId));
    assert_eq!(to(read, 3), Err(Status::Inval));
    let io = |state: &mut State, io| state.io(at(0), sender, &read, FILE, io).map(drop);
    assert_eq!(io(state, Io::Read), Ok(()));
    assert_eq!(io(state, Io::Write), Err(Status::OpenMode));
    let whole = open(state, at(0), one, b"p", (3, 0)).unwrap();
    let never = state.open_downgrade(at(0), sender, &whole, FILE, 1, 0);
    assert_eq!(never, Err(Status::Inval));
}

#[test]
fn stateids_are_freed_when_nothing_is_locked() {
    let state = &mut machine();
    let (one, _) = client(state, at(0), b"one");
    let (two, _) = client(state, at(0), b"two");
    let sender = Sender::Client(one);
    let open = open(state, at(0), one, b"o", (3, 0)).unwrap();
    let locker = Locker::New(OpenToLockOwner {
        open_sequence: 0,
        open,
        lock_sequence: 0,
        owner: owner(one, b"l"),
    });
    let all = range(LockType::Write, 0, u64::MAX);
    let lock = state
        .lock(at(0), sender, FILE, all, &locker, false)
        .unwrap();
    assert_eq!(state.test_state(one, &lock), Status::Ok);
    assert_eq!(state.test_state(two, &lock), Status::BadStateId);
    assert_eq!(state.free_state(one, &open), Err(Status::LocksHeld));
    assert_eq!(state.free_state(one, &lock), Err(Status::LocksHeld));
    let left = state.unlock(at(0), sender, &lock, FILE, all).unwrap();
    assert_eq!(state.test_state(one, &lock), Status::OldStateId);
    assert_eq!(state.free_state(one, &lock), Err(Status::OldStateId));
    assert_eq!(state.free_state(one, &left), Ok(()));
    assert_eq!(state.free_state(one, &left), Err(Status::BadStateId));
    state.close(at(0), sender, &open, FILE).unwrap();
    assert!(state.owners.is_empty() && state.files.is_empty());
}

#[test]
fn who_waits_for_a_client_whose_lease_is_over_is_told() {
    let state = &mut machine();
    let (gone, _) = client(state, at(0), b"gone");
    let (idle, _) = client(state, at(0), b"idle");
    let (waits, _) = delegations::hearing(state, b"waits", 1);
    let lock = |state: &mut State, client, kind, offset| {
        let open = open(state, at(0), client, b"o", (3, 0)).unwrap();
        let actor = Actor {
            client,
            name: *b"o",
            open,
            locks: None,
        };
        let wanted = range(kind, offset, 10);
        let sender = Sender::Client(client);
        state.lock(at(0), sender, FILE, wanted, &actor.locker(), false)
    };
    lock(state, gone, LockType::Write, 0).unwrap();
    lock(state, idle, LockType::Write, 20).unwrap();
    let denied = lock(state, waits, LockType::ReadWait, 5);
    assert!(matches!(denied, Err(LockRefused::Denied(_))));
    delegations::renew(state, waits, at(91));
    state.tick(at(90));
    assert!(state.take_callbacks(at(90)).is_empty());
    state.tick(at(91));
    let told = state.take_callbacks(at(91));
    assert!(matches!(
        &told[0].callback,
        Callback::NotifyLock { file: FILE, .. }
    ));
    // Nobody wants what the other has.
    assert!(state.session_client(gone).is_err() && state.session_client(idle).is_ok());
    assert_eq!(state.counts()[3], 1);
}

#[test]
fn what_another_protocol_gives_back_just_after_a_denial_is_heard_of() {
    const THREE: LockOwner = LockOwner {
        side: Side::Nlm,
        number: 1,
    };
    let span = |first, last| Span { first, last };
    let state = &mut machine();
    let (one, _) = delegations::hearing(state, b"one", 1);
    let open = open(state, at(0), one, b"o", (3, 0)).unwrap();
    let actor = Actor {
        client: one,
        name: *b"o",
        open,
        locks: None,
    };
    let locks = state.locks.clone();
    locks.lock(FILE, span(0, 9), true, THREE).unwrap();
    let wanted = range(LockType::WriteWait, 0, 5);
    let sender = Sender::Client(one);
    let denied = state.lock(at(0), sender, FILE, wanted, &actor.locker(), false);
    assert!(matches!(denied, Err(LockRefused::Denied(_))));
    locks.unlock(FILE, span(5, 9), THREE);
    *locks.after_denial.lock() = Some(Box::new(|locks| {
        locks.unlock(FILE, Span::ALL, THREE);
    }));
    state.hear_of_locks();
    assert!(locks.after_denial.lock().is_none());
    assert!(locks.take_news(Side::Nfs4).contains(&FILE));
}
