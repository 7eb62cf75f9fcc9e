//! `odafs bench registration --revocation`: the cost of revoking a page that a client reads one-sided. ODAFS moves the
//! page's stamp, which is one store, and the client then finds that its read is stale. The alternative is a tag for this
//! page and client (a memory window): the device then refuses the read and ends the connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{
    Access, Completion, Listener, Local, QueuePair, ReadOrder, Region, Remote, Sink, SteeringTag,
    iwarp, verbs,
};
use serde::Serialize;

use super::{Conditions, Report, device};
use crate::clock::nanos;
use crate::histogram::median;
use crate::machine::{Machine, commit};
use crate::process::Fabric;

const PAGE: usize = 4096;
/// Number of pages of the server.
const PAGES: usize = 64;
/// Size of a stamp in bytes.
const STAMP: usize = 8;
/// Number of pages that are taken back, one after the other and again while the time for a row in a round lasts.
const TIMES: u8 = 20;
/// Time limit for each step of the peer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A row, with the medians of all times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `stamp`, `window`, or on devices without windows `region`.
    pub by: &'static str,
    /// The round trip of a call that issues a reference.
    pub reference_ns: u64,
    /// A read by the reference, including that of the stamp.
    pub read_ns: u64,
    /// The server's work to revoke the page, before it can acknowledge a write.
    pub revoke_ns: u64,
    /// A read of a revoked page, until the client knows that it was revoked.
    pub stale_ns: u64,
    /// The time from then to the next good read: a call for a new reference, and before it a new connection if that was
    /// lost.
    pub recovered_ns: u64,
    /// Number of lost connections.
    pub connections_lost: u64,
    /// Number of revocations.
    pub times: u64,
}

/// Number of rows.
pub const ROWS: usize = 2;

/// Measures. `tick` hears what is measured next.
///
/// # Errors
/// There is no such fabric, or a connection failed unexpectedly.
pub fn run(conditions: &Conditions, mut tick: impl FnMut(&str)) -> Result<Report<Row>> {
    let machine = Machine::here();
    let mut listener = listen(conditions.rdma)?;
    let address: SocketAddr = (listener.name().parse()).context("a listener without an address")?;
    let connect = || Reader::connect(conditions.rdma, address);
    let stop = AtomicBool::new(false);
    let takes = std::thread::scope(|scope| {
        scope.spawn(|| accept(&mut *listener, scope, &stop));
        let measured = measure(conditions, &connect, &mut tick);
        stop.store(true, Ordering::Relaxed);
        measured
    });
    let takes = takes?;
    let names = ["stamp", tag_name(conditions.rdma)];
    Ok(Report {
        machine,
        commit: commit(),
        bench: "revocation",
        placement: "client and server in one process, asleep while they wait".into(),
        file_bytes: (PAGES * PAGE) as u64,
        rounds: conditions.rounds,
        rows: names
            .into_iter()
            .zip(&takes)
            .map(|(by, takes)| row(by, takes))
            .collect(),
    })
}

fn measure(
    conditions: &Conditions,
    connect: &dyn Fn() -> Result<Reader>,
    tick: &mut dyn FnMut(&str),
) -> Result<[Vec<Take>; ROWS]> {
    let mut takes: [Vec<Take>; ROWS] = Default::default();
    let mut reader = connect()?;
    for round in 1..=conditions.rounds {
        tick(&format!("round {round}: taken back by stamp"));
        for page in pages(conditions.time) {
            takes[0].push(reader.by_stamp(page)?);
        }
        tick(&format!("round {round}: taken back by tag"));
        for page in pages(conditions.time) {
            takes[1].push(reader.by_tag(page, connect)?);
        }
    }
    Ok(takes)
}

/// The pages for this long, all of them once at least.
fn pages(time: Duration) -> impl Iterator<Item = u8> {
    let begin = Instant::now();
    let again = (0..TIMES)
        .cycle()
        .take_while(move |_| begin.elapsed() < time);
    (0..TIMES).chain(again)
}

fn row(by: &'static str, takes: &[Take]) -> Row {
    let middle = |value: fn(&Take) -> u64| median(takes.iter().map(value));
    Row {
        by,
        reference_ns: middle(|take| take.reference_ns),
        read_ns: middle(|take| take.read_ns),
        revoke_ns: middle(|take| take.revoke_ns),
        stale_ns: middle(|take| take.stale_ns),
        recovered_ns: middle(|take| take.recovered_ns),
        connections_lost: takes.iter().filter(|take| take.lost).count() as u64,
        times: takes.len() as u64,
    }
}

/// The kind of tag for a range on this fabric.
fn tag_name(fabric: Fabric) -> &'static str {
    match device(fabric).is_none_or(|device| device.windows) {
        true => "window",
        false => "region",
    }
}

