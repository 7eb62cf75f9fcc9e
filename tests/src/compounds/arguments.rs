//! The arguments of operations, from bytes.

use std::collections::VecDeque;

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc::{AuthSys, Groups};
use odafs_common::wire::xdr::Decode as _;

use super::STORE_BYTES;
use super::learned::Learned;
use crate::server_model::choices::Choices;

const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b".", b"..", b"", b"no/slash"];
/// Names that are too long, or no text.
const STRANGE_NAMES: [&[u8]; 8] = [
    &[b'n'; 255],
    &[b'n'; 256],
    &[b'n'; 4096],
    b"nul\0",
    b"\xff\xfe",
    b"\xc0\xaf",
    "\u{202e}a".as_bytes(),
    b"user.a",
];
const OWNERS: [&[u8]; 3] = [b"me", b"you", b""];
static DATA: [u8; 5000] = [7; 5000];
/// Longer than any extended attribute.
static HUGE: [u8; 70_000] = [7; 70_000];

const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 1 << 20,
    max_response: 1 << 20,
    max_response_cached: 2048,
    max_operations: 64,
    max_requests: 4,
    rdma_reads: AtMostOne(None),
};

/// Channels of which nothing is to be had, or everything.
const STRANGE_CHANNELS: [u32; 4] = [0, 1, 1 << 31, u32::MAX];

fn exchange<'a>(
    client: ClientOwner<'a>,
    flags: u32,
    protection: StateProtection<'a>,
) -> Operation<'a> {
    Operation::ExchangeId(ExchangeIdArgs {
        client,
        flags,
        protection,
        implementation: AtMostOne(None),
    })
}

pub(crate) fn exchange_id(name: &[u8], verifier: u8, flags: u32) -> Operation<'_> {
    let client = ClientOwner {
        verifier: [verifier; 8],
        id: Opaque(name),
    };
    exchange(client, flags, StateProtection::None)
}

/// EXCHANGE_ID, at times with a protection of state.
pub(super) fn any_exchange_id<'a>(choices: &mut Choices<'_>) -> Operation<'a> {
    let how = choices.byte();
    let flags = [0, exchange_id_flag::UPDATE_CONFIRMED, u32::MAX];
    let operations = |all| ProtectedOperations {
        must_enforce: all,
        must_allow: all,
    };
    let protection = match how {
        0..240 => StateProtection::None,
        240..248 => StateProtection::MachineCredential(operations(asked(choices))),
        248.. => StateProtection::Ssv(SsvParameters {
            operations: operations(asked(choices)),
            hashes: List(vec![Opaque(b"hash"); 3]),
            ciphers: List(vec![]),
            window: u32::MAX,
            handles: u32::MAX,
        }),
    };
    let client = ClientOwner {
        id: Opaque(client_name(choices)),
        verifier: [choices.byte() % 3; 8],
    };
    exchange(client, flags[usize::from(how) % 3], protection)
}

pub(super) fn any_set_client_id<'a>(choices: &mut Choices<'_>) -> Operation<'a> {
    set_client_id(client_name(choices), choices.byte() % 3)
}

pub(crate) fn set_client_id(name: &[u8], verifier: u8) -> Operation<'_> {
    Operation::SetClientId(SetClientIdArgs {
        client: ClientOwner {
            verifier: [verifier; 8],
            id: Opaque(name),
        },
        callback: CallbackClient {
            program: 1,
            address: NetAddress {
                network: Opaque(b"tcp"),
                address: Opaque(b"127.0.0.1.0.1"),
            },
        },
        callback_ident: 1,
    })
}

pub(crate) fn create_session(client_id: u64, sequence: u32, slots: u32) -> Operation<'static> {
    Operation::CreateSession(CreateSessionArgs {
        client_id,
        sequence,
        flags: create_session_flag::BACK_CHANNEL,
        fore: ChannelAttributes {
            max_requests: slots,
            ..CHANNEL
        },
        back: CHANNEL,
        callback_program: 0x4000_0000,
        callback_security: List(vec![CallbackSecurity::None]),
    })
}

/// CREATE_SESSION, at times with channels that no client needs.
pub(super) fn any_create_session<'a>(choices: &mut Choices<'_>, client_id: u64) -> Operation<'a> {
    let sequence = choices.byte();
    let slots = choices.small();
    if sequence < 240 {
        return create_session(client_id, sequence.into(), slots);
    }
    let mut channel = || {
        let mut strange = || choices.one_of(&STRANGE_CHANNELS);
        ChannelAttributes {
            header_padding: strange(),
            max_request: strange(),
            max_response: strange(),
            max_response_cached: strange(),
            max_operations: strange(),
            max_requests: strange(),
            rdma_reads: AtMostOne(Some(strange())),
        }
    };
    let (fore, back) = (channel(), channel());
    Operation::CreateSession(CreateSessionArgs {
        client_id,
        sequence: u32::from(sequence) % 3,
        flags: choices.one_of(&[0, create_session_flag::PERSIST, u32::MAX]),
        fore,
        back,
        callback_program: choices.small(),
        callback_security: callback_security(choices),
    })
}

