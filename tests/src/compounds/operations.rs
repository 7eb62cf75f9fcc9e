//! Which operations the bytes mean.

use std::collections::VecDeque;

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::{Decode as _, Encode as _, Writer};

use super::{Learned, STORE_BYTES};
use crate::server_model::choices::Choices;

const NAMES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b".", b"..", b"", b"no/slash"];
const OWNERS: [&[u8]; 3] = [b"me", b"you", b""];
static DATA: [u8; 5000] = [7; 5000];

const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 1 << 20,
    max_response: 1 << 20,
    max_response_cached: 2048,
    max_operations: 64,
    max_requests: 4,
    rdma_reads: AtMostOne(None),
};

pub(crate) fn exchange_id(name: &[u8], verifier: u8, flags: u32) -> Operation<'_> {
    Operation::ExchangeId(ExchangeIdArgs {
        client: ClientOwner {
            verifier: [verifier; 8],
            id: Opaque(name),
        },
        flags,
        protection: StateProtection::None,
        implementation: AtMostOne(None),
    })
}

pub(super) fn set_client_id(name: &[u8], verifier: u8) -> Operation<'_> {
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

/// One of what was learned, or else something that nobody has said.
fn known<T: Copy>(choices: &mut Choices<'_>, all: &VecDeque<T>, other: T) -> T {
    let at = usize::from(choices.byte());
    match all.len() {
        0 => other,
        _ if at == 255 => other,
        some => all[at % some],
    }
}

fn name<'a>(choices: &mut Choices<'_>) -> Name<'a> {
    // Mostly one that can be made.
    match choices.byte() {
        byte @ 0..8 => Name(NAMES[usize::from(byte)]),
        byte => Name(NAMES[usize::from(byte) % 4]),
    }
}

fn client_name<'a>(choices: &mut Choices<'_>) -> &'a [u8] {
    choices.one_of(&[&b"one"[..], b"two", b"three", b""])
}