fn listen(fabric: Fabric) -> Result<Box<dyn Listener>> {
    let at = |ip: IpAddr| SocketAddr::new(ip, 0);
    Ok(match fabric {
        Fabric::Verbs(ip) => Box::new(verbs::Listener::bind(at(ip), verbs::Limits::default())?),
        _ => {
            let here = at(Ipv4Addr::LOCALHOST.into());
            Box::new(iwarp::Listener::bind(here, iwarp::Limits::default())?)
        }
    })
}

// The server

/// The requests of the client.
mod ask {
    /// The places of all pages and all stamps.
    pub const WHERE: u8 = 0;
    /// A reference guarded by the page's stamp.
    pub const REFERENCE: u8 = 1;
    /// A reference guarded by a tag of its own.
    pub const TAG: u8 = 2;
    /// Move the page's stamp.
    pub const MOVE: u8 = 3;
    /// End the page's tag.
    pub const END: u8 = 4;
}

/// Number of words in an answer.
const WORDS: usize = 4;

fn accept<'s>(
    listener: &mut dyn Listener,
    scope: &'s std::thread::Scope<'s, '_>,
    stop: &AtomicBool,
) -> Result<()> {
    let set = Arc::new(WakeSet::new()?);
    listener.watch(&set)?;
    while !stop.load(Ordering::Relaxed) {
        set.prepare();
        match listener.poll_accept()? {
            None => set.wait(Some(Nanos::from_millis(20))),
            Some(incoming) => {
                let pair = incoming.accept(b"", 16)?;
                // The client notices failures of its connection.
                scope.spawn(move || serve(pair));
            }
        }
    }
    Ok(())
}

fn serve(mut pair: Box<dyn QueuePair>) -> Result<()> {
    pair.post_receives(16);
    let pages = pair.register(PAGES * PAGE, Access::READ)?;
    let stamps = pair.register(PAGES * STAMP, Access::READ)?;
    let mut tags = [None; PAGES];
    let mut epoch = 1;
    while !pair.is_closed() {
        match pair.poll() {
            None => {
                // The code above notices a closed connection.
                let _ = pair.wait(Some(Nanos::from(PATIENCE)));
            }
            Some(Completion::Recv { .. }) => {
                let &[what, page] = pair.message() else {
                    bail!("an odd request");
                };
                let page = usize::from(page);
                let begin = Instant::now();
                let mut words = [0; WORDS];
                match what {
                    ask::WHERE => {
                        let (pages, stamps) = (pages.remote(0), stamps.remote(0));
                        words = [
                            pages.tag.0.into(),
                            pages.offset,
                            stamps.tag.0.into(),
                            stamps.offset,
                        ];
                    }
                    ask::REFERENCE => words[0] = epoch,
                    ask::TAG => {
                        let bound = pair.bind(&pages, page * PAGE, PAGE, Access::READ)?;
                        tags[page] = Some(bound.tag);
                        words = [bound.tag.0.into(), bound.offset, 0, 0];
                    }
                    ask::MOVE => {
                        epoch += 1;
                        ensure!(
                            stamps.store(page * STAMP, &epoch.to_le_bytes()),
                            "no such page"
                        );
                        words[0] = nanos(begin, Instant::now());
                    }
                    ask::END => {
                        pair.invalidate(tags[page].take().context("there is no tag")?);
                        words[0] = nanos(begin, Instant::now());
                    }
                    _ => bail!("an odd request"),
                }
                pair.post_receives(1);
                pair.post_send(0, &[&words.map(u64::to_le_bytes).concat()])?;
                pair.flush();
            }
            Some(_) => {}
        }
    }
    Ok(())
}

// The client

/// The times of one revocation.
#[derive(Clone, Copy, Debug, Default)]
struct Take {
    reference_ns: u64,
    read_ns: u64,
    revoke_ns: u64,
    stale_ns: u64,
    recovered_ns: u64,
    lost: bool,
}

struct Reader {
    pair: Box<dyn QueuePair>,
    /// A page and its stamp.
    sink: Arc<Region>,
    pages: Remote,
    stamps: Remote,
    /// Whether the server's device answers two reads in the order of their posts.
    ordered: bool,
}

/// The device refused the read, and the connection has ended.
struct Refused;

impl Reader {
    /// Makes a new connection, and asks for the places of the pages.
    fn connect(fabric: Fabric, address: SocketAddr) -> Result<Reader> {
        let mut pair = match fabric {
            Fabric::Verbs(_) => verbs::connect(address, b"", &verbs::ConnectOptions::default()),
            _ => iwarp::connect(address, b"", &iwarp::ConnectOptions::default()),
        }?;
        pair.post_receives(4);
        let sink = pair.register(PAGE + STAMP, Access::LOCAL)?;
        let nowhere = remote([0, 0]);
        let mut reader = Reader {
            pair,
            sink,
            pages: nowhere,
            stamps: nowhere,
            ordered: !matches!(fabric, Fabric::Verbs(_))
                || device(fabric).is_some_and(|device| device.read_order == ReadOrder::Ordered),
        };
        let [a, b, c, d] = reader.call(ask::WHERE, 0)?;
        (reader.pages, reader.stamps) = (remote([a, b]), remote([c, d]));
        Ok(reader)
    }

