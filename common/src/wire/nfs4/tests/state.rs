use super::*;
use crate::wire::rpc::{AuthSys, Groups};

fn open(create: Option<CreateHow<'static>>, claim: Claim<'static>) -> Operation<'static> {
    Operation::Open(OpenArgs {
        sequence: 3,
        share_access: share_access::BOTH | share_access::WANT_NONE,
        share_deny: share_deny::WRITE,
        owner: OWNER,
        create,
        claim,
    })
}

fn channel(rdma_reads: Option<u32>) -> ChannelAttributes {
    ChannelAttributes {
        header_padding: 0,
        max_request: 0x10_0400,
        max_response: 0x10_0500,
        max_response_cached: 0x1000,
        max_operations: 16,
        max_requests: 64,
        rdma_reads: AtMostOne(rdma_reads),
    }
}
const CHANNEL: &str = "00000000 00100400 00100500 00001000 00000010 00000040";

fn securities() -> CallbackSecurities<'static> {
    let sys = AuthSys {
        stamp: 1,
        machine: b"host",
        uid: 1000,
        gid: 100,
        gids: Groups::new(&[4]),
    };
    let gss = GssHandles {
        service: GssService::Privacy,
        from_server: Opaque(b"serv"),
        from_client: Opaque(b"clie"),
    };
    List(vec![
        CallbackSecurity::None,
        CallbackSecurity::Sys(sys),
        CallbackSecurity::Gss(gss),
    ])
}
const SECURITIES: &str = "00000003 00000000
    00000001 00000001 00000004 686f7374 000003e8 00000064 00000001 00000004
    00000006 00000003 00000004 73657276 00000004 636c6965";

const IMPLEMENTATION: Implementation<'_> = Implementation {
    domain: Opaque(b"a.org"),
    name: Opaque(b"nfsd"),
    date: Time {
        seconds: -1,
        nanoseconds: 5,
    },
};
const IMPLEMENTATION_HEX: &str =
    "00000001 00000005 612e6f72 67000000 00000004 6e667364 ffffffff ffffffff 00000005";

fn protected() -> ProtectedOperations {
    let set = |codes: &[OpCode]| {
        codes
            .iter()
            .fold(Bitmap::EMPTY, |set, code| set.with(code.code()))
    };
    ProtectedOperations {
        must_enforce: set(&[OpCode::ExchangeId, OpCode::CreateSession]),
        must_allow: set(&[OpCode::Close]),
    }
}
const PROTECTED: &str = "00000002 00000000 00000c00 00000001 00000010";