fn state(choices: &mut Choices<'_>, learned: &Learned) -> StateId {
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

fn raw<'a>(choices: &mut Choices<'_>, learned: &'a Learned) -> RawAttributes<'a> {
    let encoded = &learned.attributes[usize::from(choices.byte()) % learned.attributes.len()];
    let mut raw = RawAttributes::from_bytes(encoded).expect("attributes");
    if choices.byte() == 255 {
        // No values for these.
        raw.mask = asked(choices);
    }
    raw
}

/// Attributes, also those that nobody knows and those that cannot be read.
fn asked(choices: &mut Choices<'_>) -> Bitmap {
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

fn count(choices: &mut Choices<'_>) -> u32 {
    choices.one_of(&[0, 1, 100, 4096, 8192, 65_536, 1 << 20, u32::MAX])
}

fn length(choices: &mut Choices<'_>) -> u64 {
    let far = [0, 1, 10, 4096, 10_000, STORE_BYTES, u64::MAX, 1 << 63];
    choices.one_of(&far)
}

fn range(choices: &mut Choices<'_>, learned: &Learned) -> RangeArgs {
    RangeArgs {
        state: state(choices, learned),
        offset: choices.offset(),
        length: length(choices),
    }
}

fn read(choices: &mut Choices<'_>, learned: &Learned) -> ReadArgs {
    ReadArgs {
        state: state(choices, learned),
        offset: choices.offset(),
        count: count(choices),
    }
}

fn kind(choices: &mut Choices<'_>) -> LockType {
    use LockType as T;
    choices.one_of(&[T::Read, T::Write, T::ReadWait, T::WriteWait])
}

fn share(choices: &mut Choices<'_>) -> (u32, u32) {
    let wishes = [0, 0, 0, share_access::WANT_READ, share_access::WANT_ANY];
    let access = match choices.byte() {
        255 => u32::MAX,
        byte => u32::from(byte) % 4,
    };
    let deny = choices.one_of(&[0, 0, 0, 0, 1, 2, 3, 4]);
    (access | choices.one_of(&wishes), deny)
}

/// The operations that need no session.
pub(super) fn without_session<'a>(choices: &mut Choices<'_>, learned: &Learned) -> Operation<'a> {
    let id = known(choices, &learned.ids, 7);
    match choices.byte() % 8 {
        0 => {
            let flags = choices.one_of(&[0, exchange_id_flag::UPDATE_CONFIRMED, u32::MAX]);
            exchange_id(client_name(choices), choices.byte() % 3, flags)
        }
        1 => create_session(id, choices.byte().into(), choices.small()),
        2 => {
            let session = known(choices, &learned.sessions, [7; 16]);
            Operation::DestroySession(session)
        }
        3 => Operation::DestroyClientId(id),
        4 => Operation::BindConnection(BindConnectionArgs {
            session: known(choices, &learned.sessions, [7; 16]),
            channel: choices.one_of(&[
                WantedChannel::Fore,
                WantedChannel::Back,
                WantedChannel::ForeOrBoth,
                WantedChannel::BackOrBoth,
            ]),
            rdma: false,
        }),
        5 => set_client_id(client_name(choices), choices.byte() % 3),
        6 => {
            let none = ClientIdConfirm {
                client_id: 7,
                verifier: [7; 8],
            };
            Operation::SetClientIdConfirm(known(choices, &learned.confirms, none))
        }
        _ => Operation::Renew(id),
    }
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

/// Any operation, of a client with this id, whose owner's numbers go on.
pub(super) fn operation<'a>(
    choices: &mut Choices<'_>,
    learned: &'a Learned,
    (id, turn): (u64, &mut u32),
) -> Operation<'a> {
    use Operation as O;
    let mut sequence = || {
        *turn = turn.wrapping_add(1);
        *turn
    };
    match choices.byte() % 72 {
        0..=5 => O::PutRootFileHandle,
        6..=12 => match learned.handles.len() {
            0 => O::PutFileHandle(FileHandle(b"nobody's")),
            some => {
                let at = usize::from(choices.byte()) % some;
                O::PutFileHandle(FileHandle(&learned.handles[at]))
            }
        },
        13..=15 => O::GetFileHandle,
        16..=22 => {
            let sequence = sequence();
            open(choices, learned, id, sequence)
        }
        23 => O::OpenConfirm(OpenConfirmArgs {
            state: state(choices, learned),
            sequence: sequence(),
        }),
        24 => {
            let (share_access, share_deny) = share(choices);
            O::OpenDowngrade(OpenDowngradeArgs {
                state: state(choices, learned),
                sequence: sequence(),
                share_access,
                share_deny,
            })
        }
        25 | 26 => O::Close(CloseArgs {
            sequence: sequence(),
            state: state(choices, learned),
        }),
        27..=29 => {
            let sequence = sequence();
            lock(choices, learned, id, sequence)
        }
        30 => O::Unlock(UnlockArgs {
            kind: kind(choices),
            sequence: sequence(),
            lock: state(choices, learned),
            offset: choices.offset(),
            length: length(choices),
        }),
        31 => O::LockTest(LockTestArgs {
            kind: kind(choices),
            offset: choices.offset(),
            length: length(choices),
            owner: owner(choices, id),
        }),
        32..=35 => O::Write(WriteArgs {
            state: state(choices, learned),
            offset: choices.offset(),
            stable: choices.one_of(&[Stable::Unstable, Stable::DataSync, Stable::FileSync]),
            data: Payload(&DATA[..choices.small() as usize % DATA.len()]),
        }),
        36 | 37 => O::Read(read(choices, learned)),
        38 => O::ReadPlus(read(choices, learned)),
        39 => O::Commit(CommitArgs {
            offset: choices.offset(),
            count: count(choices),
        }),
        40 => O::SaveFileHandle,
        41 => O::RestoreFileHandle,
        42 => O::GetAttributes(GetAttributesArgs {
            asked: asked(choices),
        }),
        43 => O::SetAttributes(SetAttributesArgs {
            state: state(choices, learned),
            attributes: raw(choices, learned),
        }),
        44 => O::Verify(raw(choices, learned)),
        45 => O::VerifyNot(raw(choices, learned)),
        46 => O::Access(AccessArgs {
            access: choices.small(),
        }),
        47 | 48 => O::Lookup(name(choices)),
        49 => O::LookupParent,
        50 => O::ReadDir(ReadDirArgs {
            cookie: choices.one_of(&[0, 0, 1, 3, 4, u64::MAX]),
            verifier: [choices.byte() % 2; 8],
            directory_count: count(choices),
            max_count: count(choices),
            asked: asked(choices),
        }),
        51 => O::ReadLink,
        52 => O::Create(CreateArgs {
            kind: choices.one_of(&[
                CreateType::Directory,
                CreateType::Symlink(Payload(b"a")),
                CreateType::Fifo,
                CreateType::Socket,
                CreateType::Other(FileType::Regular),
            ]),
            name: name(choices),
            attributes: raw(choices, learned),
        }),
        53 => O::Link(name(choices)),
        54 => O::Remove(name(choices)),
        55 => O::Rename(RenameArgs {
            from: name(choices),
            to: name(choices),
        }),
        56 => O::SecInfo(name(choices)),
        57 => O::SecInfoNoName(choices.one_of(&[SecInfoStyle::CurrentFile, SecInfoStyle::Parent])),
        58 => O::FreeStateId(state(choices, learned)),
        59 => {
            let some = (0..choices.byte() % 5).map(|_| state(choices, learned));
            O::TestStateId(TestStateIdArgs {
                states: List(some.collect()),
            })
        }
        60 => O::DelegationReturn(state(choices, learned)),
        61 => O::Allocate(range(choices, learned)),
        62 => O::Deallocate(range(choices, learned)),
        63 if choices.byte().is_multiple_of(2) => O::IoAdvise(IoAdviseArgs {
            state: state(choices, learned),
            offset: choices.one_of(&[0, 0, 4096, u64::MAX]),
            count: length(choices),
            hints: hints(choices),
        }),
        63 => O::Seek(SeekArgs {
            state: state(choices, learned),
            offset: choices.offset(),
            what: choices.one_of(&[ContentType::Data, ContentType::Hole]),
        }),
        64 => O::Clone(CloneArgs {
            source: state(choices, learned),
            destination: state(choices, learned),
            source_offset: u64::from(choices.byte()) * 2048,
            destination_offset: u64::from(choices.byte()) * 2048,
            count: length(choices),
        }),
        65 => O::Copy(CopyArgs {
            source: state(choices, learned),
            destination: state(choices, learned),
            source_offset: choices.offset(),
            destination_offset: choices.offset(),
            count: length(choices),
            consecutive: choices.byte().is_multiple_of(2),
            synchronous: choices.byte().is_multiple_of(2),
            source_servers: List(vec![]),
        }),
        66 => O::OffloadStatus(state(choices, learned)),
        67 => O::OffloadCancel(state(choices, learned)),
        68 => O::SetXattr(SetXattrArgs {
            option: choices.one_of(&[
                SetXattrOption::Either,
                SetXattrOption::Create,
                SetXattrOption::Replace,
            ]),
            name: name(choices),
            value: XattrValue(&DATA[..choices.small() as usize % DATA.len()]),
        }),
        69 => match choices.byte() % 3 {
            0 => O::GetXattr(name(choices)),
            1 => O::RemoveXattr(name(choices)),
            _ => O::ListXattrs(ListXattrsArgs {
                cookie: choices.small().into(),
                max_count: count(choices),
            }),
        },
        70 => O::ReleaseLockOwner(owner(choices, id)),
        _ => without_session(choices, learned),
    }
}