pub(super) fn callback_security<'a>(choices: &mut Choices<'_>) -> CallbackSecurities<'a> {
    let one = |choices: &mut Choices<'_>| match choices.byte() % 3 {
        0 => CallbackSecurity::None,
        1 => CallbackSecurity::Sys(AuthSys {
            stamp: 0,
            machine: b"machine",
            uid: choices.small(),
            gid: choices.small(),
            gids: Groups::default(),
        }),
        _ => CallbackSecurity::Gss(GssHandles {
            service: GssService::Privacy,
            from_server: Opaque(b"theirs"),
            from_client: Opaque(b""),
        }),
    };
    let count = choices.byte() % 4;
    List((0..count).map(|_| one(choices)).collect())
}

/// One of what was learned, or else something that nobody has said.
pub(super) fn known<T: Copy>(choices: &mut Choices<'_>, all: &VecDeque<T>, other: T) -> T {
    let at = usize::from(choices.byte());
    match all.len() {
        0 => other,
        _ if at == 255 => other,
        some => all[at % some],
    }
}

pub(super) fn name<'a>(choices: &mut Choices<'_>) -> Name<'a> {
    // Mostly one that can be made.
    match choices.byte() {
        byte @ 0..8 => Name(NAMES[usize::from(byte)]),
        byte @ 248.. => Name(STRANGE_NAMES[usize::from(byte - 248)]),
        byte => Name(NAMES[usize::from(byte) % 4]),
    }
}

/// How much of a file is copied.
pub(super) fn copied(choices: &mut Choices<'_>, learned: &Learned) -> u64 {
    if learned.here.get().is_some() && choices.byte() < 160 {
        return 0;
    }
    length(choices)
}

/// A multiple of half a page.
pub(super) fn half_pages(choices: &mut Choices<'_>, learned: &Learned) -> u64 {
    match learned.here.get() {
        Some(_) => choices.one_of(&[0, 0, 0, 2048, 4096]),
        None => u64::from(choices.byte()) * 2048,
    }
}

/// Where a list goes on.
pub(super) fn cookie(choices: &mut Choices<'_>, learned: &Learned) -> u64 {
    match learned.here.get() {
        Some(_) => u64::from(choices.byte() % 4),
        None => choices.small().into(),
    }
}

pub(super) fn offset(choices: &mut Choices<'_>, learned: &Learned) -> u64 {
    // Whole files, and parts of them next to their begin.
    if learned.here.get().is_some() {
        match choices.byte() {
            0..100 => return 0,
            byte @ 100..150 => return u64::from(byte - 100) * 100,
            150.. => {}
        }
    }
    choices.offset()
}

/// A value, mostly a short one.
pub(super) fn data<'a>(choices: &mut Choices<'_>) -> &'a [u8] {
    match choices.small() {
        0xff00.. => &HUGE,
        some => &DATA[..some as usize % DATA.len()],
    }
}

fn client_name<'a>(choices: &mut Choices<'_>) -> &'a [u8] {
    choices.one_of(&[&b"one"[..], b"two", b"three", b""])
}

pub(super) fn state(choices: &mut Choices<'_>, learned: &Learned) -> StateId {
    held_or(choices, learned, learned.here.get())
}

/// A stateid of the saved file.
pub(super) fn saved_state(choices: &mut Choices<'_>, learned: &Learned) -> StateId {
    held_or(choices, learned, learned.there.get())
}

/// Mostly what the client holds, if that is known.
fn held_or(choices: &mut Choices<'_>, learned: &Learned, held: Option<StateId>) -> StateId {
    if let Some(held) = held {
        match choices.byte() {
            0..200 => return held,
            200..240 => {
                return StateId {
                    sequence: 0,
                    ..held
                };
            }
            240.. => {}
        }
    }
    let mut state = known(choices, &learned.states, StateId::ANONYMOUS);
    match choices.byte() {
        0 => return StateId::ANONYMOUS,
        1 => return StateId::READ_BYPASS,
        2 => return StateId::INVALID,
        3..=90 => return StateId::CURRENT,
        91 => state.sequence = choices.small(),
        92 => state.other[11] ^= 1,
        93..=160 => state.sequence = 0,
        _ => {}
    }
    state
}

