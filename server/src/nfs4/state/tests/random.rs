//! Whatever clients send in whatever order: nothing panics, the limits hold, and in the end nothing is left.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Exchange(u8, u8, u32, bool),
    Create(usize, u32, u32),
    Sequence(usize, u32, u32, bool),
    Finish(bool, usize),
    Complete(usize),
    Destroy(usize),
    DestroySession(usize, u64),
    Set(u8, u8, bool),
    Confirm(usize),
    Open(usize, u8, u32, u32, u64, bool),
    Turn(usize, u8, u32),
    StateTurn(usize, u32),
    EndTurn(bool),
    OpenConfirm(usize),
    Downgrade(usize, u32, u32),
    Close(usize, bool),
    Lock(usize, usize, bool, u8, u32, u64, u64),
    Unlock(usize, bool, u64, u64),
    Io(usize, bool),
    Free(usize, usize),
    Release(usize, u8),
    Delegate(usize, u64, bool, bool),
    Recall(usize, u64, bool),
    Return(usize, usize),
    Copy(usize, usize, u64),
    Piece(usize, u8),
    Cancel(usize, usize, u64),
    Send(u8),
    Closed(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    use Step as S;
    let n = || 0..12usize;
    prop_oneof![
        (
            0..20u8,
            0..2u8,
            prop_oneof![Just(0), Just(0x4000_0000), any::<u32>()],
            any::<bool>()
        )
            .prop_map(|(a, b, c, d)| S::Exchange(a, b, c, d)),
        (n(), 0..4u32, 0..2000u32).prop_map(|(a, b, c)| S::Create(a, b, c)),
        (n(), 0..6u32, 0..4u32, any::<bool>()).prop_map(|(a, b, c, d)| S::Sequence(a, b, c, d)),
        (any::<bool>(), 0..10_000usize).prop_map(|(a, b)| S::Finish(a, b)),
        n().prop_map(S::Complete),
        n().prop_map(S::Destroy),
        (n(), 0..3u64).prop_map(|(a, b)| S::DestroySession(a, b)),
        (0..20u8, 0..2u8, any::<bool>()).prop_map(|(a, b, c)| S::Set(a, b, c)),
        n().prop_map(S::Confirm),
        (
            n(),
            0..3u8,
            1..4u32,
            prop_oneof![3 => Just(0u32), 1 => 0..4u32],
            0..3u64,
            any::<bool>()
        )
            .prop_map(|(a, b, c, d, e, f)| S::Open(a, b, c, d, e, f)),
        (n(), 0..3u8, 0..5u32).prop_map(|(a, b, c)| S::Turn(a, b, c)),
        (n(), 0..5u32).prop_map(|(a, b)| S::StateTurn(a, b)),
        any::<bool>().prop_map(S::EndTurn),
        n().prop_map(S::OpenConfirm),
        (n(), 0..5u32, 0..5u32).prop_map(|(a, b, c)| S::Downgrade(a, b, c)),
        (n(), any::<bool>()).prop_map(|(a, b)| S::Close(a, b)),
        (n(), n(), any::<bool>(), 0..3u8, 0..4u32, 0..40u64, 0..40u64)
            .prop_map(|(a, b, c, d, e, f, g)| S::Lock(a, b, c, d, e, f, g)),
        (n(), any::<bool>(), 0..40u64, 0..40u64).prop_map(|(a, b, c, d)| S::Unlock(a, b, c, d)),
        (n(), any::<bool>()).prop_map(|(a, b)| S::Io(a, b)),
        (n(), n()).prop_map(|(a, b)| S::Free(a, b)),
        (n(), 0..3u8).prop_map(|(a, b)| S::Release(a, b)),
        (n(), 0..3u64, any::<bool>(), any::<bool>())
            .prop_map(|(a, b, c, d)| S::Delegate(a, b, c, d)),
        (n(), 0..3u64, any::<bool>()).prop_map(|(a, b, c)| S::Recall(a, b, c)),
        (n(), n()).prop_map(|(a, b)| S::Return(a, b)),
        (n(), n(), 0..3u64).prop_map(|(a, b, c)| S::Copy(a, b, c)),
        (n(), 0..6u8).prop_map(|(a, b)| S::Piece(a, b)),
        (n(), n(), 0..3u64).prop_map(|(a, b, c)| S::Cancel(a, b, c)),
        (0..5u8).prop_map(S::Send),
        (0..3u64).prop_map(S::Closed),
        prop_oneof![4 => 0..30u64, 1 => 80..400u64].prop_map(S::Wait),
    ]
}

