//! OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE and CLOSE (RFC 7530, sections 16.2 and 16.16 to 16.19; RFC 8881, sections 18.2, 18.16
//! and 18.18; RFC 9754).

use odafs_common::wire::nfs4::{
    Attribute, Bitmap, ChangeInfo, Claim, CloseArgs, CreateHow as WireHow, Delegation,
    DelegationType, Name, OpenArgs, OpenConfirmArgs, OpenDowngradeArgs, OpenOk, StateId, Status,
    open_result, share_access, share_deny,
};

use super::attributes::{NewObject, exclusive};
use super::compound::{Compound, Done};
use super::create::create_in;
use super::object::Object;
use super::recalls::{self, Claimed};
use super::setattr::apply;
use super::state::Wanted;
use super::{convert, lookup};
use crate::vfs::around::Change;
use crate::vfs::attributes::access as granted;
use crate::vfs::{Attributes, CreateHow, FileType, ObjectId, SetAttributes, access, namespace};

/// The mode of a file that is made without one; it is no directory.
const USUAL: (u32, bool) = (0o644, false);

/// The attributes in which an exclusive creation keeps its verifier. A client that gets these bits sets the times anew (RFC
/// 8881, section 18.16.3).
const KEEP_VERIFIER: Bitmap = Bitmap::of(&[
    Attribute::TimeAccess,
    Attribute::TimeAccessSet,
    Attribute::TimeModify,
    Attribute::TimeModifySet,
]);

/// The file that OPEN found or made.
struct Found {
    object: ObjectId,
    /// It was not there before.
    made: bool,
    directory: ChangeInfo,
    /// What was set while it was made.
    set: Bitmap,
    /// What is still to be set, once it is open.
    rest: SetAttributes,
}

/// OPEN. `room`: the reply may bring a delegation.
pub(super) fn open<'a>(
    c: &mut Compound<'_>,
    arguments: &OpenArgs<'_>,
    room: bool,
) -> Done<OpenOk<'a>> {
    c.may_block()?;
    let wish = arguments.share_access & !share_access::BOTH;
    let access = arguments.share_access & share_access::BOTH;
    let unknown = wish & !wishes(c.minor);
    let wants = wish & share_access::WANT_MASK <= share_access::WANT_CANCEL;
    if access == 0 || unknown != 0 || !wants || arguments.share_deny & !share_deny::BOTH != 0 {
        return Err(Status::Inval.into());
    }
    let reclaim = matches!(arguments.claim, Claim::Previous(_));
    // Before a file is made for who may not open it.
    let mut machine = c.server.state.lock();
    machine.may_open(c.now, c.sender, &arguments.owner, reclaim)?;
    if matches!(arguments.claim, Claim::Previous(before) if before != DelegationType::None) {
        machine.may_reclaim_delegation(c.sender)?;
    }
    drop(machine);
    let (found, claimed) = claim(c, arguments, access)?;
    if !found.made {
        check_access(c, found.object, access)?;
    }
    let wanted = Wanted {
        file: found.object,
        access,
        deny: arguments.share_deny,
        reclaim,
        delegated: matches!(claimed, Claimed::Has),
    };
    let mut machine = c.server.state.lock();
    let opened = machine.open(c.now, c.sender, &arguments.owner, &wanted)?;
    drop(machine);
    c.set_current(Object::Real(found.object));
    c.set_state(opened.state);
    // Whom a share denies the file must not have cut it.
    if let Err(stop) = apply(c, found.object, &found.rest) {
        c.server.state.lock().take_back_open(&opened.state);
        return Err(stop);
    }
    let mut flags = open_result::LOCKTYPE_POSIX;
    if opened.confirm {
        flags |= open_result::CONFIRM;
    }
    if opened.notifies {
        flags |= open_result::MAY_NOTIFY_LOCK;
    }
    let delegation = match room {
        true => recalls::delegation(c, &wanted, wish & share_access::WANT_MASK, &claimed),
        false => Delegation::None,
    };
    let mut state = opened.state;
    let instead = match (&delegation, &claimed) {
        (Delegation::Read(given), Claimed::Nothing) => Some(given.state),
        (Delegation::Write(given), Claimed::Nothing) => Some(given.state),
        _ => None,
    };
    // What denies others something is an open.
    let exclusive = wish & share_access::OPEN_XOR_DELEGATION != 0 && wanted.deny == 0;
    if let Some(instead) = instead.filter(|_| exclusive)
        && c.server.state.lock().take_back_open(&opened.state)
    {
        flags |= open_result::NO_OPEN_STATEID;
        state = StateId::ANONYMOUS;
        c.set_state(instead);
    }
    Ok(OpenOk {
        state,
        directory: found.directory,
        flags,
        set: found.set,
        delegation,
    })
}

