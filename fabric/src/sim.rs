//! The fabric of the tests: a network in memory, with delays, cuts and killed servers.
//!
//! It is built on [`crate::sync`]. Under `--cfg shuttle` both ends run as tasks of one seeded scheduler, and time is
//! virtual; otherwise they are ordinary threads. It is as strict as any fabric may be: posts are invisible before the
//! flush, and (if asked) messages wait for posted receives and RDMA completes late.

#[cfg(shuttle)]
pub(crate) mod clock;
#[cfg(shuttle)]
mod explore;
mod link;
#[cfg(shuttle)]
pub(crate) mod once;
mod pair;
mod stream;

#[cfg(shuttle)]
pub use explore::{explore, explore_in_time};

use crate::clock::Nanos;
use crate::fabric::{self, Peer, QueuePair};
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Arc, Condvar, Mutex};
use crate::wake::WakeSet;
use link::{CLIENT, SERVER, SimLink};
use pair::Pair;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use stream::Stream;

/// How the network treats its traffic.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkConfig {
    /// Each post takes a random time from 0 to this, in order within its queue pair. 0: no delay.
    pub delay_max: Nanos,
    /// One post in this many cuts its connection. 0: none.
    pub cut_one_in: u32,
    /// Whether clients may map what servers expose, as on shm.
    pub loads: bool,
    /// Whether RDMA Reads and Writes complete later (sources stay pinned), as on a network.
    pub slow: bool,
    /// Whether a message waits until its receiver has posted a receive.
    pub receives: bool,
    /// Whether connections are iWARP streams, in pieces of any size. Then there are no `loads`, and `slow` and
    /// `receives` are always on.
    pub iwarp: bool,
    /// Whether the devices are of the simplest kind. RDMA Reads see memory in any order, unless one is posted after the
    /// other has ended; ranges get no tags of their own; and the peer invalidates no tags. They are `slow`. Not with
    /// `iwarp`.
    pub bare: bool,
    /// Whether such devices announce what is true of each of their RDMA Reads: it sees memory from front to back.
    pub rising: bool,
    /// The most posts and messages (or pieces) of a direction. 0: 1024.
    pub depth: u32,
    /// The most bytes that a server's connections together may have registered at a time, like a limit of locked
    /// memory. 0: no limit. Not with `iwarp`.
    pub locked_max: usize,
}

/// A network of simulated nodes.
#[derive(Clone)]
pub struct Network(Arc<Shared>);

struct Shared {
    config: NetworkConfig,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// The listeners, by name.
    lives: BTreeMap<String, Arc<Life>>,
    clients: u32,
    links: Vec<(String, Arc<SimLink>)>,
}

/// A boot instance of a server, from its listen to its end.
struct Life {
    requests: Mutex<Requests>,
    /// Number of bytes that its connections have registered.
    locked: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Requests {
    over: bool,
    queue: VecDeque<Request>,
    watch: Option<Arc<WakeSet>>,
}

struct Request {
    /// Number of the connection.
    client: u32,
    /// The client's number.
    node: u32,
    private_data: Vec<u8>,
    answer: Arc<ConnectAnswer>,
}

/// The connection with the server's private data, or the reason why there is none.
type Given = Result<(Arc<SimLink>, Vec<u8>), String>;

/// The server's answer to a request.
#[derive(Default)]
struct ConnectAnswer {
    given: Mutex<Option<Given>>,
    changed: Condvar,
}

impl ConnectAnswer {
    /// The first answer counts.
    fn give(&self, answer: Given) {
        self.given.lock().get_or_insert(answer);
        self.changed.notify_all();
    }

    fn wait(&self) -> Given {
        let mut given = self.given.lock();
        loop {
            match given.take() {
                Some(answer) => return answer,
                None => given = self.changed.wait(given),
            }
        }
    }
}

/// SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Network {
    /// An empty network. Its randomness comes from `seed`.
    pub fn new(seed: u64, config: NetworkConfig) -> Network {
        let state = State {
            random: Random(seed),
            lives: BTreeMap::new(),
            clients: 0,
            links: Vec::new(),
        };
        Network(Arc::new(Shared {
            config,
            state: Mutex::new(state),
        }))
    }

