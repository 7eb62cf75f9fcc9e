//! OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE and CLOSE (RFC 7530, sections 16.2 and 16.16 to 16.19; RFC 8881, sections 18.2, 18.16
//! and 18.18; RFC 9754).

use odafs_common::wire::nfs4::{
    Attribute, Bitmap, ChangeInfo, Claim, CloseArgs, CreateHow as WireHow, Delegation, Name,
    OpenArgs, OpenConfirmArgs, OpenDowngradeArgs, OpenOk, StateId, Status, open_result,
    share_access, share_deny,
};

use super::attributes::{NewObject, exclusive};
use super::compound::{Compound, Done};
use super::fits::reclaims_delegation;
use super::object::Object;
use super::recalls::{self, Claimed};
use super::setattr::apply;
use super::state::OpenRequest;
use super::{convert, lookup};
use crate::vfs::attributes::access as granted;
use crate::vfs::{Attributes, CreateHow, FileType, ObjectId, SetAttributes, access, namespace};

/// The mode of a file that is made without one. It is no directory.
const USUAL: (u32, bool) = (0o644, false);

/// The attributes in which an exclusive creation keeps its verifier. They are in the mask of its result, so that the client sets
/// the times anew (RFC 8881, section 18.16.3).
const KEEP_VERIFIER: Bitmap = Bitmap::of(&[
    Attribute::TimeAccess,
    Attribute::TimeAccessSet,
    Attribute::TimeModify,
    Attribute::TimeModifySet,
]);

/// The file that OPEN found or made.
struct Found {
    object: ObjectId,
    /// Whether OPEN made it.
    made: bool,
    directory: ChangeInfo,
    /// The attributes that OPEN sets, for its result.
    set: Bitmap,
    /// Those of them that are still to be set, once the file is open.
    rest: SetAttributes,
}

impl Found {
    /// A file that was there, below a directory with this change attribute.
    fn existing(object: ObjectId, change: u64) -> Self {
        Self {
            object,
            made: false,
            directory: ChangeInfo {
                atomic: true,
                before: change,
                after: change,
            },
            set: Bitmap::EMPTY,
            rest: SetAttributes::default(),
        }
    }
}

/// OPEN. `room`: whether the reply has room for a delegation.
pub(super) fn open<'a>(
    c: &mut Compound<'_>,
    arguments: &OpenArgs<'_>,
    room: bool,
) -> Done<OpenOk<'a>> {
    c.may_block()?;
    let want = arguments.share_access & !share_access::BOTH;
    let access = arguments.share_access & share_access::BOTH;
    let unknown = want & !want_bits(c.minor);
    let has_value = want & share_access::WANT_MASK <= share_access::WANT_CANCEL;
    if access == 0 || unknown != 0 || !has_value || arguments.share_deny & !share_deny::BOTH != 0 {
        return Err(Status::Inval.into());
    }
    let reclaim = matches!(arguments.claim, Claim::Previous(_));
    // This comes first, so that no file is made for a client that may not open it.
    c.keeping(|state| {
        state.may_open(c.now, c.sender, &arguments.owner, reclaim)?;
        match reclaims_delegation(arguments) {
            true => state.may_reclaim_delegation(c.sender),
            false => Ok(()),
        }
    })?;
    let (found, claimed) = claim(c, arguments, access)?;
    if !found.made {
        check_access(c, found.object, access)?;
    }
    let request = OpenRequest {
        file: found.object,
        access,
        deny: arguments.share_deny,
        reclaim,
        delegated: matches!(claimed, Claimed::Has),
    };
    let opened = c.keeping(|state| state.open(c.now, c.sender, &arguments.owner, &request))?;
    c.set_current(Object::Real(found.object));
    c.set_stateid(opened.stateid);
    // This comes after the open, so that a client to whom a share denies the file does not truncate it.
    if let Err(stop) = apply(c, found.object, &found.rest) {
        c.server.state.lock().undo_open(&opened);
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
        true => recalls::delegation(c, &request, want & share_access::WANT_MASK, &claimed),
        false => Delegation::None,
    };
    let mut stateid = opened.stateid;
    let instead = match (&delegation, &claimed) {
        (Delegation::Read(given), Claimed::Nothing) => Some(given.state),
        (Delegation::Write(given), Claimed::Nothing) => Some(given.state),
        _ => None,
    };
    // An open that denies others something is needed even beside a delegation.
    let exclusive = want & share_access::OPEN_XOR_DELEGATION != 0 && request.deny == 0;
    if let Some(instead) = instead.filter(|_| exclusive)
        && c.server.state.lock().take_back_open(&opened)
    {
        flags |= open_result::NO_OPEN_STATEID;
        stateid = StateId::ANONYMOUS;
        c.set_stateid(instead);
    }
    Ok(OpenOk {
        state: stateid,
        directory: found.directory,
        flags,
        set: found.set,
        delegation,
    })
}

/// The bits of `share_access` by which clients of a minor version say what they want besides access. Delegations of timestamps
/// can be asked for and are not given.
fn want_bits(minor: u32) -> u32 {
    use share_access as bit;
    let first = bit::WANT_MASK | bit::SIGNAL_WHEN_AVAILABLE | bit::PUSH_WHEN_UNCONTENDED;
    match minor {
        0 => 0,
        1 => first,
        _ => first | bit::DELEGATION_TIMESTAMPS | bit::OPEN_XOR_DELEGATION,
    }
}

