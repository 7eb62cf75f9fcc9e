//! The simulator itself, under seeded schedules.
//! `RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p odafs-fabric`

#![cfg(shuttle)]

use odafs_common::page::{Layout, PageSize};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig, ArenaView, FrameNumber, LifeWord};
use odafs_fabric::sim::{Network, NetworkConfig, explore};
use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::{Arc, Condvar, Mutex, thread};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{
    Access, Completion, Listener, Local, QueuePair, Remote, Sink, Source, SteeringTag, entropy,
};

const ROUNDS: u32 = 4;

/// Echoes until its connections are over; sleeps for all of them together.
fn engine(mut listener: Box<dyn Listener>, connections: usize) {
    let set = Arc::new(WakeSet::new().unwrap());
    listener.watch(&set).unwrap();
    let mut lines: Vec<Box<dyn QueuePair>> = Vec::new();
    let mut taken = 0;
    while taken < connections || !lines.is_empty() {
        let mut busy = false;
        while let Some(incoming) = listener.poll_accept().unwrap() {
            let mut line = incoming.accept(b"", 128).unwrap();
            line.watch(&set).unwrap();
            line.post_receives(100);
            lines.push(line);
            taken += 1;
            busy = true;
        }
        for line in &mut lines {
            while let Some(completion) = line.poll() {
                busy = true;
                if let Completion::Recv { .. } = completion {
                    let answer = line.message().to_vec();
                    let (_, tag) = answer.split_last_chunk().unwrap();
                    let tag = SteeringTag(u32::from_le_bytes(*tag));
                    let _ = line.post_write(1, Source::Bytes(&[7; 600]), Remote { tag, offset: 0 });
                    let _ = line.post_send(2, &[&answer]);
                }
            }
            line.flush();
        }
        lines.retain(|line| !line.is_closed());
        if busy {
            continue;
        }
        set.prepare();
        let armed: Vec<bool> = lines.iter_mut().map(|line| line.arm()).collect();
        if !armed.contains(&false) && (taken < connections || !lines.is_empty()) {
            set.wait(None);
        }
    }
}

/// Calls until done or cut; how many calls came back.
fn client(network: &Network) -> u32 {
    let Ok(mut line) = network.connect("server", b"") else {
        return 0;
    };
    line.post_receives(100);
    let Ok(sink) = line.register(1000, Access::BOTH) else {
        return 0;
    };
    for round in 0..ROUNDS {
        let message = [round.to_le_bytes(), sink.tag().0.to_le_bytes()].concat();
        if line.post_send(0, &[&message]).is_err() {
            return round;
        }
        line.flush();
        loop {
            match line.poll() {
                Some(Completion::Recv { .. }) => break,
                Some(other) => panic!("{other:?}"),
                None if line.wait(None).is_err() => return round,
                None => {}
            }
        }
        assert_eq!(line.message(), message);
        let mut written = [0; 600];
        assert!(sink.load(0, &mut written));
        assert_eq!(written, [7; 600], "written before it was sent");
    }
    ROUNDS
}

/// Whatever is delayed or cut: nobody sleeps for ever, and without cuts every call comes back.
#[test]
fn calls_over_a_bad_network() {
    for (cut_one_in, iwarp) in [(0, false), (10, false), (0, true), (30, true)] {
        explore(1, 60, move || {
            let config = NetworkConfig {
                delay_max: Nanos::from_micros(300),
                cut_one_in,
                slow: true,
                receives: true,
                iwarp,
                ..NetworkConfig::default()
            };
            let network = Network::new(entropy::word(), config);
            let listener = network.listen("server").unwrap();
            let server = thread::spawn(move || engine(listener, 2));
            let clients: Vec<_> = (0..2)
                .map(|_| {
                    let network = network.clone();
                    thread::spawn(move || client(&network))
                })
                .collect();
            for client in clients {
                let done = client.join().unwrap();
                assert!(cut_one_in > 0 || done == ROUNDS);
            }
            server.join().unwrap();
        });
    }
}