fn exchange(protection: StateProtection<'static>, implementation: bool) -> Operation<'static> {
    Operation::ExchangeId(ExchangeIdArgs {
        client: ClientOwner {
            verifier: VERIFIER,
            id: Opaque(b"client"),
        },
        flags: exchange_id_flag::SUPPORTS_MOVED_REFER,
        protection,
        implementation: AtMostOne(implementation.then_some(IMPLEMENTATION)),
    })
}

pub fn operations() -> Golden<Operation<'static>> {
    const OPEN: &str = "00000012 00000003 00000403 00000002 OWNER";
    let name = Name(b"f");
    let opened = |rest: &str| format!("{OPEN} {rest}");
    let client = "VERIFIER 00000006 636c6965 6e740000";
    let exchanged = |rest: &str| format!("0000002a {client} 00000001 {rest}");
    let mut list = vec![
        of(
            Operation::Close(CloseArgs {
                sequence: 4,
                state: STATE,
            }),
            "00000004 00000004 STATE",
        ),
        of(Operation::DelegationPurge(9), "00000007 00000000 00000009"),
        of(Operation::DelegationReturn(STATE), "00000008 STATE"),
        of(
            open(None, Claim::Null(name)),
            &opened("00000000 00000000 00000001 66000000"),
        ),
        of(
            open(Some(CreateHow::Unchecked(ATTRIBUTES)), Claim::Null(name)),
            &opened("00000001 00000000 ATTRIBUTES 00000000 00000001 66000000"),
        ),
        of(
            open(Some(CreateHow::Guarded(ATTRIBUTES)), Claim::Null(name)),
            &opened("00000001 00000001 ATTRIBUTES 00000000 00000001 66000000"),
        ),
        of(
            open(Some(CreateHow::Exclusive(VERIFIER)), Claim::Null(name)),
            &opened("00000001 00000002 VERIFIER 00000000 00000001 66000000"),
        ),
        of(
            open(
                Some(CreateHow::ExclusiveWith(VERIFIER, ATTRIBUTES)),
                Claim::Null(name),
            ),
            &opened("00000001 00000003 VERIFIER ATTRIBUTES 00000000 00000001 66000000"),
        ),
        of(
            open(None, Claim::Previous(DelegationType::Write)),
            &opened("00000000 00000001 00000002"),
        ),
        of(
            open(None, Claim::DelegateCurrent(STATE, name)),
            &opened("00000000 00000002 STATE 00000001 66000000"),
        ),
        of(
            open(None, Claim::DelegatePrevious(name)),
            &opened("00000000 00000003 00000001 66000000"),
        ),
        of(open(None, Claim::File), &opened("00000000 00000004")),
        of(
            open(None, Claim::DelegateCurrentFile(STATE)),
            &opened("00000000 00000005 STATE"),
        ),
        of(
            open(None, Claim::DelegatePreviousFile),
            &opened("00000000 00000006"),
        ),
        of(
            Operation::OpenConfirm(OpenConfirmArgs {
                state: STATE,
                sequence: 4,
            }),
            "00000014 STATE 00000004",
        ),
        of(
            Operation::OpenDowngrade(OpenDowngradeArgs {
                state: STATE,
                sequence: 4,
                share_access: 1,
                share_deny: 2,
            }),
            "00000015 STATE 00000004 00000001 00000002",
        ),
        of(
            Operation::Lock(LockArgs {
                kind: LockType::WriteWait,
                reclaim: true,
                offset: 16,
                length: u64::MAX,
                locker: Locker::New(OpenToLockOwner {
                    open_sequence: 5,
                    open: STATE,
                    lock_sequence: 6,
                    owner: OWNER,
                }),
            }),
            "0000000c 00000004 00000001 00000000 00000010 ffffffff ffffffff
             00000001 00000005 STATE 00000006 OWNER",
        ),
        of(
            Operation::Lock(LockArgs {
                kind: LockType::Read,
                reclaim: false,
                offset: 16,
                length: 1,
                locker: Locker::Existing(ExistingLockOwner {
                    lock: STATE,
                    lock_sequence: 6,
                }),
            }),
            "0000000c 00000001 00000000 00000000 00000010 00000000 00000001
             00000000 STATE 00000006",
        ),
        of(
            Operation::LockTest(LockTestArgs {
                kind: LockType::Write,
                offset: 16,
                length: 1,
                owner: OWNER,
            }),
            "0000000d 00000002 00000000 00000010 00000000 00000001 OWNER",
        ),
        of(
            Operation::Unlock(UnlockArgs {
                kind: LockType::Write,
                sequence: 8,
                lock: STATE,
                offset: 16,
                length: 1,
            }),
            "0000000e 00000002 00000008 STATE 00000000 00000010 00000000 00000001",
        ),
        of(Operation::Renew(9), "0000001e 00000000 00000009"),
        of(
            Operation::SetClientId(SetClientIdArgs {
                client: ClientOwner {
                    verifier: VERIFIER,
                    id: Opaque(b"client"),
                },
                callback: CallbackClient {
                    program: 0x4000_0000,
                    address: NetAddress {
                        network: Opaque(b"tcp"),
                        address: Opaque(b"10.0.0.1.3.132"),
                    },
                },
                callback_ident: 1,
            }),
            &format!(
                "00000023 {client} 40000000 00000003 74637000
                 0000000e 31302e30 2e302e31 2e332e31 33320000 00000001"
            ),
        ),
        of(
            Operation::SetClientIdConfirm(ClientIdConfirm {
                client_id: 9,
                verifier: VERIFIER,
            }),
            "00000024 00000000 00000009 VERIFIER",
        ),
        of(Operation::ReleaseLockOwner(OWNER), "00000027 OWNER"),
    ];
    list.extend([
        of(
            Operation::BackchannelCtl(BackchannelCtlArgs {
                callback_program: 0x4000_0000,
                callback_security: securities(),
            }),
            &format!("00000028 40000000 {SECURITIES}"),
        ),
        of(
            Operation::BindConnection(BindConnectionArgs {
                session: SESSION,
                channel: WantedChannel::BackOrBoth,
                rdma: false,
            }),
            "00000029 SESSION 00000007 00000000",
        ),
        of(
            exchange(StateProtection::None, true),
            &exchanged(&format!("00000000 {IMPLEMENTATION_HEX}")),
        ),
        of(
            exchange(StateProtection::MachineCredential(protected()), false),
            &exchanged(&format!("00000001 {PROTECTED} 00000000")),
        ),
        of(
            exchange(
                StateProtection::Ssv(SsvParameters {
                    operations: protected(),
                    hashes: List(vec![Opaque(b"hash")]),
                    ciphers: List(vec![Opaque(b"ciph")]),
                    window: 2,
                    handles: 3,
                }),
                false,
            ),
            &exchanged(&format!(
                "00000002 {PROTECTED} 00000001 00000004 68617368 00000001 00000004 63697068
                 00000002 00000003 00000000"
            )),
        ),
        of(
            Operation::CreateSession(CreateSessionArgs {
                client_id: 9,
                sequence: 1,
                flags: create_session_flag::BACK_CHANNEL,
                fore: channel(None),
                back: channel(Some(8)),
                callback_program: 0x4000_0000,
                callback_security: securities(),
            }),
            &format!(
                "0000002b 00000000 00000009 00000001 00000002 {CHANNEL} 00000000
                 {CHANNEL} 00000001 00000008 40000000 {SECURITIES}"
            ),
        ),
        of(Operation::DestroySession(SESSION), "0000002c SESSION"),
        of(Operation::FreeStateId(STATE), "0000002d STATE"),
        of(
            Operation::GetDirDelegation(GetDirDelegationArgs {
                signal_when_available: true,
                notifications: Bitmap::EMPTY.with(2),
                child_delay: Time {
                    seconds: 1,
                    nanoseconds: 2,
                },
                directory_delay: Time {
                    seconds: 3,
                    nanoseconds: 4,
                },
                child_attributes: Bitmap::of(&[Attribute::Size]),
                directory_attributes: Bitmap::of(&[Attribute::Change]),
            }),
            "0000002e 00000001 00000001 00000004 00000000 00000001 00000002
             00000000 00000003 00000004 00000001 00000010 00000001 00000008",
        ),
        of(
            Operation::Sequence(SequenceArgs {
                session: SESSION,
                sequence: 1,
                slot: 2,
                highest_slot: 3,
                cache: true,
            }),
            "00000035 SESSION 00000001 00000002 00000003 00000001",
        ),
        of(
            Operation::TestStateId(TestStateIdArgs {
                states: List(vec![STATE, StateId::READ_BYPASS]),
            }),
            "00000037 00000002 STATE ffffffff ffffffff ffffffff ffffffff",
        ),
        of(
            Operation::WantDelegation(WantDelegationArgs {
                want: share_access::WANT_READ,
                claim: DelegationClaim::Previous(DelegationType::Read),
            }),
            "00000038 00000100 00000001 00000001",
        ),
        of(
            Operation::WantDelegation(WantDelegationArgs {
                want: share_access::WANT_READ,
                claim: DelegationClaim::File,
            }),
            "00000038 00000100 00000004",
        ),
        of(Operation::DestroyClientId(9), "00000039 00000000 00000009"),
        of(
            Operation::ReclaimComplete(ReclaimCompleteArgs {
                one_file_system: false,
            }),
            "0000003a 00000000",
        ),
    ]);
    list
}

