//! Which route each part of a read took, and why: for `odafs cat --why` and for the tests.

use crate::route::Choice;
use odafs_common::exception::Exception;
use std::{fmt, time::Duration};

/// A read with the route of each of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadTrace {
    /// Length read, in bytes.
    pub bytes: usize,
    /// Its parts, in the order of the file.
    pub steps: Vec<TracedPart>,
}

/// One part of a read: a range that one route served for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedPart {
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// The route that served it.
    pub taken: RouteTaken,
    /// Why it took that route.
    pub why: RouteReason,
    /// Time from the choice of the route to the last byte.
    pub took: Duration,
}

/// The route that served a part of a read, from the fastest to the slowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteTaken {
    /// This process's data cache.
    Cache,
    /// A one-sided direct read.
    OneSided,
    /// A guarded direct read.
    Guarded,
    /// ODAFS READ by RPC.
    Rpc,
    /// Plain NFS READ by RPC.
    PlainRpc,
}

/// Why a part of a read took its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteReason {
    /// The page was in the data cache.
    Cached,
    /// The directory holds a reference, and the options ask for direct reads or the policy finds that they pay.
    Referenced,
    /// The policy's choice is RPC, and this read probes whether direct reads pay again.
    Probe,
    /// The directory holds no reference for the page.
    NoReference,
    /// The directory holds a reference, but the policy finds that direct reads do not pay.
    PolicyOnRpc,
    /// The policy lets two routes take turns, to compare their costs.
    Trial,
    /// The connection for direct reads was lost.
    ConnectionLost,
    /// The direct read was refused, or the page's stamp had moved.
    Refused(Exception),
    /// The options ask for RPC.
    RpcAsked,
    /// There is no session for direct reads: the server does not offer them, or refused them for now or for good.
    NoSession,
}

impl RouteTaken {
    /// The route that was chosen; none for the data cache.
    pub(crate) fn choice(self) -> Option<Choice> {
        match self {
            Self::Cache => None,
            Self::OneSided => Some(Choice::OneSided),
            Self::Guarded => Some(Choice::Guarded),
            Self::Rpc | Self::PlainRpc => Some(Choice::Rpc),
        }
    }
}

impl From<Choice> for RouteTaken {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Rpc => Self::Rpc,
            Choice::Guarded => Self::Guarded,
            Choice::OneSided => Self::OneSided,
        }
    }
}

impl fmt::Display for RouteTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cache => "cache",
            Self::OneSided => "one-sided",
            Self::Guarded => "guarded",
            Self::Rpc => "rpc",
            Self::PlainRpc => "plain-rpc",
        })
    }
}

impl fmt::Display for RouteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cached => f.write_str("the page is in the data cache"),
            Self::Referenced => f.write_str("the directory holds a reference"),
            Self::Probe => f.write_str("the policy probes whether direct reads pay again"),
            Self::NoReference => f.write_str("the directory holds no reference"),
            Self::PolicyOnRpc => f.write_str("the policy finds that direct reads do not pay"),
            Self::Trial => f.write_str("the policy compares the routes"),
            Self::ConnectionLost => f.write_str("the connection for direct reads was lost"),
            Self::Refused(exception) => write!(f, "the direct read was refused: {exception}"),
            Self::RpcAsked => f.write_str("the options ask for RPC"),
            Self::NoSession => f.write_str(
                "there is no session for direct reads: the server grants none, or none at the moment",
            ),
        }
    }
}

impl fmt::Display for TracedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.offset + u64::from(self.length);
        write!(
            f,
            "{}..{end} {} in {:?}: {}",
            self.offset, self.taken, self.took, self.why
        )
    }
}