fn hints(choices: &mut Choices<'_>) -> Bitmap {
    let some = choices.byte();
    let each = (0..u8::BITS).filter(|hint| some >> hint & 1 == 1);
    each.fold(Bitmap::EMPTY, |hints, hint| hints.with(hint))
}

fn owner<'a>(choices: &mut Choices<'_>, client_id: u64) -> StateOwner<'a> {
    StateOwner {
        client_id,
        owner: Opaque(choices.one_of(&OWNERS)),
    }
}

fn open<'a>(
    choices: &mut Choices<'_>,
    learned: &'a Learned,
    id: u64,
    sequence: u32,
) -> Operation<'a> {
    let (share_access, share_deny) = share(choices);
    let claim = match choices.byte() % 16 {
        0 => Claim::Previous(DelegationType::Read),
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

fn lock<'a>(choices: &mut Choices<'_>, learned: &Learned, id: u64, sequence: u32) -> Operation<'a> {
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
        offset: choices.offset(),
        length: length(choices),
        locker,
    })
}

/// The status that a result begins with.
pub(super) fn status(result: &OperationResult<'_>) -> Status {
    let bytes = result.to_bytes();
    let code = bytes.get(4..).and_then(|rest| rest.first_chunk::<4>());
    let status = code.and_then(|code| Status::from_code(u32::from_be_bytes(*code)));
    status.expect("a status behind the number of the operation")
}

