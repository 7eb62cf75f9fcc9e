//! Conversions between the types of the wire (RFC 1813) and those of this library. No other module of the client knows
//! both.

use crate::{
    error::Status,
    handle::FileHandle,
    types::{
        Attributes, Changed, Changes, Create, FileKind, FsInfo, Node, PathConf, Properties, Space,
        VersionTag, When,
    },
};
use odafs_common::wire::nfs3::{self, CreateHow, Device, FileType, MakeNode, SetTime, properties};
use std::time::{Duration, SystemTime};

impl FileHandle {
    /// The form on the wire.
    pub(super) fn wire(&self) -> nfs3::FileHandle<'_> {
        nfs3::FileHandle(self.as_bytes())
    }
}

impl From<nfs3::FileHandle<'_>> for FileHandle {
    fn from(handle: nfs3::FileHandle<'_>) -> Self {
        // The decoder has refused longer ones.
        Self::from_bytes(handle.0).unwrap_or_default()
    }
}

impl From<nfs3::Status> for Status {
    fn from(status: nfs3::Status) -> Self {
        Self(status.code())
    }
}

impl From<nfs3::Attributes> for Attributes {
    fn from(from: nfs3::Attributes) -> Self {
        Self {
            kind: match from.kind {
                FileType::Regular => FileKind::Regular,
                FileType::Directory => FileKind::Directory,
                FileType::Block => FileKind::BlockDevice,
                FileType::Character => FileKind::CharacterDevice,
                FileType::Symlink => FileKind::Symlink,
                FileType::Socket => FileKind::Socket,
                FileType::Fifo => FileKind::Pipe,
            },
            mode: from.mode,
            nlink: from.links,
            uid: from.uid,
            gid: from.gid,
            size: from.size,
            used: from.used,
            rdev: (from.device.major, from.device.minor),
            fsid: from.fsid,
            fileid: from.fileid,
            atime: time(from.atime),
            mtime: time(from.mtime),
            ctime: time(from.ctime),
            change: u64::from(from.ctime.seconds) << 32 | u64::from(from.ctime.nanoseconds),
        }
    }
}

impl From<nfs3::WccData> for Changed {
    fn from(wcc: nfs3::WccData) -> Self {
        Self {
            before: wcc.before.map(|before| VersionTag {
                size: before.size,
                mtime: time(before.mtime),
                ctime: time(before.ctime),
            }),
            after: wcc.after.map(Attributes::from),
        }
    }
}

fn time(from: nfs3::Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + duration(from)
}

fn duration(from: nfs3::Time) -> Duration {
    Duration::new(from.seconds.into(), from.nanoseconds.min(999_999_999))
}

/// The protocol's seconds range from 1970 to 2106. Times outside become the nearest of these.
pub(super) fn on_wire(time: SystemTime) -> nfs3::Time {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    nfs3::Time {
        seconds: u32::try_from(since.as_secs()).unwrap_or(u32::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

impl From<&Changes> for nfs3::SetAttributes {
    fn from(changes: &Changes) -> Self {
        Self {
            mode: changes.mode,
            uid: changes.uid,
            gid: changes.gid,
            size: changes.size,
            atime: changes.accessed.map_or(SetTime::Keep, SetTime::from),
            mtime: changes.modified.map_or(SetTime::Keep, SetTime::from),
        }
    }
}

impl From<When> for SetTime {
    fn from(when: When) -> Self {
        match when {
            When::Now => Self::ServerTime,
            When::At(time) => Self::To(on_wire(time)),
        }
    }
}

impl From<&Create> for CreateHow {
    fn from(how: &Create) -> Self {
        match how {
            Create::Unchecked(attributes) => Self::Unchecked(attributes.into()),
            Create::Guarded(attributes) => Self::Guarded(attributes.into()),
            Create::Exclusive(verifier) => Self::Exclusive(*verifier),
        }
    }
}

/// The arguments of MKNOD.
pub(super) fn make_node(node: Node, attributes: &Changes) -> MakeNode {
    let attributes = attributes.into();
    match node {
        Node::CharacterDevice(major, minor) => {
            MakeNode::Character(attributes, Device { major, minor })
        }
        Node::BlockDevice(major, minor) => MakeNode::Block(attributes, Device { major, minor }),
        Node::Socket => MakeNode::Socket(attributes),
        Node::Pipe => MakeNode::Fifo(attributes),
    }
}

impl From<nfs3::FsStatOk> for Space {
    fn from(from: nfs3::FsStatOk) -> Self {
        Self {
            total_bytes: from.total_bytes,
            free_bytes: from.free_bytes,
            available_bytes: from.available_bytes,
            total_files: from.total_files,
            free_files: from.free_files,
            available_files: from.available_files,
        }
    }
}

impl From<nfs3::FsInfoOk> for FsInfo {
    fn from(from: nfs3::FsInfoOk) -> Self {
        let can = |property| from.properties & property != 0;
        Self {
            rtmax: from.read_max,
            rtpref: from.read_preferred,
            rtmult: from.read_multiple,
            wtmax: from.write_max,
            wtpref: from.write_preferred,
            wtmult: from.write_multiple,
            dtpref: from.directory_preferred,
            maxfilesize: from.file_max,
            time_delta: duration(from.time_delta),
            properties: Properties {
                link: can(properties::LINK),
                symlink: can(properties::SYMLINK),
                homogeneous: can(properties::HOMOGENEOUS),
                cansettime: can(properties::CAN_SET_TIME),
            },
        }
    }
}

impl From<nfs3::PathConfOk> for PathConf {
    fn from(from: nfs3::PathConfOk) -> Self {
        Self {
            linkmax: from.link_max,
            name_max: from.name_max,
            no_trunc: from.no_truncate,
            chown_restricted: from.chown_restricted,
            case_insensitive: from.case_insensitive,
            case_preserving: from.case_preserving,
        }
    }
}
