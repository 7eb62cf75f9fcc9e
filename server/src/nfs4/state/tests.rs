//! The state machine by itself: time is a number here.

mod clients;
mod copies;
mod delegations;
mod greedy;
mod locks;
mod random;
mod recalls;
mod records;
mod silent;
mod slots;

use odafs_common::wire::nfs4::*;
use odafs_fabric::clock::Nanos;

use super::*;
use crate::vfs::locks::Side;

const LEASE: Nanos = Nanos::from_secs(90);
const WHO: Principal = Principal(1000);
const FILE: ObjectId = ObjectId {
    ino: 7,
    generation: 1,
};
const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 1 << 20,
    max_response: 1 << 20,
    max_response_cached: 4096,
    max_operations: 16,
    max_requests: 4,
    rdma_reads: AtMostOne(None),
};

fn limits() -> StateLimits {
    StateLimits {
        lease: LEASE,
        clients: 16,
        sessions: 4,
        states: 64,
        ranges: 64,
        all_states: 256,
        file_ranges: 256,
        file_waiters: 12,
        delegations: 8,
        all_delegations: 24,
        all_cached_bytes: 1 << 20,
        slots: 8,
        slots_grown: 32,
        message_bytes: 1 << 20,
        cached_bytes: 8192,
        operations: 32,
    }
}

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(1_000 + seconds)
}

fn machine() -> State {
    State::new(limits(), 5, at(0), Vec::new())
}

fn exchange(name: &[u8], verifier: u8, flags: u32) -> ExchangeIdArgs<'_> {
    ExchangeIdArgs {
        client: ClientOwner {
            verifier: [verifier; 8],
            id: Opaque(name),
        },
        flags,
        protection: StateProtection::None,
        implementation: AtMostOne(None),
    }
}

fn create(client_id: u64, sequence: u32) -> CreateSessionArgs<'static> {
    CreateSessionArgs {
        client_id,
        sequence,
        flags: 0,
        fore: CHANNEL,
        back: CHANNEL,
        callback_program: 1,
        callback_security: List(Vec::new()),
    }
}

fn sequence(session: SessionId, slot: u32, sequence: u32, cache: bool) -> SequenceArgs {
    SequenceArgs {
        session,
        sequence,
        slot,
        highest_slot: slot,
        cache,
    }
}

/// A connection over which callbacks can go.
fn arrival(connection: u64) -> Arrival {
    Arrival {
        connection,
        can_call_back: true,
        calls_back: true,
        minor: 1,
    }
}

/// A client of 4.1 with a session, which has completed its reclaims.
fn client(state: &mut State, now: Nanos, name: &[u8]) -> (u64, SessionId) {
    let exchanged = state.exchange_id(now, WHO, &exchange(name, 1, 0)).unwrap();
    let id = exchanged.client_id;
    let made = state.create_session(now, WHO, arrival(id), &create(id, exchanged.sequence));
    state.reclaim_complete(id, false).unwrap();
    (id, made.unwrap().session)
}

/// A client of 4.0.
fn legacy(state: &mut State, now: Nanos, name: &[u8], verifier: u8) -> u64 {
    let confirm = state.set_client_id(now, WHO, &set(name, verifier)).unwrap();
    state.confirm_client_id(now, WHO, &confirm).unwrap();
    confirm.client_id
}

fn set(name: &[u8], verifier: u8) -> SetClientIdArgs<'_> {
    SetClientIdArgs {
        client: ClientOwner {
            verifier: [verifier; 8],
            id: Opaque(name),
        },
        callback: CallbackClient {
            program: 1,
            address: NetAddress {
                network: Opaque(b"tcp"),
                address: Opaque(b""),
            },
        },
        callback_ident: 0,
    }
}

fn owner(client_id: u64, name: &[u8]) -> StateOwner<'_> {
    StateOwner {
        client_id,
        owner: Opaque(name),
    }
}

fn wanted(access: u32, deny: u32) -> OpenRequest {
    OpenRequest {
        file: FILE,
        access,
        deny,
        reclaim: false,
        delegated: false,
    }
}

/// Opens [`FILE`] as a client of 4.1.
fn open(
    state: &mut State,
    now: Nanos,
    client: u64,
    name: &[u8],
    share: (u32, u32),
) -> Result<StateId, Status> {
    let wanted = wanted(share.0, share.1);
    let opened = state.open(now, Sender::Client(client), &owner(client, name), &wanted);
    opened.map(|opened| opened.stateid)
}

/// Nothing is left of anything.
fn assert_empty(state: &State) {
    assert_eq!(state.counts(), [0; 4]);
    assert!(state.clients.is_empty() && state.identities.is_empty());
    assert!(state.sessions.is_empty() && state.connections.is_empty());
    assert!(state.owners.is_empty() && state.entries.is_empty());
    assert_eq!(state.name_bytes, 0);
    assert!(state.held.is_empty() && state.files.is_empty());
    assert!(state.later.is_empty() && state.delegations.is_empty());
    assert!(state.named_files.is_empty() && state.cached_bytes == 0);
    assert!(state.grown.is_empty());
    assert_eq!(state.calls.len(), 0);
    assert!(state.copies() == 0 && state.ranges == 0);
}