pub(super) fn raw<'a>(choices: &mut Choices<'_>, learned: &'a Learned) -> RawAttributes<'a> {
    let encoded = &learned.attributes[usize::from(choices.byte()) % learned.attributes.len()];
    let mut raw = RawAttributes::from_bytes(encoded).expect("attributes");
    if choices.byte() == 255 {
        // No values for these.
        raw.mask = asked(choices);
    }
    raw
}

/// Attributes, also those that nobody knows and those that cannot be read.
pub(super) fn asked(choices: &mut Choices<'_>) -> Bitmap {
    let all = (0..MAX_BITMAP_WORDS * 32).fold(Bitmap::EMPTY, |all, number| all.with(number));
    match choices.byte() % 6 {
        0 => all,
        1 => READABLE,
        2 => READABLE.without(&WRITE_ONLY),
        3 => Bitmap::of(&[Attribute::ReadAttributeError, Attribute::Size]),
        4 => Bitmap::EMPTY,
        _ => {
            let numbers: Vec<u32> = (0..4).map(|_| choices.byte().into()).collect();
            numbers
                .iter()
                .fold(Bitmap::EMPTY, |all, number| all.with(*number))
        }
    }
}

fn net_location<'a>(choices: &mut Choices<'_>) -> NetLocation<'a> {
    match choices.byte() % 3 {
        0 => NetLocation::Name(Opaque(b"server")),
        1 => NetLocation::Url(Opaque(b"nfs://server/file")),
        _ => NetLocation::Address(NetAddress {
            network: Opaque(b"tcp"),
            address: Opaque(b"127.0.0.1.8.1"),
        }),
    }
}

pub(super) fn copy<'a>(choices: &mut Choices<'_>, learned: &Learned) -> Operation<'a> {
    let source = saved_state(choices, learned);
    let destination = state(choices, learned);
    let (source_offset, destination_offset) = (offset(choices, learned), offset(choices, learned));
    let count = copied(choices, learned);
    let (consecutive, synchronous) = (choices.byte(), choices.byte());
    let servers = match synchronous {
        250.. => (0..3).map(|_| net_location(choices)).collect(),
        _ => vec![],
    };
    Operation::Copy(CopyArgs {
        source,
        destination,
        source_offset,
        destination_offset,
        count,
        consecutive: consecutive.is_multiple_of(2),
        synchronous: synchronous.is_multiple_of(2),
        source_servers: List(servers),
    })
}

pub(super) fn copy_notify<'a>(choices: &mut Choices<'_>, learned: &Learned) -> Operation<'a> {
    Operation::CopyNotify(CopyNotifyArgs {
        source: state(choices, learned),
        destination: net_location(choices),
    })
}

pub(super) fn write_same<'a>(choices: &mut Choices<'_>, learned: &Learned) -> Operation<'a> {
    Operation::WriteSame(WriteSameArgs {
        state: state(choices, learned),
        stable: choices.one_of(&[Stable::Unstable, Stable::FileSync]),
        block: DataBlock {
            offset: offset(choices, learned),
            block_size: length(choices),
            block_count: length(choices),
            number_offset: length(choices),
            number: choices.small(),
            pattern_offset: length(choices),
            pattern: Data(data(choices)),
        },
    })
}

pub(super) fn get_dir_delegation<'a>(choices: &mut Choices<'_>) -> Operation<'a> {
    let mut delay = || Time {
        seconds: choices.small().into(),
        nanoseconds: choices.one_of(&[0, 999_999_999, u32::MAX]),
    };
    let (child_delay, directory_delay) = (delay(), delay());
    Operation::GetDirDelegation(GetDirDelegationArgs {
        signal_when_available: choices.byte().is_multiple_of(2),
        notifications: asked(choices),
        child_delay,
        directory_delay,
        child_attributes: asked(choices),
        directory_attributes: asked(choices),
    })
}

pub(super) fn want_delegation<'a>(choices: &mut Choices<'_>) -> Operation<'a> {
    let claims = [
        DelegationClaim::Previous(DelegationType::Read),
        DelegationClaim::Previous(DelegationType::Write),
        DelegationClaim::File,
        DelegationClaim::PreviousClient,
    ];
    Operation::WantDelegation(WantDelegationArgs {
        want: share(choices).0,
        claim: choices.one_of(&claims),
    })
}

pub(super) fn count(choices: &mut Choices<'_>) -> u32 {
    choices.one_of(&[0, 1, 100, 4096, 8192, 65_536, 1 << 20, u32::MAX])
}

