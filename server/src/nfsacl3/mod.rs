//! NFSACL version 3: access control lists for clients of NFS version 3.

mod convert;
#[cfg(test)]
mod tests;

use odafs_common::wire::nfs3::{Attributes, Failed, FileHandle, Status};
use odafs_common::wire::nfsacl3::{
    Acls, GetAclArgs, GetAclOk, GetAclResult, PROGRAM, Procedure, SetAclArgs, SetAclResult,
    VERSION, mask,
};
use odafs_common::wire::xdr::{Decode as _, Reader, Writer};
use odafs_fabric::sync::Arc;

use crate::rpc::access::Rights;
use crate::rpc::drc::Repeats;
use crate::rpc::{Admission, Answer, Call, Program, reply};
use crate::vfs::acls;
use crate::vfs::attributes::attributes;
use crate::vfs::export::Exports;
use crate::vfs::read::Effort;
use crate::vfs::{Credential, FileType, ObjectId};

/// What is in a reply besides the result, in bytes, and something to spare.
const HEADER_BYTES: u32 = 64;

/// NFSACL version 3 of one export.
pub struct NfsAcl3(Arc<Exports>);

impl NfsAcl3 {
    /// For `export`, whose objects have lists.
    pub fn new(export: Arc<Exports>) -> Self {
        Self(export)
    }

    fn get(&self, rights: Rights<'_>, arguments: &GetAclArgs<'_>) -> GetAclResult {
        let (object, known) = self.found(rights, arguments.file)?;
        let refused = |status| Failed {
            status,
            rest: Some(known.into()),
        };
        if arguments.mask & !mask::ALL != 0 {
            return Err(refused(Status::Inval));
        }
        let wants = |bits| arguments.mask & bits != 0;
        let mut told = Acls {
            mask: arguments.mask,
            ..Acls::default()
        };
        if wants(mask::ACCESS | mask::ACCESS_COUNT) {
            let list = acls::access(&self.0, object, known.mode);
            let list = list.map_err(|error| refused(error.into()))?;
            told.access = convert::entries(&list, &known, 0);
            told.access_count = told.access.len() as u32;
        }
        if wants(mask::DEFAULT | mask::DEFAULT_COUNT) && known.kind == FileType::Directory {
            let list = acls::default(&self.0, object);
            let list = list.map_err(|error| refused(error.into()))?;
            told.default = convert::inherited(list.as_ref(), &known);
            told.default_count = told.default.len() as u32;
        }
        if !wants(mask::ACCESS) {
            told.access.clear();
        }
        if !wants(mask::DEFAULT) {
            told.default.clear();
        }
        Ok(GetAclOk {
            attributes: Some(known.into()),
            acls: told,
        })
    }

    fn set(
        &self,
        rights: Rights<'_>,
        who: &Credential,
        arguments: &SetAclArgs<'_>,
    ) -> SetAclResult {
        let (object, known) = self.found(rights, arguments.file)?;
        // Each export may give the caller another credential.
        let who = rights.credential(self.0.tag_of_handle(arguments.file.0), who);
        let who = who.map_err(|status| Failed {
            status: status.into(),
            rest: None,
        })?;
        let set = convert::lists(&arguments.acls).and_then(|lists| {
            let set = acls::set(&self.0, &who, object, &lists);
            set.map_err(Status::from)
        });
        let after = || attributes(&self.0, object).ok().map(Attributes::from);
        match set {
            Ok(around) => Ok(around.after.map(Into::into)),
            Err(status) => Err(Failed {
                status,
                rest: after().or(Some(known.into())),
            }),
        }
    }

    /// What a handle stands for, if the caller may reach its export.
    fn found(
        &self,
        rights: Rights<'_>,
        file: FileHandle<'_>,
    ) -> Result<(ObjectId, crate::vfs::Attributes), Failed<Option<Attributes>>> {
        let failed = |status| Failed { status, rest: None };
        let reached = rights.check(self.0.tag_of_handle(file.0));
        reached.map_err(|status| failed(status.into()))?;
        let object = self.0.resolve(file.0, Effort::MayBlock);
        let object = object.map_err(|error| failed(error.into()))?;
        let known = attributes(&self.0, object).map_err(|error| failed(error.into()))?;
        Ok((object, known))
    }
}

impl Program for NfsAcl3 {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "nfsacl3"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &["NULL", "GETACL", "SETACL"]
    }

    fn statuses(&self, procedure: u32) -> Vec<(u32, String)> {
        let named = |status: &Status| (status.code(), format!("{status:?}").to_lowercase());
        match Procedure::from_code(procedure) {
            None | Some(Procedure::Null) => Vec::new(),
            Some(_) => Status::ALL.iter().map(named).collect(),
        }
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Listed
    }

    fn repeats<'a>(&self, procedure: u32, _arguments: Reader<'a>) -> Repeats<'a> {
        match Procedure::from_code(procedure) {
            Some(Procedure::SetAcl) => Repeats::Change { names: [None; 2] },
            _ => Repeats::Harmless,
        }
    }

    fn may_sync(&self, procedure: u32, _arguments: Reader<'_>) -> bool {
        Procedure::from_code(procedure) == Some(Procedure::SetAcl)
    }

    fn call(&self, mut call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        let procedure = match Procedure::from_code(call.procedure) {
            None | Some(Procedure::Null) => return Answer::NoProcedure,
            Some(procedure) => procedure,
        };
        // Lists are not in memory.
        if call.effort == Effort::ResidentOnly {
            return Answer::Blocks;
        }
        match procedure {
            Procedure::SetAcl => match SetAclArgs::decode(&mut call.arguments) {
                Ok(arguments) => reply(results, &self.set(call.rights, &call.who, &arguments)),
                Err(error) => error.into(),
            },
            _ => match GetAclArgs::decode(&mut call.arguments) {
                Ok(arguments) => {
                    let room = call.caller.reply_bytes_max.saturating_sub(HEADER_BYTES);
                    let start = results.position();
                    let answer = reply(results, &self.get(call.rights, &arguments));
                    if results.position() - start <= room as usize {
                        return answer;
                    }
                    results.truncate(start);
                    let refused = Failed {
                        status: Status::TooSmall,
                        rest: None,
                    };
                    reply(results, &GetAclResult::Err(refused))
                }
                Err(error) => error.into(),
            },
        }
    }
}
