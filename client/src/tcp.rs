//! RPC over TCP, for `nfs://` URLs (RFC 5531 section 11).

use crate::{
    options::Wait,
    transport::{Broken, ReplyBuffer, RpcTransport},
    url::Host,
    waiting::{Awaited, Waits},
};
use odafs_common::{
    rpcrdma::CallShape,
    wire::record::{RecordAssembler, RecordMark},
};
use odafs_fabric::{
    QueuePair,
    clock::{self, Nanos},
};
use rustix::net::{RecvFlags, recv};
use std::{
    io::{self, Write as _},
    net::TcpStream,
    time::Duration,
};

/// The longest record to accept: a READ of 4 MiB and its header.
const RECORD_MAX: u32 = (4 << 20) + 4096;
const CHUNK: usize = 256 << 10;
const LOOK: Duration = Duration::from_millis(100);

/// A TCP stream that carries records.
pub struct NfsTcpTransport {
    stream: TcpStream,
    waits: Waits,
    out: Vec<u8>,
    assembler: RecordAssembler,
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    message: Vec<u8>,
}

impl NfsTcpTransport {
    /// Connects to the first of the host's addresses that answers.
    pub fn connect(host: &Host, wait: Wait, deadline: Nanos) -> io::Result<Self> {
        let mut failed = None;
        for address in host.addresses()? {
            let left = deadline
                .since(clock::now())
                .duration()
                .max(Duration::from_millis(1));
            match dial(address, left) {
                Ok(stream) => return Self::over(stream, wait),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(crate::link::no_address))
    }

    fn over(stream: TcpStream, wait: Wait) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        #[cfg(not(shuttle))]
        odafs_fabric::tcp::settle_pacing(&stream);
        // How often a blocked thread checks its deadline. So messages need no system call for that.
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        Ok(Self {
            stream,
            waits: Waits::new(wait),
            out: Vec::new(),
            assembler: RecordAssembler::new(RECORD_MAX),
            input: vec![0; CHUNK],
            taken: 0,
            filled: 0,
            message: Vec::new(),
        })
    }
}

#[cfg(not(shuttle))]
use odafs_fabric::tcp::dial;

/// There are no sockets in a simulation.
#[cfg(shuttle)]
fn dial(to: std::net::SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&to, timeout)
}

fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn broken(error: io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Broken::by_peer(error),
        _ => Broken::new(error),
    }
}

impl RpcTransport for NfsTcpTransport {
    fn send(
        &mut self,
        message: &[u8],
        _: &CallShape,
        _: Option<&ReplyBuffer>,
        _: Nanos,
    ) -> Result<(), Broken> {
        let length = u32::try_from(message.len())
            .ok()
            .filter(|length| *length <= RECORD_MAX);
        let length = length.ok_or_else(|| Broken::new("the message is too long"))?;
        self.out
            .extend_from_slice(&RecordMark::whole(length).to_bytes());
        self.out.extend_from_slice(message);
        Ok(())
    }

    fn expect(&mut self, awaited: Awaited) {
        self.waits.expect(awaited);
    }

    fn flush(&mut self, deadline: Nanos) -> Result<(), Broken> {
        let mut sent = 0;
        while sent < self.out.len() {
            let left = deadline.since(clock::now());
            if left.0 == 0 {
                return Err(Broken::new("the server takes no more bytes"));
            }
            match self.stream.write(&self.out[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) if is_wait(&error) => odafs_fabric::sync::hint::spin_loop(),
                Err(error) => return Err(broken(error)),
            }
        }
        self.out.clear();
        Ok(())
    }

    fn receive(&mut self, deadline: Nanos) -> Result<bool, Broken> {
        // One wait, though the answer may come in many pieces.
        let mut patience = self.waits.begin(deadline);
        let mut how = RecvFlags::DONTWAIT;
        let mut over = false;
        loop {
            let mut input = &self.input[self.taken..self.filled];
            let record = self.assembler.feed(&mut input);
            self.taken = self.filled - input.len();
            match record {
                Ok(Some(message)) => {
                    self.waits.ended(&patience);
                    self.message = message;
                    return Ok(true);
                }
                // What is there counts, however late it is.
                Ok(None) if over => return Ok(false),
                Ok(None) => {}
                Err(error) => return Err(Broken::new(error)),
            }
            over = match recv(&self.stream, &mut *self.input, how) {
                Ok((_, 0)) => return Err(Broken::by_peer("the server closed the connection")),
                Ok((_, bytes)) => {
                    (self.taken, self.filled) = (0, bytes);
                    clock::now() >= deadline
                }
                Err(error) if !is_wait(&error.into()) => return Err(broken(error.into())),
                Err(_) if how.is_empty() => clock::now() >= deadline,
                // The thread sleeps in the next look at the stream, which saves a call of poll(2).
                Err(_) => !patience.rest_by(|_| {
                    how = RecvFlags::empty();
                    Ok(())
                })?,
            };
        }
    }

