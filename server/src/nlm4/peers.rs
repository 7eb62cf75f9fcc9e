//! How the lock manager calls the lock managers and status monitors of its clients.

use std::net::IpAddr;

/// A call to another host. The host's portmapper says to which port.
pub struct PeerCall {
    /// The host.
    pub address: IpAddr,
    /// The address of this server that the host uses, if it is known. The call comes from there if possible, because hosts
    /// disregard what comes from elsewhere.
    pub ours: Option<IpAddr>,
    /// RPC program number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// Makes the arguments out of our address, as the host sees it.
    pub arguments: Box<dyn FnOnce(IpAddr) -> Vec<u8> + Send>,
}

impl std::fmt::Debug for PeerCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerCall")
            .field("address", &self.address)
            .field("program", &self.program)
            .field("procedure", &self.procedure)
            .finish_non_exhaustive()
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The host cannot have received the call.
    Unreached,
    /// The host may have received the call, and has not answered in time.
    Silence,
    /// The results.
    Answer(Vec<u8>),
}

/// Calls other hosts. Each call ends within a bounded time.
pub trait Peers: Send + Sync {
    /// Makes a call, without waiting for it. `done` gets the outcome, on any thread.
    fn call(&self, call: PeerCall, done: Box<dyn FnOnce(Heard) + Send>);
}