#[derive(Default)]
struct World {
    now: u64,
    ids: Vec<u64>,
    sessions: Vec<SessionId>,
    confirms: Vec<ClientIdConfirm>,
    states: Vec<(StateId, u64)>,
    slots: Vec<Slot>,
    turns: Vec<OwnerTurn>,
    copies: Vec<StateId>,
    /// Files that `vfs` takes for delegated.
    promised: HashSet<ObjectId>,
}

fn pick<T: Copy>(all: &[T], index: usize) -> Option<T> {
    // The latest are the likeliest.
    all.iter().rev().nth(index % all.len().max(1)).copied()
}

fn file(ino: u64) -> ObjectId {
    ObjectId { ino, generation: 0 }
}

fn who(other: bool) -> Principal {
    Principal(u32::from(other))
}

impl World {
    fn step(&mut self, state: &mut State, step: &Step) {
        let now = at(self.now);
        let id = |index| pick(&self.ids, index).unwrap_or(3);
        let session = |index| pick(&self.sessions, index).unwrap_or([3; 16]);
        let named = |index| pick(&self.states, index).unwrap_or((StateId::ANONYMOUS, 0));
        let sender = |index: usize, legacy: bool| match legacy {
            true => Sender::Named,
            false => Sender::Client(id(index)),
        };
        match *step {
            Step::Exchange(name, verifier, flags, other) => {
                let args = exchange(std::slice::from_ref(&name), verifier, flags).clone();
                if let Ok(made) = state.exchange_id(now, who(other), &args) {
                    self.ids.push(made.client_id);
                }
            }
            Step::Create(index, sequence, slots) => {
                let mut args = create(id(index), sequence);
                args.fore.max_requests = slots;
                args.flags = create_session_flag::BACK_CHANNEL;
                args.callback_security = List(vec![CallbackSecurity::None]);
                if let Ok(made) = state.create_session(
                    now,
                    who(false),
                    Arrival {
                        minor: 2,
                        ..arrival(1)
                    },
                    &args,
                ) {
                    self.sessions.push(made.session);
                }
            }
            Step::Sequence(index, slot, number, cache) => {
                let args = sequence(session(index), slot, number, cache);
                let taken = state.sequence(now, WHO, u64::from(slot) % 3, &args, 100, 3);
                if let Ok(Sequenced::Execute(slot, _)) = taken {
                    self.slots.push(slot);
                }
            }
            Step::Finish(whole, bytes) => match self.slots.pop() {
                Some(slot) if bytes % 5 > 0 => {
                    state.finish(now, &slot, whole.then_some(&vec![0; bytes]));
                }
                Some(slot) => state.abandon(&slot),
                None => {}
            },
            Step::Complete(index) => drop(state.reclaim_complete(id(index), false)),
            Step::Destroy(index) => drop(state.destroy_client_id(id(index))),
            Step::DestroySession(index, connection) => {
                let _ = state.destroy_session(now, connection, &session(index));
            }
            Step::Set(name, verifier, other) => {
                let name = [name];
                if let Ok(made) = state.set_client_id(now, who(other), &set(&name, verifier)) {
                    self.confirms.push(made);
                    self.ids.push(made.client_id);
                }
            }
            Step::Confirm(index) => {
                if let Some(confirm) = pick(&self.confirms, index) {
                    let _ = state.confirm_client_id(now, who(false), &confirm);
                }
            }
            Step::Open(index, name, access, deny, ino, legacy) => {
                let name = [name];
                let wanted = OpenRequest {
                    file: file(ino),
                    access,
                    deny,
                    reclaim: false,
                    delegated: legacy,
                };
                let owner = owner(id(index), &name);
                let opened = state.open(now, sender(index, legacy), &owner, &wanted);
                if let Ok(opened) = opened {
                    self.states.push((opened.stateid, ino));
                }
            }
            Step::Turn(index, name, number) => {
                let name = [name];
                let turn = state.owner_turn(now, &owner(id(index), &name), number);
                if let Ok(Some(Turn::Execute(turn))) = turn {
                    self.turns.push(turn);
                }
            }
            Step::StateTurn(index, number) => {
                let turn = state.state_turn(now, &named(index).0, number);
                if let Ok(Some(Turn::Execute(turn))) = turn {
                    self.turns.push(turn);
                }
            }
            Step::EndTurn(good) => {
                if let Some(turn) = self.turns.pop() {
                    let status = if good { Status::Ok } else { Status::BadStateId };
                    state.end_turn(turn, status, b"result");
                }
            }
            Step::OpenConfirm(index) => {
                let (given, ino) = named(index);
                if let Ok(after) = state.open_confirm(now, &given, file(ino)) {
                    self.states.push((after, ino));
                }
            }
            Step::Downgrade(index, access, deny) => {
                let (given, ino) = named(index);
                let sender = sender(index, access % 2 == 0);
                let after = state.open_downgrade(now, sender, &given, file(ino), access, deny);
                self.states.extend(after.map(|after| (after, ino)));
            }
            Step::Close(index, legacy) => {
                let (given, ino) = named(index);
                let after = state.close(now, sender(index, legacy), &given, file(ino));
                self.states.extend(after.map(|after| (after, ino)));
            }
            Step::Lock(index, client, existing, name, number, offset, length) => {
                let (given, ino) = named(index);
                let name = [name];
                let locker = if existing {
                    Locker::Existing(ExistingLockOwner {
                        lock: given,
                        lock_sequence: number,
                    })
                } else {
                    Locker::New(OpenToLockOwner {
                        open_sequence: number,
                        open: given,
                        lock_sequence: number,
                        owner: owner(id(client), &name),
                    })
                };
                let range = LockRange {
                    kind: LockType::Write,
                    offset,
                    length,
                };
                let sender = sender(client, number % 2 == 0);
                let after = state.lock(now, sender, file(ino), range, &locker, false);
                self.states.extend(after.map(|after| (after, ino)));
            }
            Step::Unlock(index, legacy, offset, length) => {
                let (given, ino) = named(index);
                let range = LockRange {
                    kind: LockType::Read,
                    offset,
                    length,
                };
                let after = state.unlock(now, sender(index, legacy), &given, file(ino), range);
                self.states.extend(after.map(|after| (after, ino)));
            }
            Step::Io(index, legacy) => {
                let (given, ino) = named(index);
                let _ = state.io(now, sender(index, legacy), &given, file(ino), Io::Write);
            }
            Step::Free(index, client) => {
                let _ = state.free_state(id(client), &named(index).0);
            }
            Step::Release(index, name) => {
                let name = [name];
                let _ = state.release_lock_owner(now, &owner(id(index), &name));
            }
            Step::Delegate(index, ino, reclaim, writes) => {
                let kind = match writes {
                    true => Delegated::Write,
                    false => Delegated::Read,
                };
                let wanted = OpenRequest {
                    file: file(ino),
                    access: share_access::READ,
                    deny: 0,
                    reclaim,
                    delegated: false,
                };
                let may = state.may_delegate(now, Sender::Client(id(index)), &wanted, kind);
                if let Ok(client) = may {
                    let given = state.delegate(now, client, (file(ino), kind), None);
                    self.states.extend(given.map(|(given, _)| (given, ino)));
                    self.promised.insert(file(ino));
                }
            }
            Step::Recall(index, ino, stranger) => {
                let by = (!stranger).then(|| id(index));
                if state.recall_for(now, file(ino), by) && stranger {
                    assert!(!state.is_delegated(file(ino)));
                }
            }
            Step::Return(index, client) => {
                let (given, ino) = named(index);
                let sender = Sender::Client(id(client));
                let _ = state.delegation_return(sender, &given, file(ino));
            }
            Step::Copy(index, client, ino) => {
                let (given, source) = named(index);
                let copying = Copying {
                    source: (given, file(source)),
                    target: (StateId::ANONYMOUS, file(ino)),
                    verifier: [0; 8],
                    origin: None,
                };
                let begun = state.begin_copy(Sender::Client(id(client)), copying);
                self.copies.extend(begun);
            }
            Step::Piece(index, how) => {
                let Some(copy) = pick(&self.copies, index) else {
                    return;
                };
                match (state.next_piece(now, &copy), how) {
                    (NextPiece::Gone, _) => {}
                    // It is cancelled in the middle.
                    (_, 0) => {
                        state.forget_copy(&copy);
                        assert!(!state.end_piece(&copy, 1));
                    }
                    (NextPiece::Refused(status), _) => state.end_copy(&copy, status),
                    (NextPiece::Copy, 1) => state.end_copy(&copy, Status::Ok),
                    (NextPiece::Copy, _) => assert!(state.end_piece(&copy, 1)),
                }
            }
            Step::Cancel(index, client, ino) => {
                let copy = pick(&self.copies, index).unwrap_or(StateId::ANONYMOUS);
                let sender = Sender::Client(id(client));
                let told = state.copy_status(sender, &copy, file(ino));
                let cancelled = state.cancel_copy(sender, &copy, file(ino));
                assert_eq!(told.is_ok(), cancelled.is_ok());
                assert!(cancelled.is_err() || !state.is_copying(&copy));
            }
            Step::Send(how) => {
                let called = match how {
                    0 => Called::Seen,
                    1 => Called::NotYet,
                    2 => Called::Later,
                    3 => Called::Lost,
                    _ => Called::Refused,
                };
                for send in state.take_callbacks(now) {
                    state.called(now, send.sent, called);
                }
            }
            Step::Closed(connection) => state.connection_closed(connection),
            Step::Wait(seconds) => {
                self.now += seconds;
                state.tick(at(self.now));
            }
        }
    }
}

