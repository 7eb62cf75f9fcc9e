//! The same on an RDMA device, whose own part of the protocol nobody can misuse: what is left are messages, tags, and
//! connections that come and go.

use super::*;

use odafs_common::connect::{PrivateData, Role};
use odafs_common::direct::{ExposedMemory, RemoteAddress as Exposed};
use odafs_common::wire::odafs::Mode;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::verbs::{self, DeviceTransport};
use odafs_fabric::{
    Access, Completion, Local, PostError, QueuePair, Remote, Sink, Source, SteeringTag,
};
use odafs_tests::raw_direct::{RawDirect, RawSession, ServerPlace};
use odafs_tests::served;
use std::io;

/// A connection for RPC-over-RDMA.
struct Line {
    pair: Box<dyn QueuePair>,
    xid: u32,
}

impl Line {
    fn connect(place: &ServerPlace) -> Self {
        Self::with(place, &LINUX)
    }

    fn with(place: &ServerPlace, said: &[u8]) -> Self {
        let mut pair = place.connect(said);
        pair.post_receives(16);
        Self {
            pair,
            xid: 0x4000_0000,
        }
    }
}

impl Messages for Line {
    fn send_message(&mut self, payload: &[u8]) -> io::Result<()> {
        let posted = self.pair.post_send(0, &[payload]);
        self.pair.flush();
        posted.map(drop).map_err(io::Error::from)
    }

