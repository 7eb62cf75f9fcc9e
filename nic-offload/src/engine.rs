//! The engine: one thread that polls every connection, serves direct reads itself and passes calls to the procedures.
//!
//! The engine never blocks while there is work. Work that may block is a [`Job`] on the server's pool, and its result
//! comes back through a queue. With nothing to do, the engine polls for a configured time, then arms everything and
//! sleeps.

use std::io;

use odafs_fabric::Listener;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, LifeWord};
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, hint};
use odafs_fabric::wake::WakeSet;

use crate::calls::{Calls, Errand, Job, Transport, Workers};
use crate::nic::Nic;
use crate::registration::{Frames, Supply};

mod admission;
mod backlog;
mod direct;
mod outbox;
mod rdma;
mod returns;
mod rpc;

pub use rdma::{Credits, RdmaConfig, RdmaCounters};

use backlog::Backlog;
use direct::DirectLine;
use rdma::RdmaLine;
use returns::{CallOrigin, Returns};
use rpc::RpcLine;

/// How an engine spends its time, and its limits.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// How long to poll without work before sleeping. Zero: sleep at once.
    pub spin: Nanos,
    /// The most connections at a time. Further ones are rejected.
    pub connections_max: usize,
    /// The most messages that a peer may have under way on one connection.
    pub receives: u32,
    /// The most events that one connection may have in its turn.
    pub batch: u32,
    /// The most calls of one connection that the workers may have at a time.
    pub deferred_max: usize,
    /// When replies under way have pinned this many frames, the connection's next calls wait. Frames of suspended calls
    /// count, too.
    pub pins_max: usize,
    /// A connection that keeps frames pinned, or its answers waiting, for longer is closed. The time of suspended calls, which
    /// wait for the server, does not count.
    pub pinned_time_max: Nanos,
    /// A direct connection that is not attached within this time is closed.
    pub attach_time_max: Nanos,
    /// How long [`Stopper::stop`] waits for work under way.
    pub drain_time_max: Nanos,
    /// Whether RDMA Reads are offered to direct connections of other machines that ask for them.
    pub remote_reads: bool,
    /// The configuration of RPC-over-RDMA connections.
    pub rdma: RdmaConfig,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            spin: Nanos::from_micros(50),
            connections_max: 4096,
            receives: 128,
            batch: 32,
            deferred_max: 32,
            pins_max: 512,
            pinned_time_max: Nanos::from_secs(30),
            attach_time_max: Nanos::from_secs(10),
            drain_time_max: Nanos::from_secs(5),
            remote_reads: true,
            rdma: RdmaConfig::default(),
        }
    }
}

/// What an engine serves.
pub struct Serves {
    /// The memory from which replies may be written.
    pub arena: Arc<Arena>,
    /// The NIC, for direct reads. `None` with `--direct off`.
    pub nic: Option<Arc<Nic>>,
    /// The procedures.
    pub calls: Arc<dyn Calls>,
    /// The pool for calls that may block.
    pub workers: Arc<dyn Workers>,
    /// The life word that one-sided clients check. Without it, none gets one-sided access.
    pub life: Option<Arc<LifeWord>>,
    /// Frames for incoming data ([`Strategy::AllPhysical`](crate::registration::Strategy)).
    pub frames: Option<Arc<dyn Frames>>,
    /// The counters of RPC-over-RDMA.
    pub rdma: Arc<RdmaCounters>,
}

/// An engine. Any thread may create it; one thread runs it.
pub struct Engine {
    config: EngineConfig,
    serves: Serves,
    supply: Supply,
    listeners: Vec<Entrance>,
    /// Free places are reused. The number of a line never is.
    lines: Vec<Option<Line>>,
    vacant: Vec<usize>,
    /// The transport of each line.
    transports: Vec<Transport>,
    open: Arc<OpenConnections>,
    next_number: u64,
    returns: Arc<Returns>,
    backlog: Backlog,
    wake: Arc<WakeSet>,
    stopping: Arc<AtomicBool>,
    /// Reply buffer of the present call.
    reply: Vec<u8>,
    /// When this round began.
    time: Nanos,
    /// When to look at the listeners next.
    accept_next: Nanos,
    /// Whether a connection was blocked in this round.
    blocked: bool,
}

