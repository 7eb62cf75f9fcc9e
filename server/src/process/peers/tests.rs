//! Calls to hosts that are programs of the test: a portmapper and what it tells of, on one port.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use super::*;

/// What a host does with a call.
#[derive(Clone, Copy)]
enum Does {
    /// Answers with these results.
    Answers(&'static [u8]),
    /// The same, in fragments of one byte.
    AnswersInPieces(&'static [u8]),
    /// Closes the connection without a word.
    Closes,
    /// Sends these bytes in place of a record.
    Sends(&'static [u8]),
    /// Rejects the call in these words, from the second word of a reply on.
    Rejects(&'static [u32]),
}

/// A host where calls of the portmapper and of others end like this: the port of its portmapper, and the calls that came.
fn host(portmapper: Option<u16>, others: Does) -> (u16, mpsc::Receiver<Vec<u8>>) {
    host_at("127.0.0.1", portmapper, others)
}

fn host_at(address: &str, portmapper: Option<u16>, others: Does) -> (u16, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind((address, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (calls, came) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut mark = [0; 4];
            stream.read_exact(&mut mark).expect("a record");
            let mark = RecordMark::from_bytes(mark);
            let mut call = vec![0; mark.length as usize];
            stream.read_exact(&mut call).expect("all of it");
            let (header, arguments) = rpc::parse_call(&call).expect("a call");
            if header.program == portmap::PROGRAM {
                let told = portmapper.unwrap_or(port);
                let results = match header.version {
                    portmap::VERSION => u32::from(told).to_be_bytes().to_vec(),
                    _ => Address(format!("::.{}.{}", told >> 8, told & 0xff).as_bytes()).to_bytes(),
                };
                reply(&mut stream, header.xid, &results, 1024);
                continue;
            }
            let _ = calls.send(arguments.rest().to_vec());
            match others {
                Does::Answers(results) => reply(&mut stream, header.xid, results, 1024),
                Does::AnswersInPieces(results) => reply(&mut stream, header.xid, results, 1),
                Does::Closes => {}
                Does::Sends(bytes) => stream.write_all(bytes).expect("sent"),
                Does::Rejects(words) => {
                    let words = [&[header.xid], words].concat();
                    let bytes = words.iter().flat_map(|word| word.to_be_bytes());
                    let message = Vec::from_iter(bytes);
                    let mark = RecordMark::whole(message.len() as u32).to_bytes();
                    let whole = [&mark, &message[..]].concat();
                    stream.write_all(&whole).expect("sent");
                }
            }
        }
    });
    (port, came)
}

fn reply(stream: &mut impl io::Write, xid: u32, results: &[u8], piece: usize) {
    let mut message = Vec::new();
    rpc::reply_success(&mut Writer::new(&mut message), xid);
    message.extend_from_slice(results);
    let pieces = message.chunks(piece);
    let last = pieces.len() - 1;
    for (at, bytes) in pieces.enumerate() {
        let mark = RecordMark {
            last: at == last,
            length: bytes.len() as u32,
        };
        let piece = [&mark.to_bytes(), bytes].concat();
        // The other end may have had enough.
        let _ = stream.write_all(&piece);
    }
}

/// Calls the host, and waits for what becomes of that.
fn call(portmap: u16) -> Heard {
    call_at("127.0.0.1", None, portmap)
}

/// The same, with the address of ours that the host uses.
fn call_at(address: &str, ours: Option<&str>, portmap: u16) -> Heard {
    let callers = Callers::to_port(portmap).expect("a thread");
    let (tell, told) = mpsc::channel();
    let call = PeerCall {
        address: address.parse().expect("an address"),
        ours: ours.map(|ours| ours.parse().expect("an address")),
        program: 100_021,
        version: 4,
        procedure: 5,
        arguments: Box::new(|ours| ours.to_string().into_bytes()),
    };
    callers.call(call, Box::new(move |heard| tell.send(heard).expect("told")));
    told.recv().expect("an end")
}

#[test]
fn a_call_goes_to_the_port_that_the_portmapper_tells() {
    let (port, came) = host(None, Does::Answers(b"done"));
    assert_eq!(call(port), Heard::Answer(b"done".to_vec()));
    assert_eq!(came.recv().expect("a call"), b"127.0.0.1");
    let (port, _came) = host(None, Does::AnswersInPieces(b"piecewise..."));
    assert_eq!(call(port), Heard::Answer(b"piecewise...".to_vec()));
}

#[test]
fn a_call_comes_from_the_address_that_the_host_uses() {
    let (port, came) = host(None, Does::Answers(b"done"));
    let heard = call_at("127.0.0.1", Some("127.0.0.2"), port);
    assert_eq!(heard, Heard::Answer(b"done".to_vec()));
    assert_eq!(came.recv().expect("a call"), b"127.0.0.2");
    // One that the server has no more.
    let heard = call_at("127.0.0.1", Some("192.0.2.1"), port);
    assert_eq!(heard, Heard::Answer(b"done".to_vec()));
    assert_eq!(came.recv().expect("a call"), b"127.0.0.1");
}

#[test]
fn over_ipv6_rpcbind_tells_the_port() {
    if TcpListener::bind("[::1]:0").is_err() {
        // There is none here.
        return;
    }
    let (port, came) = host_at("::1", None, Does::Answers(b"done"));
    assert_eq!(call_at("::1", None, port), Heard::Answer(b"done".to_vec()));
    assert_eq!(came.recv().expect("a call"), b"::1");
    let (port, _came) = host_at("::1", Some(0), Does::Closes);
    assert_eq!(call_at("::1", None, port), Heard::Unreached);
}

#[test]
fn who_is_not_reached_has_not_heard() {
    // No such program, nothing at its port, and no portmapper.
    let (port, _came) = host(Some(0), Does::Closes);
    assert_eq!(call(port), Heard::Unreached);
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = closed.local_addr().expect("an address").port();
    drop(closed);
    let (port, _came) = host(Some(nobody), Does::Closes);
    assert_eq!(call(port), Heard::Unreached);
    assert_eq!(call(nobody), Heard::Unreached);
}

#[test]
fn who_rejects_a_call_has_not_carried_it_out() {
    // A reply that is accepted but for: no such program, procedure, arguments; and a refused credential.
    let rejections: [&[u32]; 4] = [
        &[1, 0, 0, 0, 1],
        &[1, 0, 0, 0, 3],
        &[1, 0, 0, 0, 4],
        &[1, 1, 1, 5],
    ];
    for words in rejections {
        let (port, _came) = host(None, Does::Rejects(words));
        assert_eq!(call(port), Heard::Unreached, "{words:?}");
    }
}

#[test]
fn who_does_not_answer_may_have_heard() {
    let answers = [
        // A fault, of which nobody knows when it happened.
        Does::Rejects(&[1, 0, 0, 0, 5]),
        Does::Closes,
        // Too long, empty, no reply, and another's.
        Does::Sends(&[0x80, 1, 0, 0]),
        Does::Sends(&[0, 0, 0, 0]),
        Does::Sends(&[0x80, 0, 0, 4, 1, 2, 3, 4]),
        Does::Sends(b"\x80\0\0\x18\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    ];
    for does in answers {
        let (port, _came) = host(None, does);
        assert_eq!(call(port), Heard::Silence);
    }
}

#[test]
fn no_host_makes_more_wait_than_it_may() {
    let callers = Callers::to_port(1).expect("a thread");
    let (tell, told) = mpsc::channel();
    for _ in 0..WAITING + 10 {
        let tell = tell.clone();
        let call = PeerCall {
            address: "127.0.0.1".parse().expect("an address"),
            ours: None,
            program: 100_021,
            version: 4,
            procedure: 5,
            arguments: Box::new(|_| Vec::new()),
        };
        callers.call(call, Box::new(move |heard| tell.send(heard).expect("told")));
    }
    drop(tell);
    assert!(told.iter().all(|heard| heard == Heard::Unreached));
    assert_eq!(callers.waiting.load(Ordering::Relaxed), 0);
}
