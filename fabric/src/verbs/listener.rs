use super::cm::{Channel, CmEventKind, ConnectTerms, Id};
use super::domain::Domain;
use super::drain::Draining;
use super::keepalive::QUIET;
use super::pair::{Made, Pair};
use super::queue::Queue;
use super::{Limits, VerbsError, context};
use crate::clock::{self, Nanos};
use crate::fabric::{self, PRIVATE_DATA_MAX, Peer, QueuePair, ReadOrder};
use crate::memory::Arena;
use crate::sync::Mutex;
use crate::wake::{Bell, WakeSet};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The most events of one look.
const BURST: u32 = 16;

/// How often a thread that never sleeps, so that no bell rings, looks for requests.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// Time between two looks for a device that has gone.
const LOOK_AGAIN: Nanos = Nanos::from_secs(1);

/// Number of RDMA Reads that a server wants to have under way on a connection.
const OUTBOUND_READS: u8 = 128;

/// Accepts connections at an address of a device.
pub struct Listener {
    channel: Arc<Channel>,
    /// Rings when the channel has events. Without it each look is a system call.
    bell: Option<Bell>,
    /// When to look even if it has not rung.
    look_next: Nanos,
    /// `None` while its device is gone.
    id: Option<Id>,
    /// When to look for it again.
    again: Nanos,
    address: SocketAddr,
    limits: Limits,
    asking: VecDeque<(Nanos, Incoming)>,
    domains: Arc<Domains>,
    /// Counts the connections: each holds a reference.
    places: Arc<()>,
}

/// The protection domains of a listener: two for each device, one for connections whose peer may read and one for the
/// others. So the others cannot reach memory that peers may read, whatever their device checks: soft iWARP checks
/// neither the rights of a queue pair nor the number of reads that a responder offers. (Nor the rights of memory: see
/// docs/SECURITY.md.)
struct Domains {
    known: Mutex<HashMap<(String, bool), Arc<Domain>>>,
    on_demand: bool,
    read_order: ReadOrder,
}

impl Domains {
    fn of(&self, id: &Id, reads: bool) -> io::Result<Arc<Domain>> {
        let device = id.device().ok_or(VerbsError::NoDevice)?;
        let mut known = self.known.lock();
        let key = (device, reads);
        let usable = |domain: &&Arc<Domain>| !domain.context().has_gone();
        if let Some(domain) = known.get(&key).filter(usable) {
            return Ok(Arc::clone(domain));
        }
        let domain = Domain::new(&key.0, self.on_demand, self.read_order)?;
        known.insert(key, Arc::clone(&domain));
        Ok(domain)
    }
}

