//! How far the shared-memory fabric is from what the machine can do at all, as ratios of one run:
//! one-sided reads against a plain `mmap` and memcpy, the rings against a bare cache line that
//! goes there and back. Each figure is the median of short rounds, both sides in turn.
//!
//! `cargo run --release -p odafs-fabric --example floors [MiB of arena]`

#![allow(unsafe_code)]

use odafs_common::page::PageSize;
use odafs_common::reference::Epoch;
use odafs_fabric::memory::{Arena, ArenaConfig, ArenaView, FrameNumber, LifeWord};
use odafs_fabric::shm::{self, ConnectOptions, Limits};
use odafs_fabric::{Access, Completion, Listener, QueuePair, Remote, Source};
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

const ROUNDS: usize = 301;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let mib: u32 = std::env::args()
        .nth(1)
        .map_or(Ok(1024), |arg| arg.parse())?;
    for huge in [false, true] {
        one_sided(mib, huge)?;
    }
    rings()
}

/// The lower quartiles of what each of `sides` takes, in nanoseconds an operation: rounds are short, and on a
/// busy machine many are cut by other programs.
fn in_turn(operations: u32, sides: &mut [(&str, &mut dyn FnMut(u32))]) -> Vec<f64> {
    let mut figures = vec![Vec::new(); sides.len()];
    for _ in 0..ROUNDS {
        for ((_, side), figures) in sides.iter_mut().zip(&mut figures) {
            side(operations / 10);
            let start = Instant::now();
            side(operations);
            figures.push(start.elapsed().as_nanos() as f64 / f64::from(operations));
        }
    }
    figures
        .iter_mut()
        .map(|figures| {
            figures.sort_by(f64::total_cmp);
            figures[ROUNDS / 4]
        })
        .collect()
}

