use crate::{Subject, connected, next_incoming, receive, receive_from, send};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::fabric::PRIVATE_DATA_MAX;
use odafs_fabric::{PostError, QueuePair};

/// A message that tells its number and length.
fn message(number: u32, length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|at| (number.wrapping_mul(31).wrapping_add(at * 7) >> 3) as u8)
        .collect()
}

/// Every size, both ways, many times round the rings.
pub fn in_order_and_whole(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let max = ends.client.max_message();
    assert!(max >= subject.message_min());
    let mut sizes = vec![
        0,
        1,
        7,
        8,
        55,
        56,
        57,
        80,
        119,
        120,
        121,
        128,
        200,
        4096,
        4224,
        9000,
        max - 1,
        max,
    ];
    sizes.retain(|size| *size <= max);
    for number in 0..2000u32 {
        let length = sizes[number as usize % sizes.len()];
        let wanted = message(number, length);
        let (from, to): (&mut dyn QueuePair, &mut dyn QueuePair) = match number % 3 {
            0 => (&mut *ends.server, &mut *ends.client),
            _ => (&mut *ends.client, &mut *ends.server),
        };
        send(from, &wanted);
        let came = receive_from(from, to);
        assert!(came == wanted, "message {number} of {length} bytes");
    }
    assert_eq!((ends.client.poll(), ends.server.poll()), (None, None));
}

/// The accepting end speaks first, perhaps before it may, and flushes once: its words arrive all the same.
pub fn first_words(subject: &dyn Subject) {
    if !subject.lets_servers_speak_first() {
        return;
    }
    let mut listener = subject.listen();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut client = subject.connect(b"").unwrap();
            client.post_receives(2);
            receive(&mut *client)
        });
        let mut server = next_incoming(&mut *listener).accept(b"", 0).unwrap();
        send(&mut *server, b"welcome");
        while !client.is_finished() {
            assert_eq!(server.poll(), None);
            if server.arm() {
                clock::sleep(Nanos::from_micros(100));
            }
        }
        assert_eq!(client.join().unwrap(), b"welcome");
    });
}

pub fn gathered(subject: &dyn Subject) {
    let mut ends = connected(subject);
    for sizes in [vec![0, 3, 0, 5], vec![60, 61], vec![8, 4096, 1], vec![]] {
        if sizes.iter().sum::<usize>() > ends.client.max_message() {
            continue;
        }
        let parts: Vec<Vec<u8>> = sizes
            .iter()
            .map(|size| message(*size as u32, *size))
            .collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        ends.client.post_send(0, &parts).unwrap();
        ends.client.flush();
        assert_eq!(receive(&mut *ends.server), parts.concat());
    }
}

pub fn too_long(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let long = vec![0; ends.client.max_message()];
    assert_eq!(
        ends.client.post_send(0, &[&long, b"x"]),
        Err(PostError::TooLong)
    );
    send(&mut *ends.client, b"still there");
    assert_eq!(receive(&mut *ends.server), b"still there");
}

/// A full queue says so, loses nothing, and takes more once the peer has polled.
pub fn full(subject: &dyn Subject) {
    if !subject.is_patient() {
        return;
    }
    for length in [16, 5000, 40_000] {
        let mut ends = connected(subject);
        let length = length.min(ends.client.max_message());
        let (mut sent, mut received) = (0, 0);
        for _ in 0..3 {
            let mut patience = 1000;
            loop {
                match ends.client.post_send(0, &[&message(sent, length)]) {
                    Ok(_) => sent += 1,
                    Err(error) => {
                        assert_eq!(error, PostError::Full);
                        if sent > received || patience == 0 {
                            break;
                        }
                        // A device may hear late that its messages came.
                        patience -= 1;
                        let _ = ends.client.wait(Some(Nanos::from_millis(10)));
                        let _ = ends.client.poll();
                    }
                }
                assert!(sent < received + 100_000, "never full");
            }
            assert!(sent > received, "full for ever");
            ends.client.flush();
            while received < sent {
                let came = receive_from(&mut *ends.client, &mut *ends.server);
                assert!(came == message(received, length));
                received += 1;
            }
            // With a message of its own the peer may tell what it has taken, before it does otherwise.
            send(&mut *ends.server, b"so far");
            let told = receive_from(&mut *ends.server, &mut *ends.client);
            assert_eq!(told, b"so far");
        }
    }
}

/// Posts until there is no room, which needs no flush. How many.
fn fill(qp: &mut dyn QueuePair) -> u32 {
    let length = qp.max_message().min(40_000);
    let post = |number| qp.post_send(0, &[&message(number, length)]).is_ok();
    // Not every fabric is ever full.
    (0..100).map(post).take_while(|posted| *posted).count() as u32
}

/// Who takes no messages sends all the same, and notices when nobody is there any more.
pub fn without_room(subject: &dyn Subject) {
    if !subject.is_patient() {
        return;
    }
    let mut ends = connected(subject);
    send(&mut *ends.server, b"for later");
    let length = ends.client.max_message().min(40_000);
    let sent = fill(&mut *ends.client);
    if sent == 100 {
        ends.client.flush();
    }
    let give_up = clock::now() + Nanos::from_secs(20);
    let mut received = 0;
    while received < sent || !ends.client.is_settled() {
        assert!(clock::now() < give_up, "{received} of {sent} came");
        assert_eq!(ends.client.poll_send_queue(), None);
        if ends.server.poll().is_some() {
            assert!(ends.server.message() == message(received, length));
            received += 1;
        }
    }
    assert_eq!(receive(&mut *ends.client), b"for later");
    send(&mut *ends.server, b"for nobody");
    if fill(&mut *ends.client) == 100 {
        ends.client.flush();
    }
    drop(ends.server);
    while !ends.client.is_closed() {
        assert!(clock::now() < give_up, "the end is not noticed");
        ends.client.poll_send_queue();
    }
}

pub fn private_data(subject: &dyn Subject) {
    let mut listener = subject.listen();
    std::thread::scope(|scope| {
        let said = |data: &[u8], what: [u8; PRIVATE_DATA_MAX]| {
            data.starts_with(&what) && data[what.len()..].iter().all(|zero| *zero == 0)
        };
        let client = scope.spawn(|| subject.connect(&[1; PRIVATE_DATA_MAX]).unwrap());
        let incoming = next_incoming(&mut *listener);
        assert!(said(incoming.private_data(), [1; _]));
        let server = incoming.accept(&[2; PRIVATE_DATA_MAX], 128).unwrap();
        assert!(said(server.private_data(), [1; _]));
        assert!(said(client.join().unwrap().private_data(), [2; _]));
        assert!(subject.connect(&[1; PRIVATE_DATA_MAX + 1]).is_err());
    });
}

/// With the reason, or just dropped.
pub fn refused(subject: &dyn Subject) {
    let mut listener = subject.listen();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| subject.connect(b""));
        next_incoming(&mut *listener).reject("not on Sundays");
        let error = client.join().unwrap().err().unwrap();
        assert!(error.to_string().contains("not on Sundays"), "{error}");
        let client = scope.spawn(|| subject.connect(b""));
        drop(next_incoming(&mut *listener));
        assert!(client.join().unwrap().is_err());
    });
}

pub fn nobody_listens(subject: &dyn Subject) {
    assert!(subject.connect(b"").is_err());
    drop(subject.listen());
    let started = clock::now();
    assert!(subject.connect(b"").is_err());
    assert!(
        clock::now().since(started) < Nanos::from_secs(3),
        "told at once"
    );
    let _again = subject.listen();
}