/// A server that is killed at any moment: its clients all come to an end.
#[test]
fn kill() {
    explore(100, 60, || {
        let network = Network::new(entropy::word(), NetworkConfig::default());
        let listener = network.listen("server").unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let killer = thread::spawn({
            let (network, done) = (network.clone(), Arc::clone(&done));
            move || {
                while network.clients().is_empty() && !done.load(Ordering::SeqCst) {
                    clock::sleep(Nanos::from_micros(1));
                }
                clock::sleep(Nanos(entropy::word() % 20_000));
                network.kill("server");
            }
        });
        // Its thread goes on: nobody hears of it.
        let zombie = thread::spawn(move || engine(listener, 1));
        let caller = thread::spawn({
            let network = network.clone();
            move || {
                client(&network);
                done.store(true, Ordering::SeqCst);
            }
        });
        caller.join().unwrap();
        killer.join().unwrap();
        zombie.join().unwrap();
        assert!(network.clients().is_empty());
    });
}

/// One writer, one reader, one frame: what validates is whole and what the reference was for.
#[test]
fn reads_are_never_torn() {
    explore(200, 300, || {
        let layouts = [Layout::apart, Layout::beside];
        let arena = two_frames(layouts[entropy::word() as usize % 2](PageSize::DEFAULT));
        let life = LifeWord::in_memory(1).unwrap();
        let view = ArenaView::of(&arena, &life).unwrap();
        let frame = FrameNumber(1);
        arena.copy_in(frame, 0, &[1; 4096]);
        let issued = Arc::new(Mutex::new((arena.publish(frame), 1u8)));
        let writer = {
            let (arena, issued) = (Arc::clone(&arena), Arc::clone(&issued));
            thread::spawn(move || {
                for content in 2..5 {
                    if !arena.revoke(frame) {
                        arena.copy_in(frame, 0, &[content; 4096]);
                        *issued.lock() = (arena.publish(frame), content);
                    }
                }
            })
        };
        let pinner = {
            let (arena, issued) = (Arc::clone(&arena), Arc::clone(&issued));
            thread::spawn(move || {
                let (epoch, content) = *issued.lock();
                if let Ok(_pin) = arena.pin(frame, epoch, epoch) {
                    let mut page = [0; 4096];
                    arena.copy_out(frame, 0, &mut page);
                    assert_eq!(page, [content; 4096]);
                }
            })
        };
        for _ in 0..2 {
            let (epoch, content) = *issued.lock();
            let mut page = [0; 4096];
            if view.read(4096, &mut page, epoch) {
                assert_eq!(page, [content; 4096]);
            }
        }
        writer.join().unwrap();
        pinner.join().unwrap();
    });
}