/// How often a busy engine looks for new connections. That is a system call, which delays every request.
const ACCEPT_EVERY: Nanos = Nanos::from_millis(1);
/// A look at the clock costs about as much as the rest of an idle round, so one serves this many rounds.
const ROUNDS_A_LOOK: u32 = 32;
/// The most connections that are accepted from one listener at a time.
const ACCEPT_BATCH: usize = 16;
/// Sleep of an engine with a blocked connection.
const BLOCKED_NAP: Nanos = Nanos::from_millis(1);
/// Sleep of an engine with a connection that has a deadline.
const DEADLINE_NAP: Nanos = Nanos::from_secs(1);

struct Entrance {
    listener: Box<dyn Listener>,
    transport: Transport,
    /// Number of failed accepts since the last success.
    failures: u32,
}

impl Entrance {
    /// Logs less and less often while nothing changes. The listener itself pauses.
    fn failed(&mut self, error: &io::Error) {
        self.failures = self.failures.saturating_add(1);
        if self.failures.is_power_of_two() {
            let (listener, failures) = (self.listener.name(), self.failures);
            tracing::warn!(listener, %error, failures, "accept failed");
        }
    }
}

/// A connection, by its purpose.
enum Line {
    Direct(Box<DirectLine>),
    Rpc(Box<RpcLine>),
    Rdma(Box<RdmaLine>),
}

impl Line {
    /// Whether a cheap check finds nothing for its turn.
    #[inline]
    fn rests(&mut self) -> bool {
        match self {
            Line::Direct(line) => line.rests(),
            Line::Rpc(line) => line.rests(),
            Line::Rdma(line) => line.rests(),
        }
    }
}

/// The result of a line's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineProgress {
    /// Something was done.
    Busy,
    /// Nothing to do.
    Idle,
    /// Something waits for room at the peer or in the pool. Perhaps no event will report it, so look again soon.
    Blocked,
    /// The connection has ended.
    Dead,
}

/// What a line needs to know in its turn.
struct Now<'a> {
    config: &'a EngineConfig,
    serves: &'a Serves,
    supply: &'a Supply,
    returns: &'a Arc<Returns>,
    backlog: &'a Backlog,
    time: Nanos,
    /// Whether the engine stops: accept nothing new, and only finish what is under way.
    draining: bool,
}

impl Now<'_> {
    /// Passes a call to the workers, as soon as they have room. Something comes back for it in any case.
    fn defer(&self, job: Job, place: CallOrigin, syncs: bool) {
        let errand = Errand {
            connection: place.number,
            syncs,
            task: self.returns.task(job, place),
        };
        self.backlog.submit(errand, &*self.serves.workers);
    }

    /// Whether this connection has calls for which the workers have had no room. If so, it accepts no more.
    fn holds_back(&self, number: u64) -> bool {
        self.backlog.holds(number)
    }
}

/// The number of connections of an engine, by transport.
#[derive(Debug, Default)]
pub struct OpenConnections([AtomicU64; Transport::ALL.len()]);

impl OpenConnections {
    /// The number of connections over this transport.
    pub fn over(&self, transport: Transport) -> u64 {
        self.0[transport as usize].load(Ordering::Relaxed)
    }

    /// Modulo 2^64.
    fn change(&self, transport: Transport, by: u64) {
        self.0[transport as usize].fetch_add(by, Ordering::Relaxed);
    }
}

/// Ends an engine from any thread.
#[derive(Clone)]
pub struct Stopper {
    stopping: Arc<AtomicBool>,
    wake: Arc<WakeSet>,
}

impl Stopper {
    /// Stops accepting and reading. Calls under way are answered (within the drain time), then [`Engine::run`] returns.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.wake();
    }
}

