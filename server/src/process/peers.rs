//! Calls to the lock managers and status monitors of clients over TCP. One thread makes all of them. Each call first asks
//! the host's portmapper for the port, and takes a bounded time. The number of waiting calls is bounded for each host and
//! in all.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use odafs_common::wire::portmap::{self, Address, Binding, Mapping};
use odafs_common::wire::record::RecordMark;
use odafs_common::wire::rpc::{self, Auth, Rejection};
use odafs_common::wire::xdr::{Decode as _, Encode as _, Writer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::nlm4::{Heard, PeerCall, Peers};

/// The port of portmappers.
const PORTMAP_PORT: u16 = 111;
/// The time limit for each step of a call: to connect, to ask for the port, and to get the answer.
const STEP: Duration = Duration::from_secs(5);
/// The longest answer, in bytes.
const ANSWER_BYTES: usize = 4096;
/// The most calls under way at a time.
const UNDER_WAY: usize = 64;
/// The most of these to one host.
const UNDER_WAY_TO_ONE: usize = 2;
/// The most calls that wait, under way or not. Further calls count as unreached.
const WAITING: usize = 1 << 14;
/// The most of these for one host.
const WAITING_FOR_ONE: usize = 256;

type Done = Box<dyn FnOnce(Heard) + Send>;

/// A call on its way to the thread.
struct Waiting {
    call: PeerCall,
    done: Done,
    there_is_room: bool,
}

/// The thread that makes the calls, and its queue.
pub struct Callers {
    calls: Option<mpsc::UnboundedSender<Waiting>>,
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Callers {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system can give no more threads or descriptors.
    pub fn start() -> io::Result<Self> {
        Self::to_port(PORTMAP_PORT)
    }

    /// As [`Callers::start`], with another port of portmappers.
    ///
    /// # Errors
    /// As [`Callers::start`].
    pub fn to_port(portmap: u16) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (calls, inbox) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("odafs-peers".to_owned());
        let thread = thread.spawn(move || {
            LocalSet::new().block_on(&runtime, make_calls(inbox, count, portmap));
        })?;
        Ok(Self {
            calls: Some(calls),
            waiting,
            thread: Some(thread),
        })
    }
}

impl Peers for Callers {
    fn call(&self, call: PeerCall, done: Done) {
        let there_is_room = self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING;
        if let Some(calls) = &self.calls {
            // The thread is gone only while everything stops. It also reports calls beyond the limit, because the caller
            // may hold a lock that `done` needs.
            let _ = calls.send(Waiting {
                call,
                done,
                there_is_room,
            });
        }
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        self.calls.take();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A call on the thread itself may hold the last reference.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the thread that calls clients panicked");
        }
    }
}

/// Makes calls until the queue is closed.
async fn make_calls(
    mut inbox: mpsc::UnboundedReceiver<Waiting>,
    waiting: Arc<AtomicUsize>,
    portmap: u16,
) {
    let all = Arc::new(Semaphore::new(UNDER_WAY));
    let mut hosts: HashMap<IpAddr, Arc<Semaphore>> = HashMap::new();
    while let Some(Waiting {
        call,
        done,
        there_is_room,
    }) = inbox.recv().await
    {
        if !there_is_room {
            waiting.fetch_sub(1, Ordering::Relaxed);
            done(Heard::Unreached);
            continue;
        }
        if hosts.len() > UNDER_WAY {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let host = hosts
            .entry(call.address)
            .or_insert_with(|| Arc::new(Semaphore::new(UNDER_WAY_TO_ONE)));
        let (host, all, waiting) = (Arc::clone(host), Arc::clone(&all), Arc::clone(&waiting));
        tokio::task::spawn_local(async move {
            let heard = if Arc::strong_count(&host) > WAITING_FOR_ONE {
                Heard::Unreached
            } else {
                let _turn = host.acquire().await;
                let _place = all.acquire().await;
                make_call(call, portmap).await
            };
            waiting.fetch_sub(1, Ordering::Relaxed);
            done(heard);
        });
    }
}

async fn make_call(call: PeerCall, portmap: u16) -> Heard {
    let (host, program) = (call.address, call.program);
    let connected = async {
        let port = port_of(&call, portmap).await?;
        connect((host, port).into(), call.ours).await
    };
    let mut stream = match connected.await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%host, program, %error, "a client's program was not reached");
            return Heard::Unreached;
        }
    };
    let ours = match stream.local_addr() {
        Ok(address) => address.ip().to_canonical(),
        Err(_) => return Heard::Unreached,
    };
    let procedure = (call.program, call.version, call.procedure);
    match answer(&mut stream, procedure, &(call.arguments)(ours)).await {
        Ok(results) => Heard::Answer(results),
        Err(NoAnswer::Refused(why)) => {
            tracing::debug!(%host, program, %why, "a client's program refused a call");
            Heard::Unreached
        }
        Err(NoAnswer::Lost(error)) => {
            tracing::debug!(%host, program, %error, "a client's program did not answer");
            Heard::Silence
        }
    }
}

