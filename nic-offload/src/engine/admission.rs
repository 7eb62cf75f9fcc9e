//! Which connections an engine accepts, and for what purpose, according to their private data.

use std::io;

use odafs_common::connect::{Nonce, PrivateData, Role};
use odafs_common::rpcrdma::{PrivateData as RdmaPrivateData, Terms};
use odafs_fabric::{Incoming, QueuePair, entropy};

use super::direct::DirectLine;
use super::rdma::{self, RdmaLine};
use super::rpc::RpcLine;
use super::{Engine, Line};
use crate::calls::Transport;

/// The most RDMA Reads that a client may have under way at a time, if it may read at all: as many as Linux accepts.
const INBOUND_READS: u32 = 128;

/// The purpose of a connection.
enum Wants {
    /// A protocol of ours.
    Ours(PrivateData),
    /// RPC-over-RDMA, and the client's announcement if there is one (RFC 8797).
    Rdma(Option<RdmaPrivateData>),
}

impl Wants {
    fn of(private_data: &[u8], transport: Transport) -> Option<Wants> {
        if let Some(ours) = PrivateData::decode(private_data) {
            return Some(Wants::Ours(ours));
        }
        let rdma = RdmaPrivateData::decode(private_data);
        // Between hosts, NFS clients that announce nothing, or something unknown, are accepted as well.
        let stock = matches!(transport, Transport::Iwarp | Transport::Verbs)
            && !PrivateData::is_ours(private_data);
        (rdma.is_some() || stock).then_some(Wants::Rdma(rdma))
    }
}

impl Engine {
    /// Accepts a connection for the purpose in its private data.
    pub(super) fn admit(&mut self, incoming: Box<dyn Incoming>, transport: Transport) {
        let peer = incoming.peer().clone();
        if self.connections() >= self.config.connections_max {
            return incoming.reject("the server has as many connections as it allows");
        }
        if !self.serves.calls.admits(&peer) {
            tracing::debug!(%peer, "a stranger was not let in");
            return incoming.reject("the server does not let this address in");
        }
        let Some(wants) = Wants::of(incoming.private_data(), transport) else {
            return incoming.reject("the private data is of no protocol served here");
        };
        let line = match wants {
            Wants::Ours(wants) => self.take_ours(incoming, wants, transport),
            Wants::Rdma(theirs) => self.take_rdma(incoming, theirs, transport),
        };
        match line {
            Ok(line) => self.place(line, transport),
            Err(error) => tracing::debug!(%peer, %error, "connection not taken"),
        }
    }

    fn take_ours(
        &mut self,
        incoming: Box<dyn Incoming>,
        wants: PrivateData,
        transport: Transport,
    ) -> io::Result<Line> {
        if wants.role == Role::Direct && self.serves.nic.is_none() {
            incoming.reject("direct access is off");
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut nonce = Nonce::default();
        entropy::fill(&mut nonce);
        let answer = PrivateData { nonce, ..wants }.encode();
        // Memory is exposed when the connection is attached to a session. Before that, the client knows no tag.
        let remote = matches!(transport, Transport::Iwarp | Transport::Verbs);
        let reads = wants.role == Role::Direct
            && wants.one_sided
            && self.serves.life.is_some()
            && (self.config.remote_reads || !remote);
        let inbound_reads = if reads { INBOUND_READS } else { 0 };
        let (mut qp, number) = self.accept_as(incoming, &answer, inbound_reads)?;
        qp.post_receives(self.config.receives);
        Ok(match wants.role {
            Role::Direct => Line::Direct(Box::new(DirectLine::new(qp, number, nonce, self.time))),
            Role::Rpc => Line::Rpc(Box::new(RpcLine::new(qp, number, transport, self.time))),
        })
    }

    fn take_rdma(
        &mut self,
        incoming: Box<dyn Incoming>,
        theirs: Option<RdmaPrivateData>,
        transport: Transport,
    ) -> io::Result<Line> {
        let mut ours = rdma::private_data(&self.config.rdma);
        ours.read_read &= theirs.is_some_and(|theirs| theirs.read_read);
        let terms = Terms::between(&ours, theirs.as_ref());
        // Only in the Read-Read design the client reads: replies, under tags for them.
        let inbound_reads = if terms.read_read { INBOUND_READS } else { 0 };
        let (qp, number) = self.accept_as(incoming, &ours.encode(), inbound_reads)?;
        let clients = self.rdma_clients() + 1;
        self.share_credits(clients);
        let (now, ..) = self.parts(false);
        let line = RdmaLine::new(qp, number, transport, terms, clients, &now);
        Ok(Line::Rdma(Box::new(line)))
    }

    fn accept_as(
        &mut self,
        incoming: Box<dyn Incoming>,
        private_data: &[u8],
        inbound_reads: u32,
    ) -> io::Result<(Box<dyn QueuePair>, u64)> {
        let mut qp = incoming.accept(private_data, inbound_reads)?;
        qp.watch(&self.wake)?;
        let number = self.next_number;
        self.next_number += 1;
        Ok((qp, number))
    }

    fn place(&mut self, line: Line, transport: Transport) {
        self.open.change(transport, 1);
        match self.vacant.pop() {
            Some(at) => {
                self.lines[at] = Some(line);
                self.transports[at] = transport;
            }
            None => {
                self.lines.push(Some(line));
                self.transports.push(transport);
            }
        }
    }

    pub(super) fn rdma_clients(&self) -> usize {
        let rdma = |line: &&Line| matches!(line, Line::Rdma(_));
        self.lines.iter().flatten().filter(rdma).count()
    }

    /// Tells the RPC-over-RDMA clients how many of them there are.
    pub(super) fn share_credits(&mut self, clients: usize) {
        for line in self.lines.iter_mut().flatten() {
            if let Line::Rdma(line) = line {
                line.share_credits(&self.config.rdma, clients);
            }
        }
    }
}
