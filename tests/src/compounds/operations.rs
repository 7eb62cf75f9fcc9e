//! Which operations the bytes mean.

use odafs_common::wire::nfs4::*;
use odafs_common::wire::xdr::{Encode, Writer};

use super::arguments::*;
use super::learned::Learned;
use crate::server_model::choices::Choices;

/// An operation of a compound.
#[derive(Clone, Debug)]
pub(super) enum Sent<'a> {
    /// One that the server can read.
    Known(Operation<'a>),
    /// One by its number: nobody has it, or the server does not read its arguments, which are these.
    Numbered(u32, &'static [u8]),
}

impl Encode for Sent<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Known(operation) => operation.encode(w),
            Self::Numbered(number, arguments) => {
                w.u32(*number);
                w.opaque_fixed(arguments);
            }
        }
    }
}

/// Which operations there are to choose from, and how often each group is chosen. Inputs of the corpus depend on the order.
const GROUPS: &[(u8, &[OpCode])] = &[
    (6, &[OpCode::PutRootFileHandle]),
    (7, &[OpCode::PutFileHandle]),
    (3, &[OpCode::GetFileHandle]),
    (7, &[OpCode::Open]),
    (1, &[OpCode::OpenConfirm]),
    (1, &[OpCode::OpenDowngrade]),
    (2, &[OpCode::Close]),
    (3, &[OpCode::Lock]),
    (1, &[OpCode::Unlock]),
    (1, &[OpCode::LockTest]),
    (4, &[OpCode::Write]),
    (2, &[OpCode::Read]),
    (1, &[OpCode::ReadPlus]),
    (1, &[OpCode::Commit]),
    (1, &[OpCode::SaveFileHandle]),
    (1, &[OpCode::RestoreFileHandle]),
    (1, &[OpCode::GetAttributes]),
    (1, &[OpCode::SetAttributes]),
    (1, &[OpCode::Verify]),
    (1, &[OpCode::VerifyNot]),
    (1, &[OpCode::Access]),
    (2, &[OpCode::Lookup]),
    (1, &[OpCode::LookupParent]),
    (1, &[OpCode::ReadDir]),
    (1, &[OpCode::ReadLink]),
    (1, &[OpCode::Create]),
    (1, &[OpCode::Link]),
    (1, &[OpCode::Remove]),
    (1, &[OpCode::Rename]),
    (1, &[OpCode::SecInfo]),
    (1, &[OpCode::SecInfoNoName]),
    (1, &[OpCode::FreeStateId]),
    (1, &[OpCode::TestStateId]),
    (1, &[OpCode::DelegationReturn]),
    (1, &[OpCode::Allocate]),
    (1, &[OpCode::Deallocate]),
    (1, &[OpCode::Seek]),
    (1, &[OpCode::Clone]),
    (1, &[OpCode::Copy]),
    (1, &[OpCode::OffloadStatus]),
    (1, &[OpCode::OffloadCancel]),
    (1, &[OpCode::SetXattr]),
    (
        1,
        &[OpCode::GetXattr, OpCode::RemoveXattr, OpCode::ListXattrs],
    ),
    (1, &[OpCode::ReleaseLockOwner]),
    (1, WITHOUT_SESSION),
    (1, &[OpCode::IoAdvise]),
    (1, &[OpCode::PutPublicFileHandle]),
    (
        1,
        &[
            OpCode::BackchannelCtl,
            OpCode::ReclaimComplete,
            OpCode::Sequence,
        ],
    ),
    (
        1,
        &[
            OpCode::WantDelegation,
            OpCode::GetDirDelegation,
            OpCode::DelegationPurge,
            OpCode::OpenAttributeDirectory,
            OpCode::CopyNotify,
            OpCode::WriteSame,
        ],
    ),
    (
        1,
        &[
            OpCode::GetDeviceInfo,
            OpCode::GetDeviceList,
            OpCode::LayoutCommit,
            OpCode::LayoutGet,
            OpCode::LayoutReturn,
            OpCode::SetSsv,
            OpCode::LayoutError,
            OpCode::LayoutStats,
            OpCode::Illegal,
        ],
    ),
];

