use crate::{Subject, connected, receive, send};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{Completion, QueuePair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Both ends sleep for each message; none is lost.
pub fn ping_pong(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let mut server = ends.server;
    let echo = std::thread::spawn(move || {
        for _ in 0..3000 {
            let message = receive(&mut *server);
            send(&mut *server, &message);
        }
        server
    });
    for round in 0..3000u32 {
        send(&mut *ends.client, &round.to_le_bytes());
        assert_eq!(receive(&mut *ends.client), round.to_le_bytes());
    }
    echo.join().unwrap();
}

/// One thread sleeps for a listener and all its connections.
pub fn wake_sets(subject: &dyn Subject) {
    const CLIENTS: u32 = 4;
    const ROUNDS: u32 = 300;
    let mut listener = subject.listen();
    let set = Arc::new(WakeSet::new().unwrap());
    listener.watch(&set).unwrap();
    let stopping = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (waker, stop) = (Arc::clone(&set), Arc::clone(&stopping));
        let engine = scope.spawn(move || {
            let mut lines: Vec<Box<dyn QueuePair>> = Vec::new();
            while !stop.load(Ordering::Acquire) {
                let mut busy = false;
                while let Some(incoming) = listener.poll_accept().unwrap() {
                    let mut line = incoming.accept(b"", 128).unwrap();
                    line.post_receives(1 << 20);
                    line.watch(&set).unwrap();
                    lines.push(line);
                    busy = true;
                }
                for line in &mut lines {
                    while let Some(completion) = line.poll() {
                        assert!(matches!(completion, Completion::Recv { .. }));
                        let answer = line.message().to_vec();
                        line.post_send(0, &[&answer]).unwrap();
                        busy = true;
                    }
                    line.flush();
                }
                lines.retain(|line| !line.is_closed());
                if busy {
                    continue;
                }
                set.prepare();
                let armed: Vec<bool> = lines.iter_mut().map(|line| line.arm()).collect();
                if !armed.contains(&false) && !stop.load(Ordering::Acquire) {
                    set.wait(Some(Nanos::from_secs(20)));
                }
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = subject.connect(b"").unwrap();
                    client.post_receives(1 << 20);
                    for round in 0..ROUNDS {
                        let message = (u64::from(number) << 32 | u64::from(round)).to_le_bytes();
                        send(&mut *client, &message);
                        assert_eq!(receive(&mut *client), message);
                    }
                })
            })
            .collect();
        let done: Vec<bool> = clients
            .into_iter()
            .map(|client| client.join().is_ok())
            .collect();
        stopping.store(true, Ordering::Release);
        waker.wake();
        engine.join().unwrap();
        assert!(done.iter().all(|done| *done));
    });
}

/// A wait ends by itself, and says `Ok`; an arm tells what is there.
pub fn timeouts(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let before = clock::now();
    ends.client.wait(Some(Nanos::from_millis(20))).unwrap();
    assert!(clock::now().since(before) >= Nanos::from_millis(15));
    assert!(ends.client.arm());
    send(&mut *ends.server, b"x");
    let give_up = clock::now() + Nanos::from_secs(10);
    while ends.client.arm() {
        assert!(clock::now() < give_up);
        clock::sleep(Nanos::from_micros(100));
    }
    assert_eq!(receive(&mut *ends.client), b"x");
}