pub(super) fn length(choices: &mut Choices<'_>) -> u64 {
    let far = [0, 1, 10, 4096, 10_000, STORE_BYTES, u64::MAX, 1 << 63];
    choices.one_of(&far)
}

pub(super) fn range(choices: &mut Choices<'_>, learned: &Learned) -> RangeArgs {
    RangeArgs {
        state: state(choices, learned),
        offset: offset(choices, learned),
        length: length(choices),
    }
}

pub(super) fn read(choices: &mut Choices<'_>, learned: &Learned) -> ReadArgs {
    ReadArgs {
        state: state(choices, learned),
        offset: offset(choices, learned),
        count: count(choices),
    }
}

pub(super) fn kind(choices: &mut Choices<'_>) -> LockType {
    use LockType as T;
    choices.one_of(&[T::Read, T::Write, T::ReadWait, T::WriteWait])
}

pub(super) fn share(choices: &mut Choices<'_>) -> (u32, u32) {
    use share_access as wish;
    let wishes = [
        0,
        0,
        0,
        wish::WANT_READ,
        wish::WANT_ANY,
        wish::WANT_WRITE,
        wish::WANT_NONE,
        wish::WANT_CANCEL | wish::SIGNAL_WHEN_AVAILABLE,
        wish::WANT_WRITE | wish::OPEN_XOR_DELEGATION,
        wish::WANT_ANY | wish::DELEGATION_TIMESTAMPS | wish::PUSH_WHEN_UNCONTENDED,
    ];
    let access = match choices.byte() {
        255 => u32::MAX,
        byte => u32::from(byte) % 4,
    };
    let deny = choices.one_of(&[0, 0, 0, 0, 1, 2, 3, 4]);
    (access | choices.one_of(&wishes), deny)
}

/// Makes of a right SEQUENCE a wrong one, more often than not none.
pub(super) fn spoil_sequence(
    arguments: &mut SequenceArgs,
    how: u8,
    choices: &mut Choices<'_>,
    learned: &Learned,
) {
    match how % 64 {
        0 => arguments.sequence = arguments.sequence.wrapping_sub(1),
        1 => arguments.sequence = choices.small(),
        2 => arguments.slot = u32::MAX - u32::from(choices.byte()),
        3 => arguments.highest_slot = choices.small(),
        4 => arguments.session = known(choices, &learned.sessions, [7; 16]),
        _ => {}
    }
}

pub(super) fn owner<'a>(choices: &mut Choices<'_>, client_id: u64) -> StateOwner<'a> {
    StateOwner {
        client_id,
        owner: Opaque(choices.one_of(&OWNERS)),
    }
}

pub(super) fn open<'a>(
    choices: &mut Choices<'_>,
    learned: &'a Learned,
    id: u64,
    sequence: u32,
) -> Operation<'a> {
    let (share_access, share_deny) = share(choices);
    let claim = match choices.byte() % 16 {
        0 => Claim::Previous(choices.one_of(DelegationType::ALL)),
        1 => Claim::DelegateCurrent(state(choices, learned), name(choices)),
        2 => Claim::DelegatePrevious(name(choices)),
        3 => Claim::File,
        4 => Claim::DelegateCurrentFile(state(choices, learned)),
        5 => Claim::DelegatePreviousFile,
        _ => Claim::Null(name(choices)),
    };
    let create = match choices.byte() % 8 {
        0 => Some(CreateHow::Guarded(raw(choices, learned))),
        1 => Some(CreateHow::Exclusive([1; 8])),
        2 => Some(CreateHow::ExclusiveWith([1; 8], raw(choices, learned))),
        3..=5 => Some(CreateHow::Unchecked(RawAttributes::default())),
        _ => None,
    };
    Operation::Open(OpenArgs {
        sequence,
        share_access,
        share_deny,
        // One owner, whose numbers minor version 0 counts.
        owner: StateOwner {
            client_id: id,
            owner: Opaque(OWNERS[0]),
        },
        create,
        claim,
    })
}

pub(super) fn lock<'a>(
    choices: &mut Choices<'_>,
    learned: &Learned,
    id: u64,
    sequence: u32,
) -> Operation<'a> {
    let state = state(choices, learned);
    let locker = if choices.byte().is_multiple_of(3) {
        Locker::Existing(ExistingLockOwner {
            lock: state,
            lock_sequence: choices.byte().into(),
        })
    } else {
        Locker::New(OpenToLockOwner {
            open_sequence: sequence,
            open: state,
            lock_sequence: 0,
            owner: owner(choices, id),
        })
    };
    Operation::Lock(LockArgs {
        kind: kind(choices),
        reclaim: choices.byte() == 255,
        offset: offset(choices, learned),
        length: length(choices),
        locker,
    })
}
