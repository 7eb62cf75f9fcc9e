//! Clients that take as much as they can of one thing.

use super::*;

const READS: OpenRequest = OpenRequest {
    file: FILE,
    access: 1,
    deny: 0,
    reclaim: false,
    delegated: false,
};

fn lock(
    state: &mut State,
    (client, open): (u64, StateId),
    name: &[u8],
    kind: LockType,
    now: u64,
    offset: u64,
) -> Result<StateId, LockRefused> {
    let locker = Locker::New(OpenToLockOwner {
        open_sequence: 0,
        open,
        lock_sequence: 0,
        owner: owner(client, name),
    });
    let range = LockRange {
        kind,
        offset,
        length: 1,
    };
    let sender = Sender::Client(client);
    state.lock(at(now), sender, FILE, range, &locker, false)
}

/// A call walks along all locks of its file.
#[test]
fn the_ranges_of_a_file_are_bounded_for_all_together() {
    let most = 128;
    let limits = StateLimits {
        file_ranges: most,
        ..limits()
    };
    let state = &mut State::new(limits, 5, at(0), Vec::new());
    let mut locked = 0;
    for name in 0..4u8 {
        let (id, _) = client(state, at(0), &[name]);
        let opened = open(state, at(0), id, b"o", (3, 0)).unwrap();
        for offset in 0..limits.states as u64 {
            let offset = u64::from(name) * 1000 + offset * 2;
            let taken = lock(state, (id, opened), b"l", LockType::Write, 1, offset);
            match taken {
                Ok(_) => locked += 1,
                Err(refused) => assert_eq!(refused, Status::Delay.into()),
            }
        }
    }
    assert!(locked < most && locked + 2 >= most, "{locked}");
    assert!(locked + 2 <= limits.all_states);
    // The one that was silent for longest makes room, and no other.
    let (id, _) = client(state, at(200), b"late");
    let opened = open(state, at(200), id, b"o", (3, 0)).unwrap();
    let before = state.ranges;
    lock(state, (id, opened), b"l", LockType::Write, 200, 9999).unwrap();
    assert!(state.ranges < before && state.ranges > limits.ranges / 2);
}

/// Many owners have locked a file, and many wait for it.
#[test]
fn a_close_goes_through_the_locks_of_a_file_once() {
    let owners = 40u32;
    let close = |waits: u32| {
        let state = &mut machine();
        let (id, _) = client(state, at(0), b"holds");
        let (other, _) = delegations::hearing(state, b"waits", 1);
        let held = open(state, at(0), id, b"o", (3, 0)).unwrap();
        let theirs = open(state, at(0), other, b"o", (3, 0)).unwrap();
        for name in 0..owners {
            let name = name.to_be_bytes();
            lock(state, (id, held), &name, LockType::Read, 1, 0).unwrap();
        }
        for name in 0..waits {
            let name = name.to_be_bytes();
            lock(state, (other, theirs), &name, LockType::WriteWait, 1, 0).unwrap_err();
        }
        assert_eq!(state.files[&FILE].waiters.len(), waits as usize);
        let walks = |state: &State| state.locks.walks.load(std::sync::atomic::Ordering::Relaxed);
        let before = walks(state);
        // No lock of a client that was heard of a while ago is looked for.
        state.tick(at(2));
        assert_eq!(walks(state), before);
        state.close(at(2), Sender::Client(id), &held, FILE).unwrap();
        assert!(state.files[&FILE].waiters.is_empty());
        walks(state) - before
    };
    assert_eq!(close(0), 1);
    assert_eq!(close(7), 2);
}

#[test]
fn opens_without_locks_end_without_a_look_at_those_of_others() {
    let state = &mut machine();
    let (other, _) = client(state, at(0), b"other");
    let theirs = open(state, at(0), other, b"o", (3, 0)).unwrap();
    lock(state, (other, theirs), b"l", LockType::Read, 1, 0).unwrap();
    let (id, _) = client(state, at(0), b"opens");
    for name in 0..40u32 {
        open(state, at(0), id, &name.to_be_bytes(), (1, 0)).unwrap();
    }
    let walks = |state: &State| state.locks.walks.load(std::sync::atomic::Ordering::Relaxed);
    let before = walks(state);
    // Both have gone: one had a lock.
    state.tick(at(48 * 3600));
    assert_empty(state);
    assert_eq!(walks(state), before + 1);
}

