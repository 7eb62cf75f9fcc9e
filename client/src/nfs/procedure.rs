//! The procedures that the client calls, and the longest replies to them.

use crate::waiting::Awaited;
use odafs_common::{
    rpcrdma::binding::{self, ReplyBound},
    wire::{mount3, nfs3, nfsacl3, odafs, portmap},
};

/// A procedure of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Its name, for messages.
    pub name: &'static str,
    /// The program and the procedure.
    pub number: Number,
    /// Whether the procedure is idempotent.
    pub idempotent: bool,
    /// The size of the reply.
    pub asks: Asks,
}

/// The procedures of all programs that are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// NFS version 3.
    Nfs(nfs3::Procedure),
    /// MOUNT version 3.
    Mount(mount3::Procedure),
    /// NFSACL version 3.
    Acl(nfsacl3::Procedure),
    /// ODAFS.
    Odafs(odafs::Procedure),
    /// The port mapper.
    PortMap(portmap::Procedure),
}

/// The amount that the arguments of a call ask for, if they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asks {
    /// Bytes of data or of directory entries.
    pub count: u32,
    /// Number of references.
    pub references: u32,
}

impl Asks {
    /// Nothing whose size depends on the arguments.
    pub const NOTHING: Self = Self::count(0);

    /// This many bytes.
    pub const fn count(count: u32) -> Self {
        Self {
            count,
            references: 0,
        }
    }
}

impl Number {
    /// Program, version and procedure, as they are in a call.
    pub fn on_wire(self) -> (u32, u32, u32) {
        match self {
            Self::Nfs(p) => (nfs3::PROGRAM, nfs3::VERSION, p as u32),
            Self::Mount(p) => (mount3::PROGRAM, mount3::VERSION, p as u32),
            Self::Acl(p) => (nfsacl3::PROGRAM, nfsacl3::VERSION, p as u32),
            Self::Odafs(p) => (odafs::PROGRAM, odafs::VERSION, p as u32),
            Self::PortMap(p) => (portmap::PROGRAM, portmap::VERSION, p as u32),
        }
    }
}

/// Result of GETACL: status, attributes, and two lists, each of a count, a length, and entries of three words.
const ACL_BYTES: u32 = 4 + 4 + 84 + 4 + 2 * (4 + 4 + 12 * nfsacl3::MAX_ENTRIES);
/// Result of GETPORT.
const PORT_BYTES: u32 = 4;

impl Procedure {
    /// How an ODAFS server answers: it hands what may block to another thread than that which polls.
    pub fn awaited(&self) -> Awaited {
        use nfs3::Procedure as Nfs;
        use odafs::Procedure as Odafs;
        match self.number {
            Number::Nfs(
                Nfs::Null
                | Nfs::GetAttributes
                | Nfs::Lookup
                | Nfs::Access
                | Nfs::Read
                | Nfs::FsStat
                | Nfs::FsInfo
                | Nfs::PathConf,
            )
            | Number::Odafs(Odafs::Null | Odafs::Read | Odafs::Rekey | Odafs::CloseSession) => {
                Awaited::AtOnce
            }
            Number::Nfs(_)
            | Number::Odafs(_)
            | Number::Mount(_)
            | Number::Acl(_)
            | Number::PortMap(_) => Awaited::HandedOn,
        }
    }

    /// The same procedure, with arguments that ask for this much.
    pub fn asking(&self, asks: Asks) -> Self {
        Self { asks, ..*self }
    }

    /// The longest reply in bytes.
    pub fn reply_bound(&self) -> ReplyBound {
        let Asks { count, references } = self.asks;
        match self.number {
            Number::Nfs(p) => binding::nfs3(p, count),
            Number::Mount(p) => binding::mount3(p),
            Number::Odafs(p) => binding::odafs(p, count, references),
            Number::Acl(_) => ReplyBound::results(ACL_BYTES),
            Number::PortMap(_) => ReplyBound::results(PORT_BYTES),
        }
    }
}
