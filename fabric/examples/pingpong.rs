//! A small request, a page for an answer: over iWARP on TCP, and over the bare socket beneath.
//!
//!     cargo run --release --example pingpong -- [idle connections]

use odafs_common::page::PageSize;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig, FrameNumber, LifeWord};
use odafs_fabric::tcp::{self, ConnectOptions, Crc, Limits};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{
    Access, Completion, Exposed, Listener, Local, Posted, QueuePair, Region, Remote, Sink, Source,
    SteeringTag,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const ROUNDS: usize = 3_000;
const PAGE: usize = 4096;
const FRAMES: u32 = 1024;
const BULK_FRAMES: u32 = 256;

/// What the first byte of a request asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ask {
    /// An RDMA Write of a page, and a message.
    Guarded = 1,
    /// A message with the page in it.
    Inline = 2,
    /// RDMA Writes of 1 MiB, and a message.
    Bulk = 3,
}

/// How a message names memory.
fn bytes(remote: Remote) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&remote.tag.0.to_ne_bytes());
    bytes[4..].copy_from_slice(&remote.offset.to_ne_bytes());
    bytes
}

fn remote(bytes: &[u8]) -> Remote {
    Remote {
        tag: SteeringTag(u32::from_ne_bytes(bytes[..4].try_into().unwrap())),
        offset: u64::from_ne_bytes(bytes[4..12].try_into().unwrap()),
    }
}

fn main() -> io::Result<()> {
    let idle = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let idle: usize = idle.unwrap_or(0);
    println!("{:42} {:>9} {:>9}", "", "p50 us", "p99 us");
    for _ in 0..3 {
        bare(true)?;
        for crc in [false, true] {
            iwarp(crc, true, idle)?;
        }
        bare(false)?;
        iwarp(false, false, idle)?;
    }
    Ok(())
}

fn report(name: &str, spans: &mut [u64]) {
    spans.sort_unstable();
    let at = |part: f64| spans[(spans.len() as f64 * part) as usize] as f64 / 1e3;
    println!("{name:42} {:9.2} {:9.2}", at(0.5), at(0.99));
}

fn measure(name: &str, rounds: usize, mut once: impl FnMut()) {
    let mut spans = Vec::with_capacity(rounds);
    for round in 0..rounds + rounds / 10 {
        let start = Instant::now();
        once();
        if round >= rounds / 10 {
            spans.push(start.elapsed().as_nanos() as u64);
        }
    }
    report(name, &mut spans);
}

fn read_all(stream: &mut TcpStream, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(came) => into = &mut into[came..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn bare(spin: bool) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(spin)?;
    }
    let serving = std::thread::spawn(move || {
        let (mut request, answer) = ([0; 64], [7; PAGE]);
        while read_all(&mut server, &mut request).is_ok() {
            server.write_all(&answer).unwrap();
        }
    });
    let (request, mut answer) = ([1; 64], [0; PAGE]);
    let name = format!("bare socket, 64 B -> 4 KiB, {}", how(spin));
    measure(&name, ROUNDS, || {
        client.write_all(&request).unwrap();
        read_all(&mut client, &mut answer).unwrap();
    });
    drop(client);
    serving.join().unwrap();
    Ok(())
}

fn how(spin: bool) -> &'static str {
    if spin { "spinning" } else { "blocking" }
}

struct Server {
    lines: Vec<Box<dyn QueuePair>>,
    listener: tcp::Listener,
    arena: Arc<Arena>,
    life: LifeWord,
    set: Arc<WakeSet>,
    next: u32,
}

impl Server {
    fn round(&mut self, look: bool) -> bool {
        let mut busy = false;
        while look && let Some(incoming) = self.listener.poll_accept().unwrap() {
            let mut line = incoming.accept(b"", 16).unwrap();
            line.watch(&self.set).unwrap();
            line.post_receives(1 << 30);
            self.lines.push(line);
            busy = true;
        }
        for line in &mut self.lines {
            let mut posted = false;
            while let Some(completion) = line.poll() {
                busy = true;
                if !matches!(completion, Completion::Recv { .. }) {
                    continue;
                }
                posted = true;
                let (ask, sink) = (line.message()[0], remote(&line.message()[4..]));
                if ask == 0 {
                    let exposed = line.expose(&self.arena, &self.life).unwrap();
                    let told = [bytes(exposed.arena), bytes(exposed.stamps)];
                    line.post_send(0, &[&told[0], &told[1]]).unwrap();
                    continue;
                }
                let pages = if ask == Ask::Bulk as u8 {
                    BULK_FRAMES
                } else {
                    1
                };
                for page in 0..pages {
                    self.next = self.next.wrapping_mul(5).wrapping_add(7) % FRAMES;
                    let frame = FrameNumber(self.next);
                    if ask == Ask::Inline as u8 {
                        let mut bytes = [0; PAGE];
                        self.arena.copy_out(frame, 0, &mut bytes);
                        line.post_send(0, &[&[0; 32], &bytes]).unwrap();
                        continue;
                    }
                    let from = Source::Frame {
                        arena: &self.arena,
                        frame,
                        offset: 0,
                        length: PAGE as u32,
                    };
                    let to = sink.ahead(u64::from(page) * PAGE as u64);
                    while line.post_write(0, from, to).is_err() {
                        line.flush();
                    }
                }
                if ask != Ask::Inline as u8 {
                    while line.post_send(0, &[&[0; 32]]).is_err() {
                        line.flush();
                    }
                }
            }
            if posted {
                line.flush();
            }
        }
        self.lines.retain(|line| !line.is_closed());
        busy
    }