/// The bits of wishes that a minor version has. Those of delegations that keep times too are heard, and not fulfilled.
fn wishes(minor: u32) -> u32 {
    use share_access as bit;
    let first = bit::WANT_MASK | bit::SIGNAL_WHEN_AVAILABLE | bit::PUSH_WHEN_UNCONTENDED;
    match minor {
        0 => 0,
        1 => first,
        _ => first | bit::DELEGATION_TIMESTAMPS | bit::OPEN_XOR_DELEGATION,
    }
}

/// The file that a client claims, and the delegation by which.
fn claim(c: &Compound<'_>, arguments: &OpenArgs<'_>, access: u32) -> Done<(Found, Claimed)> {
    let by = |found: Found, state| {
        recalls::check_claim(c, state, found.object, access)?;
        Ok((found, Claimed::Has))
    };
    let new = |found| (found, Claimed::Nothing);
    match arguments.claim {
        Claim::Null(name) => by_name(c, name, arguments.create.as_ref()).map(new),
        Claim::Previous(before) => Ok((current(c)?, Claimed::Before(before))),
        Claim::DelegateCurrent(state, name) => by(existing(c, name)?, state),
        // A client that starts anew has lost its delegations.
        Claim::DelegatePrevious(_) => Err(Status::NotSupp.into()),
        _ if c.minor == 0 => Err(Status::BadXdr.into()),
        Claim::File => current(c).map(new),
        Claim::DelegateCurrentFile(state) => by(current(c)?, state),
        Claim::DelegatePreviousFile => Err(Status::NotSupp.into()),
    }
}

/// The file of the current file handle.
fn current(c: &Compound<'_>) -> Done<Found> {
    let Object::Real(object) = c.object()? else {
        return Err(Status::IsDir.into());
    };
    let known = c.attributes(object)?;
    regular(c, &known)?;
    let change = known.change();
    Ok(Found {
        object,
        made: false,
        directory: unchanged(change),
        set: Bitmap::EMPTY,
        rest: SetAttributes::default(),
    })
}

fn unchanged(change: u64) -> ChangeInfo {
    ChangeInfo {
        atomic: true,
        before: change,
        after: change,
    }
}

fn regular(c: &Compound<'_>, known: &Attributes) -> Done<()> {
    match known.kind {
        FileType::Regular => Ok(()),
        // Minor version 0 has but one status for what is neither file nor directory.
        FileType::Directory => Err(Status::IsDir.into()),
        FileType::Symlink => Err(Status::Symlink.into()),
        _ if c.minor > 0 => Err(Status::WrongType.into()),
        _ => Err(Status::Symlink.into()),
    }
}

/// The file of a name in the current directory, which is made if that is asked for.
fn by_name(c: &Compound<'_>, name: Name<'_>, create: Option<&WireHow<'_>>) -> Done<Found> {
    let Some(how) = create else {
        return existing(c, name);
    };
    let directory = c.real()?;
    if let Some(status) = c.not_a_directory(directory) {
        return Err(create_in(status).into());
    }
    lookup::check(name)?;
    match how {
        WireHow::Unchecked(raw) => {
            let asked = NewObject::parse(c, raw, c.supported(), USUAL)?;
            // The size of a file that is there is set once it is open.
            let whole = SetAttributes {
                size: None,
                ..asked.attributes
            };
            let (object, made, directory) =
                make(c, directory, name.0, CreateHow::Unchecked(&whole))?;
            let mut rest = SetAttributes {
                size: asked.attributes.size,
                ..SetAttributes::default()
            };
            let set = if made {
                asked.finish(c, object)
            } else {
                // A file that is there is cut, and nothing else (RFC 8881, section 18.16.3).
                rest.size = rest.size.filter(|size| *size == 0);
                let cut = rest.size.map(|_| Attribute::Size);
                Bitmap::of(cut.as_slice())
            };
            Ok(Found {
                object,
                made,
                directory,
                set,
                rest,
            })
        }
        WireHow::Guarded(raw) => {
            let asked = NewObject::parse(c, raw, c.supported(), USUAL)?;
            let how = CreateHow::Guarded(&asked.attributes);
            let (object, made, directory) = make(c, directory, name.0, how)?;
            Ok(Found {
                object,
                made,
                directory,
                set: asked.finish(c, object),
                rest: SetAttributes::default(),
            })
        }
        WireHow::Exclusive(verifier) => {
            let how = CreateHow::Exclusive(*verifier, &SetAttributes::default());
            let (object, _, directory) = make(c, directory, name.0, how)?;
            Ok(Found {
                object,
                made: true,
                directory,
                set: KEEP_VERIFIER,
                rest: SetAttributes::default(),
            })
        }
        WireHow::ExclusiveWith(verifier, raw) => {
            if c.minor == 0 {
                return Err(Status::BadXdr.into());
            }
            let asked = NewObject::parse(c, raw, &exclusive(c), USUAL)?;
            // The mode goes with the creation: set later, it could grant what a list that is inherited does not.
            let how = CreateHow::Exclusive(*verifier, &asked.attributes);
            let (object, _, directory) = make(c, directory, name.0, how)?;
            Ok(Found {
                object,
                made: true,
                directory,
                set: asked.finish(c, object).or(&KEEP_VERIFIER),
                rest: SetAttributes {
                    mode: None,
                    umask: 0,
                    ..asked.attributes
                },
            })
        }
    }
}

