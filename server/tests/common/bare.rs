//! The programs of a server without transports or threads, and calls to them, message by message.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use odafs_common::wire::rpc::{self, Auth, AuthSys, Groups, Rejection};
use odafs_common::wire::xdr::Writer;
use odafs_fabric::Peer;
use odafs_nic::calls::{Caller, Calls as _, Notes, Outcome, Placements, Transport};
use odafs_server::access::Access;
use odafs_server::drc::{Bounds, DuplicateCache};
use odafs_server::rpc::{Program, Service};

pub struct Bare {
    pub service: Service,
    xid: AtomicU32,
    deferred: AtomicU32,
}

impl Bare {
    pub fn new(programs: Vec<Box<dyn Program>>, access: Arc<Access>) -> Self {
        let duplicates = DuplicateCache::new(Bounds::default());
        Self {
            service: Service::new(programs, access, duplicates, false),
            xid: AtomicU32::new(1),
            deferred: AtomicU32::new(0),
        }
    }

    /// Calls that went to the pool so far.
    pub fn deferred(&self) -> u32 {
        self.deferred.load(Ordering::Relaxed)
    }

    /// The reply to a message from `address`, or `None` if there is none.
    pub fn exchange(&self, address: &str, message: &[u8]) -> Option<&'static [u8]> {
        self.exchange_as(&caller(address), message)
    }

    /// The reply to a message from `caller`, or `None` if there is none.
    fn exchange_as(&self, caller: &Caller, message: &[u8]) -> Option<&'static [u8]> {
        let (outcome, reply) = self.outcome(caller, message);
        match outcome {
            Outcome::Replied => Some(reply.leak()),
            Outcome::Dropped => None,
            other => panic!("{other:?} over TCP"),
        }
    }

    /// What becomes of a message, and the reply.
    pub fn outcome(&self, caller: &Caller, message: &[u8]) -> (Outcome, Vec<u8>) {
        let mut reply = Vec::new();
        let mut outcome = self.service.call(caller, message, &mut reply);
        while let Outcome::Deferred(job) = outcome {
            self.deferred.fetch_add(1, Ordering::Relaxed);
            reply.clear();
            outcome = job.run(&mut reply);
        }
        (outcome, reply)
    }

    /// The message of a call. Each has a transaction id of its own.
    pub fn message(
        &self,
        (program, version): (u32, u32),
        procedure: u32,
        who: &Auth<'_>,
        arguments: &[u8],
    ) -> Vec<u8> {
        let xid = self.xid.fetch_add(1, Ordering::Relaxed);
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        rpc::call(&mut w, xid, program, version, procedure, who);
        message.extend_from_slice(arguments);
        message
    }

    /// Calls a procedure from a privileged port of this machine, and returns the results.
    pub fn call(
        &self,
        program: (u32, u32),
        procedure: u32,
        who: &Auth<'_>,
        arguments: &[u8],
    ) -> Result<&'static [u8], Rejection> {
        self.call_from(&caller("127.0.0.1:700"), program, procedure, who, arguments)
    }

    /// Calls a procedure, and returns the results.
    pub fn call_from(
        &self,
        caller: &Caller,
        program: (u32, u32),
        procedure: u32,
        who: &Auth<'_>,
        arguments: &[u8],
    ) -> Result<&'static [u8], Rejection> {
        let message = self.message(program, procedure, who, arguments);
        let reply = self.exchange_as(caller, &message).expect("a reply");
        assert_eq!(reply[..4], message[..4], "the transaction id");
        let reply = rpc::parse_reply(reply).expect("a reply's header");
        reply.body.map(|results| results.rest())
    }
}

/// A client over TCP at this address.
pub fn caller(address: &str) -> Caller {
    Caller {
        peer: Peer::Address(address.parse().expect("an address")),
        local: None,
        connection: 1,
        transport: Transport::NfsTcp,
        reply_bytes_max: 2 << 20,
        placements: Placements::default(),
        apart: None,
        back: None,
        notes: Notes::default(),
    }
}

/// The ids that a client claims.
pub fn user(uid: u32, gid: u32) -> Auth<'static> {
    Auth::Sys(AuthSys {
        stamp: 0,
        machine: b"client",
        uid,
        gid,
        gids: Groups::new(&[]),
    })
}
