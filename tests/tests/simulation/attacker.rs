//! An attacker that reads what the server never granted.

use crate::world::{FRAMES, Sim, World, below};
use odafs::{Dial as _, RpcOver};
use odafs_common::connect::{PrivateData, Role};
use odafs_common::direct::{Attached, Completion, Request, opcode};
use odafs_common::exception::Exception;
use odafs_common::mac::{MacAlgorithm, MacKey};
use odafs_common::reference::{AccessKey, Epoch, Handle};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::{Completion as Event, RemoteInvalidation, entropy};
use odafs_tests::page::PAGE;

/// Sends forged reads, and requests overheard from clients, on a connection that belongs to no session. Each ends in an
/// exception, and none ends the connection.
pub fn attacker(world: &World) {
    let said = PrivateData {
        role: Role::Direct,
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
    let Ok(mut pair) = dial.dial(&said.encode(), until) else {
        return;
    };
    pair.post_receives(8);
    let mut key = [0; 32];
    entropy::fill(&mut key);
    let key = MacKey::new(MacAlgorithm::Blake3, &key);
    for sequence in 1..=6 {
        let captured = world.captured.any().filter(|_| below(2) == 0);
        let message = captured.unwrap_or_else(|| forged(sequence).seal(&key).to_vec());
        if pair.post_send(sequence, &[&message]).is_err() {
            return;
        }
        pair.flush();
        loop {
            match pair.poll() {
                Some(Event::Recv { .. }) => break,
                Some(_) => {}
                None if pair.wait(Some(Nanos::from_secs(2))).is_err() || pair.is_closed() => return,
                None => {}
            }
        }
        if message[1] == opcode::ATTACH {
            let refused = Attached::refuse(Exception::Denied);
            assert_eq!(pair.message(), refused, "another connection's attach");
        } else {
            let (answer, data) = Completion::parse(pair.message()).expect("a completion");
            let refused = Err(Exception::Denied);
            assert_eq!(answer.result, refused, "a forged or foreign request");
            assert!(data.is_empty(), "bytes for a forged or foreign request");
        }
        pair.post_receives(1);
        world.tally.lock().attacks_refused += 1;
        clock::sleep(Nanos::from_micros(below(300)));
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
