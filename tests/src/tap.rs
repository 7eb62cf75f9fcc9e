//! A tap on iWARP connections: passes their bytes on, and keeps them for a capture file.

use crate::pcap::{Capture, Connection};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Bytes of one connection, in the order in which the tap passed them on; 0 from the client, 1 from the server.
type Passed = Vec<(usize, Vec<u8>)>;

/// Stands between clients and a server.
#[derive(Debug)]
pub struct Tap {
    /// Where clients connect.
    pub address: SocketAddr,
    connections: Arc<Mutex<Vec<Passed>>>,
}

impl Tap {
    /// In front of `HOST:PORT`.
    ///
    /// # Panics
    /// There is no port to listen on.
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("address");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (server, kept) = (server.to_owned(), Arc::clone(&connections));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else {
                    continue;
                };
                let number = {
                    let mut kept = kept.lock().expect("lock");
                    kept.push(Vec::new());
                    kept.len() - 1
                };
                for (from, [mut source, mut sink]) in [
                    [
                        client.try_clone().expect("clone"),
                        server.try_clone().expect("clone"),
                    ],
                    [server, client],
                ]
                .into_iter()
                .enumerate()
                {
                    let kept = Arc::clone(&kept);
                    thread::spawn(move || {
                        let mut bytes = vec![0; 1 << 16];
                        while let Ok(count @ 1..) = source.read(&mut bytes) {
                            // Kept before it is passed on, so that an answer stands behind its question.
                            let passed = (from, bytes[..count].to_vec());
                            kept.lock().expect("lock")[number].push(passed);
                            if sink.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = sink.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// What has passed, as a capture file with each MPA frame and each FPDU in a packet of its own.
    ///
    /// # Panics
    /// A thread of the tap has.
    pub fn capture(&self) -> Capture {
        let mut capture = Capture::default();
        let connections = self.connections.lock().expect("lock");
        for (number, passed) in connections.iter().enumerate() {
            let mut connection = Connection::new(40_000 + number as u16, 20_049);
            let mut waiting = [Vec::new(), Vec::new()];
            let mut first = [true; 2];
            for (from, bytes) in passed {
                let waiting = &mut waiting[*from];
                waiting.extend(bytes);
                while let Some(length) = frame_length(waiting, first[*from]) {
                    first[*from] = false;
                    let frame: Vec<u8> = waiting.drain(..length).collect();
                    capture.packet(&mut connection, *from, &frame);
                }
            }
            assert!(
                waiting.concat().is_empty(),
                "connection {number} ends within a frame"
            );
        }
        capture
    }
}

/// Length of the frame at the front, if it is whole: an MPA request or reply at first (RFC 5044 section 7.1), then FPDUs
/// (section 4.1).
fn frame_length(bytes: &[u8], first: bool) -> Option<usize> {
    let word = |at: usize| {
        Some(usize::from(u16::from_be_bytes([
            *bytes.get(at)?,
            *bytes.get(at + 1)?,
        ])))
    };
    let length = if first {
        20 + word(18)?
    } else {
        (2 + word(0)?).next_multiple_of(4) + 4
    };
    (bytes.len() >= length).then_some(length)
}