impl Engine {
    /// An engine without listeners.
    pub fn new(config: EngineConfig, serves: Serves) -> io::Result<Engine> {
        let wake = Arc::new(WakeSet::new()?);
        let supply = Supply::new(
            serves.frames.clone(),
            Arc::clone(&serves.arena),
            config.rdma.registration.bytes_max,
            Arc::clone(&serves.rdma.registration),
        );
        Ok(Engine {
            config,
            serves,
            supply,
            listeners: Vec::new(),
            lines: Vec::new(),
            vacant: Vec::new(),
            transports: Vec::new(),
            open: Arc::default(),
            next_number: 1,
            returns: Arc::new(Returns::new(Arc::clone(&wake))),
            backlog: Backlog::default(),
            wake,
            stopping: Arc::new(AtomicBool::new(false)),
            reply: Vec::new(),
            time: clock::now(),
            accept_next: Nanos(0),
            blocked: false,
        })
    }

    /// Accepts connections from this listener too.
    pub fn listen(
        &mut self,
        mut listener: Box<dyn Listener>,
        transport: Transport,
    ) -> io::Result<()> {
        listener.watch(&self.wake)?;
        self.listeners.push(Entrance {
            listener,
            transport,
            failures: 0,
        });
        Ok(())
    }

    /// A handle to end this engine.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            stopping: Arc::clone(&self.stopping),
            wake: Arc::clone(&self.wake),
        }
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.lines.len() - self.vacant.len()
    }

    /// Number of connections by transport, for other threads.
    pub fn open_connections(&self) -> &Arc<OpenConnections> {
        &self.open
    }

    /// Serves until it is stopped.
    pub fn run(&mut self) {
        let mut idle_since = None;
        let mut idle_rounds = 0u32;
        while !self.stopping.load(Ordering::Acquire) {
            if idle_rounds.is_multiple_of(ROUNDS_A_LOOK) {
                self.time = clock::now();
            }
            if self.round() {
                idle_since = None;
                idle_rounds = 0;
                continue;
            }
            idle_rounds = idle_rounds.wrapping_add(1);
            let since = *idle_since.get_or_insert(self.time);
            if self.time.since(since) < self.config.spin {
                hint::spin_loop();
            } else {
                self.sleep();
                idle_since = None;
                idle_rounds = 0;
            }
        }
        self.drain();
    }

    /// One round: looks at everything once. Returns false if there was nothing to do.
    pub fn poll_once(&mut self) -> bool {
        self.time = clock::now();
        self.round()
    }

    /// The round itself, with the time of the last look at the clock.
    fn round(&mut self) -> bool {
        let accepted = self.accept();
        let returned = self.deliver();
        let handed = self.backlog.retry(&*self.serves.workers);
        let moved = self.serve(false);
        accepted || returned || handed || moved
    }

    /// Looks for new connections. That takes a system call for each listener, so it does not happen in every round.
    fn accept(&mut self) -> bool {
        if self.time < self.accept_next {
            return false;
        }
        self.accept_next = self.time + ACCEPT_EVERY;
        let mut any = false;
        for at in 0..self.listeners.len() {
            for _ in 0..ACCEPT_BATCH {
                let entrance = &mut self.listeners[at];
                match entrance.listener.poll_accept() {
                    Ok(Some(incoming)) => {
                        entrance.failures = 0;
                        let transport = entrance.transport;
                        self.admit(incoming, transport);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        entrance.failed(&error);
                        break;
                    }
                }
                any = true;
            }
        }
        any
    }

    /// What a connection's turn sees of the engine, the connections, and the buffer for replies.
    #[inline]
    fn parts(&mut self, draining: bool) -> (Now<'_>, &mut Vec<Option<Line>>, &mut Vec<u8>) {
        let now = Now {
            config: &self.config,
            serves: &self.serves,
            supply: &self.supply,
            returns: &self.returns,
            backlog: &self.backlog,
            time: self.time,
            draining,
        };
        (now, &mut self.lines, &mut self.reply)
    }

    /// Passes the results of the workers to the connections that asked for them.
    fn deliver(&mut self) -> bool {
        let (now, lines, _) = self.parts(false);
        let mut any = false;
        while let Some(returned) = now.returns.take() {
            any = true;
            match lines.get_mut(returned.place.line).and_then(Option::as_mut) {
                Some(Line::Rpc(line)) if line.number() == returned.place.number => {
                    line.returned(returned, &now)
                }
                Some(Line::Rdma(line)) if line.number() == returned.place.number => {
                    line.returned(returned, &now)
                }
                _ => {}
            }
        }
        any
    }

    /// Gives every connection its turn.
    fn serve(&mut self, draining: bool) -> bool {
        let mut busy = false;
        self.blocked = false;
        for at in 0..self.lines.len() {
            let (now, lines, reply) = self.parts(draining);
            let Some(line) = &mut lines[at] else { continue };
            if !draining && line.rests() {
                continue;
            }
            let turn = match line {
                Line::Direct(line) => line.turn(&now),
                Line::Rpc(line) => line.turn(at, reply, &now),
                Line::Rdma(line) => line.turn(at, reply, &now),
            };
            match turn {
                LineProgress::Busy => busy = true,
                LineProgress::Idle => {}
                LineProgress::Blocked => self.blocked = true,
                LineProgress::Dead => {
                    self.reap(at);
                    busy = true;
                }
            }
        }
        busy
    }

    /// Ends a connection: releases its pins and frees its place.
    fn reap(&mut self, at: usize) {
        if let Some(line) = self.lines[at].take() {
            self.vacant.push(at);
            self.open.change(self.transports[at], u64::MAX);
            match line {
                Line::Direct(line) => drop(line),
                Line::Rpc(line) => line.close(&self.serves),
                Line::Rdma(line) => {
                    line.close(&self.serves);
                    self.share_credits(self.rdma_clients());
                }
            }
        }
    }

    /// Arms everything and sleeps until something happens.
    fn sleep(&mut self) {
        self.wake.prepare();
        // Events before the preparation may have woken nobody.
        self.accept_next = Nanos(0);
        if self.accept() {
            return;
        }
        let armed = self.lines.iter_mut().flatten().all(|line| match line {
            Line::Direct(line) => line.arm(),
            Line::Rpc(line) => line.arm(),
            Line::Rdma(line) => line.arm(),
        });
        if armed && self.returns.is_empty() && !self.stopping.load(Ordering::Acquire) {
            self.wake.wait(self.look_again());
            self.accept_next = Nanos(0);
        }
    }

    /// The longest time to sleep: for blocked connections and for deadlines there may be no event.
    fn look_again(&self) -> Option<Nanos> {
        let deadlines = self.lines.iter().flatten().any(|line| match line {
            Line::Direct(line) => line.has_deadline(),
            Line::Rpc(line) => line.has_deadline(),
            Line::Rdma(line) => line.has_deadline(),
        });
        let patience = self.listeners.iter().filter_map(|e| e.listener.patience());
        // The end of their calls reports room at the workers, and those calls may belong to others.
        match (self.blocked || !self.backlog.is_empty(), deadlines) {
            (true, _) => Some(BLOCKED_NAP),
            (false, true) => Some(DEADLINE_NAP),
            (false, false) => patience.min(),
        }
    }

    /// Finishes what is under way, accepts nothing new, and closes every connection.
    fn drain(&mut self) {
        self.listeners.clear();
        let until = clock::now() + self.config.drain_time_max;
        while self.time < until && !self.is_drained() {
            self.time = clock::now();
            let returned = self.deliver();
            let handed = self.backlog.retry(&*self.serves.workers);
            if !self.serve(true) && !returned && !handed {
                self.wake.prepare();
                if self.returns.is_empty() {
                    self.wake.wait(Some(BLOCKED_NAP));
                }
            }
        }
        for at in 0..self.lines.len() {
            self.reap(at);
        }
    }

    fn is_drained(&mut self) -> bool {
        self.lines.iter_mut().flatten().all(|line| match line {
            Line::Direct(line) => line.is_drained(),
            Line::Rpc(line) => line.is_drained(),
            Line::Rdma(line) => line.is_drained(),
        })
    }
}

impl Drop for Engine {
    /// A dropped engine leaves no frame pinned.
    fn drop(&mut self) {
        for at in 0..self.lines.len() {
            self.reap(at);
        }
    }
}

#[cfg(test)]
mod tests;