/// Listens at `address`, on the device that has it.
fn listen(channel: &Arc<Channel>, address: SocketAddr, limits: &Limits) -> io::Result<Id> {
    let id = Id::new(channel)?;
    id.bind(address)?;
    id.listen(limits.handshakes)?;
    Ok(id)
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    pub fn bind(address: SocketAddr, limits: Limits) -> io::Result<Listener> {
        if context::names()?.is_empty() {
            return Err(VerbsError::NoDevice.into());
        }
        if address.ip().is_loopback() {
            // RDMA-CM would accept it, but nobody could connect through it.
            return Err(VerbsError::NoDeviceAt(address.ip()).into());
        }
        let channel = Channel::new()?;
        let id = listen(&channel, address, &limits)?;
        Ok(Listener {
            address: SocketAddr::new(address.ip(), id.port()),
            channel,
            bell: None,
            look_next: Nanos(0),
            id: Some(id),
            again: Nanos(0),
            limits,
            asking: VecDeque::new(),
            domains: Arc::new(Domains {
                known: Mutex::default(),
                on_demand: limits.odp,
                read_order: limits.read_order,
            }),
            places: Arc::new(()),
        })
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Registers an arena now rather than at the first read, so that obstacles show at once. With `exposed`, also
    /// registers it for peers that may read it one-sided. Does nothing if the device is known only after a client
    /// connects (a listener at all addresses). Returns `Some(true)` if it was registered for on-demand paging;
    /// otherwise its pages are pinned.
    pub fn prepare(&self, arena: &Arc<Arena>, exposed: bool) -> io::Result<Option<bool>> {
        let Some(id) = self.id.as_ref().filter(|id| id.device().is_some()) else {
            return Ok(None);
        };
        if exposed {
            self.domains.of(id, true)?.exposed(arena)?;
        }
        let domain = self.domains.of(id, false)?;
        domain.arena(arena)?;
        Ok(Some(domain.is_on_demand()))
    }

    /// Accepts new requests from the kernel. If there are too many, the oldest ends.
    fn look(&mut self, now: Nanos) -> io::Result<()> {
        for _ in 0..BURST {
            let Some(mut event) = self.channel.poll()? else {
                break;
            };
            let number = self.id.as_ref().map(Id::number);
            if event.kind == CmEventKind::Removed && number == Some(event.of) {
                self.lose();
                return Err(gone());
            }
            if event.kind != CmEventKind::Request {
                // The client has gone again.
                self.asking.retain(|(_, incoming)| !incoming.is(event.of));
                continue;
            }
            let Some(id) = event.take_new(&self.channel) else {
                continue;
            };
            let Some(address) = id.peer() else {
                id.reject(b"no address");
                continue;
            };
            if Arc::strong_count(&self.places) > self.limits.connections as usize {
                tracing::debug!(peer = %address, "refused: there are too many connections");
                id.reject(b"there are too many connections");
                continue;
            }
            if self.asking.len() >= self.limits.handshakes.max(1) as usize {
                self.asking.pop_front();
            }
            let incoming = Incoming {
                peer: Peer::Address(address),
                private_data: event.private_data,
                inbound_reads: event.inbound_reads,
                outbound_reads: event.outbound_reads,
                parts: Some(Parts {
                    id,
                    domains: Arc::clone(&self.domains),
                    place: Arc::clone(&self.places),
                    receives: self.limits.receives,
                }),
            };
            self.asking
                .push_back((now + self.limits.handshake_deadline, incoming));
        }
        Ok(())
    }
}

impl Listener {
    /// The device has gone, and with it everything that was created on it.
    fn lose(&mut self) {
        self.id = None;
        self.asking.clear();
        for (_, domain) in self.domains.known.lock().drain() {
            domain.lose();
        }
    }

    /// Listens again if the device is back.
    fn find_again(&mut self, now: Nanos) -> io::Result<()> {
        if now < self.again {
            return Ok(());
        }
        self.again = now + LOOK_AGAIN;
        let id = listen(&self.channel, self.address, &self.limits).map_err(|_| gone())?;
        tracing::info!(address = %self.address, "the RDMA device is there again");
        self.id = Some(id);
        Ok(())
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the RDMA device has gone")
}

impl fabric::Listener for Listener {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn fabric::Incoming>>> {
        let now = clock::now();
        if self.id.is_none() {
            self.find_again(now)?;
        }
        while let Some((deadline, _)) = self.asking.front()
            && *deadline <= now
        {
            self.asking.pop_front();
        }
        let rung = || self.bell.as_ref().is_none_or(Bell::take);
        if self.asking.is_empty() && (rung() || now >= self.look_next) {
            self.look_next = now + LOOK_EVERY;
            self.look(now)?;
        }
        let asking = self.asking.pop_front();
        Ok(asking.map(|(_, incoming)| Box::new(incoming) as Box<dyn fabric::Incoming>))
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.as_fd())
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.bell = Some(set.add(self.channel.as_fd())?);
        Ok(())
    }

    fn name(&self) -> String {
        self.address.to_string()
    }

    fn patience(&self) -> Option<Nanos> {
        match &self.id {
            None => Some(LOOK_AGAIN),
            Some(_) => (Arc::strong_count(&self.places) > 1).then_some(QUIET),
        }
    }
}

struct Parts {
    id: Id,
    domains: Arc<Domains>,
    place: Arc<()>,
    receives: u32,
}

/// A connection request.
struct Incoming {
    peer: Peer,
    private_data: Vec<u8>,
    inbound_reads: u8,
    outbound_reads: u8,
    /// Held until the request is answered.
    parts: Option<Parts>,
}

impl Incoming {
    fn is(&self, number: usize) -> bool {
        self.parts
            .as_ref()
            .is_some_and(|parts| parts.id.number() == number)
    }

    fn refuse(&mut self, reason: &str) {
        if let Some(parts) = self.parts.take() {
            let reason = reason.as_bytes();
            parts
                .id
                .reject(&reason[..reason.len().min(PRIVATE_DATA_MAX)]);
        }
    }
}

impl fabric::Incoming for Incoming {
    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn accept(
        mut self: Box<Self>,
        private_data: &[u8],
        inbound_reads: u32,
    ) -> io::Result<Box<dyn QueuePair>> {
        fabric::check_private_data(private_data)?;
        let Some(mut parts) = self.parts.take() else {
            return Err(io::ErrorKind::ConnectionAborted.into());
        };
        let domain = parts.domains.of(&parts.id, inbound_reads > 0)?;
        let attributes = *domain.context().attributes();
        let most = |wanted: u8, device: i32| wanted.min(u8::try_from(device).unwrap_or(128));
        let asked = u8::try_from(inbound_reads).unwrap_or(u8::MAX);
        let inbound = most(self.inbound_reads.min(asked), attributes.max_qp_rd_atom);
        let outbound = self.outbound_reads.min(OUTBOUND_READS);
        let outbound = most(outbound, attributes.max_qp_init_rd_atom);
        parts.id.migrate(&Channel::new()?)?;
        let queue = Queue::new(domain.pd(), parts.receives)?;
        let number = queue.number();
        let iwarp = domain.context().is_iwarp();
        let mut pair = Pair::initialized(Made {
            queue,
            id: parts.id,
            domain,
            peer: self.peer.clone(),
            private_data: std::mem::take(&mut self.private_data),
            reads_max: outbound.into(),
            reads: inbound_reads > 0,
            is_server: true,
            place: Some(parts.place),
        })?;
        let (queue, id) = pair.parts();
        if !iwarp {
            queue.connect(id, inbound, outbound)?;
        }
        id.accept(&ConnectTerms {
            private_data,
            inbound_reads: inbound,
            outbound_reads: outbound,
            queue: number,
        })?;
        Ok(Box::new(Draining::new(pair)))
    }

    fn reject(mut self: Box<Self>, reason: &str) {
        self.refuse(reason);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.refuse("");
    }
}