    /// Accepts connections under `name`, as a new boot instance of a server. After [`Network::kill`], the name is free
    /// again.
    pub fn listen(&self, name: &str) -> io::Result<Box<dyn fabric::Listener>> {
        let mut state = self.0.state.lock();
        if state.lives.contains_key(name) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("{name} listens already"),
            ));
        }
        let life = Arc::new(Life {
            requests: Mutex::default(),
            locked: Arc::default(),
        });
        state.lives.insert(name.to_owned(), Arc::clone(&life));
        Ok(Box::new(Listener {
            network: self.clone(),
            name: name.to_owned(),
            life,
        }))
    }

    /// A new node.
    pub fn node(&self) -> u32 {
        let mut state = self.0.state.lock();
        state.clients += 1;
        state.clients
    }

    /// Connects to `name` from a node of its own. Blocks until the server has accepted or refused.
    pub fn connect(&self, name: &str, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        self.connect_from(self.node(), name, private_data)
    }

    /// Connects to `name` from a [`Network::node`]. All connections from there belong to one client,
    /// [`Peer::Simulated`] with that number. Blocks until the server has accepted or refused.
    pub fn connect_from(
        &self,
        node: u32,
        name: &str,
        private_data: &[u8],
    ) -> io::Result<Box<dyn QueuePair>> {
        let refused = |reason: String| io::Error::new(io::ErrorKind::ConnectionRefused, reason);
        fabric::check_private_data(private_data)?;
        let answer = Arc::new(ConnectAnswer::default());
        let life = {
            let mut state = self.0.state.lock();
            state.clients += 1;
            let life = state
                .lives
                .get(name)
                .ok_or_else(|| refused(format!("nobody listens as {name}")))?;
            let request = Request {
                client: state.clients,
                node,
                private_data: private_data.to_vec(),
                answer: Arc::clone(&answer),
            };
            let life = Arc::clone(life);
            life.requests.lock().queue.push_back(request);
            life
        };
        life.wake();
        if life.requests.lock().over {
            answer.give(Err(format!("{name} is gone")));
        }
        let (link, private_data) = answer.wait().map_err(refused)?;
        Ok(pair(link, CLIENT, Peer::Simulated(0), private_data))
    }

    /// Kills the boot instance that listens under `name`: its connections end, and nothing that its threads still do
    /// reaches anybody.
    pub fn kill(&self, name: &str) {
        let mut state = self.0.state.lock();
        if let Some(life) = state.lives.remove(name) {
            life.end();
        }
        let (dead, alive) = std::mem::take(&mut state.links)
            .into_iter()
            .partition(|(server, _)| server == name);
        state.links = alive;
        drop(state);
        let dead: Vec<(String, Arc<SimLink>)> = dead;
        dead.iter().for_each(|(_, link)| link.cut());
    }

    /// Cuts the connection with this number of [`Network::clients`].
    pub fn cut(&self, client: u32) {
        let links: Vec<Arc<SimLink>> = self.links();
        links
            .iter()
            .filter(|link| link.client() == client)
            .for_each(|link| link.cut());
    }

    /// Numbers of the present connections.
    pub fn clients(&self) -> Vec<u32> {
        self.links()
            .iter()
            .filter(|link| !link.is_cut())
            .map(|link| link.client())
            .collect()
    }

    fn links(&self) -> Vec<Arc<SimLink>> {
        self.0
            .state
            .lock()
            .links
            .iter()
            .map(|(_, link)| Arc::clone(link))
            .collect()
    }

    /// Creates the connection of a client to a boot instance of a server, unless that has ended.
    fn link(
        &self,
        name: &str,
        life: &Arc<Life>,
        client: u32,
        inbound_reads: u32,
    ) -> io::Result<Arc<SimLink>> {
        let mut state = self.0.state.lock();
        if !state
            .lives
            .get(name)
            .is_some_and(|living| Arc::ptr_eq(living, life))
        {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("{name} is gone"),
            ));
        }
        let link = Arc::new(SimLink::new(
            self.0.config,
            client,
            state.random.next(),
            inbound_reads,
            Arc::clone(&life.locked),
        ));
        state.links.retain(|(_, link)| !link.is_cut());
        state.links.push((name.to_owned(), Arc::clone(&link)));
        Ok(link)
    }
}

/// An end of a link, as the network's configuration asks.
fn pair(link: Arc<SimLink>, end: usize, peer: Peer, private_data: Vec<u8>) -> Box<dyn QueuePair> {
    match link.config().iwarp {
        true => Box::new(Stream::new(link, end, peer, private_data)),
        false => Box::new(Pair::new(link, end, peer, private_data)),
    }
}

impl Life {
    fn end(&self) {
        let requests: Vec<Request> = {
            let mut requests = self.requests.lock();
            requests.over = true;
            requests.queue.drain(..).collect()
        };
        requests
            .iter()
            .for_each(|request| request.answer.give(Err("the server is gone".into())));
        self.wake();
    }

    fn wake(&self) {
        let watch = self.requests.lock().watch.clone();
        if let Some(set) = watch {
            set.wake();
        }
    }
}

struct Listener {
    network: Network,
    name: String,
    life: Arc<Life>,
}

impl fabric::Listener for Listener {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn fabric::Incoming>>> {
        let request = self.life.requests.lock().queue.pop_front();
        Ok(request.map(|request| {
            let (network, name, life) = (
                self.network.clone(),
                self.name.clone(),
                Arc::clone(&self.life),
            );
            let peer = Peer::Simulated(request.node);
            Box::new(Incoming {
                network,
                name,
                life,
                peer,
                request,
            }) as _
        }))
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.life.requests.lock().watch = Some(Arc::clone(set));
        set.wake();
        Ok(())
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.network.0.state.lock();
        if state
            .lives
            .get(&self.name)
            .is_some_and(|life| Arc::ptr_eq(life, &self.life))
        {
            state.lives.remove(&self.name);
        }
        drop(state);
        self.life.end();
    }
}

struct Incoming {
    network: Network,
    name: String,
    life: Arc<Life>,
    peer: Peer,
    request: Request,
}

impl fabric::Incoming for Incoming {
    fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn accept(
        self: Box<Self>,
        private_data: &[u8],
        inbound_reads: u32,
    ) -> io::Result<Box<dyn QueuePair>> {
        fabric::check_private_data(private_data)?;
        let link = self
            .network
            .link(&self.name, &self.life, self.request.client, inbound_reads)?;
        self.request
            .answer
            .give(Ok((Arc::clone(&link), private_data.to_vec())));
        let private_data = self.request.private_data.clone();
        Ok(pair(link, SERVER, self.peer.clone(), private_data))
    }

    fn reject(self: Box<Self>, reason: &str) {
        self.request.answer.give(Err(reason.to_owned()));
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // After an accept or a reject this changes nothing.
        self.request.answer.give(Err("the server refused".into()));
    }
}