fn print(title: &str, floor: usize, names: &[&str], figures: &[f64]) {
    println!("{title}");
    for (name, figure) in names.iter().zip(figures) {
        println!(
            "  {name:<44} {figure:8.0} ns   x {:.2}",
            figure / figures[floor]
        );
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

fn one_sided(mib: u32, huge: bool) -> Outcome {
    let config = ArenaConfig {
        frames: mib * 256,
        page: PageSize::DEFAULT,
        huge,
        populate: true,
    };
    let arena = Arena::create(&config)?;
    for frame in 0..config.frames {
        arena.copy_in(FrameNumber(frame), 0, &[0; 4096]);
        arena.publish(FrameNumber(frame));
    }
    let life = LifeWord::in_memory(1)?;
    let view = client_view(arena, life)?;
    let (view, plain, backing, epoch) = view;
    let frames = u64::from(config.frames);

    // The next address waits for the bytes of the last read: nothing overlaps.
    let mut state = 1u64;
    let mut page = vec![0u8; 4096];
    let mut read = |length: usize, state: &mut u64| {
        let address = random(state) % frames * 4096;
        assert!(view.read(address, &mut page[..length], epoch));
        *state = state.wrapping_add(u64::from(black_box(&page)[length - 1]));
    };
    let mut copied = vec![0u8; 4096];
    let mut copy = |length: usize, state: &mut u64| {
        let address = (random(state) % frames * 4096) as usize;
        copied[..length].copy_from_slice(&plain[address..address + length]);
        *state = state.wrapping_add(u64::from(black_box(&copied)[length - 1]));
    };
    let mut state_of_copy = 0x9e37_79b9_7f4a_7c15u64;
    let names = ["mmap and memcpy, 4 KiB", "one-sided, 4 KiB"];
    let figures = in_turn(
        400,
        &mut [
            (names[0], &mut |n| {
                (0..n).for_each(|_| copy(4096, &mut state_of_copy))
            }),
            (names[1], &mut |n| {
                (0..n).for_each(|_| read(4096, &mut state))
            }),
        ],
    );
    print(
        &format!("{mib} MiB at random, {backing}-byte pages"),
        0,
        &names,
        &figures,
    );

    let names = ["mmap and memcpy, 64 B", "one-sided, 64 B"];
    let figures = in_turn(
        400,
        &mut [
            (names[0], &mut |n| {
                (0..n).for_each(|_| copy(64, &mut state_of_copy))
            }),
            (names[1], &mut |n| (0..n).for_each(|_| read(64, &mut state))),
        ],
    );
    print("", 0, &names, &figures);

    let names = ["one by one", "batches of 8, 8 lines ahead"];
    let mut pages = vec![0u8; 8 * 4096];
    let (mut one, mut eight) = (3u64, 0x5851_f42d_4c95_7f2du64);
    let figures = in_turn(
        400,
        &mut [
            (names[0], &mut |n| (0..n).for_each(|_| read(4096, &mut one))),
            (names[1], &mut |n| {
                for _ in 0..n / 8 {
                    let addresses: [u64; 8] =
                        std::array::from_fn(|_| random(&mut eight) % frames * 4096);
                    addresses
                        .iter()
                        .for_each(|address| view.prefetch(*address, 8));
                    for (address, page) in addresses.iter().zip(pages.as_chunks_mut::<4096>().0) {
                        assert!(view.read(*address, page, epoch));
                    }
                    eight = eight.wrapping_add(u64::from(black_box(&pages)[8 * 4096 - 1]));
                }
            }),
        ],
    );
    print("", 0, &names, &figures);
    Ok(())
}

/// The arena as a client sees it, and as a plain read-only mapping.
fn client_view(
    arena: Arena,
    life: LifeWord,
) -> Result<(ArenaView, memmap2::Mmap, u32, Epoch), Box<dyn std::error::Error>> {
    let (backing, epoch, arena) = (
        arena.backing_bytes(),
        arena.current_epoch(),
        Arc::new(arena),
    );
    // SAFETY: the mapping is only read here, and nothing writes it after this.
    let plain = unsafe { memmap2::Mmap::map(&std::fs::File::from(arena.share()?.data))? };
    let (mut client, mut server, _listener) = connected()?;
    let exposed = server.expose(&arena, &life)?;
    let view = client.map_exposed(&exposed)?.ok_or("no loads")?;
    Ok((view, plain, backing, epoch))
}

type Ends = (Box<dyn QueuePair>, Box<dyn QueuePair>, shm::Listener);

fn connected() -> Result<Ends, Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("odafs-floors-{}", std::process::id()));
    let mut listener = shm::Listener::bind(&path, Limits::default())?;
    let client = std::thread::spawn(move || shm::connect(&path, b"", &ConnectOptions::default()));
    let incoming = loop {
        if let Some(incoming) = listener.poll_accept()? {
            break incoming;
        }
    };
    let server = incoming.accept(b"", 128)?;
    Ok((
        client.join().map_err(|_| "the client panicked")??,
        server,
        listener,
    ))
}

const RINGS: u32 = 0;
const FLOOR: u32 = 1;
const STOP: u32 = 2;

#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

fn pin_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // On a machine of one processor the figures are useless anyway.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn receive(qp: &mut dyn QueuePair) {
    loop {
        match qp.poll() {
            Some(Completion::Recv { .. }) => return,
            Some(_) => {}
            None => spin_loop(),
        }
    }
}

