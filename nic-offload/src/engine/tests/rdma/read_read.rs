//! The Read-Read design.

use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::rpcrdma::{Body, Chunks, Header, ReadSegment, Segment};
use odafs_fabric::clock::Nanos;
use odafs_fabric::sim::NetworkConfig;
use odafs_fabric::{Access, Local, Remote, Sink, SteeringTag};

use super::rig::{Client, Rig, load, pages};
use super::strategies;
use crate::engine::RdmaConfig;
use crate::registration::Strategy;

fn read_read() -> RdmaConfig {
    RdmaConfig {
        read_read: true,
        done_time_max: Nanos::from_millis(20),
        ..RdmaConfig::default()
    }
}

/// What a reply exposes.
fn exposed(header: &Header) -> ReadSegment {
    let Body::Msg(chunks) = header.body else {
        panic!("{header:?}")
    };
    let [read] = chunks.reads[..] else {
        panic!("{chunks:?}")
    };
    read
}

impl Client {
    /// Reads a segment of the server's; `None`: it does not let us.
    fn fetch(&mut self, segment: Segment) -> Option<Vec<u8>> {
        let region = self.region(&vec![0; segment.length as usize], Access::LOCAL);
        let sink = Sink::Region(Local {
            region: &region,
            offset: 0,
            length: region.len(),
        });
        let from = Remote {
            tag: SteeringTag(segment.handle),
            offset: segment.offset,
        };
        let read = self.qp.post_read(0, sink, from).is_ok();
        read.then(|| load(&region, 0, region.len()))
    }
}

#[test]
fn in_the_read_read_design_the_client_fetches() {
    for config in strategies() {
        let config = RdmaConfig {
            registration: config.registration,
            ..read_read()
        };
        let rig = Rig::new(NetworkConfig::default(), config);
        let wish = PrivateData {
            read_read: true,
            ..PrivateData::default()
        };
        let mut client = rig.client_that_says(&wish);
        let message = client.message(b'r', &[]);
        let (header, reply) = client.call(Chunks::default(), &message);
        assert_eq!(reply[8..], *b"headtail");
        let read = exposed(&header);
        assert_eq!(read.position, 12);
        assert_eq!(client.fetch(read.segment), Some(pages()));
        client.send(Body::Done, &[]);
        client.echo();
        assert_eq!(Rig::count(&rig.counts.dones), 1);
        if config.registration.strategy != Strategy::Pooled {
            assert_eq!(client.fetch(read.segment), None, "it is concealed again");
        }
        // Who says nothing has had his time.
        let message = client.message(b'r', &[]);
        client.call(Chunks::default(), &message);
        while Rig::count(&rig.counts.done_timeouts) == 0 {
            client.echo();
        }
        rig.end();
    }
}

#[test]
fn read_read_takes_both_ends() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let wish = PrivateData {
        read_read: true,
        ..PrivateData::default()
    };
    let client = rig.client_that_says(&wish);
    let answer = PrivateData::decode(client.qp.private_data()).unwrap();
    assert!(!answer.read_read);
    assert_eq!(client.qp.reads_max(), 0, "no RDMA Read is let in");
    rig.end();

    let rig = Rig::new(NetworkConfig::default(), read_read());
    let client = rig.client();
    assert_eq!(client.qp.reads_max(), 0, "no RDMA Read is let in");
    rig.end();
}