/// Whether minor version 0 counts an operation with this result (RFC 7530, section 9.1.7).
pub(super) fn counts(result: &OperationResult<'_>) -> bool {
    use OpCode as C;
    let of_owner = matches!(
        result.code(),
        C::Open | C::OpenConfirm | C::OpenDowngrade | C::Close | C::Lock | C::Unlock
    );
    let not = [
        Status::StaleClientId,
        Status::StaleStateId,
        Status::BadStateId,
        Status::BadSeqId,
        Status::BadXdr,
        Status::Resource,
        Status::NoFileHandle,
    ];
    of_owner && !not.contains(&status(result))
}

/// A reply to a callback. `None` if nobody can read it.
pub(crate) fn callback_reply(message: &[u8], how: u8) -> Option<Vec<u8>> {
    let (header, mut r) = rpc::parse_call(message).ok()?;
    let compound = CallbackHeader::decode(&mut r).ok()?;
    let mut operations = Vec::new();
    for _ in 0..compound.operations {
        operations.push(CallbackOperation::decode(&mut r).ok()?);
    }
    r.finish().ok()?;
    let [CallbackOperation::Sequence(sequence), told] = &operations[..] else {
        return None;
    };
    let statuses = [
        Status::Ok,
        Status::Ok,
        Status::Delay,
        Status::BadStateId,
        Status::BadHandle,
        Status::NotSupp,
    ];
    let then = statuses[usize::from(how / 8) % statuses.len()];
    let result = match then {
        Status::Ok => Ok(()),
        refused => Err(refused),
    };
    let result = match told {
        CallbackOperation::Recall(_) => CallbackResult::Recall(result),
        CallbackOperation::RecallAny(_) => CallbackResult::RecallAny(result),
        CallbackOperation::NotifyLock(_) => CallbackResult::NotifyLock(result),
        CallbackOperation::Offload(_) => CallbackResult::Offload(result),
        _ => return None,
    };
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    rpc::reply_success(&mut w, header.xid);
    match how % 8 {
        1 => bytes.extend_from_slice(&[how; 20]),
        2 => {
            Status::Delay.encode(&mut w);
            w.opaque(b"");
            w.u32(1);
            CallbackResult::Sequence(Err(Status::Delay)).encode(&mut w);
        }
        3 => {
            Status::BadSession.encode(&mut w);
            w.opaque(b"");
            w.u32(1);
            CallbackResult::Sequence(Err(Status::BadSession)).encode(&mut w);
        }
        _ => {
            then.encode(&mut w);
            w.opaque(b"");
            w.u32(2);
            let taken = CallbackSequenceOk {
                session: sequence.session,
                sequence: sequence.sequence,
                slot: sequence.slot,
                highest_slot: 0,
                target_highest_slot: 0,
            };
            CallbackResult::Sequence(Ok(taken)).encode(&mut w);
            result.encode(&mut w);
        }
    }
    Some(bytes)
}
