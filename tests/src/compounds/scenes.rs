//! Compounds of operations that may well succeed: each on an object of the right type, and with what the client holds there.

use odafs_common::wire::nfs4::*;

use super::arguments::name;
use super::learned::{Held, Kind, Learned};
use super::operations::{Sent, any, made};
use crate::server_model::choices::Choices;

/// What scenes are made of besides any operations: what is rarely right elsewhere.
const DEEP: &[OpCode] = &[
    OpCode::Open,
    OpCode::Open,
    OpCode::Lock,
    OpCode::Unlock,
    OpCode::LockTest,
    OpCode::Read,
    OpCode::ReadPlus,
    OpCode::Write,
    OpCode::Write,
    OpCode::Write,
    OpCode::SetAttributes,
    OpCode::OpenDowngrade,
    OpCode::DelegationReturn,
    OpCode::FreeStateId,
    OpCode::Allocate,
    OpCode::Deallocate,
    OpCode::Seek,
    OpCode::Copy,
    OpCode::Copy,
    OpCode::Copy,
    OpCode::Copy,
    OpCode::Clone,
    OpCode::OffloadCancel,
    OpCode::OffloadStatus,
    OpCode::SetXattr,
    OpCode::SetXattr,
    OpCode::GetXattr,
    OpCode::ListXattrs,
    OpCode::RemoveXattr,
    OpCode::ReadLink,
    OpCode::Create,
    OpCode::GetAttributes,
];

/// The objects that an operation works on.
enum Place {
    /// The root directory.
    Root,
    /// The root directory, which is also saved.
    Roots,
    /// An object in the root directory.
    Named,
    /// A new object in the root directory.
    New(CreateType<'static>),
    /// A file that the client has opened.
    File,
    /// Such a file, and another one that is saved.
    Files,
    /// The root directory, and a file that is saved.
    FileAndRoot,
}

fn place(code: OpCode) -> Place {
    use OpCode as C;
    match code {
        C::Copy | C::Clone => Place::Files,
        C::Link => Place::FileAndRoot,
        C::Rename | C::RestoreFileHandle => Place::Roots,
        C::LookupParent => Place::New(CreateType::Directory),
        C::ReadLink => Place::New(CreateType::Symlink(Payload(b"a"))),
        C::SecInfoNoName | C::Access | C::GetAttributes => Place::Named,
        C::Close
        | C::Commit
        | C::DelegationReturn
        | C::Lock
        | C::LockTest
        | C::Unlock
        | C::OpenConfirm
        | C::OpenDowngrade
        | C::Read
        | C::ReadPlus
        | C::Write
        | C::WriteSame
        | C::SetAttributes
        | C::Verify
        | C::VerifyNot
        | C::FreeStateId
        | C::TestStateId
        | C::WantDelegation
        | C::Allocate
        | C::Deallocate
        | C::Seek
        | C::IoAdvise
        | C::CopyNotify
        | C::OffloadCancel
        | C::OffloadStatus
        | C::GetXattr
        | C::SetXattr
        | C::ListXattrs
        | C::RemoveXattr => Place::File,
        _ => Place::Root,
    }
}

/// The kind of stateid that an operation is about, if it is about one alone.
fn kind_for(code: OpCode) -> Option<Kind> {
    use OpCode as C;
    match code {
        C::Close | C::OpenDowngrade | C::OpenConfirm => Some(Kind::Open),
        C::Unlock | C::FreeStateId => Some(Kind::Lock),
        C::DelegationReturn => Some(Kind::Delegation),
        C::OffloadStatus | C::OffloadCancel => Some(Kind::Copy),
        _ => None,
    }
}

/// Operations of a client with this id and minor version, whose owner's numbers go on.
pub(super) fn scene<'a>(
    choices: &mut Choices<'_>,
    learned: &'a Learned,
    (id, minor): (u64, u32),
    turn: &mut u32,
) -> Vec<Sent<'a>> {
    let mine: Vec<&Held> = learned
        .held
        .iter()
        .filter(|held| held.client == id)
        .collect();
    let mut all = Vec::new();
    for _ in 0..=choices.byte() % 4 {
        let code = code(choices, &mine);
        let file = file_for(code, &mine, choices.byte().into());
        // Another file, if there is one.
        let is_other = |held: &&&Held| file.is_some_and(|file| file.file != held.file);
        let other = mine.iter().find(is_other).copied();
        let is_ready = match place(code) {
            Place::File | Place::FileAndRoot => file.is_some(),
            Place::Files => other.is_some(),
            _ => code != OpCode::Open,
        };
        if !is_ready {
            opens(choices, (id, minor), turn, &mut all);
            continue;
        }
        goes_to(place(code), (file, other), choices, &mut all);
        match (code, file) {
            (OpCode::FreeStateId, Some(file)) => all.push(unlock(file, turn)),
            (OpCode::GetXattr | OpCode::RemoveXattr, _) => all.push(xattr(choices)),
            _ => {}
        }
        learned.here.set(file.map(|file| file.state));
        learned.there.set(other.map(|other| other.state));
        all.push(made(code, choices, learned, (id, turn)));
        learned.here.set(None);
        learned.there.set(None);
    }
    all
}