    fn by_stamp(&mut self, page: u8) -> Result<Take> {
        let mut take = Take::default();
        let [epoch, ..] = timed(&mut take.reference_ns, || self.call(ask::REFERENCE, page))?;
        let seen = timed(&mut take.read_ns, || self.read_with_stamp(page))?;
        ensure!(seen <= epoch, "a page is stale that nobody took back");
        [take.revoke_ns, ..] = self.call(ask::MOVE, page)?;
        let seen = timed(&mut take.stale_ns, || self.read_with_stamp(page))?;
        ensure!(seen > epoch, "a page is good that was taken back");
        timed(&mut take.recovered_ns, || {
            let [epoch, ..] = self.call(ask::REFERENCE, page)?;
            let seen = self.read_with_stamp(page)?;
            ensure!(seen <= epoch, "a page is stale that nobody took back");
            Ok(())
        })?;
        Ok(take)
    }

    fn by_tag(&mut self, page: u8, connect: impl Fn() -> Result<Reader>) -> Result<Take> {
        let mut take = Take {
            lost: true,
            ..Take::default()
        };
        let [tag, offset, ..] = timed(&mut take.reference_ns, || self.call(ask::TAG, page))?;
        let from = remote([tag, offset]);
        let good = |read: Result<(), Refused>| {
            read.map_err(|Refused| anyhow::anyhow!("a good tag is refused"))
        };
        timed(&mut take.read_ns, || good(self.read(from)?))?;
        [take.revoke_ns, ..] = self.call(ask::END, page)?;
        let stale = timed(&mut take.stale_ns, || self.read(from))?;
        ensure!(stale.is_err(), "a tag is good that has ended");
        timed(&mut take.recovered_ns, || {
            *self = connect()?;
            let [tag, offset, ..] = self.call(ask::TAG, page)?;
            good(self.read(remote([tag, offset]))?)
        })?;
        Ok(take)
    }

    fn call(&mut self, what: u8, page: u8) -> Result<[u64; WORDS]> {
        self.pair.post_receives(1);
        self.pair.post_send(0, &[&[what, page]])?;
        self.pair.flush();
        match self.next()? {
            Some(Completion::Recv { .. }) => {}
            other => bail!("no answer but {other:?}"),
        }
        let message = self.pair.message();
        ensure!(message.len() == WORDS * 8, "an odd answer");
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(message.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into()?);
        }
        Ok(words)
    }

    /// Reads a page and then its stamp, both at once if the device keeps the order.
    fn read_with_stamp(&mut self, page: u8) -> Result<u64> {
        let page = u64::from(page);
        let ordered = self.ordered;
        self.post(0, PAGE, self.pages.ahead(page * PAGE as u64))?;
        if !ordered {
            self.over()?
                .map_err(|Refused| anyhow::anyhow!("a read is refused"))?;
        }
        self.post(PAGE, STAMP, self.stamps.ahead(page * STAMP as u64))?;
        for _ in 0..=u32::from(ordered) {
            self.over()?
                .map_err(|Refused| anyhow::anyhow!("a read is refused"))?;
        }
        let mut stamp = [0; STAMP];
        ensure!(self.sink.load(PAGE, &mut stamp), "there is room");
        Ok(u64::from_le_bytes(stamp))
    }

    fn read(&mut self, from: Remote) -> Result<Result<(), Refused>> {
        self.post(0, PAGE, from)?;
        self.over()
    }

    fn post(&mut self, offset: usize, length: usize, from: Remote) -> Result<()> {
        let region = &self.sink;
        let into = Sink::Region(Local {
            region,
            offset,
            length,
        });
        self.pair.post_read(0, into, from)?;
        Ok(())
    }

    /// Waits for the end of a read.
    fn over(&mut self) -> Result<Result<(), Refused>> {
        self.pair.flush();
        Ok(match self.next()? {
            Some(Completion::Read { result: Ok(()), .. }) => Ok(()),
            None | Some(Completion::Read { .. }) => Err(Refused),
            Some(other) => bail!("no end of a read but {other:?}"),
        })
    }

    /// The next completion. `None` if the connection has ended.
    fn next(&mut self) -> Result<Option<Completion>> {
        let begin = Instant::now();
        loop {
            if let Some(completion) = self.pair.poll() {
                return Ok(Some(completion));
            }
            if self.pair.is_closed() {
                return Ok(None);
            }
            ensure!(begin.elapsed() < PATIENCE, "no answer for {PATIENCE:?}");
            // A connection that is closed shows above.
            let _ = self.pair.wait(Some(Nanos::from(PATIENCE)));
        }
    }
}

fn remote([tag, offset]: [u64; 2]) -> Remote {
    Remote {
        tag: SteeringTag(tag as u32),
        offset,
    }
}

fn timed<T>(ns: &mut u64, what: impl FnOnce() -> Result<T>) -> Result<T> {
    let begin = Instant::now();
    let result = what();
    *ns = nanos(begin, Instant::now());
    result
}
