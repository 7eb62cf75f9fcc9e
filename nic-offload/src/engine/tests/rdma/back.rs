//! Calls to the client (RFC 8167).

use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::rpc;
use odafs_common::wire::rpcrdma::{
    Body, Chunks, Header, ReadList, ReadSegment, Segment, Segments, TransportError, WriteList,
};
use odafs_common::wire::xdr::Encode as _;
use odafs_fabric::Access;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sim::NetworkConfig;
use odafs_fabric::sync::atomic::Ordering;
use odafs_fabric::sync::{Arc, thread};

use super::rig::{Client, Rig, segment};
use super::{CREDITS, networks};
use crate::calls::Back;
use crate::engine::tests::wire::{Shared, Wire};
use crate::engine::tests::world::World;
use crate::engine::{EngineConfig, RdmaConfig};

/// What an engine asks for by default.
const ASKED: u32 = 16;

/// A call to a client.
fn call(xid: u32, rest: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &[0; 4], rest].concat()
}

/// What a client answers.
fn reply(xid: u32) -> Vec<u8> {
    let mut reply = Vec::new();
    rpc::reply_success(&mut odafs_common::wire::xdr::Writer::new(&mut reply), xid);
    reply
}

/// What is told of a call that failed.
fn failed(xid: u32) -> Vec<u8> {
    let mut reply = Vec::new();
    rpc::system_err(&mut odafs_common::wire::xdr::Writer::new(&mut reply), xid);
    reply
}

/// A client that may be called, and the way back to it.
fn called(rig: &Rig) -> (Client, Arc<dyn Back>) {
    let mut client = rig.client();
    let message = client.message(b'c', &[]);
    client.call(Chunks::default(), &message);
    let way = rig.shelf.ways.lock().pop();
    (client, way.expect("there is a way back"))
}

impl Client {
    /// Answers a call of the server's, or sends what looks like it.
    fn answer(&mut self, xid: u32, credits: u32, body: Body, message: &[u8]) {
        let header = Header { xid, credits, body };
        self.qp
            .post_send(0, &[&header.to_bytes(), message])
            .expect("room");
        self.qp.flush();
    }

    fn answer_well(&mut self, xid: u32, credits: u32) {
        self.answer(xid, credits, Body::Msg(Chunks::default()), &reply(xid));
    }

    /// The next message must be this call.
    fn is_called(&mut self, message: &[u8]) {
        let (header, came) = self.receive();
        assert_eq!(came, message);
        let xid = u32::from_be_bytes(*message.first_chunk().expect("an xid"));
        let (credits, body) = (ASKED, Body::Msg(Chunks::default()));
        assert_eq!(header, Header { xid, credits, body });
    }
}

impl Rig {
    /// The replies that the procedures got, once the client's messages so far have come.
    fn answers(&self, client: &mut Client) -> Vec<Vec<u8>> {
        client.echo();
        std::mem::take(&mut *self.shelf.answers.lock())
    }
}

/// All that the tests of this directory run on, and iWARP, where a message without a receive ends the connection.
fn all_networks() -> Vec<NetworkConfig> {
    let iwarp = NetworkConfig {
        iwarp: true,
        ..NetworkConfig::default()
    };
    [&networks()[..], &[iwarp]].concat()
}

#[test]
fn a_client_is_called_and_its_answer_is_heard() {
    for network in all_networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let (mut client, way) = called(&rig);
        assert!(way.is_open());
        for xid in 0..50 {
            let message = call(xid, &[7; 100]);
            assert!(way.send(message.clone()));
            client.is_called(&message);
            client.answer_well(xid, 1);
            assert_eq!(rig.answers(&mut client), [reply(xid)]);
        }
        assert_eq!(Rig::count(&rig.counts.calls), 51);
        rig.end();
    }
}