/// An operation that a client with these stateids may well send.
fn code(choices: &mut Choices<'_>, mine: &[&Held]) -> OpCode {
    let has = |kind| mine.iter().any(|held| held.kind == kind);
    // A copy that goes on is soon over.
    let code = match choices.byte() % 16 {
        0 | 1 if has(Kind::Copy) => OpCode::OffloadCancel,
        2 | 3 if has(Kind::Copy) => OpCode::OffloadStatus,
        0..8 => any(choices),
        _ => choices.one_of(DEEP),
    };
    // What brings such a stateid, if there is none.
    match kind_for(code).filter(|kind| !has(*kind)) {
        Some(Kind::Lock) => OpCode::Lock,
        Some(Kind::Copy) => OpCode::Copy,
        Some(Kind::Open | Kind::Delegation) => OpCode::Open,
        None => code,
    }
}

/// A file on which the client holds what the operation is about.
fn file_for<'a>(code: OpCode, mine: &[&'a Held], at: usize) -> Option<&'a Held> {
    let is_right = |held: &&&Held| kind_for(code).is_none_or(|kind| held.kind == kind);
    let right: Vec<&Held> = mine.iter().filter(is_right).copied().collect();
    (!right.is_empty()).then(|| right[at % right.len()])
}

/// The operations that make these the current and the saved object.
fn goes_to<'a>(
    place: Place,
    (file, other): (Option<&'a Held>, Option<&'a Held>),
    choices: &mut Choices<'_>,
    all: &mut Vec<Sent<'a>>,
) {
    let root = Sent::Known(Operation::PutRootFileHandle);
    let save = Sent::Known(Operation::SaveFileHandle);
    match (place, file, other) {
        (Place::File, Some(file), _) => all.push(put(file)),
        (Place::Files, Some(file), Some(other)) => {
            all.push(put(other));
            if !choices.byte().is_multiple_of(4) {
                all.push(fill(other));
            }
            all.extend([save, put(file)]);
        }
        (Place::FileAndRoot, Some(file), _) => all.extend([put(file), save, root]),
        (Place::Named, ..) => {
            let lookup = Operation::Lookup(name(choices));
            all.extend([root, Sent::Known(lookup)]);
        }
        (Place::New(kind), ..) => {
            let create = Operation::Create(CreateArgs {
                kind,
                name: name(choices),
                attributes: RawAttributes::default(),
            });
            all.extend([root, Sent::Known(create)]);
        }
        (Place::Roots, ..) => all.extend([root, save]),
        _ => all.push(root),
    }
}

fn put(held: &Held) -> Sent<'_> {
    Sent::Known(Operation::PutFileHandle(FileHandle(&held.file)))
}

/// Gives a file something to copy.
fn fill<'a>(held: &Held) -> Sent<'a> {
    Sent::Known(Operation::Write(WriteArgs {
        state: held.state,
        offset: 0,
        stable: Stable::Unstable,
        data: Payload(&[1; 6000]),
    }))
}

/// Gives a file one of the attributes that are asked for then.
fn xattr<'a>(choices: &mut Choices<'_>) -> Sent<'a> {
    Sent::Known(Operation::SetXattr(SetXattrArgs {
        option: SetXattrOption::Either,
        name: name(choices),
        value: XattrValue(b"value"),
    }))
}

/// Gives all ranges of an owner back.
fn unlock<'a>(held: &Held, turn: &mut u32) -> Sent<'a> {
    *turn = turn.wrapping_add(1);
    Sent::Known(Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: *turn,
        lock: StateId {
            sequence: 0,
            ..held.state
        },
        offset: 0,
        length: u64::MAX,
    }))
}

/// Opens a file by name, which is made or not.
fn opens(
    choices: &mut Choices<'_>,
    (id, minor): (u64, u32),
    turn: &mut u32,
    all: &mut Vec<Sent<'_>>,
) {
    use share_access as share;
    *turn = turn.wrapping_add(1);
    let access = choices.one_of(&[share::BOTH, share::BOTH, share::READ, share::WRITE]);
    let wishes = [
        share::WANT_NONE,
        share::WANT_NONE,
        share::WANT_NO_PREFERENCE,
        share::WANT_ANY,
        share::WANT_WRITE,
    ];
    let wish = choices.one_of(&wishes);
    let create = match choices.byte() % 4 {
        0 => None,
        1 => Some(CreateHow::Guarded(RawAttributes::default())),
        _ => Some(CreateHow::Unchecked(RawAttributes::default())),
    };
    all.push(Sent::Known(Operation::PutRootFileHandle));
    all.push(Sent::Known(Operation::Open(OpenArgs {
        sequence: *turn,
        share_access: access | if minor > 0 { wish } else { 0 },
        share_deny: choices.one_of(&[0, 0, 0, 0, 0, 1, 2, 3]),
        owner: StateOwner {
            client_id: id,
            owner: Opaque(b"me"),
        },
        create,
        claim: Claim::Null(name(choices)),
    })));
    all.push(Sent::Known(Operation::GetFileHandle));
}