    fn next_message(&mut self) -> io::Result<Vec<u8>> {
        match ended(&mut *self.pair, |event| {
            matches!(event, Completion::Recv { .. })
        }) {
            Some(_) => {
                self.pair.post_receives(1);
                Ok(self.pair.message().to_vec())
            }
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }
}

/// Waits for such a completion; `None` if the connection ended before it came.
fn ended(pair: &mut dyn QueuePair, wanted: impl Fn(&Completion) -> bool) -> Option<Completion> {
    let deadline = clock::now() + Nanos::from(PATIENCE);
    loop {
        match pair.poll() {
            Some(event) if wanted(&event) => return Some(event),
            Some(_) => {}
            None if pair.is_closed() => return None,
            None => {
                assert!(clock::now() < deadline, "nothing came");
                let _ = pair.wait(Some(Nanos::from_millis(100)));
            }
        }
    }
}

/// A server that grants one-sided reads, and where its device is.
fn serve_on_device() -> (World, ServerPlace) {
    let options = served::verbs_options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let world = serve_with(&[&options[..], &["--direct", "one-sided"]].concat());
    let place = ServerPlace::Verbs(world.server.verbs.parse().expect("an address"));
    (world, place)
}

fn is_iwarp(place: &ServerPlace) -> bool {
    let ServerPlace::Verbs(address) = place else {
        return false;
    };
    let devices = verbs::devices().expect("devices");
    devices.iter().any(|device| {
        let mut ports = device.ports.iter();
        device.transport == DeviceTransport::IWarp
            && ports.any(|port| port.addresses.contains(&address.ip()))
    })
}

fn remote(place: Exposed, ahead: u64) -> Remote {
    Remote {
        tag: SteeringTag(place.tag),
        offset: place.address + ahead,
    }
}

/// Why nothing was read.
#[derive(Debug, PartialEq)]
enum Refusal {
    /// This end has sent nothing: that shows nothing of the server.
    NotPosted(PostError),
    /// The read has failed, or the connection has ended.
    Failed,
}

/// Reads eight bytes there by RDMA.
fn reads(line: &mut RawDirect, from: Remote) -> Result<[u8; 8], Refusal> {
    let pair = line.pair();
    let region = pair.register(4096, Access::LOCAL).expect("memory");
    let into = Local {
        region: &region,
        offset: 0,
        length: 8,
    };
    let posted = pair.post_read(1, Sink::Region(into), from);
    posted.map_err(Refusal::NotPosted)?;
    pair.flush();
    match ended(pair, |event| matches!(event, Completion::Read { .. })) {
        Some(Completion::Read { result: Ok(()), .. }) => {
            let mut word = [0; 8];
            assert!(region.load(0, &mut word));
            Ok(word)
        }
        _ => Err(Refusal::Failed),
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn chunk_lists_out_of_bounds_are_answered_over_verbs() {
    let (world, place) = serve_on_device();
    let mut beside = Line::connect(&place);
    chunks::out_of_bounds(&mut Line::connect(&place), || {
        world.is_well(&mut beside);
        is_answered(&mut Line::connect(&place));
    });
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn garbage_over_verbs_disturbs_nobody() {
    let (world, place) = serve_on_device();
    let mut beside = Line::connect(&place);
    let ours = |role, one_sided| {
        let nonce = [1; 16];
        PrivateData {
            role,
            one_sided,
            nonce,
        }
        .encode()
    };
    let (rpc, direct, one_sided) = (
        ours(Role::Rpc, false),
        ours(Role::Direct, false),
        ours(Role::Direct, true),
    );
    let mut word = 0x9e37_79b9_u32;
    for said in [&LINUX[..], &[], &rpc, &direct, &one_sided] {
        for length in [0, 1, 3, 27, 28, 40, 80, 333, 1024, 4096] {
            let mut raw = Line::with(&place, said);
            let garbage: Vec<u8> = std::iter::repeat_with(|| {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (word >> 24) as u8
            })
            .take(length)
            .collect();
            for _ in 0..3 {
                let _ = raw.send_message(&garbage);
            }
        }
        world.is_well(&mut beside);
        is_answered(&mut Line::connect(&place));
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn memory_is_read_by_those_who_were_granted_it_and_written_by_nobody() {
    let (world, place) = serve_on_device();
    let mut beside = Line::connect(&place);
    let session = RawSession::open_for(&place, Mode::OneSided);
    let (mut mine, exposed) = session.attach_for(true);
    let ExposedMemory { arena, stamps, .. } = exposed.expect("one-sided reads");
    let stamp = reads(&mut mine, remote(stamps, 0)).expect("the stamp");
    reads(&mut mine, remote(arena, 0)).expect("a page");
    // The same tags, on connections that were not granted it.
    let strangers: [&dyn Fn() -> RawDirect; 3] = [
        &|| RawDirect::connect_for(&place, true),
        &|| RawDirect::connect_for(&place, false),
        &|| session.attach_for(false).0,
    ];
    // Of reads soft iWARP checks only that the memory is registered in the connection's domain (docs/SECURITY.md), and who
    // asks for reads is in that of those who were granted them.
    let spared = usize::from(is_iwarp(&place));
    for (number, stranger) in strangers.iter().enumerate().skip(spared) {
        for from in [remote(arena, 0), remote(stamps, 0)] {
            let read = reads(&mut stranger(), from);
            assert_eq!(
                read,
                Err(Refusal::Failed),
                "stranger {number} read {from:?}"
            );
        }
        world.is_well(&mut beside);
    }
    // Beyond its end, under a tag that is none, and by who may read: a write.
    let own = || session.attach_for(true).0;
    for from in [
        remote(arena, 1 << 40),
        Remote {
            tag: SteeringTag(arena.tag ^ 0x5500),
            offset: arena.address,
        },
    ] {
        let read = reads(&mut own(), from);
        assert_eq!(read, Err(Refusal::Failed), "{from:?}");
        world.is_well(&mut beside);
    }
    for to in [remote(arena, 0), remote(stamps, 0)] {
        let mut line = own();
        let pair = line.pair();
        let _ = pair.post_write(2, Source::Bytes(&[0xee; 8]), to);
        pair.flush();
        // Its end shows that the write was looked at.
        assert!(
            ended(pair, |event| matches!(event, Completion::Recv { .. })).is_none(),
            "a write to {to:?} went through"
        );
        world.is_well(&mut beside);
    }
    assert_eq!(reads(&mut mine, remote(stamps, 0)), Ok(stamp));
    let page = reads(&mut mine, remote(arena, 0)).expect("a page");
    assert_ne!(page, [0xee; 8]);
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn more_than_the_credits_over_verbs_ends_only_that_connection() {
    let (world, place) = serve_on_device();
    let mut beside = Line::connect(&place);
    let before = world.resident_kib();
    let mut raw = Line::connect(&place);
    let (xid, call) = raw.call((nfs3::PROGRAM, nfs3::VERSION, 99));
    let message = [Header::message(xid).bytes(), call, vec![0; 900]].concat();
    for _ in 0..5000 {
        let _ = raw.send_message(&message);
        let _ = raw.pair.poll();
        if raw.pair.is_closed() {
            break;
        }
    }
    world.is_well(&mut beside);
    is_answered(&mut Line::connect(&place));
    let grown = world.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "the server grew by {grown} KiB");
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn connections_over_verbs_that_come_and_go_leave_nothing() {
    let (world, place) = serve_on_device();
    let mut beside = Line::connect(&place);
    let root = world.root();
    let idle: Vec<Line> = (0..32).map(|_| Line::connect(&place)).collect();
    let before = world.resident_kib();
    for round in 0..40 {
        let mut raw = Line::connect(&place);
        // Cut before a call, behind one, behind one whose data the server reads from memory that is not there.
        if round % 3 > 0 {
            let (xid, mut call) = raw.call(GETATTR);
            call.extend(xdr(&FileHandle(&root)));
            let mut header = Header::message(xid);
            if round % 3 == 2 {
                header.reads = vec![(call.len() as u32, 0x5151, 4096, 0x1000)];
            }
            let _ = raw.send_message(&[header.bytes(), call].concat());
        }
    }
    world.is_well(&mut beside);
    drop(idle);
    is_answered(&mut Line::connect(&place));
    let grown = world.resident_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "the server grew by {grown} KiB");
}
