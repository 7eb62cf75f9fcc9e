//! Requests that come by io_uring, and their answers.

use super::wire::{self, op};
use crate::{
    acls::Xattr,
    data::Wanted,
    files::{Caller, Files},
    operations::{BLOCK, NAME_MAX},
};
use fuser::{Errno, FileAttr, FileType, FopenFlags, INodeNo, TimeOrNow, WriteFlags};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path, time::Duration};
use wire::{RequestHeader, SetAttr};
use zerocopy::{FromBytes, IntoBytes as _};

/// A request that an entry of a ring brought.
pub struct Request<'a> {
    pub header: RequestHeader,
    /// The first argument.
    pub argument: &'a [u8],
    /// The memory of the other arguments, and of the answer.
    pub payload: &'a mut [u8],
    /// Length of the other arguments, in bytes.
    pub sent: usize,
}

/// Carries out a request. Returns the length of the answer in the payload, in bytes.
///
/// # Errors
/// What the program is told.
pub fn answer(files: &Files, request: Request<'_>) -> Result<usize, Errno> {
    let Request {
        header,
        argument,
        payload,
        sent,
    } = request;
    let number = header.number;
    let caller = Caller {
        uid: header.uid,
        gid: header.gid,
    };
    let sent_bytes = payload.get(..sent).ok_or(Errno::EIO)?;
    match header.opcode {
        op::READ => {
            let wire::ReadWrite {
                open,
                offset,
                size,
                how,
                ..
            } = read(argument)?;
            // The kernel names the reader only where it passes the bytes on without keeping them.
            let cached = how & wire::ReadWrite::LOCK_OWNER == 0;
            let size = payload.len().min(size as usize);
            files.read(open, offset, &mut payload[..size], cached)
        }
        op::WRITE => {
            let wire::ReadWrite {
                open,
                offset,
                how,
                flags,
                ..
            } = read(argument)?;
            let how = WriteFlags::from_bits_retain(how);
            files.write(open, offset, sent_bytes, how, flags)?;
            put_length(payload, sent as u32)
        }
        op::LOOKUP => {
            let found = files.lookup(number, only_name(sent_bytes)?)?;
            put_entry(files, payload, &found)
        }
        op::GETATTR => put_attributes(files, payload, &files.getattr(number)?),
        op::SETATTR => {
            let wanted = wanted(&read(argument)?)?;
            put_attributes(files, payload, &files.setattr(number, wanted)?)
        }
        op::READLINK => {
            let target = files.readlink(number)?;
            put(payload, target.as_bytes())
        }
        op::MKNOD => {
            let wire::MkNod { mode, device, .. } = read(argument)?;
            let name = only_name(sent_bytes)?;
            let made = files.mknod(caller, number, name, mode, device)?;
            put_entry(files, payload, &made)
        }
        op::MKDIR => {
            let wire::MkDir { mode, .. } = read(argument)?;
            let made = files.mkdir(caller, number, only_name(sent_bytes)?, mode)?;
            put_entry(files, payload, &made)
        }
        op::SYMLINK => {
            let [name, target] = two_names(sent_bytes)?;
            let made = files.symlink(caller, number, name, Path::new(target))?;
            put_entry(files, payload, &made)
        }
        op::UNLINK => done(files.unlink(number, only_name(sent_bytes)?)),
        op::RMDIR => done(files.rmdir(number, only_name(sent_bytes)?)),
        op::RENAME | op::RENAME2 => {
            let wire::Rename {
                new_parent, flags, ..
            } = read(argument)?;
            // What follows the first field is left from an earlier request where this is RENAME.
            let flags = if header.opcode == op::RENAME2 {
                flags
            } else {
                0
            };
            let [name, new_name] = two_names(sent_bytes)?;
            done(files.rename((number, name), (new_parent, new_name), flags))
        }
        op::LINK => {
            let file: u64 = read(argument)?;
            let linked = files.link(file, number, only_name(sent_bytes)?)?;
            put_entry(files, payload, &linked)
        }
        op::OPEN => {
            let wire::Open { flags, .. } = read(argument)?;
            let (open, how) = files.open(number, flags)?;
            put(payload, opened_as(open, how).as_bytes())
        }
        op::CREATE => {
            let wire::Create { flags, mode, .. } = read(argument)?;
            let name = only_name(sent_bytes)?;
            let (shown, open, how) = files.create(caller, number, name, mode, flags)?;
            let created = wire::Created {
                entry: wire::Entry::of(&shown, files.kept),
                opened: opened_as(open, how),
            };
            put(payload, created.as_bytes())
        }
        op::FLUSH => done(files.flush(opened(argument)?)),
        op::FSYNC => done(files.fsync(opened(argument)?)),
        op::RELEASE => {
            files.release(opened(argument)?);
            Ok(0)
        }
        op::OPENDIR => {
            let open = files.opened_directory();
            put(payload, opened_as(open, FopenFlags::empty()).as_bytes())
        }
        op::READDIR => {
            let wire::ReadWrite {
                open, offset, size, ..
            } = read(argument)?;
            let mut listing = wire::Listing::new(payload, size);
            let add = |number: INodeNo, next, kind: FileType, name: &OsStr| {
                listing.add(number.0, next, kind, name)
            };
            files.readdir(number, open, offset, add)?;
            Ok(listing.used())
        }
        op::READDIRPLUS => {
            let wire::ReadWrite {
                open, offset, size, ..
            } = read(argument)?;
            let mut listing = wire::Listing::new(payload, size);
            let add = |shown: &FileAttr, kept: &Duration, next, name: &OsStr| {
                listing.add_entry(shown, *kept, next, name)
            };
            files.readdirplus(number, open, offset, add)?;
            Ok(listing.used())
        }
        op::RELEASEDIR => {
            files.closed_directory(opened(argument)?);
            Ok(0)
        }
        // The server has changed names on stable storage before it answers.
        op::FSYNCDIR => Ok(0),
        op::STATFS => {
            let space = files.statfs(number)?;
            let stated = wire::StatFs {
                blocks: space.all,
                free: space.free,
                available: space.available,
                files: space.files,
                free_files: space.free_files,
                block: BLOCK,
                name_max: NAME_MAX,
                fragment: BLOCK,
                padding: 0,
                spare: [0; 6],
            };
            put(payload, stated.as_bytes())
        }
        op::GETXATTR => {
            let room: u32 = read(argument)?;
            match files.getxattr(number, only_name(sent_bytes)?, room)? {
                Xattr::Length(length) => put_length(payload, length),
                Xattr::Value(value) => put(payload, &value),
            }
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// An argument at the beginning of its bytes.
fn read<T: FromBytes>(argument: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(argument)
        .map(|(argument, _)| argument)
        .map_err(|_| Errno::EIO)
}

/// The open file of a request.
fn opened(argument: &[u8]) -> Result<u64, Errno> {
    let wire::Opened { open } = read(argument)?;
    Ok(open)
}

/// A name, which ends with a zero, and what is behind it.
fn name(bytes: &[u8]) -> Result<(&OsStr, &[u8]), Errno> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let (name, rest) = bytes.split_at(end.ok_or(Errno::EIO)?);
    Ok((OsStr::from_bytes(name), &rest[1..]))
}

fn only_name(bytes: &[u8]) -> Result<&OsStr, Errno> {
    name(bytes).map(|(name, _)| name)
}

fn two_names(bytes: &[u8]) -> Result<[&OsStr; 2], Errno> {
    let (first, rest) = name(bytes)?;
    Ok([first, only_name(rest)?])
}

/// The changes that SETATTR asks for.
fn wanted(asked: &SetAttr) -> Result<Wanted, Errno> {
    let valid = |bit: u32| asked.valid & bit != 0;
    let time = |given, now, seconds, ns| match (valid(given), valid(now)) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(TimeOrNow::Now)),
        (true, false) => wire::time(seconds, ns).map(|time| Some(TimeOrNow::SpecificTime(time))),
    };
    Ok(Wanted {
        mode: valid(SetAttr::MODE).then_some(asked.mode),
        uid: valid(SetAttr::UID).then_some(asked.uid),
        gid: valid(SetAttr::GID).then_some(asked.gid),
        size: valid(SetAttr::SIZE).then_some(asked.size),
        atime: time(
            SetAttr::ATIME,
            SetAttr::ATIME_NOW,
            asked.atime,
            asked.atime_ns,
        )?,
        mtime: time(
            SetAttr::MTIME,
            SetAttr::MTIME_NOW,
            asked.mtime,
            asked.mtime_ns,
        )?,
    })
}

fn done(result: Result<(), Errno>) -> Result<usize, Errno> {
    result.map(|()| 0)
}

fn opened_as(open: u64, how: FopenFlags) -> wire::OpenedAs {
    wire::OpenedAs {
        open,
        how: how.bits(),
        backing: 0,
    }
}

/// Writes an answer. Returns its length.
fn put(payload: &mut [u8], answer: &[u8]) -> Result<usize, Errno> {
    let room = payload.get_mut(..answer.len()).ok_or(Errno::EIO)?;
    room.copy_from_slice(answer);
    Ok(answer.len())
}

fn put_length(payload: &mut [u8], length: u32) -> Result<usize, Errno> {
    let length = wire::Length { length, padding: 0 };
    put(payload, length.as_bytes())
}

fn put_entry(files: &Files, payload: &mut [u8], shown: &FileAttr) -> Result<usize, Errno> {
    put(payload, wire::Entry::of(shown, files.kept).as_bytes())
}

fn put_attributes(files: &Files, payload: &mut [u8], shown: &FileAttr) -> Result<usize, Errno> {
    let kept = wire::KeptAttributes::of(shown, files.kept);
    put(payload, kept.as_bytes())
}