/// The file, whether it was not there before, and what happened to the directory.
fn make(
    c: &Compound<'_>,
    directory: ObjectId,
    name: &[u8],
    how: CreateHow<'_>,
) -> Done<(ObjectId, bool, ChangeInfo)> {
    let unchecked = matches!(how, CreateHow::Unchecked(_));
    let change = Change::begin(c.export, directory);
    let created = namespace::create(c.export, &c.who, directory, name, how);
    let around = change.end();
    let created = match created {
        Ok(created) => created,
        // Which type a name has that is taken, an unchecked creation tells.
        Err(error) if error.status == crate::vfs::Status::Exist && unchecked => {
            let taken = namespace::lookup(c.export, &c.who, directory, name);
            let told = taken.ok().map(|(_, known)| known);
            return match told {
                Some(known) if known.kind != FileType::Regular => {
                    regular(c, &known)?;
                    Err(error.into())
                }
                _ => Err(error.into()),
            };
        }
        Err(error) => return Err(error.into()),
    };
    let directory = convert::change_info(&around);
    Ok((created.object, !created.existed, directory))
}

/// The file of a name that has to be there.
fn existing(c: &Compound<'_>, name: Name<'_>) -> Done<Found> {
    let directory = c.object()?;
    let Object::Real(object) = lookup::find(c, name)? else {
        return Err(Status::IsDir.into());
    };
    let known = c.attributes(object)?;
    regular(c, &known)?;
    let change = match directory {
        Object::Real(directory) => c.attributes(directory)?.change(),
        Object::Pseudo(_) => 1,
    };
    Ok(Found {
        object,
        made: false,
        directory: unchanged(change),
        set: Bitmap::EMPTY,
        rest: SetAttributes::default(),
    })
}

/// Whether the caller may have the access. A caller that may execute a file may read it, because clients read it to run it.
fn check_access(c: &Compound<'_>, object: ObjectId, share: u32) -> Done<()> {
    let mut asked = 0;
    if share & share_access::READ != 0 {
        asked |= access::READ | access::EXECUTE;
    }
    if share & share_access::WRITE != 0 {
        asked |= access::MODIFY;
    }
    let granted = granted(c.export, &c.who, object, asked)?;
    let reads = share & share_access::READ == 0 || granted & (access::READ | access::EXECUTE) != 0;
    let writes = share & share_access::WRITE == 0 || granted & access::MODIFY != 0;
    if reads && writes {
        Ok(())
    } else {
        Err(Status::Access.into())
    }
}

/// OPEN_CONFIRM
pub(super) fn confirm(c: &mut Compound<'_>, arguments: &OpenConfirmArgs) -> Done<StateId> {
    let file = c.real()?;
    let mut machine = c.server.state.lock();
    let state = machine.open_confirm(c.now, &arguments.state, file)?;
    drop(machine);
    Ok(c.set_state(state))
}

/// OPEN_DOWNGRADE
pub(super) fn downgrade(c: &mut Compound<'_>, arguments: &OpenDowngradeArgs) -> Done<StateId> {
    let file = c.held()?;
    let given = c.state(arguments.state)?;
    let access = arguments.share_access & !share_access::WANT_MASK;
    let mut machine = c.server.state.lock();
    let deny = arguments.share_deny;
    let state = machine.open_downgrade(c.now, c.sender, &given, file, access, deny)?;
    drop(machine);
    Ok(c.set_state(state))
}

/// CLOSE
pub(super) fn close(c: &mut Compound<'_>, arguments: &CloseArgs) -> Done<StateId> {
    let file = c.held()?;
    let given = c.state(arguments.state)?;
    let mut machine = c.server.state.lock();
    let state = machine.close(c.now, c.sender, &given, file)?;
    drop(machine);
    Ok(c.set_state(state))
}