/// The file that a client opens, and its claim to a delegation.
fn claim(c: &Compound<'_>, arguments: &OpenArgs<'_>, access: u32) -> Done<(Found, Claimed)> {
    let by = |found: Found, stateid| {
        recalls::check_claim(c, stateid, found.object, access)?;
        Ok((found, Claimed::Has))
    };
    let new = |found| (found, Claimed::Nothing);
    match arguments.claim {
        Claim::Null(name) => by_name(c, name, arguments.create.as_ref()).map(new),
        Claim::Previous(before) => Ok((current(c)?, Claimed::Before(before))),
        Claim::DelegateCurrent(stateid, name) => by(existing(c, name)?, stateid),
        // A client that restarts loses its delegations.
        Claim::DelegatePrevious(_) => Err(Status::NotSupp.into()),
        _ if c.minor == 0 => Err(Status::BadXdr.into()),
        Claim::File => current(c).map(new),
        Claim::DelegateCurrentFile(stateid) => by(current(c)?, stateid),
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
    Ok(Found::existing(object, known.change()))
}

/// The status of OPEN for what is no regular file. Minor version 0 has one for all that is neither a file nor a directory.
fn regular(c: &Compound<'_>, known: &Attributes) -> Done<()> {
    match known.kind {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Status::IsDir.into()),
        FileType::Symlink => Err(Status::Symlink.into()),
        _ if c.minor > 0 => Err(Status::WrongType.into()),
        _ => Err(Status::Symlink.into()),
    }
}

/// The file of a name in the current directory. It is made if that is asked for.
fn by_name(c: &Compound<'_>, name: Name<'_>, create: Option<&WireHow<'_>>) -> Done<Found> {
    let Some(how) = create else {
        return existing(c, name);
    };
    let directory = c.real()?;
    c.check_directory(directory)?;
    lookup::check(name)?;
    let make = |how| make(c, directory, name.0, how);
    match how {
        WireHow::Unchecked(raw) => {
            let asked = NewObject::parse(c, raw, c.supported(), USUAL)?;
            // The size of a file that is there is set once it is open.
            let whole = SetAttributes {
                size: None,
                ..asked.attributes
            };
            let found = make(CreateHow::Unchecked(&whole))?;
            let (set, size) = if found.made {
                (asked.finish(c, found.object), asked.attributes.size)
            } else {
                // A file that is there is truncated, and nothing else (RFC 8881, section 18.16.3).
                let size = asked.attributes.size.filter(|size| *size == 0);
                (Bitmap::of(size.map(|_| Attribute::Size).as_slice()), size)
            };
            let rest = SetAttributes {
                size,
                ..SetAttributes::default()
            };
            Ok(Found { set, rest, ..found })
        }
        WireHow::Guarded(raw) => {
            let asked = NewObject::parse(c, raw, c.supported(), USUAL)?;
            let found = make(CreateHow::Guarded(&asked.attributes))?;
            let set = asked.finish(c, found.object);
            Ok(Found { set, ..found })
        }
        WireHow::Exclusive(verifier) => {
            let found = make(CreateHow::Exclusive(*verifier, &SetAttributes::default()))?;
            Ok(Found {
                made: true,
                set: KEEP_VERIFIER,
                ..found
            })
        }
        WireHow::ExclusiveWith(verifier, raw) => {
            if c.minor == 0 {
                return Err(Status::BadXdr.into());
            }
            let asked = NewObject::parse(c, raw, &exclusive(c), USUAL)?;
            // The file is made with the mode. Set later, the mode could grant what an inherited list does not.
            let found = make(CreateHow::Exclusive(*verifier, &asked.attributes))?;
            Ok(Found {
                made: true,
                set: asked.finish(c, found.object).or(&KEEP_VERIFIER),
                rest: SetAttributes {
                    mode: None,
                    umask: 0,
                    ..asked.attributes
                },
                ..found
            })
        }
    }
}

/// Makes a file, or finds it if `how` allows that. Nothing is said to be set or left to be set.
fn make(c: &Compound<'_>, directory: ObjectId, name: &[u8], how: CreateHow<'_>) -> Done<Found> {
    let unchecked = matches!(how, CreateHow::Unchecked(_));
    let (created, change) = convert::change(c.export, directory, || {
        namespace::create(c.export, &c.who, directory, name, how)
    });
    match created {
        Ok(created) => Ok(Found {
            made: !created.existed,
            directory: change,
            ..Found::existing(created.object, 0)
        }),
        // If the name is taken, the failure of an unchecked creation says by what type.
        Err(error) if error.status == crate::vfs::Status::Exist && unchecked => {
            if let Ok((_, known)) = namespace::lookup(c.export, &c.who, directory, name) {
                regular(c, &known)?;
            }
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The file of a name that must be there.
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
    Ok(Found::existing(object, change))
}

/// Refuses access that the caller has no right to. A caller that may execute a file may open it for reading, because clients
/// read a file to run it.
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
    let mut state = c.server.state.lock();
    let stateid = state.open_confirm(c.now, &arguments.state, file)?;
    drop(state);
    Ok(c.set_stateid(stateid))
}

/// OPEN_DOWNGRADE
pub(super) fn downgrade(c: &mut Compound<'_>, arguments: &OpenDowngradeArgs) -> Done<StateId> {
    let file = c.held()?;
    let given = c.stateid(arguments.state)?;
    let access = arguments.share_access & !share_access::WANT_MASK;
    let mut state = c.server.state.lock();
    let deny = arguments.share_deny;
    let stateid = state.open_downgrade(c.now, c.sender, &given, file, access, deny)?;
    drop(state);
    Ok(c.set_stateid(stateid))
}

/// CLOSE
pub(super) fn close(c: &mut Compound<'_>, arguments: &CloseArgs) -> Done<StateId> {
    let file = c.held()?;
    let given = c.stateid(arguments.state)?;
    let mut state = c.server.state.lock();
    let stateid = state.close(c.now, c.sender, &given, file)?;
    drop(state);
    Ok(c.set_stateid(stateid))
}
