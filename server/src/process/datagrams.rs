//! The portmapper and the status monitor over UDP. Status monitors of clients use them to report a restart. The server
//! answers no other call over UDP, and none with an answer longer than the call, so a forged address gains nothing.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use odafs_common::wire::{nsm, portmap, rpc};
use odafs_fabric::Peer;
use odafs_nic::calls::{Caller, Calls, Notes, Outcome, Placements, Transport};

use crate::rpc::Service;

/// The longest call, in bytes. A longer one is cut off and does not decode.
const CALL_BYTES: usize = 2048;
/// The longest answer, in bytes.
const ANSWER_BYTES: u32 = 512;
/// How often the thread checks whether it is to end.
const LOOK: Duration = Duration::from_millis(500);

/// The thread that serves datagrams. Dropping this ends it.
pub struct Datagrams {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Datagrams {
    /// Serves calls that come to `socket`.
    ///
    /// # Errors
    /// The system can give no more threads.
    pub fn start(socket: UdpSocket, service: Arc<Service>) -> io::Result<Self> {
        socket.set_read_timeout(Some(LOOK))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("odafs-udp".to_owned());
        let thread = thread.spawn(move || serve(&socket, &service, &stopped))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|t| t.join().is_err()) {
            tracing::error!("the thread of datagrams panicked");
        }
    }
}

fn serve(socket: &UdpSocket, service: &Service, stopped: &AtomicBool) {
    let mut call = [0; CALL_BYTES];
    let mut number = 0;
    while !stopped.load(Ordering::Relaxed) {
        let (bytes, from) = match socket.recv_from(&mut call) {
            Ok(received) => received,
            Err(error) => {
                let waited = matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                );
                if !waited {
                    // For example, an earlier answer reached nobody.
                    tracing::debug!(%error, "cannot receive a datagram");
                    std::thread::sleep(Duration::from_millis(10));
                }
                continue;
            }
        };
        if !service.access().admits_address(from.ip()) || !is_served(&call[..bytes]) {
            continue;
        }
        number += 1;
        let caller = Caller {
            peer: Peer::Address(from),
            local: None,
            // Each datagram counts as a connection of one call.
            connection: FIRST_CONNECTION + number,
            transport: Transport::NfsTcp,
            reply_bytes_max: ANSWER_BYTES,
            placements: Placements::default(),
            apart: None,
            back: None,
            notes: Notes::default(),
        };
        if let Some(answer) = answer(service, &caller, &call[..bytes])
            && let Err(error) = socket.send_to(&answer, from)
        {
            tracing::debug!(%from, %error, "cannot answer a datagram");
        }
    }
}

/// Datagrams are numbered from here on, above the numbers of connections.
const FIRST_CONNECTION: u64 = 3 << 61;

fn is_served(message: &[u8]) -> bool {
    let Ok((header, _)) = rpc::parse_call(message) else {
        return false;
    };
    let get_port = portmap::Procedure::GetPort.code();
    let notify = nsm::Procedure::Notify.code();
    match (header.program, header.procedure) {
        (portmap::PROGRAM, procedure) => procedure == 0 || procedure == get_port,
        (nsm::PROGRAM, procedure) => procedure == 0 || procedure == notify,
        _ => false,
    }
}

fn answer(service: &Service, caller: &Caller, message: &[u8]) -> Option<Vec<u8>> {
    let mut reply = Vec::new();
    let mut outcome = service.call(caller, message, &mut reply);
    while let Outcome::Deferred(job) = outcome {
        reply.clear();
        outcome = job.run(&mut reply);
    }
    matches!(outcome, Outcome::Replied).then_some(reply)
}
