//! What the NIC's judgement of a direct read costs by itself: no fabric, no copy.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use odafs_common::connect::Nonce;
use odafs_common::direct::{Attach, Request};
use odafs_common::exception::Exception;
use odafs_common::mac::MacAlgorithm;
use odafs_common::page::PageSize;
use odafs_common::reference::{AccessKey, Handle};
use odafs_common::session::SessionKey;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig, FrameNumber};
use odafs_fabric::sync::Arc;
use odafs_nic::capability::{NewSession, ReaderClass};
use odafs_nic::connection::Connection;
use odafs_nic::host_vm::{HostVm, QueuedVm, SharedVm};
use odafs_nic::nic::{Nic, NicConfig, Verdict};
use odafs_nic::tpt::TptEntry;

use crate::random::Random;

/// How the NIC reaches the host (paper 004, IV-A.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPath {
    /// Atomics on shared state.
    Shared,
    /// A queue to a host thread.
    Queued,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct NicPlan {
    /// MAC of the requests.
    pub mac: MacAlgorithm,
    /// Pages that are handed out; the reads choose among them at random.
    pub frames: u32,
    /// Slots of the TPT. Fewer than frames: misses, which the host serves.
    pub tpt_entries: usize,
    /// Reads.
    pub reads: u32,
    /// How the host is reached.
    pub host: HostPath,
}

/// Means, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct NicCost {
    /// From the message to the pinned frame, then completion and unpin.
    pub judge_ns: f64,
    /// Verifying the MAC alone (T_MAC), over the same messages.
    pub mac_ns: f64,
    /// TPT misses per read.
    pub faults: f64,
}

const NONCE: Nonce = [0; 16];

fn entry(arena: &Arena, frame: u32) -> TptEntry {
    TptEntry {
        frame: FrameNumber(frame),
        address: u64::from(frame) * 4096,
        length: 4096,
        key: AccessKey(u64::from(frame)),
        epoch: arena.current_epoch(),
        class: ReaderClass(0),
    }
}

/// Runs the plan on this thread.
pub fn nic_cost(plan: &NicPlan) -> io::Result<NicCost> {
    let config = ArenaConfig {
        frames: plan.frames,
        page: PageSize::DEFAULT,
        huge: false,
        populate: false,
    };
    let arena = Arc::new(Arena::create(&config)?);
    for frame in 0..plan.frames {
        arena.publish(FrameNumber(frame));
    }
    let resident = Arc::clone(&arena);
    let fault = move |handle: Handle| Ok::<TptEntry, Exception>(entry(&resident, handle.0));
    let shared: Arc<dyn HostVm> = Arc::new(SharedVm::new(Arc::clone(&arena), Arc::new(fault)));
    let host = match plan.host {
        HostPath::Shared => shared,
        HostPath::Queued => Arc::new(QueuedVm::new(shared)),
    };
    let nic_config = NicConfig {
        tpt_entries: plan.tpt_entries,
        ..NicConfig::default()
    };
    let nic = Nic::new(nic_config, Arc::clone(&arena), host);
    for frame in 0..plan.frames {
        nic.tpt_enter(Handle(frame), entry(&arena, frame));
    }
    let key = SessionKey::from_bytes([1; 32]);
    let mut connection = Connection::new(1, NONCE);
    let session = attach(&nic, &mut connection, &key, plan.mac)?;
    let messages = sealed(plan, &arena, session, &key);
    let before = nic.counters().snapshot();
    let start = Instant::now();
    for message in &messages {
        match nic.receive(&mut connection, message, Nanos(1)) {
            Verdict::Transfer(transfer) => {
                black_box(nic.complete(&transfer));
                nic.finish(&mut connection, transfer);
            }
            Verdict::Attach(_) | Verdict::Refused(_) => {
                return Err(io::Error::other("a good read was refused"));
            }
        }
    }
    let judge_ns = start.elapsed().as_nanos() as f64 / messages.len() as f64;
    let faults = (nic.counters().snapshot().faults - before.faults) as f64 / messages.len() as f64;
    Ok(NicCost {
        judge_ns,
        mac_ns: mac_cost(&messages, &key, plan.mac),
        faults,
    })
}

fn attach(
    nic: &Nic,
    connection: &mut Connection,
    key: &SessionKey,
    mac: MacAlgorithm,
) -> io::Result<u32> {
    let session = nic
        .open_session(NewSession {
            key: key.clone(),
            mac,
            one_sided: false,
            credential: 0,
            expires: Nanos(u64::MAX),
            rekey_requests: u64::MAX,
            rekey_after: Nanos(u64::MAX),
            rekey_grace: Nanos(0),
            now: Nanos(0),
        })
        .map_err(io::Error::other)?;
    session.admit(ReaderClass(0));
    let attach = Attach {
        session: session.id().0,
        nonce: [1; 16],
        one_sided: false,
    };
    match nic.receive(
        connection,
        &attach.seal(&key.attach_key(), &NONCE),
        Nanos(0),
    ) {
        Verdict::Attach(request) => nic.attached(connection, request, None),
        Verdict::Transfer(_) | Verdict::Refused(_) => {
            return Err(io::Error::other("the attach was refused"));
        }
    };
    Ok(session.id().0)
}

fn sealed(
    plan: &NicPlan,
    arena: &Arena,
    session: u32,
    key: &SessionKey,
) -> Vec<[u8; Request::BYTES]> {
    let mac_key = key.mac_key(plan.mac, 0);
    let mut random = Random::new(7);
    let mut one = |sequence: u64| {
        let frame = random.below(plan.frames.into()) as u32;
        let request = Request {
            mac: plan.mac,
            inline: false,
            odd_generation: false,
            session,
            connection: 1,
            sink_tag: 1,
            sequence,
            address: u64::from(frame) * 4096,
            key: AccessKey(frame.into()),
            epoch: arena.current_epoch(),
            sink_offset: 0,
            handle: Handle(frame),
            length: 4096,
        };
        request.seal(&mac_key)
    };
    (1..=u64::from(plan.reads)).map(&mut one).collect()
}

fn mac_cost(messages: &[[u8; Request::BYTES]], key: &SessionKey, mac: MacAlgorithm) -> f64 {
    let key = key.mac_key(mac, 0);
    let start = Instant::now();
    for message in messages {
        if let Some((_, body, tag)) = Request::parse(message) {
            black_box(key.verify(body, tag));
        }
    }
    start.elapsed().as_nanos() as f64 / messages.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_is_let_in_on_both_paths() {
        for host in [HostPath::Shared, HostPath::Queued] {
            for mac in [MacAlgorithm::HmacSha256, MacAlgorithm::Blake3] {
                let plan = NicPlan {
                    mac,
                    frames: 64,
                    tpt_entries: 16,
                    reads: 200,
                    host,
                };
                let cost = nic_cost(&plan).unwrap();
                assert!(cost.judge_ns > 0.0 && cost.mac_ns > 0.0);
                assert!(
                    cost.faults > 0.0 && cost.faults <= 1.0,
                    "a small table misses at times"
                );
            }
        }
    }
}
