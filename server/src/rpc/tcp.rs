//! RPC over TCP: record marking (RFC 5531, section 11), many calls of a connection in flight, and replies batched into few
//! writes.
//!
//! A few threads share the connections, each with a runtime of its own. The thread that read a call serves it, so a read of
//! resident pages changes no thread. What may block goes to the pool and comes back through a channel. A connection is one
//! task, and the task is one loop: collect what the pool has finished, read and serve while there is room, send.
//!
//! A connection holds at most one record that is coming in, a number of calls on the pool, and a number of bytes of replies.
//! At a bound the server reads nothing more, and TCP tells the client. A silent connection holds no buffer. A record that
//! stops half way or takes too long, or a reply that the client does not take, ends the connection after a while. Peers that
//! are not in the access list may only send short records. TCP's keepalive ends the connection of a dead peer.

mod buffers;
mod connection;
mod records;
mod replies;
mod round;
mod spin;
mod turn;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use odafs_fabric::clock;
use odafs_nic::calls::{Calls, Workers};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use buffers::Buffers;
use connection::Connection;
use round::{ConnectionRound, Rounds};

use super::seen::Seldom;

/// Bounds of what clients can make a server hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections. Further ones are closed at once.
    pub connections: usize,
    /// Bytes of one record: a WRITE of the most data, and its header.
    pub record_bytes: u32,
    /// Calls of one connection on the pool.
    pub calls: usize,
    /// Bytes of replies of one connection that the client has not taken. One reply more may wait.
    pub reply_bytes: usize,
    /// How long a record may stop half way, or a reply may wait for the client.
    pub stall: Duration,
    /// How long a thread polls, before it sleeps, for the next call of a connection that makes one call after the other.
    pub spin: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            record_bytes: (1 << 20) + (64 << 10),
            calls: 32,
            reply_bytes: 4 << 20,
            stall: Duration::from_secs(60),
            spin: Duration::ZERO,
        }
    }
}

impl Limits {
    /// The number of connections up to which one more from `address` is accepted. Peers that are not in the access list
    /// get an answer that says so, but cannot take the places of those that are.
    fn connections_of(&self, listed: &dyn Fn(IpAddr) -> bool, address: IpAddr) -> usize {
        if listed(address) {
            self.connections
        } else {
            self.connections.div_ceil(8)
        }
    }

    /// The longest record from `address`, in bytes.
    fn record_bytes_of(&self, listed: &dyn Fn(IpAddr) -> bool, address: IpAddr) -> u32 {
        if listed(address) {
            self.record_bytes
        } else {
            self.record_bytes.min(STRANGERS_RECORD_BYTES)
        }
    }

    /// How long the longest record may take from its first byte on.
    fn record_time(&self) -> Duration {
        self.stall + Duration::from_secs_f64(f64::from(self.record_bytes) / RECORD_RATE_MIN)
    }
}

/// The longest record of a peer that is not in the access list: a MOUNT of the longest path, with the longest credential.
const STRANGERS_RECORD_BYTES: u32 = 4 << 10;
/// Bytes of a record that come in a second at the least, on average.
const RECORD_RATE_MIN: f64 = 16384.0;

/// What the connections have in common.
struct Shared {
    calls: Arc<dyn Calls>,
    workers: Arc<dyn Workers>,
    limits: Limits,
    /// Whether an address may have more than a few connections.
    listed: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    open: AtomicUsize,
    /// Connections so far. The count numbers them.
    accepted: AtomicU64,
}

/// The numbers of connections over TCP begin here, so that other transports have other numbers.
const FIRST_CONNECTION: u64 = 1 << 62;

