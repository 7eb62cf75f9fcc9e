//! The two connections of a client of version 4: one carries messages of any length, the other is RPC-over-RDMA without
//! chunks, and carries callbacks too. A call may go over either, and be repeated over the other.

use crate::life::NAME;
use odafs_common::connect::{PrivateData, Role};
use odafs_common::rpcrdma;
use odafs_common::wire::rpc;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sim::Network;
use odafs_fabric::sync::Arc;
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{Completion, QueuePair};
use odafs_tests::raw_rdma::Header;
use std::io;

/// A kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Messages of any length.
    Messages = 0,
    /// RPC-over-RDMA: short messages, and calls in the other direction.
    Rdma = 1,
}

/// Both kinds.
pub const BOTH: [By; 2] = [By::Messages, By::Rdma];

/// Longest RPC message that goes by [`By::Rdma`], in bytes.
pub const SHORT: usize = 3800;
/// Bytes of the header of a message without chunks.
const HEADER: usize = 28;
/// The most messages of the server that may be on their way.
const RECEIVES: u32 = 32;

/// The number of a connection, past or present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(By, u32);

/// An event of a connection.
pub enum Came {
    /// An RPC message.
    Message(By, Vec<u8>),
    /// Its end.
    End,
}

/// The connections of a client, as far as they are open.
pub struct Lines {
    network: Network,
    node: u32,
    wake: Arc<WakeSet>,
    open: [Option<Box<dyn QueuePair>>; 2],
    opened: u32,
    /// Which are open, or were last.
    numbers: [u32; 2],
}

impl Lines {
    pub fn new(network: &Network) -> Self {
        Self {
            network: network.clone(),
            node: network.node(),
            wake: Arc::new(WakeSet::new().expect("a wake set")),
            open: [None, None],
            opened: 0,
            numbers: [0; 2],
        }
    }

    pub fn is_open(&self, by: By) -> bool {
        self.open[by as usize].is_some()
    }

    /// The present connection of this kind.
    pub fn line(&self, by: By) -> Line {
        Line(by, self.numbers[by as usize])
    }

    /// Whether a connection is open still.
    pub fn is_there(&self, line: Line) -> bool {
        self.is_open(line.0) && self.line(line.0) == line
    }

    /// Opens a connection, if a server is there.
    pub fn connect(&mut self, by: By) -> io::Result<()> {
        let said = match by {
            By::Messages => PrivateData {
                role: Role::Rpc,
                one_sided: false,
                nonce: [0; 16],
            }
            .encode()
            .to_vec(),
            By::Rdma => rpcrdma::PrivateData {
                remote_invalidate: false,
                ..rpcrdma::PrivateData::default()
            }
            .encode(),
        };
        let mut pair = self.network.connect_from(self.node, NAME, &said)?;
        pair.post_receives(RECEIVES);
        pair.watch(&self.wake)?;
        self.open[by as usize] = Some(pair);
        self.opened += 1;
        self.numbers[by as usize] = self.opened;
        Ok(())
    }

    /// Ends a connection.
    pub fn cut(&mut self, by: By) {
        self.open[by as usize] = None;
    }

    /// Sends an RPC message. A connection that does not take it has ended.
    pub fn send(&mut self, by: By, message: &[u8]) -> bool {
        let Some(pair) = &mut self.open[by as usize] else {
            return false;
        };
        let sent = match by {
            By::Messages => pair.post_send(0, &[message]),
            By::Rdma => {
                let xid = u32::from_be_bytes(*message.first_chunk().expect("an xid"));
                pair.post_send(0, &[&Header::message(xid).bytes(), message])
            }
        };
        pair.flush();
        if sent.is_err() {
            self.cut(by);
        }
        sent.is_ok()
    }

    /// The next event, if there is one.
    pub fn poll(&mut self) -> Option<Came> {
        for by in BOTH {
            let Some(pair) = &mut self.open[by as usize] else {
                continue;
            };
            while let Some(completion) = pair.poll() {
                if !matches!(completion, Completion::Recv { .. }) {
                    continue;
                }
                let message = pair.message();
                let message = match by {
                    By::Messages => message.to_vec(),
                    // An error of the transport has none.
                    By::Rdma => message.get(HEADER..).unwrap_or_default().to_vec(),
                };
                pair.post_receives(1);
                pair.flush();
                assert!(message.len() >= 8, "no RPC message over {by:?}");
                return Some(Came::Message(by, message));
            }
            if pair.is_closed() {
                self.cut(by);
                return Some(Came::End);
            }
        }
        None
    }

    /// Waits for an event, or until `until`.
    pub fn wait(&mut self, until: Nanos) {
        self.wake.prepare();
        let mut quiet = true;
        for pair in self.open.iter_mut().flatten() {
            quiet &= pair.arm();
        }
        let now = clock::now();
        if quiet && now < until {
            self.wake.wait(Some(until.since(now)));
        }
    }
}

/// Whether an RPC message is a call.
pub fn is_call(message: &[u8]) -> bool {
    !matches!(rpc::parse_call(message), Err(rpc::CallError::NotCall))
}