/// What each file is said to be open for is what its opens are for.
fn assert_shares(state: &State) {
    let opens = state.files.values().map(|file| file.opens.len());
    assert_eq!(opens.sum::<usize>(), state.opens);
    for (key, entry) in &state.entries {
        if let Some((access, deny)) = entry.shares() {
            let known = &state.files[&entry.file].opens;
            assert_eq!(known.of(*key), Some((access, deny)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn in_the_end_nothing_is_left(steps in prop::collection::vec(step(), 1..150)) {
        let state = &mut machine();
        let mut world = World::default();
        for step in &steps {
            world.step(state, step);
            assert!(state.clients.len() <= limits().clients);
            assert!(state.cached_bytes <= limits().all_cached_bytes);
            assert!(state.entries.len() <= limits().all_states);
            assert_shares(state);
            let held = state.delegation_counts().held;
            assert!(held <= limits().all_delegations);
            for file in state.take_undelegated() {
                world.promised.remove(&file);
            }
            assert_eq!(world.promised, state.delegations.files());
        }
        for turn in world.turns.drain(..) {
            state.end_turn(turn, Status::Ok, b"");
        }
        for slot in world.slots.drain(..) {
            state.finish(at(world.now), &slot, Some(b""));
        }
        state.tick(at(world.now + 72 * 3600));
        assert_empty(state);
    }
}