#[test]
fn calls_to_a_client_wait_for_its_credits() {
    for network in all_networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let (mut client, way) = called(&rig);
        for xid in 0..6 {
            assert!(way.send(call(xid, &[])));
        }
        // The first message is the only call that one credit allows.
        client.is_called(&call(0, &[]));
        client.echo();
        client.answer_well(0, 3);
        for xid in 1..4 {
            client.is_called(&call(xid, &[]));
        }
        client.echo();
        client.answer_well(2, 3);
        client.is_called(&call(4, &[]));
        client.echo();
        // A smaller grant: the last call waits until one alone would be under way.
        for xid in [1, 3] {
            client.answer_well(xid, 1);
            client.echo();
        }
        client.answer_well(4, 1);
        client.is_called(&call(5, &[]));
        client.answer_well(5, 1);
        assert_eq!(rig.answers(&mut client).len(), 6);
        rig.end();
    }
}

/// Every credit of both directions in use at once.
#[test]
fn answers_take_no_receive_of_calls() {
    for network in all_networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let (mut client, way) = called(&rig);
        client.qp.post_receives(2 * CREDITS);
        assert!(way.send(call(0, &[])));
        client.is_called(&call(0, &[]));
        client.answer_well(0, 100);
        client.echo();
        for round in 1..4 {
            let calls = 1000 * round..1000 * round + ASKED;
            for xid in calls.clone() {
                assert!(way.send(call(xid, &[])));
            }
            for xid in calls.clone() {
                client.is_called(&call(xid, &[]));
            }
            for _ in 0..CREDITS {
                let message = client.message(b'e', &[]);
                client.send(Body::Msg(Chunks::default()), &message);
            }
            for xid in calls {
                client.answer_well(xid, 100);
            }
            for _ in 0..CREDITS {
                client.receive();
            }
            assert_eq!(
                rig.answers(&mut client).len() as u32,
                ASKED + u32::from(round == 1)
            );
        }
        rig.end();
    }
}

/// Sends a message without chunks.
fn put(wire: &Shared, xid: u32, credits: u32, message: &[u8]) {
    let body = Body::Msg(Chunks::default());
    let header = Header { xid, credits, body };
    let whole = [&header.to_bytes(), message].concat();
    wire.lock().to_server.push_back(whole);
}

/// Step by step: what is posted, and what goes.
#[test]
fn each_call_to_a_client_has_a_receive_for_its_answer() {
    let mut world = World::new(EngineConfig::default());
    let wire = world.connect_with(&PrivateData::default().encode());
    let first = u32::from_be_bytes(*b"call");
    put(&wire, first, 8, &call(first, &[]));
    world.rounds();
    let way = world.echo.ways.lock().pop().expect("there is a way back");
    wire.lock().to_client.clear();
    // Those of the credits, and the spare one.
    let idle = CREDITS + 1;
    let is = |sent: usize, receives: u32| {
        let wire = wire.lock();
        assert_eq!((wire.to_client.len(), wire.receives), (sent, receives));
    };
    is(0, idle);
    for xid in 0..8 {
        assert!(way.send(call(xid, &[])));
    }
    world.rounds();
    is(1, idle + 1);
    // An answer takes its receive; two more calls go.
    put(&wire, 0, 2, &reply(0));
    world.rounds();
    is(3, idle + 2);
    // What no call waits for takes one, which is posted again.
    put(&wire, 0, 9, &reply(0));
    world.rounds();
    is(3, idle + 2);
    // The next call finds no room to be sent. The receive is there all the same.
    wire.lock().room = 0;
    put(&wire, 1, 3, &reply(1));
    world.rounds();
    is(3, idle + 2);
    wire.lock().room = 1000;
    world.rounds();
    is(5, idle + 3);
    for xid in 2..5 {
        put(&wire, xid, 3, &reply(xid));
    }
    world.rounds();
    is(8, idle + 3);
    for xid in 5..8 {
        put(&wire, xid, 3, &reply(xid));
    }
    world.rounds();
    is(8, idle);
}

#[test]
fn what_waits_for_a_client_is_bounded() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let (mut client, way) = called(&rig);
    assert!(way.send(call(0, &[])));
    client.is_called(&call(0, &[]));
    let taken = (1..1000)
        .take_while(|xid| way.send(call(*xid, &[])))
        .count();
    assert_eq!(taken, 64);
    assert!(way.is_open(), "it is only full");
    client.answer_well(0, 16);
    for xid in 1..=16 {
        client.is_called(&call(xid, &[]));
    }
    assert!(way.send(call(1000, &[])));
    rig.end();
}

