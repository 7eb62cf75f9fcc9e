use crate::{Subject, connected, next, next_incoming, receive, send};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::{Access, PostError, QueuePair, Remote, Source};

fn wait_closed(qp: &mut dyn QueuePair) {
    let give_up = clock::now() + Nanos::from_secs(10);
    while !qp.is_closed() {
        assert!(clock::now() < give_up, "the end is not noticed");
        let _ = qp.wait(Some(Nanos::from_millis(10)));
        assert_eq!(qp.poll(), None);
    }
}

/// Each end notices the other's end, and nothing can be posted then.
pub fn dropped_ends(subject: &dyn Subject) {
    for server_first in [false, true] {
        let ends = connected(subject);
        let (mut left, gone) = match server_first {
            true => (ends.client, ends.server),
            false => (ends.server, ends.client),
        };
        let region = if server_first {
            None
        } else {
            left.register(64, Access::BOTH).ok()
        };
        drop(gone);
        wait_closed(&mut *left);
        assert_eq!(left.post_send(0, &[b"x"]), Err(PostError::Closed));
        let to = Remote {
            tag: odafs_fabric::SteeringTag(1),
            offset: 0,
        };
        assert_eq!(
            left.post_write(0, Source::Bytes(b"x"), to),
            Err(PostError::Closed)
        );
        assert!(left.register(64, Access::BOTH).is_err());
        assert_eq!(
            left.wait(None),
            Err(PostError::Closed),
            "and does not block"
        );
        assert!(!left.arm());
        if let Some(region) = region {
            assert!(region.store(0, b"still memory"));
        }
    }
}

/// What was received before the end is still there.
pub fn last_words(subject: &dyn Subject) {
    let mut ends = connected(subject);
    for word in [b"one", b"two"] {
        send(&mut *ends.client, word);
    }
    assert_eq!(receive(&mut *ends.server), b"one");
    // On a network the second may be under way yet, and lost by a sudden end.
    clock::sleep(Nanos::from_millis(2));
    assert!(!ends.server.arm());
    drop(ends.client);
    assert_eq!(receive(&mut *ends.server), b"two");
    assert_eq!(next(&mut *ends.server), None);
    wait_closed(&mut *ends.server);
}

/// Connections come and go, many at once.
pub fn many_connections(subject: &dyn Subject) {
    let mut listener = subject.listen();
    for _ in 0..3 {
        let mut pairs = Vec::new();
        for number in 0..20u8 {
            let (client, server) = std::thread::scope(|scope| {
                let client = scope.spawn(move || subject.connect(&[number]).unwrap());
                let server = next_incoming(&mut *listener).accept(b"", 128).unwrap();
                (client.join().unwrap(), server)
            });
            pairs.push((number, client, server));
        }
        for (number, client, server) in &mut pairs {
            server.post_receives(1);
            send(&mut **client, &[*number]);
            assert_eq!(receive(&mut **server), [*number]);
        }
    }
}
