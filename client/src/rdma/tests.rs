//! Tests against a server that the test plays itself, message by message.

use super::*;
use crate::{calls::answer, error::CallError, nfs::READ};
use odafs_common::rpcrdma::binding;
use odafs_common::wire::nfs3::{self, FileHandle, Payload, ReadArgs, ReadOk, ReadResult};
use odafs_common::wire::rpc::{Auth, call, reply_success};
use odafs_common::wire::rpcrdma::{Body, Chunks, Header};
use odafs_common::wire::xdr::{Decode as _, Encode as _, Reader};
use odafs_fabric::iwarp::{ConnectOptions, Limits, Listener, connect};
use odafs_fabric::{Listener as _, clock, sync::thread};

const XID: u32 = 7;
const BYTES: u32 = 8192;
const WAIT: Wait = Wait::Block {
    spin: std::time::Duration::ZERO,
};

/// A READ of [`BYTES`] on a connection whose other end is `server`'s.
fn reading(server: impl FnOnce(Box<dyn QueuePair>) + Send + 'static) -> RdmaTransport {
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), Limits::default()).unwrap();
    let address = listener.local_addr();
    let ours = PrivateData::default();
    thread::spawn(move || {
        let mut qp = loop {
            if let Some(incoming) = listener.poll_accept().unwrap() {
                break incoming.accept(&ours.encode(), 0).unwrap();
            }
        };
        qp.post_receives(8);
        server(qp);
    });
    let pair = connect(address, &ours.encode(), &ConnectOptions::default()).unwrap();
    let mut transport = RdmaTransport::new(pair, &ours, Rdma::default(), WAIT);
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    let (program, version, number) = READ.number.on_wire();
    call(&mut w, XID, program, version, number, &Auth::None);
    let arguments = ReadArgs {
        file: FileHandle(b"file"),
        offset: 0,
        count: BYTES,
    };
    arguments.encode(&mut w);
    let bound = binding::nfs3(nfs3::Procedure::Read, BYTES);
    let shape = bound.shape(None);
    let deadline = clock::now() + Nanos::from_secs(30);
    transport.send(&message, &shape, None, deadline).unwrap();
    transport.flush(deadline).unwrap();
    transport
}

/// The write chunk of the call, when the call has come.
fn its_chunk(qp: &mut dyn QueuePair) -> Chunks {
    loop {
        match qp.poll() {
            Some(Completion::Recv { .. }) => break,
            Some(_) => {}
            None => qp.wait(None).unwrap(),
        }
    }
    let header = Header::decode(&mut Reader::new(qp.message())).unwrap();
    let Body::Msg(chunks) = header.body else {
        panic!("{header:?}")
    };
    assert_eq!(chunks.writes.len(), 1);
    chunks
}

fn header(xid: u32, chunks: Chunks) -> Vec<u8> {
    let body = Body::Msg(chunks);
    let credits = 8;
    Header { xid, credits, body }.to_bytes()
}

fn result(data: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut w = Writer::new(&mut reply);
    reply_success(&mut w, XID);
    let ok = ReadOk {
        attributes: None,
        count: data.len() as u32,
        eof: true,
        data: Payload(data),
    };
    ReadResult::Ok(ok).encode(&mut w);
    reply
}

/// What the client reads if the write chunk comes back unused and the reply contains `data`.
fn unused_chunk(data: &'static [u8]) -> Result<Vec<u8>, CallError> {
    let mut transport = reading(move |mut qp| {
        let chunks = its_chunk(&mut *qp);
        let chunks = Chunks {
            writes: chunks.writes.returned(&[]),
            ..Chunks::default()
        };
        // Replies that cannot be read: another version, another kind, another call's, half of a header.
        let mut dropped = header(XID, chunks);
        dropped[7] = 3;
        qp.post_send(0, &[&dropped, &result(data)]).unwrap();
        (dropped[7], dropped[15]) = (1, 2);
        qp.post_send(0, &[&dropped, &result(data)]).unwrap();
        let other = header(XID + 1, chunks);
        qp.post_send(0, &[&other, &result(data)]).unwrap();
        qp.post_send(0, &[&other[..20]]).unwrap();
        qp.post_send(0, &[&header(XID, chunks), &result(data)])
            .unwrap();
        qp.flush();
        while !qp.is_closed() {
            qp.poll();
            let _ = qp.wait(None);
        }
    });
    let deadline = clock::now() + Nanos::from_secs(30);
    assert!(transport.receive(deadline).unwrap());
    assert_eq!(transport.placed().map(|placed| placed.bytes), Some(0));
    let (xid, body) = answer(&transport, &[], &READ)?;
    assert_eq!(xid, XID);
    let mut r = body?;
    match ReadResult::decode(&mut r) {
        Ok(read) => Ok(read.expect("read").data.0.to_vec()),
        Err(error) => Err(crate::calls::misbehaved(&READ, &error)),
    }
}

/// RFC 8166, section 6.1: the server is at fault, and the call fails for good.
#[test]
fn data_that_should_have_gone_to_the_write_chunk_are_not_taken_from_elsewhere() {
    assert_eq!(unused_chunk(b"").unwrap(), b"");
    let refused = unused_chunk(b"here");
    assert!(
        matches!(refused, Err(CallError::Misbehaved { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_server_that_talks_without_end_is_waited_for_until_the_deadline() {
    let mut transport = reading(|mut qp| {
        its_chunk(&mut *qp);
        let nothing = header(XID + 1, Chunks::default());
        loop {
            match qp.post_send(0, &[&nothing]) {
                Ok(_) => {}
                Err(PostError::Full) => {
                    qp.flush();
                    qp.poll();
                    thread::yield_now();
                }
                Err(_) => return,
            }
        }
    });
    let deadline = clock::now() + Nanos::from_millis(100);
    assert!(!transport.receive(deadline).unwrap());
}