fn rings() -> Outcome {
    let (mut client, server, _listener) = connected()?;
    let lines: Arc<[Line; 2]> = Arc::default();
    let mode = Arc::new(AtomicU32::new(RINGS));
    let peer = std::thread::spawn({
        let (lines, mode) = (Arc::clone(&lines), Arc::clone(&mode));
        move || serve(server, &lines, &mode)
    });
    pin_to(0);
    // Sinks for the guarded read.
    let sink = client.register(1 << 20, Access::BOTH)?;
    let mut turn = 0u64;
    let mut bare = |n: u32| {
        mode.store(FLOOR, Ordering::Release);
        for _ in 0..n {
            turn += 1;
            lines[0].0.store(turn, Ordering::Release);
            while lines[1].0.load(Ordering::Acquire) != turn {
                spin_loop();
            }
        }
    };
    let client = std::cell::RefCell::new(client);
    // The first call of a round, which is not timed, also ends the floor's mode.
    let call = |kind: u8, length: usize| {
        if mode.load(Ordering::Relaxed) != RINGS {
            mode.store(RINGS, Ordering::Release);
        }
        let mut message = [kind; 256];
        message[1..5].copy_from_slice(&sink.tag().0.to_le_bytes());
        let mut client = client.borrow_mut();
        client.post_send(0, &[&message[..length]]).unwrap();
        client.flush();
        receive(&mut **client);
    };
    let mut page = vec![0; 4096];
    let names = [
        "a cache line there and back",
        "80-byte request, 32-byte completion",
        "200-byte request, 4 KiB and header back",
        "80-byte request, 4 KiB written, completion, load",
    ];
    let figures = in_turn(
        400,
        &mut [
            (names[0], &mut bare),
            (names[1], &mut |n| (0..n).for_each(|_| call(0, 80))),
            (names[2], &mut |n| (0..n).for_each(|_| call(1, 200))),
            (names[3], &mut |n| {
                for _ in 0..n {
                    call(2, 80);
                    assert!(sink.load(0, black_box(&mut page)));
                }
            }),
        ],
    );
    print("rings, spinning", 0, &names, &figures);
    mode.store(STOP, Ordering::Release);
    peer.join().map_err(|_| "the peer panicked")?;
    Ok(())
}

/// The other end of both floors and rings.
fn serve(mut server: Box<dyn QueuePair>, lines: &[Line; 2], mode: &AtomicU32) {
    pin_to(1);
    let config = ArenaConfig {
        frames: 256,
        page: PageSize::DEFAULT,
        huge: false,
        populate: true,
    };
    let arena = Arc::new(Arena::create(&config).unwrap());
    let (header, mut page) = ([0; 128], vec![0; 4096]);
    let mut turn = 0u64;
    let mut frame = 0;
    loop {
        match mode.load(Ordering::Acquire) {
            STOP => return,
            FLOOR => {
                turn = echo(lines, turn);
                continue;
            }
            _ => {}
        }
        while let Some(completion) = poll_a_while(&mut *server) {
            let Completion::Recv { .. } = completion else {
                continue;
            };
            let message = server.message();
            let (kind, tag) = (
                message[0],
                u32::from_le_bytes([message[1], message[2], message[3], message[4]]),
            );
            frame = (frame + 1) % 256;
            match kind {
                0 => server.post_send(0, &[&[0; 32]]),
                1 => {
                    arena.copy_out(FrameNumber(frame), 0, &mut page);
                    server.post_send(0, &[&header, &page])
                }
                _ => {
                    let from = Source::Frame {
                        arena: &arena,
                        frame: FrameNumber(frame),
                        offset: 0,
                        length: 4096,
                    };
                    let to = Remote {
                        tag: odafs_fabric::SteeringTag(tag),
                        offset: 0,
                    };
                    server.post_write(0, from, to).unwrap();
                    server.post_send(0, &[&[0; 32]])
                }
            }
            .unwrap();
            server.flush();
        }
    }
}

/// The floor: some turns of the line, from `turn` on.
fn echo(lines: &[Line; 2], mut turn: u64) -> u64 {
    for _ in 0..500 {
        let now = lines[0].0.load(Ordering::Acquire);
        if now != turn {
            turn = now;
            lines[1].0.store(turn, Ordering::Release);
        }
        spin_loop();
    }
    turn
}

fn poll_a_while(qp: &mut dyn QueuePair) -> Option<Completion> {
    for _ in 0..200 {
        if let Some(completion) = qp.poll() {
            return Some(completion);
        }
        spin_loop();
    }
    None
}