const WITHOUT_SESSION: &[OpCode] = &[
    OpCode::ExchangeId,
    OpCode::CreateSession,
    OpCode::DestroySession,
    OpCode::DestroyClientId,
    OpCode::BindConnection,
    OpCode::SetClientId,
    OpCode::SetClientIdConfirm,
    OpCode::Renew,
];

/// Numbers that no operation has.
const NOBODYS: [u32; 6] = [0, 2, 76, 10_043, 10_045, u32::MAX];
/// Arguments of operations that are refused by their numbers.
static ARGUMENTS: [u8; 64] = [1; 64];

/// The operations that need no session.
pub(super) fn without_session<'a>(choices: &mut Choices<'_>, learned: &'a Learned) -> Sent<'a> {
    let id = known(choices, &learned.ids, 7);
    let code = choices.one_of(WITHOUT_SESSION);
    made(code, choices, learned, (id, &mut 0))
}

/// Any operation, of a client with this id, whose owner's numbers go on.
pub(super) fn operation<'a>(
    choices: &mut Choices<'_>,
    learned: &'a Learned,
    client: (u64, &mut u32),
) -> Sent<'a> {
    match group(choices.byte()) {
        WITHOUT_SESSION => without_session(choices, learned),
        [code] => made(*code, choices, learned, client),
        some => {
            let code = choices.one_of(some);
            made(code, choices, learned, client)
        }
    }
}

/// The number of any operation.
pub(super) fn any(choices: &mut Choices<'_>) -> OpCode {
    match group(choices.byte()) {
        [code] => *code,
        some => choices.one_of(some),
    }
}

fn group(byte: u8) -> &'static [OpCode] {
    let all: u8 = GROUPS.iter().map(|(often, _)| often).sum();
    let mut left = byte % all;
    let found = GROUPS.iter().find(|(often, _)| {
        let here = left < *often;
        left = left.saturating_sub(*often);
        here
    });
    found.expect("less than all").1
}