/// RPC served over TCP until it is shut down.
pub struct TcpServer {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl TcpServer {
    /// Serves `calls` to the peers that connect to `listener`, on `threads` threads. Addresses in the access list (`listed`)
    /// may have all the connections, others an eighth.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub fn start(
        listener: TcpListener,
        threads: usize,
        calls: Arc<dyn Calls>,
        workers: Arc<dyn Workers>,
        limits: Limits,
        listed: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            calls,
            workers,
            limits,
            listed: Box::new(listed),
            open: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
        });
        let (stop, stopped) = watch::channel(false);
        let mut server = Self {
            shared: shared.clone(),
            stop,
            threads: Vec::new(),
        };
        let mut inboxes = Vec::new();
        for number in 0..threads.max(1) {
            let (sender, inbox) = mpsc::unbounded_channel();
            inboxes.push(sender);
            let (shared, stopped) = (shared.clone(), stopped.clone());
            let rounds = Rounds::new();
            let of_thread = Arc::clone(&rounds);
            server.spawn(format!("nfs-tcp-{number}"), &rounds, move || {
                serve_inbox(shared, inbox, stopped, of_thread)
            })?;
        }
        server.spawn("nfs-accept".to_owned(), &Rounds::new(), move || {
            accept(shared, listener, inboxes, stopped)
        })?;
        Ok(server)
    }

    /// Runs a task on a thread of its own. That thread makes the task, so it need not be `Send`.
    fn spawn<F: Future<Output = ()>>(
        &mut self,
        name: String,
        rounds: &Arc<Rounds>,
        task: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<()> {
        let rounds = Arc::clone(rounds);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(move || rounds.looked())
            .build()?;
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || LocalSet::new().block_on(&runtime, task()))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// As [`TcpServer::connections`], to be asked later. 0 when the server is gone.
    pub fn gauge(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            shared
                .upgrade()
                .map_or(0, |shared| shared.open.load(Ordering::Relaxed))
        }
    }

    /// Accepts and reads no more, finishes the calls under way, sends their replies, and closes.
    pub fn shutdown(mut self) {
        self.close();
    }

    fn close(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the TCP transport panicked");
            }
        }
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// A connection on its way to its thread. Counted as open from here to its end.
struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    number: u64,
    place: ConnectionPermit,
}

/// Frees the place of its connection when it is dropped.
struct ConnectionPermit(Arc<Shared>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections, and gives them to the threads in turn.
async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    inboxes: Vec<mpsc::UnboundedSender<Accepted>>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot wait on the NFS listener");
            return;
        }
    };
    let mut log = Seldom::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                let number = shared.accepted.fetch_add(1, Ordering::Relaxed);
                let place = ConnectionPermit(shared.clone());
                let open = shared.open.fetch_add(1, Ordering::Relaxed);
                if open >= shared.limits.connections_of(&*shared.listed, peer.ip()) {
                    if let Some(untold) = log.untold(clock::now()) {
                        tracing::warn!(%peer, untold, "connection closed: there are too many");
                    }
                    continue;
                }
                let accepted = Accepted {
                    stream,
                    peer,
                    number: FIRST_CONNECTION + number,
                    place,
                };
                // The thread is only gone when all stops.
                let _ = inboxes[number as usize % inboxes.len()].send(accepted);
            }
            Err(error) => {
                // No descriptors, most likely: some will be closed.
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// One thread: runs the connections that it is given.
async fn serve_inbox(
    shared: Arc<Shared>,
    mut inbox: mpsc::UnboundedReceiver<Accepted>,
    stopped: watch::Receiver<bool>,
    rounds: Arc<Rounds>,
) {
    let mut stop = stopped.clone();
    let buffers = Buffers::new();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = inbox.recv() => {
                let Some(accepted) = accepted else { break };
                let (shared, buffers, stopped) = (shared.clone(), buffers.clone(), stopped.clone());
                let round = ConnectionRound::new(Arc::clone(&rounds));
                connections.spawn_local(async move {
                    serve_connection(&shared, accepted, (buffers, round), stopped).await;
                });
            }
            Some(_) = connections.join_next() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    // They know that they are to stop.
    while connections.join_next().await.is_some() {}
}

async fn serve_connection(
    shared: &Shared,
    accepted: Accepted,
    of_thread: (Buffers, ConnectionRound),
    stopped: watch::Receiver<bool>,
) {
    let Accepted {
        stream,
        peer,
        number,
        place: _place,
    } = accepted;
    match Connection::new(shared, stream, peer, number, of_thread) {
        Ok(mut connection) => {
            let end = connection.run(stopped).await;
            connection.notes().close();
            tracing::debug!(%peer, %end, "connection ended");
        }
        Err(error) => tracing::debug!(%peer, %error, "connection lost at once"),
    }
    shared.calls.closed(number);
}
