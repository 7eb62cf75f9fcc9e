//! The upper-layer binding (RFC 8267, sections 3 to 6): the longest replies, and the parts of calls that may come
//! apart (of version 4, [`payloads_apart`](crate::wire::nfs4::payloads_apart)). For replies, the types say what may travel
//! apart: every [`Payload`](crate::wire::nfs3::Payload) of the version.

use std::ops::Range;

use super::{CallShape, Placements};
use crate::wire::nfs3::{ATTRIBUTES_BYTES, MAX_FILE_HANDLE};
use crate::wire::odafs::{MAX_HANDSHAKE, MAX_READ_REFERENCES};
use crate::wire::rpcrdma::Gaps;
use crate::wire::xdr::{Decode as _, Gap, Reader};
use crate::wire::{mount3, nfs2, nfs3, odafs};

/// Where the DDP-eligible argument of a call of NFS version 2 begins (RFC 8267, section 4: the data of WRITE, the target of
/// SYMLINK), and its bytes. `r` stands at the beginning of the arguments. `None`: the call has none.
pub fn nfs2_argument(procedure: nfs2::Procedure, mut r: Reader<'_>) -> Option<(usize, usize)> {
    use nfs2::Procedure as P;
    match procedure {
        P::Write => {
            nfs2::FileHandle::decode(&mut r).ok()?;
            // The offset, between two words without use.
            r.opaque_fixed::<12>().ok()?;
        }
        P::Symlink => {
            nfs2::DirectoryName::decode(&mut r).ok()?;
        }
        _ => return None,
    }
    let length = r.u32().ok()?;
    Some((r.position(), length as usize))
}

/// As [`nfs2_argument`], of a call of NFS version 3.
pub fn nfs3_argument(procedure: nfs3::Procedure, mut r: Reader<'_>) -> Option<(usize, usize)> {
    use nfs3::Procedure as P;
    match procedure {
        P::Write => {
            nfs3::FileHandle::decode(&mut r).ok()?;
            // Offset, count, how stable.
            r.opaque_fixed::<16>().ok()?;
        }
        P::Symlink => {
            nfs3::DirectoryName::decode(&mut r).ok()?;
            nfs3::SetAttributes::decode(&mut r).ok()?;
        }
        _ => return None,
    }
    let length = r.u32().ok()?;
    Some((r.position(), length as usize))
}

/// What a reply takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyBound {
    /// DDP-eligible bytes, if the procedure has such a result.
    pub result_max: Option<u32>,
    /// All the rest, RPC header included, in bytes.
    pub reply_max: u32,
}

impl ReplyBound {
    /// For results of at most this many bytes, including the status, without DDP-eligible data.
    pub const fn results(bytes: u32) -> Self {
        Self {
            result_max: None,
            reply_max: RPC_REPLY + bytes,
        }
    }

    /// The shape of a call with such a reply. `argument`: its DDP-eligible bytes.
    pub fn shape(&self, argument: Option<Range<usize>>) -> CallShape {
        let gap = |range: Range<usize>| Gap {
            at: range.start as u32,
            bytes: range.len() as u32,
        };
        let argument = argument.filter(|range| !range.is_empty());
        CallShape {
            arguments: argument.map_or(Gaps::default(), |range| Gaps::one(gap(range))),
            results_max: self
                .result_max
                .map_or(Placements::default(), Placements::one),
            reply_max: self.reply_max,
        }
    }

    const fn with(self, result_max: u32) -> Self {
        Self {
            result_max: Some(result_max),
            ..self
        }
    }
}