#[test]
fn the_way_back_ends_with_its_connection() {
    for network in all_networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let (client, way) = called(&rig);
        assert!(way.send(call(0, &[])) && way.send(call(1, &[])));
        drop(client);
        while way.is_open() {
            thread::yield_now();
        }
        assert!(!way.send(call(2, &[])));
        rig.client().echo();
        let (_client, way) = called(&rig);
        rig.end();
        assert!(!way.is_open() && !way.send(call(3, &[])));
    }
}

/// Whoever called hears of it by an error of RPC.
#[test]
fn calls_that_cannot_be_answered_fail() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let (mut client, way) = called(&rig);
    // Longer than goes inline: the client never hears of it.
    assert!(way.send(call(1, &[0; 4096])));
    while rig.shelf.answers.lock().is_empty() {
        thread::yield_now();
    }
    assert_eq!(rig.answers(&mut client), [failed(1)]);
    // The client does not take calls.
    assert!(way.send(call(2, &[])));
    client.is_called(&call(2, &[]));
    client.answer(2, 9, Body::Error(TransportError::Chunk), &[]);
    assert_eq!(rig.answers(&mut client), [failed(2)]);
    // Its reply brings a chunk, where none was offered.
    assert!(way.send(call(3, &[])));
    client.is_called(&call(3, &[]));
    let chunks = Chunks {
        writes: WriteList::one(&Segments::one(Segment::default())),
        ..Chunks::default()
    };
    client.answer(3, 9, Body::Msg(chunks), &reply(3));
    assert_eq!(rig.answers(&mut client), [failed(3)]);
    assert_eq!(Rig::count(&rig.counts.ignored), 0);
    rig.end();
}

/// Replies that nobody asked for, by any way, are dropped, and cost their receive for as long as that takes.
#[test]
fn unasked_replies_are_dropped() {
    for network in all_networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let (mut client, way) = called(&rig);
        assert!(way.send(call(500, &[])));
        client.is_called(&call(500, &[]));
        let long = client.region(&reply(500), Access::READ);
        for round in 0..10 {
            for xid in 0..CREDITS {
                client.answer_well(1000 * round + xid, 100);
            }
            client.echo();
        }
        let sent = 10 * u64::from(CREDITS);
        assert_eq!(Rig::count(&rig.counts.ignored), sent);
        // A reply in the client's memory, whole and in pieces: the server reads it as it would a call.
        for cut in [24, 6, 2] {
            let parts = [segment(&long, 0, cut), segment(&long, cut.into(), 24 - cut)];
            let reads = parts.map(|segment| ReadSegment {
                position: 0,
                segment,
            });
            let chunks = Chunks {
                reads: ReadList::new(&reads).0,
                ..Chunks::default()
            };
            client.answer(500, 100, Body::Nomsg(chunks), &[]);
        }
        while Rig::count(&rig.counts.ignored) < sent + 3 {
            client.echo();
        }
        assert_eq!(rig.answers(&mut client), [[0; 0]; 0]);
        client.answer_well(500, 1);
        assert_eq!(rig.answers(&mut client), [reply(500)]);
        rig.end();
    }
}

/// A client of `world` that has asked to be called: the credits that it was granted, and the way back.
fn asks(world: &mut World, wire: &Shared) -> (u32, Option<Arc<dyn Back>>) {
    let xid = u32::from_be_bytes(*b"call");
    put(wire, xid, 8, &call(xid, &[]));
    world.rounds();
    let reply = wire.lock().to_client.pop().expect("a reply");
    let credits = reply[8..].first_chunk().expect("a header");
    (u32::from_be_bytes(*credits), world.echo.ways.lock().pop())
}

/// An engine that waits so long for answers of clients.
fn waiting(back_time_max: Nanos) -> RdmaConfig {
    RdmaConfig {
        back_time_max,
        ..RdmaConfig::default()
    }
}