    fn message(&self) -> &[u8] {
        &self.message
    }

    fn message_max(&self) -> usize {
        RECORD_MAX as usize
    }

    fn queue_pair(&mut self) -> Option<&mut dyn QueuePair> {
        None
    }

    fn is_over(&mut self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.stream, &mut [0; 1], flags) {
            Ok((_, bytes)) => bytes == 0,
            Err(error) => !is_wait(&error.into()),
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::{io::Read as _, net::TcpListener, thread};

    #[test]
    fn the_end_of_an_idle_connection_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        for wait in [Wait::default(), Wait::Spin] {
            let ours = TcpStream::connect(address).expect("a connection");
            let mut transport = NfsTcpTransport::over(ours, wait).expect("a transport");
            let (mut theirs, _) = listener.accept().expect("a connection");
            assert!(!transport.is_over());
            theirs.write_all(&[1, 2, 3]).expect("room");
            assert!(!transport.is_over());
            // All that was sent has arrived when the end has, which a read waits for.
            drop(theirs);
            let mut late = [0; 3];
            transport.stream.read_exact(&mut late).expect("bytes");
            let mut end = [0; 1];
            while transport.stream.peek(&mut end).is_err() {}
            assert!(transport.is_over());
        }
    }

    fn pair() -> (NfsTcpTransport, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let ours = TcpStream::connect(listener.local_addr().expect("an address"));
        let ours = NfsTcpTransport::over(ours.expect("a connection"), Wait::default());
        let (theirs, _) = listener.accept().expect("a connection");
        (ours.expect("a transport"), theirs)
    }

    /// The client polls for answers as long as they come in time, and sleeps for those that do not.
    #[test]
    fn waits_are_learned_by_kind_of_call() {
        let (mut transport, mut theirs) = pair();
        let record = [&RecordMark::whole(4).to_bytes()[..], &[1, 2, 3, 4]].concat();
        let far = clock::now() + Nanos::from_secs(600);
        thread::scope(|scope| {
            let (asks, asked) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                while asked.recv().is_ok() {
                    thread::sleep(Duration::from_millis(1));
                    theirs.write_all(&record).expect("room");
                }
            });
            transport.expect(Awaited::HandedOn);
            for _ in 0..20 {
                asks.send(()).expect("a peer");
                assert!(transport.receive(far).expect("a connection"));
            }
            drop(asks);
        });
        assert!(!transport.waits.polls(), "each answer was late");
        transport.expect(Awaited::AtOnce);
        assert!(transport.waits.polls(), "no answer of this kind was");
    }

    /// A client that stood still past the deadline takes the answer that has come meanwhile.
    #[test]
    fn an_answer_that_is_there_is_never_late() {
        let (mut transport, mut theirs) = pair();
        let record = [&RecordMark::whole(4).to_bytes()[..], &[1, 2, 3, 4]].concat();
        theirs.write_all(&record).expect("room");
        while transport.stream.peek(&mut [0; 8]).expect("a socket") < 8 {}
        assert!(transport.receive(Nanos(0)).expect("a connection"));
        assert_eq!(transport.message(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let (mut transport, _theirs) = pair();
        for wait in [20, 150] {
            let deadline = clock::now() + Nanos::from_millis(wait);
            assert!(!transport.receive(deadline).expect("a connection"));
            assert!(clock::now() >= deadline);
        }
    }

    /// A server that sends pieces without end makes no call endless, and no late answer counts as one in time.
    #[test]
    fn pieces_are_no_answers() {
        let (mut transport, mut theirs) = pair();
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Fragments of no length, none of which is the last.
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    if theirs.write_all(&[0; 64]).is_err() {
                        return;
                    }
                }
            });
            let soon = clock::now() + Nanos::from_millis(20);
            let came = transport.receive(soon);
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            // Or the peer could not write, and would not look.
            let shut = transport.stream.shutdown(std::net::Shutdown::Both);
            shut.expect("a socket");
            assert!(!came.expect("a connection"));
        });

        let (mut transport, mut theirs) = pair();
        let record = [&RecordMark::whole(64).to_bytes()[..], &[1; 64]].concat();
        let far = clock::now() + Nanos::from_secs(600);
        thread::scope(|scope| {
            let (asks, asked) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                while asked.recv().is_ok() {
                    thread::sleep(Duration::from_millis(1));
                    for piece in record.chunks(4) {
                        theirs.write_all(piece).expect("room");
                        thread::sleep(Duration::from_micros(20));
                    }
                }
            });
            for _ in 0..20 {
                asks.send(()).expect("a peer");
                assert!(transport.receive(far).expect("a connection"));
            }
            drop(asks);
        });
        assert!(!transport.waits.polls(), "each answer was late");
    }
}