/// Header of an accepted RPC reply, with a verifier as short as those of AUTH_NONE and AUTH_SHORT commonly are.
const RPC_REPLY: u32 = 24 + 16;
const STATUS: u32 = 4;
const ATTRIBUTES: u32 = ATTRIBUTES_BYTES as u32;
const POST_ATTRIBUTES: u32 = 4 + ATTRIBUTES;
const WCC: u32 = 4 + 24 + POST_ATTRIBUTES;
const HANDLE: u32 = 4 + MAX_FILE_HANDLE;
const VERIFIER: u32 = 8;
/// Longest target of a symbolic link that room is made for: `PATH_MAX`.
const LINK_TARGET: u32 = 4096;
const REFERENCE: u32 = 32;
const PAGE_REFERENCE: u32 = 8 + REFERENCE;
/// The result of GET_REFS for one range, without references.
const RANGE: u32 = 4 + 4 + 8 + 8 + 4 + REFERENCE + 4;
/// Room for lists whose length nobody can know: DUMP and EXPORT.
const LISTED: u32 = 64 << 10;

/// The bound for a procedure of NFS version 3. `count` is READ's and READDIR's `count` and READDIRPLUS's `maxcount`; the
/// others do not look at it.
pub fn nfs3(procedure: nfs3::Procedure, count: u32) -> ReplyBound {
    use nfs3::Procedure as P;
    let results = match procedure {
        P::Null => 0,
        P::GetAttributes => STATUS + ATTRIBUTES,
        P::SetAttributes | P::Remove | P::RemoveDirectory => STATUS + WCC,
        P::Lookup => STATUS + HANDLE + 2 * POST_ATTRIBUTES,
        P::Access => STATUS + POST_ATTRIBUTES + 4,
        P::ReadLink => STATUS + POST_ATTRIBUTES + 4,
        P::Read => STATUS + POST_ATTRIBUTES + 12,
        P::Write => STATUS + WCC + 8 + VERIFIER,
        P::Create | P::MakeDirectory | P::Symlink | P::MakeNode => {
            STATUS + 4 + HANDLE + POST_ATTRIBUTES + WCC
        }
        P::Rename => STATUS + 2 * WCC,
        P::Link => STATUS + POST_ATTRIBUTES + WCC,
        // The count is to bound all that follows the status, but Linux takes it for the entries alone.
        P::ReadDir | P::ReadDirPlus => {
            (STATUS + POST_ATTRIBUTES + VERIFIER + 8).saturating_add(count)
        }
        P::FsStat => STATUS + POST_ATTRIBUTES + 6 * 8 + 4,
        P::FsInfo => STATUS + POST_ATTRIBUTES + 7 * 4 + 8 + 8 + 4,
        P::PathConf => STATUS + POST_ATTRIBUTES + 6 * 4,
        P::Commit => STATUS + WCC + VERIFIER,
    };
    let bound = ReplyBound::results(results.min(u32::MAX - RPC_REPLY));
    match procedure {
        P::Read => bound.with(count),
        P::ReadLink => bound.with(LINK_TARGET),
        _ => bound,
    }
}

/// The bound for a procedure of the ODAFS program. `count` is READ's. `references` are those that READ may bring (none,
/// if none are wanted) or those for which GET_REFS has room.
pub fn odafs(procedure: odafs::Procedure, count: u32, references: u32) -> ReplyBound {
    use odafs::Procedure as P;
    match procedure {
        P::Null => ReplyBound::results(0),
        P::OpenSession => ReplyBound::results(STATUS + 4 + MAX_HANDSHAKE),
        P::Read => {
            let references = references.min(MAX_READ_REFERENCES) * PAGE_REFERENCE;
            let head = STATUS + POST_ATTRIBUTES + 8 + 4 + 4 + 4;
            ReplyBound::results(head + 4 + references + 4 + REFERENCE + 8).with(count)
        }
        P::GetRefs => {
            let files = STATUS + 4 + odafs::MAX_RANGES * RANGE + 8;
            let references = references.min(odafs::MAX_RANGES * odafs::MAX_RANGE_REFERENCES);
            ReplyBound::results(files + references * PAGE_REFERENCE)
        }
        P::Rekey => ReplyBound::results(STATUS + 4 + 16),
        P::CloseSession => ReplyBound::results(STATUS),
        P::Delegate => ReplyBound::results(STATUS + 4 + 8 + 4 + 8 + ATTRIBUTES),
    }
}

