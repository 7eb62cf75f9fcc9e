//! The procedures that are called: which they are, and how long their replies may be.

use odafs_common::{
    rpcrdma::binding::{self, ReplyBound},
    wire::{mount3, nfs3, odafs, portmap},
};

/// A procedure of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Its name, for messages.
    pub name: &'static str,
    /// Which one.
    pub number: Number,
    /// Doing it twice is doing it once.
    pub idempotent: bool,
    /// What its arguments leave room for in the reply.
    pub asks: Asks,
}

/// The procedures of all programs that are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// NFS version 3.
    Nfs(nfs3::Procedure),
    /// MOUNT version 3.
    Mount(mount3::Procedure),
    /// ODAFS.
    Odafs(odafs::Procedure),
    /// The port mapper.
    PortMap(portmap::Procedure),
}

/// How much the arguments of a call ask for, where they say so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asks {
    /// Bytes of data or of directory entries.
    pub count: u32,
    /// References.
    pub references: u32,
}

impl Asks {
    /// For nothing that has a bound of its own.
    pub const NOTHING: Self = Self::count(0);

    /// For so many bytes.
    pub const fn count(count: u32) -> Self {
        Self {
            count,
            references: 0,
        }
    }
}

impl Number {
    /// Program, version and procedure, as calls carry them.
    pub fn on_wire(self) -> (u32, u32, u32) {
        match self {
            Self::Nfs(p) => (nfs3::PROGRAM, nfs3::VERSION, p as u32),
            Self::Mount(p) => (mount3::PROGRAM, mount3::VERSION, p as u32),
            Self::Odafs(p) => (odafs::PROGRAM, odafs::VERSION, p as u32),
            Self::PortMap(p) => (portmap::PROGRAM, portmap::VERSION, p as u32),
        }
    }
}

/// Result of GETPORT.
const PORT_BYTES: u32 = 4;

impl Procedure {
    /// The same, with arguments that ask for so much.
    pub fn asking(&self, asks: Asks) -> Self {
        Self { asks, ..*self }
    }

    /// What a reply takes at most.
    pub fn reply_bound(&self) -> ReplyBound {
        let Asks { count, references } = self.asks;
        match self.number {
            Number::Nfs(p) => binding::nfs3(p, count),
            Number::Mount(p) => binding::mount3(p),
            Number::Odafs(p) => binding::odafs(p, count, references),
            Number::PortMap(_) => ReplyBound::results(PORT_BYTES),
        }
    }
}
