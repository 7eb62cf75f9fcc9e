//! A client of NFS version 4.2 over a bare socket, with one session. Its connection is the back channel, too.

use std::thread;
use std::time::{Duration, Instant};

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc;

use crate::compounds::{
    Client, SLOTS, callback_reply, compound, create_session, exchange_id, next,
};
use crate::raw::{PATIENCE, RawRpc};

const MINOR: u32 = 2;
/// Between two attempts at a call that the server puts off.
pub const PAUSE: Duration = Duration::from_millis(1);

/// Program, version and procedure of COMPOUND.
pub const COMPOUND: (u32, u32, u32) = (PROGRAM, VERSION, Procedure::Compound.code());

/// A client that sends one compound at a time, and hears callbacks while it waits for the reply.
#[derive(Debug)]
pub struct Raw4 {
    rpc: RawRpc,
    client: Client,
    called_back: bool,
}

/// The results in a reply.
///
/// # Panics
/// There are none, or one of them cannot be read.
pub fn results(reply: &[u8]) -> Vec<OperationResult<'_>> {
    let reply = rpc::parse_reply(reply).expect("a reply");
    let mut results = Results::begin(reply.body.expect("accepted")).expect("results");
    let all = results.by_ref().map(|result| result.expect("a result"));
    let all = all.collect();
    results.finish().expect("nothing behind the results");
    all
}

impl Raw4 {
    /// A client of this name at `HOST:PORT`, which has nothing to reclaim.
    ///
    /// # Panics
    /// The server refuses it.
    pub fn connect(address: &str, name: &[u8]) -> Self {
        let mut raw = Self {
            rpc: RawRpc::connect(address),
            client: Client {
                minor: MINOR,
                ..Client::default()
            },
            called_back: false,
        };
        let reply = raw.call(&[exchange_id(name, 1, 0)]);
        let [OperationResult::ExchangeId(Ok(known))] = &results(&reply)[..] else {
            panic!("{:?}", results(&reply));
        };
        raw.client.id = known.client_id;
        let create = create_session(known.client_id, known.sequence, SLOTS);
        let reply = raw.call(&[create]);
        let [OperationResult::CreateSession(Ok(made))] = &results(&reply)[..] else {
            panic!("{:?}", results(&reply));
        };
        raw.client.session = made.session;
        raw.client.granted = made.fore.max_requests;
        raw.does(&[Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        })]);
        raw
    }

    /// An owner of opens and locks.
    pub fn owner<'a>(&self, name: &'a [u8]) -> StateOwner<'a> {
        StateOwner {
            client_id: self.client.id,
            owner: Opaque(name),
        }
    }

    /// Whether a callback has come since this was last asked. It was answered with success, and what it asks for is left to the
    /// caller: a delegation that is to be returned, if it has no other state that callbacks concern.
    pub fn was_called_back(&mut self) -> bool {
        std::mem::take(&mut self.called_back)
    }

    /// The reply to these operations in the session, which all succeed. If the server puts them off, they are sent again.
    ///
    /// # Panics
    /// One of them fails, or the server puts them off for longer than [`PATIENCE`].
    pub fn does(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        loop {
            let sequence = self.sequence();
            let reply = self.call(&[&[sequence], operations].concat());
            let body = rpc::parse_reply(&reply).expect("a reply").body;
            let results = Results::begin(body.expect("accepted")).expect("results");
            match results.header().status {
                Status::Ok => return reply,
                Status::Delay if Instant::now() < end => thread::sleep(PAUSE),
                status => panic!("{status:?} for {operations:?}"),
            }
        }
    }

    /// SEQUENCE for its next compound.
    pub fn sequence(&mut self) -> Operation<'static> {
        next(&mut self.client, 0)
    }

    /// The last [`sequence`](Self::sequence) was not executed: the next one has its number.
    pub fn take_back(&mut self) {
        self.client.slots[0] -= 1;
    }

    /// Its session.
    pub fn session(&self) -> SessionId {
        self.client.session
    }

    /// Its client id.
    pub fn id(&self) -> u64 {
        self.client.id
    }

    /// The reply to a compound of these operations alone.
    ///
    /// # Panics
    /// There is none.
    pub fn call(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.sends(&compound(MINOR, operations))
    }

    /// The reply to COMPOUND with these arguments.
    ///
    /// # Panics
    /// There is none.
    pub fn sends(&mut self, arguments: &[u8]) -> Vec<u8> {
        const CALL: [u8; 4] = [0; 4];
        let xid = self.rpc.post(COMPOUND, arguments).expect("sent");
        loop {
            let message = self.rpc.receive().expect("a reply");
            if message[4..8] != CALL {
                assert_eq!(message[..4], xid.to_be_bytes(), "a reply to another call");
                return message;
            }
            let answer = callback_reply(&message, 0).expect("a callback to which there is a reply");
            self.rpc.send_message(&answer).expect("sent");
            self.called_back = true;
        }
    }
}