    fn run(mut self, spin: bool, stop: &AtomicBool) {
        let mut rounds = 0u32;
        while !stop.load(Ordering::Relaxed) {
            rounds = rounds.wrapping_add(1);
            if self.round(rounds.is_multiple_of(1024) || !spin) || spin {
                continue;
            }
            self.set.prepare();
            if self.lines.iter_mut().all(|line| line.arm()) {
                self.set.wait(Some(Nanos::from_millis(20)));
            }
        }
    }
}

struct Client {
    line: Box<dyn QueuePair>,
    spin: bool,
    sink: Arc<Region>,
}

impl Client {
    fn next(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.line.poll() {
                return completion;
            }
            if !self.spin {
                self.line.wait(None).unwrap();
            }
        }
    }

    fn ask(&mut self, ask: Ask) {
        let mut request = [ask as u8; 64];
        request[4..16].copy_from_slice(&bytes(self.sink.remote(0)));
        self.line.post_send(0, &[&request]).unwrap();
        self.line.flush();
        assert!(matches!(self.next(), Completion::Recv { .. }));
    }

    fn one_sided(&mut self, exposed: &Exposed, frame: u64) {
        for (at, length, from, offset) in [
            (0, PAGE, exposed.arena, frame * PAGE as u64),
            (PAGE, 8, exposed.stamps, frame * 8),
        ] {
            let into = Sink::Region(Local {
                region: &self.sink,
                offset: at,
                length,
            });
            let posted = self.line.post_read(0, into, from.ahead(offset));
            assert_eq!(posted, Ok(Posted::Pending));
        }
        self.line.flush();
        for _ in 0..2 {
            assert!(matches!(
                self.next(),
                Completion::Read { result: Ok(()), .. }
            ));
        }
    }
}

fn iwarp(crc: bool, spin: bool, idle: usize) -> io::Result<()> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let limits = Limits {
        crc: Crc::WhenAsked,
        ..Limits::default()
    };
    let listener = tcp::Listener::bind(any, limits)?;
    let address = listener.local_addr();
    let arena = Arena::create(&ArenaConfig {
        frames: FRAMES,
        page: PageSize::DEFAULT,
        huge: false,
        populate: true,
    })?;
    let set = Arc::new(WakeSet::new()?);
    let mut server = Server {
        lines: Vec::new(),
        listener,
        arena: Arc::new(arena),
        life: LifeWord::in_memory(1)?,
        set: Arc::clone(&set),
        next: 1,
    };
    server.listener.watch(&set)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let serving = std::thread::spawn(move || server.run(spin, &stopping));

    let options = ConnectOptions {
        crc,
        ..ConnectOptions::default()
    };
    let connect = || tcp::connect(address, b"", &options);
    let others: Vec<_> = (0..idle).map(|_| connect()).collect::<Result<_, _>>()?;
    let mut line = connect()?;
    line.post_receives(1 << 30);
    let sink = line.register(PAGE * BULK_FRAMES as usize, Access::WRITE)?;
    let mut client = Client { line, spin, sink };
    client.line.post_send(0, &[&[0; 64]]).unwrap();
    client.line.flush();
    client.next();
    let exposed = Exposed {
        arena: remote(client.line.message()),
        stamps: remote(&client.line.message()[12..]),
    };
    let with = match (crc, idle) {
        (true, _) => format!("{}, checksums", how(spin)),
        (false, 0) => how(spin).to_owned(),
        (false, idle) => format!("{}, {idle} idle", how(spin)),
    };
    measure(&format!("guarded, {with}"), ROUNDS, || {
        client.ask(Ask::Guarded)
    });
    measure(&format!("in a message, {with}"), ROUNDS, || {
        client.ask(Ask::Inline)
    });
    let mut frame = 0;
    measure(&format!("one-sided, {with}"), ROUNDS, || {
        frame = (frame * 5 + 7) % u64::from(FRAMES);
        client.one_sided(&exposed, frame);
    });
    let start = clock::now();
    let bulk = 100;
    measure(&format!("1 MiB by RDMA Writes, {with}"), bulk, || {
        client.ask(Ask::Bulk)
    });
    let seconds = clock::now().since(start).0 as f64 / 1e9;
    println!(
        "{:42} {:9.0} MiB/s",
        "",
        (bulk + bulk / 10) as f64 / seconds
    );
    stop.store(true, Ordering::Relaxed);
    serving.join().unwrap();
    drop(others);
    Ok(())
}