/// The bound for a procedure of MOUNT version 3.
pub fn mount3(procedure: mount3::Procedure) -> ReplyBound {
    use mount3::Procedure as P;
    match procedure {
        P::Null | P::Unmount | P::UnmountAll => ReplyBound::results(0),
        P::Mount => ReplyBound::results(STATUS + HANDLE + 4 + mount3::MAX_FLAVORS * 4),
        P::Dump | P::Export => ReplyBound::results(LISTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nfs3::*;
    use crate::wire::xdr::Encode;

    const HANDLE: FileHandle<'_> = FileHandle(&[7; MAX_FILE_HANDLE as usize]);

    fn attributes() -> Attributes {
        Attributes {
            kind: FileType::Regular,
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: 0,
            fileid: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }

    fn wcc() -> WccData {
        let before = WccAttributes {
            size: 0,
            mtime: Time::default(),
            ctime: Time::default(),
        };
        WccData {
            before: Some(before),
            after: Some(attributes()),
        }
    }

    /// The longest result takes exactly the bound.
    #[track_caller]
    fn exact(procedure: Procedure, longest: &dyn Fn() -> Vec<u8>) {
        let bound = nfs3(procedure, 0);
        assert_eq!(
            RPC_REPLY as usize + longest().len(),
            bound.reply_max as usize,
            "{procedure:?}"
        );
    }

    #[test]
    fn bounds_are_those_of_the_longest_results() {
        let post = Some(attributes());
        exact(Procedure::GetAttributes, &|| {
            GetAttributesResult::Ok(attributes()).to_bytes()
        });
        exact(Procedure::SetAttributes, &|| {
            SetAttributesResult::Ok(wcc()).to_bytes()
        });
        exact(Procedure::Remove, &|| RemoveResult::Ok(wcc()).to_bytes());
        exact(Procedure::Lookup, &|| {
            LookupResult::Ok(LookupOk {
                file: HANDLE,
                attributes: post,
                directory: post,
            })
            .to_bytes()
        });
        exact(Procedure::Access, &|| {
            AccessResult::Ok(AccessOk {
                attributes: post,
                access: 0,
            })
            .to_bytes()
        });
        exact(Procedure::ReadLink, &|| {
            ReadLinkResult::Ok(ReadLinkOk {
                attributes: post,
                target: Payload(&[]),
            })
            .to_bytes()
        });
        exact(Procedure::Read, &|| {
            let data = Payload(&[]);
            ReadResult::Ok(ReadOk {
                attributes: post,
                count: 0,
                eof: true,
                data,
            })
            .to_bytes()
        });
        exact(Procedure::Write, &|| {
            let (wcc, committed) = (wcc(), Stable::Unstable);
            WriteResult::Ok(WriteOk {
                wcc,
                count: 0,
                committed,
                verifier: [0; 8],
            })
            .to_bytes()
        });
        exact(Procedure::Create, &|| {
            let (file, directory) = (Some(HANDLE), wcc());
            CreateResult::Ok(CreateOk {
                file,
                attributes: post,
                directory,
            })
            .to_bytes()
        });
        exact(Procedure::Rename, &|| {
            RenameResult::Ok(RenameData {
                from: wcc(),
                to: wcc(),
            })
            .to_bytes()
        });
        exact(Procedure::Link, &|| {
            LinkResult::Ok(LinkData {
                attributes: post,
                directory: wcc(),
            })
            .to_bytes()
        });
        exact(Procedure::Commit, &|| {
            CommitResult::Ok(CommitOk {
                wcc: wcc(),
                verifier: [0; 8],
            })
            .to_bytes()
        });
        exact(Procedure::PathConf, &|| {
            let ok = PathConfOk {
                attributes: post,
                link_max: 0,
                name_max: 0,
                no_truncate: true,
                chown_restricted: true,
                case_insensitive: true,
                case_preserving: true,
            };
            PathConfResult::Ok(ok).to_bytes()
        });
        exact(Procedure::FsStat, &|| {
            let ok = FsStatOk {
                attributes: post,
                total_bytes: 0,
                free_bytes: 0,
                available_bytes: 0,
                total_files: 0,
                free_files: 0,
                available_files: 0,
                invariant_seconds: 0,
            };
            FsStatResult::Ok(ok).to_bytes()
        });
        exact(Procedure::FsInfo, &|| {
            let ok = FsInfoOk {
                attributes: post,
                read_max: 0,
                read_preferred: 0,
                read_multiple: 0,
                write_max: 0,
                write_preferred: 0,
                write_multiple: 0,
                directory_preferred: 0,
                file_max: 0,
                time_delta: Time::default(),
                properties: 0,
            };
            FsInfoResult::Ok(ok).to_bytes()
        });
    }

    #[test]
    fn the_payloads_of_version_2_may_come_apart() {
        use nfs2::Procedure as P;
        let argument = |procedure, bytes: &[u8]| nfs2_argument(procedure, Reader::new(bytes));
        let file = nfs2::FileHandle(&[7; nfs2::FILE_HANDLE_BYTES]);
        let place = nfs2::DirectoryName {
            directory: file,
            name: b"name",
        };
        let payload = nfs2::Payload(b"12345");
        let write = nfs2::WriteArgs {
            file,
            begin_offset: 0,
            offset: 0,
            total_count: 0,
            data: payload,
        };
        let write = write.to_bytes();
        assert_eq!(argument(P::Write, &write), Some((48, 5)));
        // The bytes themselves may be missing, but not their length.
        assert_eq!(argument(P::Write, &write[..48]), Some((48, 5)));
        assert_eq!(argument(P::Write, &write[..47]), None);
        let symlink = nfs2::SymlinkArgs {
            place,
            target: payload,
            attributes: nfs2::SetAttributes::default(),
        };
        let symlink = symlink.to_bytes();
        assert_eq!(argument(P::Symlink, &symlink), Some((44, 5)));
        // All others have to be in the message.
        let others = (P::ALL.iter()).filter(|p| !matches!(p, P::Write | P::Symlink));
        for procedure in others {
            for bytes in [&write, &symlink] {
                assert_eq!(argument(*procedure, bytes), None, "{procedure:?}");
            }
        }
    }

    #[test]
    fn counts_of_a_peer_do_not_overflow() {
        let read = nfs3(Procedure::Read, u32::MAX);
        assert_eq!(read.result_max, Some(u32::MAX));
        assert_eq!(nfs3(Procedure::ReadDir, u32::MAX).reply_max, u32::MAX);
        assert_eq!(
            nfs3(Procedure::ReadDirPlus, 5000).reply_max,
            RPC_REPLY + 4 + POST_ATTRIBUTES + 8 + 8 + 5000
        );
    }

    #[test]
    fn the_odafs_read_takes_what_its_bound_says() {
        use crate::direct::Feedback;
        use crate::wire::odafs::{PageReference, Procedure, ReadOk, ReadResult};
        for references in [0, 1, MAX_READ_REFERENCES] {
            let reference = PageReference {
                page: 0,
                reference: Default::default(),
            };
            let result = ReadResult::Ok(ReadOk {
                attributes: Some(attributes()),
                change: 0,
                eof: true,
                count: 0,
                data: Payload(&[]),
                references: vec![reference; references as usize],
                counter: Some(Default::default()),
                feedback: Feedback::default(),
            });
            let bound = odafs(Procedure::Read, 4096, references);
            let bytes = RPC_REPLY as usize + result.to_bytes().len();
            assert_eq!(bytes, bound.reply_max as usize);
        }
    }
}