/// Connects from this address of ours, or from any if the server has it no more.
async fn connect(address: SocketAddr, ours: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(ours) = ours
        && let Err(error) = socket.bind((ours, 0).into())
    {
        tracing::debug!(%address, %ours, %error, "cannot call a client from the address that it knows");
    }
    let stream = timeout(STEP, socket.connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Asks the host's portmapper for the port of a program.
async fn port_of(call: &PeerCall, portmap: u16) -> io::Result<u16> {
    let mut stream = connect((call.address, portmap).into(), call.ours).await?;
    if call.address.is_ipv6() {
        return port_by_rpcbind(&mut stream, call).await;
    }
    let wanted = Mapping {
        program: call.program,
        version: call.version,
        protocol: portmap::TCP,
        port: 0,
    };
    let get_port = portmap::Procedure::GetPort.code();
    let procedure = (portmap::PROGRAM, portmap::VERSION, get_port);
    let results = answer(&mut stream, procedure, &wanted.to_bytes()).await?;
    let port = results.try_into().ok().map(u32::from_be_bytes);
    match port.and_then(|port| u16::try_from(port).ok()) {
        Some(port) if port != 0 => Ok(port),
        _ => Err(io::Error::other("its portmapper knows no such program")),
    }
}

/// The same over IPv6, where rpcbind replaces the portmapper.
async fn port_by_rpcbind(stream: &mut TcpStream, call: &PeerCall) -> io::Result<u16> {
    let wanted = Binding {
        program: call.program,
        version: call.version,
        transport: b"tcp6",
        address: b"",
        owner: b"",
    };
    let [_, latest] = portmap::RPCBIND_VERSIONS;
    let procedure = (portmap::PROGRAM, latest, portmap::GET_ADDRESS);
    let results = answer(stream, procedure, &wanted.to_bytes()).await?;
    let address = Address::from_bytes(&results).map_err(io::Error::other)?;
    match address.port() {
        Some(port) if port != 0 => Ok(port),
        _ => Err(io::Error::other("its rpcbind knows no such program")),
    }
}

/// Why a call has no results.
enum NoAnswer {
    /// The host has not carried it out.
    Refused(Rejection),
    /// The host may have carried it out.
    Lost(io::Error),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<NoAnswer> for io::Error {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::Refused(why) => Self::other(why),
            NoAnswer::Lost(error) => error,
        }
    }
}

/// Calls a procedure and returns its results.
async fn answer(
    stream: &mut TcpStream,
    (program, version, procedure): (u32, u32, u32),
    arguments: &[u8],
) -> Result<Vec<u8>, NoAnswer> {
    let xid = program ^ procedure;
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    rpc::call(&mut w, xid, program, version, procedure, &Auth::None);
    message.extend_from_slice(arguments);
    let called = async {
        let mark = RecordMark::whole(message.len() as u32);
        stream.write_all(&mark.to_bytes()).await?;
        stream.write_all(&message).await?;
        read_record(stream).await
    };
    let reply = timeout(STEP, called).await.map_err(io::Error::from)??;
    let reply = rpc::parse_reply(&reply).map_err(io::Error::other)?;
    if reply.xid != xid {
        return Err(io::Error::other("an answer to something else").into());
    }
    match reply.body {
        Ok(results) => Ok(results.rest().to_vec()),
        Err(why @ Rejection::SystemError) => Err(io::Error::other(why).into()),
        Err(why) => Err(NoAnswer::Refused(why)),
    }
}

/// Reads a record, which may come in any number of fragments.
async fn read_record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let mut mark = [0; RecordMark::BYTES];
        stream.read_exact(&mut mark).await?;
        let mark = RecordMark::from_bytes(mark);
        let bytes = mark.length as usize;
        if bytes == 0 || whole.len() + bytes > ANSWER_BYTES {
            return Err(io::Error::other("an answer that is too long, or empty"));
        }
        let start = whole.len();
        whole.resize(start + bytes, 0);
        stream.read_exact(&mut whole[start..]).await?;
        if mark.last {
            return Ok(whole);
        }
    }
}

#[cfg(test)]
mod tests;