/// The operation of this number, of a client with this id, whose owner's numbers go on.
pub(super) fn made<'a>(
    code: OpCode,
    choices: &mut Choices<'_>,
    learned: &'a Learned,
    (id, turn): (u64, &mut u32),
) -> Sent<'a> {
    use OpCode as C;
    use Operation as O;
    let mut sequence = || {
        *turn = turn.wrapping_add(1);
        *turn
    };
    Sent::Known(match code {
        C::Access => O::Access(AccessArgs {
            access: choices.small(),
        }),
        C::Close => O::Close(CloseArgs {
            sequence: sequence(),
            state: state(choices, learned),
        }),
        C::Commit => O::Commit(CommitArgs {
            offset: offset(choices, learned),
            count: count(choices),
        }),
        C::Create => O::Create(CreateArgs {
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
        C::DelegationPurge => O::DelegationPurge(id),
        C::DelegationReturn => O::DelegationReturn(state(choices, learned)),
        C::GetAttributes => O::GetAttributes(GetAttributesArgs {
            asked: asked(choices),
        }),
        C::GetFileHandle => O::GetFileHandle,
        C::Link => O::Link(name(choices)),
        C::Lock => lock(choices, learned, id, sequence()),
        C::LockTest => O::LockTest(LockTestArgs {
            kind: kind(choices),
            offset: offset(choices, learned),
            length: length(choices),
            owner: owner(choices, id),
        }),
        C::Unlock => O::Unlock(UnlockArgs {
            kind: kind(choices),
            sequence: sequence(),
            lock: state(choices, learned),
            offset: offset(choices, learned),
            length: length(choices),
        }),
        C::Lookup => O::Lookup(name(choices)),
        C::LookupParent => O::LookupParent,
        C::VerifyNot => O::VerifyNot(raw(choices, learned)),
        C::Open => open(choices, learned, id, sequence()),
        C::OpenAttributeDirectory => O::OpenAttributeDirectory(OpenAttributeDirectoryArgs {
            create: choices.byte().is_multiple_of(2),
        }),
        C::OpenConfirm => O::OpenConfirm(OpenConfirmArgs {
            state: state(choices, learned),
            sequence: sequence(),
        }),
        C::OpenDowngrade => {
            let (share_access, share_deny) = share(choices);
            O::OpenDowngrade(OpenDowngradeArgs {
                state: state(choices, learned),
                sequence: sequence(),
                share_access,
                share_deny,
            })
        }
        C::PutFileHandle => match learned.handles.len() {
            0 => O::PutFileHandle(FileHandle(b"nobody's")),
            some => {
                let at = usize::from(choices.byte()) % some;
                O::PutFileHandle(FileHandle(&learned.handles[at]))
            }
        },
        C::PutPublicFileHandle => O::PutPublicFileHandle,
        C::PutRootFileHandle => O::PutRootFileHandle,
        C::Read => O::Read(read(choices, learned)),
        C::ReadDir => O::ReadDir(ReadDirArgs {
            cookie: choices.one_of(&[0, 0, 1, 3, 4, u64::MAX]),
            verifier: [choices.byte() % 2; 8],
            directory_count: count(choices),
            max_count: count(choices),
            asked: asked(choices),
        }),
        C::ReadLink => O::ReadLink,
        C::Remove => O::Remove(name(choices)),
        C::Rename => O::Rename(RenameArgs {
            from: name(choices),
            to: name(choices),
        }),
        C::Renew => O::Renew(id),
        C::RestoreFileHandle => O::RestoreFileHandle,
        C::SaveFileHandle => O::SaveFileHandle,
        C::SecInfo => O::SecInfo(name(choices)),
        C::SetAttributes => O::SetAttributes(SetAttributesArgs {
            state: state(choices, learned),
            attributes: raw(choices, learned),
        }),
        C::SetClientId => any_set_client_id(choices),
        C::SetClientIdConfirm => {
            let none = ClientIdConfirm {
                client_id: 7,
                verifier: [7; 8],
            };
            O::SetClientIdConfirm(known(choices, &learned.confirms, none))
        }
        C::Verify => O::Verify(raw(choices, learned)),
        C::Write => O::Write(WriteArgs {
            state: state(choices, learned),
            offset: offset(choices, learned),
            stable: choices.one_of(&[Stable::Unstable, Stable::DataSync, Stable::FileSync]),
            data: Payload(data(choices)),
        }),
        C::ReleaseLockOwner => O::ReleaseLockOwner(owner(choices, id)),
        C::BackchannelCtl => O::BackchannelCtl(BackchannelCtlArgs {
            callback_program: choices.small(),
            callback_security: callback_security(choices),
        }),
        C::BindConnection => O::BindConnection(BindConnectionArgs {
            session: known(choices, &learned.sessions, [7; 16]),
            channel: choices.one_of(&[
                WantedChannel::Fore,
                WantedChannel::Back,
                WantedChannel::ForeOrBoth,
                WantedChannel::BackOrBoth,
            ]),
            rdma: false,
        }),
        C::ExchangeId => any_exchange_id(choices),
        C::CreateSession => any_create_session(choices, id),
        C::DestroySession => O::DestroySession(known(choices, &learned.sessions, [7; 16])),
        C::FreeStateId => O::FreeStateId(state(choices, learned)),
        C::GetDirDelegation => get_dir_delegation(choices),
        C::SecInfoNoName => {
            O::SecInfoNoName(choices.one_of(&[SecInfoStyle::CurrentFile, SecInfoStyle::Parent]))
        }
        C::Sequence => O::Sequence(SequenceArgs {
            session: known(choices, &learned.sessions, [7; 16]),
            sequence: choices.byte().into(),
            slot: choices.byte().into(),
            highest_slot: choices.byte().into(),
            cache: choices.byte().is_multiple_of(2),
        }),
        C::TestStateId => {
            let some = (0..choices.byte() % 5).map(|_| state(choices, learned));
            O::TestStateId(TestStateIdArgs {
                states: List(some.collect()),
            })
        }
        C::WantDelegation => want_delegation(choices),
        C::DestroyClientId => O::DestroyClientId(id),
        C::ReclaimComplete => O::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: choices.byte().is_multiple_of(2),
        }),
        C::Allocate => O::Allocate(range(choices, learned)),
        C::Copy => copy(choices, learned),
        C::CopyNotify => copy_notify(choices, learned),
        C::Deallocate => O::Deallocate(range(choices, learned)),
        C::IoAdvise => O::IoAdvise(IoAdviseArgs {
            state: state(choices, learned),
            offset: offset(choices, learned),
            count: length(choices),
            hints: hints(choices),
        }),
        C::OffloadCancel => O::OffloadCancel(state(choices, learned)),
        C::OffloadStatus => O::OffloadStatus(state(choices, learned)),
        C::ReadPlus => O::ReadPlus(read(choices, learned)),
        C::Seek => O::Seek(SeekArgs {
            state: state(choices, learned),
            offset: offset(choices, learned),
            what: choices.one_of(&[ContentType::Data, ContentType::Hole]),
        }),
        C::WriteSame => write_same(choices, learned),
        C::Clone => O::Clone(CloneArgs {
            source: saved_state(choices, learned),
            destination: state(choices, learned),
            source_offset: half_pages(choices, learned),
            destination_offset: half_pages(choices, learned),
            count: copied(choices, learned),
        }),
        C::GetXattr => O::GetXattr(name(choices)),
        C::SetXattr => O::SetXattr(SetXattrArgs {
            option: choices.one_of(&[
                SetXattrOption::Either,
                SetXattrOption::Create,
                SetXattrOption::Replace,
            ]),
            name: name(choices),
            value: XattrValue(data(choices)),
        }),
        C::ListXattrs => O::ListXattrs(ListXattrsArgs {
            cookie: cookie(choices, learned),
            max_count: count(choices),
        }),
        C::RemoveXattr => O::RemoveXattr(name(choices)),
        C::GetDeviceInfo
        | C::GetDeviceList
        | C::LayoutCommit
        | C::LayoutGet
        | C::LayoutReturn
        | C::SetSsv
        | C::LayoutError
        | C::LayoutStats => return Sent::Numbered(code.code(), words(choices)),
        C::Illegal => {
            let number = choices.one_of(&NOBODYS);
            return Sent::Numbered(number, words(choices));
        }
    })
}

