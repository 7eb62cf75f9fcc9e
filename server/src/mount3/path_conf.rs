//! PATHCONF of version 2 (X/Open XNFS): what POSIX's `pathconf` says of a directory, for clients whose NFS cannot ask.

use odafs_common::wire::mount1::{PathConf, mask};
use odafs_common::wire::nfs2::MAX_PATH;
use odafs_common::wire::xdr::{Writer, XdrError};

use super::{MountProgram, path};
use crate::rpc::{Answer, Call, reply};
use crate::vfs::FileSystemLimits;
use crate::vfs::attributes::limits;
use crate::vfs::read::Effort;

impl MountProgram {
    pub(super) fn path_conf(
        &self,
        mut call: Call<'_>,
        results: &mut Writer<'_>,
    ) -> Result<Answer, XdrError> {
        let path = path(&mut call.arguments)?;
        let directory = match (call.effort, self.judge(&call, path)) {
            (_, Err(_)) => None,
            (Effort::ResidentOnly, Ok(_)) => return Ok(Answer::Blocks),
            _ => self.find(&call, path).ok(),
        };
        let limits =
            directory.and_then(|directory| limits(&self.export, directory, call.effort).ok());
        Ok(reply(results, &told(limits)))
    }
}

fn told(limits: Option<FileSystemLimits>) -> PathConf {
    let Some(limits) = limits else {
        return PathConf {
            mask: mask::ERROR,
            ..PathConf::default()
        };
    };
    let property = |holds, bit| if holds { bit } else { 0 };
    // Clients have 16 bits for a length.
    let length = |bytes: u32| bytes.min(i16::MAX as u32);
    PathConf {
        link_max: limits.link_max,
        name_max: length(limits.name_max),
        path_max: length(MAX_PATH),
        // Of terminals and pipes a directory knows nothing.
        mask: mask::NO_CANONICAL_MAX
            | mask::NO_INPUT_MAX
            | mask::NO_PIPE_BYTES
            | mask::NO_DISABLE
            | property(limits.no_trunc, mask::NO_TRUNCATE)
            | property(limits.chown_restricted, mask::CHOWN_RESTRICTED),
        ..PathConf::default()
    }
}