/// What waits to be told is a hint, and takes memory.
#[test]
fn who_is_told_of_a_free_lock_is_bounded() {
    let state = &mut machine();
    let (id, _) = delegations::hearing(state, b"waits", 1);
    let (other, _) = client(state, at(0), b"other");
    let theirs = open(state, at(0), other, b"o", (3, 0)).unwrap();
    let locked = lock(state, (other, theirs), b"l", LockType::Write, 1, 0).unwrap();
    let opened = open(state, at(0), id, b"o", (3, 0)).unwrap();
    let ask = |state: &mut State, name: &[u8]| {
        let denied = lock(state, (id, opened), name, LockType::ReadWait, 1, 0);
        assert!(matches!(denied, Err(LockRefused::Denied(_))), "{denied:?}");
    };
    ask(state, &[7; 1000]);
    assert!(state.files[&FILE].waiters.is_empty());
    for name in 0..2 * limits().file_waiters as u32 {
        ask(state, &name.to_be_bytes());
    }
    assert_eq!(state.files[&FILE].waiters.len(), limits().file_waiters);
    let all = LockRange {
        kind: LockType::Write,
        offset: 0,
        length: u64::MAX,
    };
    let sender = Sender::Client(other);
    state.unlock(at(1), sender, &locked, FILE, all).unwrap();
    assert!(state.files[&FILE].waiters.is_empty());
}

#[test]
fn owners_with_long_names_are_fewer() {
    let state = &mut machine();
    let (id, _) = client(state, at(0), b"one");
    let mut opens = Vec::new();
    let refused = loop {
        let mut name = [7; 1024];
        name[0] = opens.len() as u8;
        let sender = Sender::Client(id);
        match state.open(at(0), sender, &owner(id, &name), &READS) {
            Ok(opened) => opens.push(opened.stateid),
            Err(status) => break status,
        }
    };
    assert_eq!(refused, Status::Delay);
    // Names of 64 bytes are as many as there may be stateids.
    assert_eq!(opens.len(), limits().states * 64 / 1024);
    assert!(open(state, at(0), id, b"short", (1, 0)).is_err());
    state
        .close(at(0), Sender::Client(id), &opens[0], FILE)
        .unwrap();
    open(state, at(0), id, b"short", (1, 0)).unwrap();
    // As they are in all.
    for name in 1..=4u8 {
        let (id, _) = client(state, at(0), &[name]);
        let mut long = [name; 1024];
        for number in 0..4 {
            long[0] = number;
            let _ = state.open(at(0), Sender::Client(id), &owner(id, &long), &READS);
        }
    }
    assert!(state.name_bytes <= limits().all_states * 64);
    state.tick(at(48 * 3600));
    assert_empty(state);
}

#[test]
fn a_lock_that_is_given_back_concerns_only_those_that_wait_for_a_part_of_it() {
    let state = &mut machine();
    let (id, _) = client(state, at(0), b"holds");
    let (other, _) = delegations::hearing(state, b"waits", 1);
    let held = open(state, at(0), id, b"o", (3, 0)).unwrap();
    let theirs = open(state, at(0), other, b"o", (3, 0)).unwrap();
    let mut locked = None;
    for offset in 0..10 {
        locked = lock(state, (id, held), b"l", LockType::Write, 1, offset * 2).ok();
    }
    let waits = [3u64, 5, 5, 5, 5];
    for (name, offset) in waits.into_iter().enumerate() {
        let name = [name as u8];
        let kind = LockType::WriteWait;
        lock(state, (other, theirs), &name, kind, 1, offset * 2).unwrap_err();
    }
    let mut gives_back = |state: &mut State, offset: u64| {
        let walks = |state: &State| state.locks.walks.load(std::sync::atomic::Ordering::Relaxed);
        let before = walks(state);
        let range = LockRange {
            kind: LockType::Write,
            offset: offset * 2,
            length: 1,
        };
        let named = locked.expect("locked");
        let sender = Sender::Client(id);
        locked = state.unlock(at(1), sender, &named, FILE, range).ok();
        walks(state) - before
    };
    assert_eq!(gives_back(state, 9), 1);
    assert_eq!(gives_back(state, 3), 2);
    assert_eq!(gives_back(state, 5), 2);
    assert!(state.files[&FILE].waiters.is_empty());
    assert_eq!(state.take_callbacks(at(1)).len(), 1);
}
