//! An attacker that reads what the server never granted.

mod guesses;

use crate::world::{FRAMES, Sim, World, below};
use odafs::{Dial as _, RpcOver};
use odafs_common::connect::{PrivateData, Role};
use odafs_common::direct::{Attached, Completion, Request, opcode};
use odafs_common::exception::Exception;
use odafs_common::mac::{MacAlgorithm, MacKey};
use odafs_common::reference::{AccessKey, Epoch, Handle};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::{Completion as Event, QueuePair, RemoteInvalidation, entropy};
use odafs_tests::page::PAGE;

/// How long the attacker waits for an answer.
const PATIENCE: Nanos = Nanos::from_secs(60);

/// What a network that cuts, or a server that dies, may do to an attack. In a calm world nothing may.
type Attack = Result<(), &'static str>;

/// Attacks from outside of any session, and then from within one.
pub fn attacker(world: &World) {
    for attack in [without_a_session, guesses::with_a_session] {
        if let Err(why) = attack(world) {
            world.failed(&format!("the attacker {why}"));
        }
    }
}

/// Sends forged reads, and requests overheard from clients, on a connection that belongs to no session. Each ends in an
/// exception, and none ends the connection.
fn without_a_session(world: &World) -> Attack {
    let mut pair = connect(world, Role::Direct)?;
    let mut key = [0; 32];
    entropy::fill(&mut key);
    let key = MacKey::new(MacAlgorithm::Blake3, &key);
    for sequence in 1..=6 {
        let captured = world.captured.any().filter(|_| below(2) == 0);
        let message = captured.unwrap_or_else(|| forged(sequence).seal(&key).to_vec());
        let answer = exchange(&mut *pair, &message)?;
        if message[1] == opcode::ATTACH {
            let refused = Attached::refuse(Exception::Denied);
            assert_eq!(answer, refused, "another connection's attach");
        } else {
            let (answer, data) = Completion::parse(&answer).expect("a completion");
            let refused = Err(Exception::Denied);
            assert_eq!(answer.result, refused, "a forged or foreign request");
            assert!(data.is_empty(), "bytes for a forged or foreign request");
        }
        world.tally.lock().all.attacks_refused += 1;
        clock::sleep(Nanos::from_micros(below(300)));
    }
    Ok(())
}

fn connect(world: &World, role: Role) -> Result<Box<dyn QueuePair>, &'static str> {
    let said = PrivateData {
        role,
        one_sided: false,
        nonce: [0; 16],
    };
    let until = clock::now() + Nanos::from_secs(1);
    let dial = Sim {
        network: world.network.clone(),
        node: world.network.node(),
        rpc_over: RpcOver::Messages,
        invalidation: RemoteInvalidation::Never,
    };
    dial.dial(&said.encode(), until)
        .map_err(|_| "cannot connect")
}

/// Sends a message. Returns the next that comes.
fn exchange(pair: &mut dyn QueuePair, message: &[u8]) -> Result<Vec<u8>, &'static str> {
    let until = clock::now() + PATIENCE;
    pair.post_receives(1);
    pair.post_send(0, &[message])
        .map_err(|_| "cannot send: its connection has ended")?;
    pair.flush();
    loop {
        match pair.poll() {
            Some(Event::Recv { .. }) => return Ok(pair.message().to_vec()),
            Some(_) => {}
            None if pair.wait(Some(Nanos::from_secs(2))).is_err() || pair.is_closed() => {
                return Err("has no answer: its connection has ended");
            }
            None if clock::now() >= until => return Err("has no answer"),
            None => {}
        }
    }
}

fn forged(sequence: u64) -> Request {
    Request {
        mac: MacAlgorithm::Blake3,
        inline: true,
        marked: false,
        odd_generation: false,
        session: below(4) as u32,
        connection: below(4) as u32,
        sink_tag: 0,
        sequence,
        address: below(u64::from(FRAMES)) * PAGE as u64,
        key: AccessKey(below(u64::MAX)),
        epoch: Epoch(below(100)),
        sink_offset: 0,
        handle: Handle(below(FRAMES.into()) as u32),
        length: PAGE as u32,
    }
}