fn words(choices: &mut Choices<'_>) -> &'static [u8] {
    &ARGUMENTS[..usize::from(choices.byte() % 17) * 4]
}

/// The status that a result begins with.
pub(crate) fn status(result: &OperationResult<'_>) -> Status {
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

fn hints(choices: &mut Choices<'_>) -> Bitmap {
    let some = choices.byte();
    let each = (0..u8::BITS).filter(|hint| some >> hint & 1 == 1);
    each.fold(Bitmap::EMPTY, |hints, hint| hints.with(hint))
}

#[cfg(test)]
mod tests {
    use odafs_common::wire::xdr::{Decode as _, Reader};

    use super::*;
    use crate::compounds::compound;

    /// A value of [`OpCode`] that is in no group cannot be chosen.
    #[test]
    fn every_operation_can_be_chosen() {
        let chosen: Vec<OpCode> = (0..=u8::MAX).flat_map(group).copied().collect();
        for code in OpCode::ALL {
            assert!(chosen.contains(code), "{code:?}");
        }
    }

    #[test]
    fn what_is_made_is_the_operation_of_its_number() {
        let learned = Learned::new();
        for code in OpCode::ALL {
            for seed in 0..=u8::MAX {
                let bytes = [seed, seed.wrapping_mul(31), 255, 1, seed / 3].repeat(8);
                let mut choices = Choices(&bytes);
                let sent = made(*code, &mut choices, &learned, (1, &mut 0));
                let number = OpCode::decode(&mut Reader::new(&sent.to_bytes()));
                let compound = compound(code.minor_version().min(2), &[sent]);
                let mut operations = Operations::begin(Reader::new(&compound)).expect("a compound");
                match operations.next().expect("an operation") {
                    Ok(operation) => {
                        assert_eq!(operation.code(), *code);
                        operations.finish().expect("nothing behind it");
                    }
                    Err(BadOperation::Refused(refused)) => assert_eq!(refused, *code),
                    Err(BadOperation::Illegal(_)) => {
                        assert_eq!(*code, OpCode::Illegal);
                        assert!(number.is_err());
                    }
                    Err(other) => panic!("{code:?}: {other:?}"),
                }
            }
        }
    }
}