pub fn results() -> Golden<OperationResult<'static>> {
    use OperationResult as Done;
    let opened = |delegation| {
        Done::Open(Ok(OpenOk {
            state: STATE,
            directory: CHANGE,
            flags: open_result::LOCKTYPE_POSIX,
            set: Bitmap::of(&[Attribute::Size]),
            delegation,
        }))
    };
    let open =
        |rest: &str| format!("00000012 00000000 STATE CHANGE 00000004 00000001 00000010 {rest}");
    let permissions = Ace {
        kind: ace_type::ALLOW,
        flags: 0,
        access: ace_mask::READ_DATA,
        who: Opaque(b"EVERYONE@"),
    };
    let ace = "00000000 00000000 00000001 00000009 45564552 594f4e45 40000000";
    let denied = LockDenied {
        offset: 16,
        length: 1,
        kind: LockType::Write,
        owner: OWNER,
    };
    let denied_hex = "0000271a 00000000 00000010 00000000 00000001 00000002 OWNER";
    let mut list = vec![
        of(Done::Close(Ok(STATE)), "00000004 00000000 STATE"),
        of(Done::DelegationPurge(Ok(())), "00000007 00000000"),
        of(Done::DelegationReturn(Ok(())), "00000008 00000000"),
        of(Done::Lock(Ok(STATE)), "0000000c 00000000 STATE"),
        of(
            Done::Lock(Err(LockFailed::Denied(denied))),
            &format!("0000000c {denied_hex}"),
        ),
        of(
            Done::Lock(Err(LockFailed::Other(Status::Grace))),
            "0000000c 0000271d",
        ),
        of(Done::LockTest(Ok(())), "0000000d 00000000"),
        of(
            Done::LockTest(Err(LockFailed::Denied(denied))),
            &format!("0000000d {denied_hex}"),
        ),
        of(Done::Unlock(Ok(STATE)), "0000000e 00000000 STATE"),
        of(opened(Delegation::None), &open("00000000")),
        of(
            opened(Delegation::Read(ReadDelegation {
                state: STATE,
                recall: false,
                permissions,
            })),
            &open(&format!("00000001 STATE 00000000 {ace}")),
        ),
        of(
            opened(Delegation::Write(WriteDelegation {
                state: STATE,
                recall: true,
                space_limit: SpaceLimit::Size(0x1_0000_0000),
                permissions,
            })),
            &open(&format!(
                "00000002 STATE 00000001 00000001 00000001 00000000 {ace}"
            )),
        ),
        of(
            opened(Delegation::Write(WriteDelegation {
                state: STATE,
                recall: true,
                space_limit: SpaceLimit::Blocks(3, 4096),
                permissions,
            })),
            &open(&format!(
                "00000002 STATE 00000001 00000002 00000003 00001000 {ace}"
            )),
        ),
        of(
            opened(Delegation::NoneBecause(WhyNone::NotWanted)),
            &open("00000003 00000000"),
        ),
        of(
            opened(Delegation::NoneBecause(WhyNone::Contention(true))),
            &open("00000003 00000001 00000001"),
        ),
        of(
            opened(Delegation::NoneBecause(WhyNone::Resource(false))),
            &open("00000003 00000002 00000000"),
        ),
        of(Done::OpenConfirm(Ok(STATE)), "00000014 00000000 STATE"),
        of(Done::OpenDowngrade(Ok(STATE)), "00000015 00000000 STATE"),
        of(Done::Renew(Err(Status::Expired)), "0000001e 0000271b"),
        of(
            Done::SetClientId(Ok(ClientIdConfirm {
                client_id: 9,
                verifier: VERIFIER,
            })),
            "00000023 00000000 00000000 00000009 VERIFIER",
        ),
        of(
            Done::SetClientId(Err(SetClientIdFailed::InUse(NetAddress {
                network: Opaque(b"tcp"),
                address: Opaque(b"1.2.3.4.5.6."),
            }))),
            "00000023 00002721 00000003 74637000 0000000c 312e322e 332e342e 352e362e",
        ),
        of(
            Done::SetClientId(Err(SetClientIdFailed::Other(Status::Delay))),
            "00000023 00002718",
        ),
        of(Done::SetClientIdConfirm(Ok(())), "00000024 00000000"),
        of(Done::ReleaseLockOwner(Ok(())), "00000027 00000000"),
    ];
    let exchanged = |protection, implementation| {
        Done::ExchangeId(Ok(ExchangeIdOk {
            client_id: 9,
            sequence: 1,
            flags: exchange_id_flag::USE_NON_PNFS | exchange_id_flag::CONFIRMED,
            protection,
            owner: ServerOwner {
                minor: 2,
                major: Opaque(b"majo"),
            },
            scope: Opaque(b"scop"),
            implementation: AtMostOne(implementation),
        }))
    };
    let head = "0000002a 00000000 00000000 00000009 00000001 80010000";
    let owner = "00000000 00000002 00000004 6d616a6f 00000004 73636f70";
    list.extend([
        of(Done::BackchannelCtl(Ok(())), "00000028 00000000"),
        of(
            Done::BindConnection(Ok(BindConnectionOk {
                session: SESSION,
                channel: GrantedChannel::Both,
                rdma: false,
            })),
            "00000029 00000000 SESSION 00000003 00000000",
        ),
        of(
            exchanged(GrantedProtection::None, Some(IMPLEMENTATION)),
            &format!("{head} 00000000 {owner} {IMPLEMENTATION_HEX}"),
        ),
        of(
            exchanged(GrantedProtection::MachineCredential(protected()), None),
            &format!("{head} 00000001 {PROTECTED} {owner} 00000000"),
        ),
        of(
            Done::CreateSession(Ok(CreateSessionOk {
                session: SESSION,
                sequence: 1,
                flags: 2,
                fore: channel(Some(8)),
                back: channel(None),
            })),
            &format!(
                "0000002b 00000000 SESSION 00000001 00000002 {CHANNEL} 00000001 00000008
                 {CHANNEL} 00000000"
            ),
        ),
        of(
            Done::DestroySession(Err(Status::BadSession)),
            "0000002c 00002744",
        ),
        of(Done::FreeStateId(Err(Status::LocksHeld)), "0000002d 00002735"),
        of(
            Done::GetDirDelegation(Ok(DirDelegation::Unavailable(false))),
            "0000002e 00000000 00000001 00000000",
        ),
        of(
            Done::GetDirDelegation(Ok(DirDelegation::Granted(GrantedDirDelegation {
                verifier: VERIFIER,
                state: STATE,
                notifications: Bitmap::EMPTY.with(2),
                child_attributes: Bitmap::EMPTY,
                directory_attributes: Bitmap::of(&[Attribute::Change]),
            }))),
            "0000002e 00000000 00000000 VERIFIER STATE 00000001 00000004 00000000 00000001 00000008",
        ),
        of(
            Done::Sequence(Ok(SequenceOk {
                session: SESSION,
                sequence: 1,
                slot: 2,
                highest_slot: 3,
                target_highest_slot: 4,
                status_flags: sequence_status::RESTART_RECLAIM_NEEDED,
            })),
            "00000035 00000000 SESSION 00000001 00000002 00000003 00000004 00000100",
        ),
        of(
            Done::TestStateId(Ok(List(vec![Status::Ok, Status::BadStateId]))),
            "00000037 00000000 00000002 00000000 00002729",
        ),
        of(
            Done::WantDelegation(Ok(Delegation::NoneBecause(WhyNone::IsDirectory))),
            "00000038 00000000 00000003 00000008",
        ),
        of(
            Done::DestroyClientId(Err(Status::ClientIdBusy)),
            "00000039 0000275a",
        ),
        of(
            Done::ReclaimComplete(Err(Status::CompleteAlready)),
            "0000003a 00002746",
        ),
    ]);
    list
}
