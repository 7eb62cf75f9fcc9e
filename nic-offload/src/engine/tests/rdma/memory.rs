//! Memory for the data of calls: who waits for it, and what becomes of those who get none.

use odafs_common::wire::rpcrdma::{Body, Chunks, ReadList, ReadSegment};
use odafs_fabric::Access;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::Region;
use odafs_fabric::sim::NetworkConfig;
use odafs_fabric::sync::atomic::Ordering;
use odafs_fabric::sync::{Arc, thread};

use super::networks;
use super::rig::{Client, Rig, segment};
use crate::engine::RdmaConfig;
use crate::registration::RegistrationConfig;

/// Data of a call: a buffer of 16 KiB is read into.
const DATA: u32 = 10_000;
const BUFFER: usize = 16 << 10;

/// A client with data to write.
struct Writer {
    client: Client,
    data: Arc<Region>,
}

impl Writer {
    fn new(rig: &Rig) -> Writer {
        let mut client = rig.client();
        client.echo();
        let data = client.region(&[3; DATA as usize], Access::READ);
        Writer { client, data }
    }

    /// Sends a call whose data are to be read.
    fn begin(&mut self) {
        let read = ReadSegment {
            position: 12,
            segment: segment(&self.data, 0, DATA),
        };
        let chunks = Chunks {
            reads: ReadList::one(read),
            ..Chunks::default()
        };
        let message = self.client.message(b'w', &[]);
        self.client.send(Body::Msg(chunks), &message);
    }

    fn end(&mut self) {
        let (_, reply) = self.client.receive();
        assert_eq!(reply[8..], *b"done");
    }
}

fn config(connection: usize, all: usize) -> RdmaConfig {
    RdmaConfig {
        registration: RegistrationConfig {
            connection_bytes_max: connection,
            bytes_max: all,
            ..RegistrationConfig::default()
        },
        ..RdmaConfig::default()
    }
}

#[test]
fn calls_wait_for_memory() {
    let rig = Rig::new(networks()[1], config(BUFFER, 256 << 20));
    let mut writer = Writer::new(&rig);
    (0..8).for_each(|_| writer.begin());
    (0..8).for_each(|_| writer.end());
    assert!(Rig::count(&rig.counts.registration.waited) > 0);
    assert_eq!(Rig::count(&rig.counts.registration.registered), 1);
    rig.end();
}

/// Eight clients once had two calls under way each, and have one now and then: a ninth gets memory all the same, whether
/// we bound it or the system does.
#[test]
fn idle_memory_of_others_goes_to_who_waits() {
    const ROUNDS: u32 = 1000;
    let locked = NetworkConfig {
        locked_max: 8 * 2 * BUFFER,
        ..networks()[1]
    };
    for (network, all) in [(networks()[1], 8 * 2 * BUFFER), (locked, 256 << 20)] {
        let rig = Rig::new(network, config(2 * BUFFER, all));
        let mut others: Vec<Writer> = (0..8).map(|_| Writer::new(&rig)).collect();
        for other in &mut others {
            other.begin();
            other.begin();
            other.end();
            other.end();
        }
        let mut ninth = Writer::new(&rig);
        ninth.begin();
        let answered = (0..ROUNDS).any(|_| {
            for other in &mut others {
                other.begin();
                other.end();
            }
            ninth.client.has_message()
        });
        assert!(answered, "others wrote {ROUNDS} times each meanwhile");
        ninth.end();
        assert_eq!(Rig::count(&rig.counts.registration.waiting), 0);
        rig.end();
    }
}

/// What is in use is waited for, by calls that bring data alone; and not for ever.
#[test]
fn calls_without_data_do_not_wait_for_memory() {
    let short = RdmaConfig {
        memory_time_max: Nanos::from_millis(200),
        ..config(BUFFER, BUFFER)
    };
    let rig = Rig::new(networks()[1], short);
    let (mut holder, mut writer) = (Writer::new(&rig), Writer::new(&rig));
    rig.threads.full.store(true, Ordering::Relaxed);
    holder.begin();
    while Rig::count(&rig.counts.registration.registered) == 0 {
        thread::yield_now();
    }
    writer.begin();
    writer.client.echo();
    assert_eq!(Rig::count(&rig.counts.registration.waiting), 1);
    writer.client.until_closed();
    while Rig::count(&rig.counts.connections) > 1 {
        thread::yield_now();
    }
    assert_eq!(Rig::count(&rig.counts.registration.timeouts), 1);
    assert_eq!(Rig::count(&rig.counts.registration.waiting), 0);
    rig.threads.full.store(false, Ordering::Relaxed);
    holder.end();
    rig.end();
}

/// Nothing idles and nothing is in use: to wait would be for ever.
#[test]
fn a_call_fails_whose_memory_cannot_be_locked_at_all() {
    /// `accept_stat` of a reply that was accepted, with no verifier.
    const SYSTEM_ERR: [u8; 4] = [0, 0, 0, 5];
    let network = NetworkConfig {
        locked_max: BUFFER - 1,
        ..networks()[1]
    };
    let rig = Rig::new(network, RdmaConfig::default());
    let mut writer = Writer::new(&rig);
    for number in 1..=3 {
        writer.begin();
        let (header, reply) = writer.client.receive();
        assert_eq!(header.xid, writer.client.xid);
        assert_eq!(header.body, Body::Msg(Chunks::default()));
        assert_eq!(reply[20..], SYSTEM_ERR);
        assert_eq!(Rig::count(&rig.counts.registration.failed), number);
    }
    assert!(rig.shelf.taken.lock().is_empty());
    writer.client.echo();
    rig.end();
}