/// Its credit would never come back.
#[test]
fn a_call_that_is_not_answered_closes_the_way_back_alone() {
    let mut world = World::new(EngineConfig {
        // Until the clock has moved.
        rdma: waiting(Nanos(1)),
        ..EngineConfig::default()
    });
    let wire = world.connect_with(&PrivateData::default().encode());
    let (_, way) = asks(&mut world, &wire);
    let way = way.expect("there is a way back");
    for _ in 0..10 {
        world.rounds();
        assert!(way.is_open(), "nothing is unanswered");
    }
    for xid in 0..3 {
        assert!(way.send(call(xid, &[])));
    }
    while way.is_open() {
        world.rounds();
    }
    assert!(!way.send(call(3, &[])));
    let unheard = world.echo.unheard.lock().clone();
    assert_eq!(unheard.len(), 1, "{unheard:?}");
    // Calls are served as before, and offer no way back.
    wire.lock().to_client.clear();
    for _ in 0..3 {
        let (_, way) = asks(&mut world, &wire);
        assert!(way.is_none());
    }
    // The answer that comes at last tells the procedures, for whom it is too late, and opens nothing.
    let calls = world.echo.calls.load(Ordering::Relaxed);
    put(&wire, 0, 16, &reply(0));
    world.rounds();
    assert_eq!(world.echo.calls.load(Ordering::Relaxed), calls + 1);
    assert!(wire.lock().to_client.is_empty());
    assert_eq!(*world.echo.unheard.lock(), unheard);
    assert_eq!(
        (world.engine.connections(), world.echo.gone.lock().len()),
        (1, 0)
    );
    // Over another connection the client can be called.
    let other = world.connect_with(&PrivateData::default().encode());
    assert!(asks(&mut world, &other).1.is_some_and(|way| way.is_open()));
}

/// No event says that an answer does not come.
#[test]
fn an_engine_that_sleeps_wakes_for_an_answer_that_does_not_come() {
    // Longer than an engine polls before it sleeps.
    let wait = waiting(Nanos::from_millis(20));
    let rig = Rig::new(NetworkConfig::default(), wait);
    let (mut client, way) = called(&rig);
    assert!(way.send(call(0, &[])));
    client.is_called(&call(0, &[]));
    while way.is_open() {
        thread::yield_now();
    }
    client.echo();
    rig.end();
}

/// A connection that makes room for so many receives: what is posted, the credits granted, and whether there is a way back.
fn with_room(rdma: RdmaConfig, receives_max: u32) -> (u32, u32, bool) {
    let mut world = World::new(EngineConfig {
        rdma,
        ..EngineConfig::default()
    });
    let wire = world.connect_over(Wire {
        private: PrivateData::default().encode().to_vec(),
        room: 1000,
        receives_max: Some(receives_max),
        ..Wire::default()
    });
    let (credits, way) = asks(&mut world, &wire);
    let receives = wire.lock().receives;
    (receives, credits, way.is_some())
}

#[test]
fn calls_of_clients_have_their_receives_before_calls_to_clients() {
    let none = RdmaConfig {
        reverse_credits: 0,
        ..RdmaConfig::default()
    };
    let all = CREDITS + 1;
    for (rdma, room, expected) in [
        // One receive is spare.
        (RdmaConfig::default(), all + ASKED, (all, CREDITS, true)),
        (RdmaConfig::default(), all + 1, (all, CREDITS, true)),
        (RdmaConfig::default(), all, (all, CREDITS, false)),
        (RdmaConfig::default(), 11, (11, 10, false)),
        // Receives that calls to clients do not need are for no more calls of clients, and cost none.
        (none, all + ASKED, (all, CREDITS, false)),
        (none, all, (all, CREDITS, false)),
        (none, 11, (11, 10, false)),
    ] {
        let found = with_room(rdma, room);
        assert_eq!(found, expected, "room for {room} receives");
    }
}

#[test]
fn a_connection_promises_no_more_receives_than_its_credits_need() {
    let default = RdmaConfig::default();
    let none = RdmaConfig {
        reverse_credits: 0,
        ..default
    };
    assert_eq!(default.receives_max(), CREDITS + ASKED + 1);
    assert_eq!(none.receives_max(), CREDITS + 1);
}