/// The same by RDMA Reads that bring the page and the stamp behind it, on devices and over iWARP.
#[test]
fn pages_with_their_stamps_are_never_torn() {
    for iwarp in [false, true] {
        let whole = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = Arc::clone(&whole);
        explore(400, 500, move || {
            let config = NetworkConfig {
                iwarp,
                bare: !iwarp,
                rising: !iwarp,
                ..NetworkConfig::default()
            };
            let network = Network::new(1, config);
            let arena = two_frames(Layout::beside(PageSize::DEFAULT));
            let frame = FrameNumber(1);
            arena.copy_in(frame, 0, &[1; 4096]);
            let issued = Arc::new(Mutex::new((arena.publish(frame), 1u8)));
            let exposed = Arc::new(Mutex::new(None));
            let listener = network.listen("server").unwrap();
            let server = {
                let (arena, exposed) = (Arc::clone(&arena), Arc::clone(&exposed));
                thread::spawn(move || exposes(listener, &arena, &exposed))
            };
            let mut line = network.connect("server", b"").unwrap();
            let sink = line.register(8192, Access::WRITE).unwrap();
            line.post_receives(1);
            while line.poll().is_none() {
                line.wait(None).unwrap();
            }
            let from = exposed.lock().unwrap();
            let writer = {
                let issued = Arc::clone(&issued);
                thread::spawn(move || {
                    for content in 2..12 {
                        for _ in 0..entropy::word() % 200 {
                            thread::yield_now();
                        }
                        assert!(!arena.revoke(frame));
                        // From back to front, as no reader goes.
                        for at in [3072, 2048, 1024, 0] {
                            arena.copy_in(frame, at, &[content; 1024]);
                        }
                        *issued.lock() = (arena.publish(frame), content);
                    }
                })
            };
            for id in 0..4 {
                let (epoch, content) = *issued.lock();
                let into = Sink::Region(Local {
                    region: &sink,
                    offset: 0,
                    length: 4104,
                });
                line.post_read(id, into, from).unwrap();
                line.flush();
                while line.poll().is_none() {
                    line.wait(None).unwrap();
                }
                let (mut page, mut stamp) = ([0; 4096], [0; 8]);
                assert!(sink.load(0, &mut page) && sink.load(4096, &mut stamp));
                if u64::from_le_bytes(stamp) <= epoch.0 {
                    assert_eq!(page, [content; 4096]);
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
            drop(line);
            writer.join().unwrap();
            server.join().unwrap();
        });
        assert!(whole.load(std::sync::atomic::Ordering::Relaxed) > 100);
    }
}

fn two_frames(layout: Layout) -> Arc<Arena> {
    let config = ArenaConfig {
        frames: 2,
        layout,
        huge: false,
        populate: false,
    };
    Arc::new(Arena::create(&config).unwrap())
}

/// Takes a connection, tells where its second frame is, and answers reads until the connection is over.
fn exposes(mut listener: Box<dyn Listener>, arena: &Arc<Arena>, tell: &Mutex<Option<Remote>>) {
    let incoming = loop {
        match listener.poll_accept().unwrap() {
            Some(incoming) => break incoming,
            None => clock::sleep(Nanos::from_micros(1)),
        }
    };
    let mut line = incoming.accept(b"", 128).unwrap();
    let life = LifeWord::in_memory(1).unwrap();
    let exposed = line.expose(arena, &life).unwrap();
    let at = arena.layout().place(arena.address(FrameNumber(1)));
    *tell.lock() = Some(exposed.arena.ahead(at));
    line.post_send(0, &[b"there"]).unwrap();
    line.flush();
    while !line.is_closed() {
        line.poll();
        let _ = line.wait(None);
    }
}

/// Time moves when all wait, and only then (but for the early wake-ups of a slow machine).
#[test]
fn virtual_time() {
    explore(300, 50, || {
        let start = clock::now();
        let sleepers = [3u64, 1, 2].map(|hours| {
            thread::spawn(move || {
                let span = Nanos::from_secs(hours * 3600);
                clock::sleep(span);
                assert!(clock::now().since(start) >= span);
            })
        });
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        assert!(clock::now().since(start) >= Nanos::from_secs(3 * 3600));

        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let before = clock::now();
        let (_guard, over) = condvar.wait_timeout(mutex.lock(), Nanos::from_secs(5));
        assert!(over && clock::now().since(before) >= Nanos::from_secs(5));
    });
}

/// A seed repeats its run, chance and time included.
#[test]
fn seeds_repeat() {
    let trace = |seed| {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let into = std::sync::Arc::clone(&seen);
        explore(seed, 1, move || {
            let tasks: Vec<_> = (0..4u64)
                .map(|number| {
                    let into = std::sync::Arc::clone(&into);
                    thread::spawn(move || {
                        for _ in 0..3 {
                            clock::sleep(Nanos(entropy::word() % 1000));
                            into.lock().unwrap().push((number, clock::now()));
                        }
                    })
                })
                .collect();
            tasks.into_iter().for_each(|task| task.join().unwrap());
        });
        std::sync::Arc::try_unwrap(seen)
            .unwrap()
            .into_inner()
            .unwrap()
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}
