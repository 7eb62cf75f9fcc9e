//! The ODAFS program, version 1, with a file for each procedure. docs/WIRE.md describes it.

mod close_session;
mod delegate;
mod delegations;
mod get_refs;
mod open_session;
mod read;
mod rekey;

use odafs_common::mac::MacAlgorithm;
use odafs_common::session::{Identity, PublicKey};
use odafs_common::wire::nfs3;
use odafs_common::wire::odafs::{OdafsStatus, PROGRAM, Procedure, VERSION};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Arc;

use crate::rpc::{Admission, Answer, Call, Program};
use crate::vfs::export::Exports;
use crate::vfs::read::Effort;
use crate::vfs::sessions::OpenSession;

use delegations::Delegations;
pub use delegations::{GivenRecord, LEASE};

/// The users of this host that an option names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grantee {
    /// This user.
    User(u32),
    /// All members of this group.
    Group(u32),
    /// Everyone.
    All,
}

/// What a server asks of sessions and grants them.
#[derive(Debug)]
pub struct SessionPolicy {
    /// The server's static key pair, for clients that verify the server.
    pub identity: Option<Identity>,
    /// Static public keys of clients. If there are any, only these clients may open sessions from other machines.
    pub admitted: Vec<PublicKey>,
    /// The allowed MACs: a sum of [`MacAlgorithm::bit`].
    pub macs: u32,
    /// The number of this life.
    pub life: u64,
    /// The user that runs the server.
    pub serving_uid: u32,
    /// Users of this host that get one-sided reads, besides root and that user.
    pub one_sided_for: Vec<Grantee>,
    /// A session ends after this time.
    pub lifetime: Nanos,
    /// Clients must rekey after this many requests.
    pub rekey_requests: u64,
    /// Clients must rekey after this time.
    pub rekey_after: Nanos,
    /// What stable storage says of delegations. Without it clients get none.
    pub delegations: Option<GivenRecord>,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self {
            identity: None,
            admitted: Vec::new(),
            macs: MacAlgorithm::OFFERED,
            life: 1,
            serving_uid: 0,
            one_sided_for: Vec::new(),
            lifetime: Nanos::from_secs(24 * 3600),
            rekey_requests: 1 << 32,
            rekey_after: Nanos::from_secs(3600),
            delegations: None,
        }
    }
}

/// The program for one export.
pub struct Odafs {
    export: Arc<Exports>,
    policy: SessionPolicy,
    delegations: Arc<Delegations>,
}

impl Odafs {
    /// For `export`.
    pub fn new(export: Arc<Exports>, mut policy: SessionPolicy) -> Self {
        let record = policy.delegations.take();
        Self {
            delegations: Delegations::new(Arc::clone(&export), record),
            export,
            policy,
        }
    }
}

/// Bytes reserved in a reply for what is neither data nor references.
const REPLY_OVERHEAD_BYTES: u32 = 512;

impl Program for Odafs {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "odafs"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &[
            "NULL",
            "OPEN_SESSION",
            "READ",
            "GET_REFS",
            "REKEY",
            "CLOSE_SESSION",
            "DELEGATE",
        ]
    }

    /// READ has the statuses of NFS, the other procedures have their own.
    fn statuses(&self, procedure: u32) -> Vec<(u32, String)> {
        let named = |code: u32, name: String| (code, name.to_lowercase());
        let of_file = nfs3::Status::ALL.iter();
        let of_file = of_file.map(|status| named(status.code(), format!("{status:?}")));
        let own = OdafsStatus::ALL.iter();
        let own = own.map(|status| named(status.code(), format!("{status:?}")));
        match Procedure::from_code(procedure) {
            None | Some(Procedure::Null) => Vec::new(),
            Some(Procedure::Read) => of_file.collect(),
            Some(_) => own.collect(),
        }
    }

    fn about(&self, procedure: u32, mut arguments: Reader<'_>) -> Option<String> {
        if procedure != Procedure::Read.code() {
            return None;
        }
        let handle = nfs3::FileHandle::decode(&mut arguments).ok()?;
        let file = self.export.resolve(handle.0, Effort::ResidentOnly).ok()?;
        Some(file.ino.to_string())
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Listed
    }

    fn call(&self, mut call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        macro_rules! decoded {
            () => {
                match Decode::decode(&mut call.arguments) {
                    Ok(arguments) => arguments,
                    Err(error) => return Answer::Garbage(error),
                }
            };
        }
        match Procedure::from_code(call.procedure) {
            None | Some(Procedure::Null) => Answer::NoProcedure,
            Some(Procedure::OpenSession) => {
                let arguments = decoded!();
                open_session::open_session(self, &call, arguments, results)
            }
            Some(Procedure::Read) => {
                let arguments = decoded!();
                read::read(&self.export, &call, arguments, results)
            }
            Some(Procedure::GetRefs) => {
                let arguments = decoded!();
                get_refs::get_refs(&self.export, &call, &arguments, results)
            }
            Some(Procedure::Rekey) => {
                let arguments = decoded!();
                reply(results, &rekey::rekey(&self.export, arguments))
            }
            Some(Procedure::CloseSession) => {
                let arguments = decoded!();
                reply(results, &close_session::close_session(self, arguments))
            }
            Some(Procedure::Delegate) => {
                let arguments = decoded!();
                delegate::delegate(self, &call, &arguments, results)
            }
        }
    }

    fn closed(&self, connection: u64) {
        self.export.connection_closed(connection);
    }

    fn tick(&self, _awake: Nanos) {
        // Clients end them by themselves, in real time.
        self.delegations.tick(clock::now());
    }

    fn append_text(&self, out: &mut String) {
        self.delegations.append_text(out);
    }
}

/// The session with this number, if it is the caller's, as nobody learns anything by the rights of others, and is not over:
/// references would be worth nothing.
fn session(export: &Exports, call: &Call<'_>, number: u32) -> Option<Arc<OpenSession>> {
    let open = export.sessions().get(number)?;
    if !open.nic().is_open(clock::now()) {
        return None;
    }
    let ours = open.is_of_peer(&call.caller.peer) && call.rights.is_identity(open.who(), &call.who);
    ours.then_some(open)
}

fn reply<T: Encode>(results: &mut Writer<'_>, result: &Result<T, OdafsStatus>) -> Answer {
    result.encode(results);
    Answer::Replied
}

#[cfg(test)]
mod tests;
