//! What every fabric promises, run on each of them.

#![cfg(not(any(shuttle, loom)))]

mod binding;
mod closing;
mod memory;
mod messages;
mod on_iwarp;
mod on_shm;
mod on_sim;
#[cfg(feature = "verbs")]
mod on_verbs;
mod waiting;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::{Completion, Incoming, Listener, QueuePair};
use std::io;

/// A fabric under test.
pub trait Subject: Send + Sync + 'static {
    /// A new listener.
    fn listen(&self) -> Box<dyn Listener>;

    /// Connects to it.
    fn connect(&self, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>>;

    /// Whether [`QueuePair::map_exposed`] gives a view.
    fn has_loads(&self) -> bool;

    /// The longest message is no shorter.
    fn message_min(&self) -> usize {
        68 << 10
    }

    /// Whether a sender may outrun the receives of its peer.
    fn is_patient(&self) -> bool {
        true
    }

    /// Whether the accepting end may speak before the other has.
    fn lets_servers_speak_first(&self) -> bool {
        true
    }

    /// Whether a listener's word on RDMA Reads holds.
    fn keeps_depths(&self) -> bool {
        true
    }

    /// Whether a tag for a range of a region ends with the range, not with the region.
    fn checks_ranges(&self) -> bool {
        true
    }

    /// Whether RDMA Reads see memory in the order of their posts.
    fn orders_reads(&self) -> bool {
        true
    }

    /// Whether memory without the right to it cannot be read under its tag.
    fn checks_reads(&self) -> bool {
        true
    }

    /// Whether a message tells of the tag that it ended.
    fn tells_of_invalidation(&self) -> bool {
        true
    }

    /// Whether marked writes are marked.
    fn marks(&self) -> bool {
        false
    }
}

/// Both ends of a connection.
#[allow(missing_docs)]
pub struct Ends {
    pub client: Box<dyn QueuePair>,
    pub server: Box<dyn QueuePair>,
    pub _listener: Box<dyn Listener>,
}

/// The next connection request.
pub fn next_incoming(listener: &mut dyn Listener) -> Box<dyn Incoming> {
    let give_up = clock::now() + Nanos::from_secs(10);
    loop {
        if let Some(incoming) = listener.poll_accept().unwrap() {
            return incoming;
        }
        assert!(clock::now() < give_up, "nobody connects");
        clock::sleep(Nanos::from_micros(100));
    }
}

/// Connects.
pub fn connected(subject: &dyn Subject) -> Ends {
    connected_with(subject, 128)
}

/// Connects to a listener that offers so many RDMA Reads.
pub fn connected_with(subject: &dyn Subject, inbound_reads: u32) -> Ends {
    let mut listener = subject.listen();
    let (client, server) = std::thread::scope(|scope| {
        let client = scope.spawn(|| subject.connect(b"").unwrap());
        let server = next_incoming(&mut *listener)
            .accept(b"", inbound_reads)
            .unwrap();
        (client.join().unwrap(), server)
    });
    let mut ends = Ends {
        client,
        server,
        _listener: listener,
    };
    ends.client.post_receives(1 << 20);
    ends.server.post_receives(1 << 20);
    ends
}

/// A new connection in place of the old.
pub fn anew(subject: &dyn Subject, old: Ends) -> Ends {
    drop(old);
    connected(subject)
}

/// The next completion; blocks. `None`: the connection is over.
pub fn next(qp: &mut dyn QueuePair) -> Option<Completion> {
    let give_up = clock::now() + Nanos::from_secs(20);
    loop {
        if let Some(completion) = qp.poll() {
            return Some(completion);
        }
        assert!(clock::now() < give_up, "nothing comes");
        if qp.wait(Some(Nanos::from_secs(1))).is_err() {
            return qp.poll();
        }
    }
}

/// The next message; blocks.
pub fn receive(qp: &mut dyn QueuePair) -> Vec<u8> {
    match next(qp) {
        Some(Completion::Recv { bytes, .. }) => {
            assert_eq!(bytes as usize, qp.message().len());
            qp.message().to_vec()
        }
        other => panic!("{other:?} instead of a message"),
    }
}

/// The next message of a peer whose queue may be full; blocks.
pub fn receive_from(from: &mut dyn QueuePair, to: &mut dyn QueuePair) -> Vec<u8> {
    let give_up = clock::now() + Nanos::from_secs(20);
    loop {
        from.flush();
        match to.poll() {
            Some(Completion::Recv { .. }) => return to.message().to_vec(),
            Some(other) => panic!("{other:?} instead of a message"),
            None => to.wait(Some(Nanos::from_millis(1))).unwrap(),
        }
        assert!(clock::now() < give_up, "nothing comes");
    }
}

/// Runs `act` while the peer's end is served until a message comes or the connection is over;
/// whether a message came.
pub fn served<T>(peer: &mut dyn QueuePair, act: impl FnOnce() -> T) -> (T, bool) {
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || next(peer));
        let result = act();
        let last = serving.join().unwrap();
        (result, matches!(last, Some(Completion::Recv { .. })))
    })
}

/// Sends and flushes.
pub fn send(qp: &mut dyn QueuePair, message: &[u8]) {
    qp.post_send(0, &[message]).unwrap();
    qp.flush();
}

/// Runs a client's registration while the server's end is polled.
pub fn while_polled<T: Send>(
    ends: &mut Ends,
    client: impl FnOnce(&mut dyn QueuePair) -> T + Send,
) -> T {
    let (qp, server) = (&mut ends.client, &mut ends.server);
    std::thread::scope(|scope| {
        let asking = scope.spawn(move || client(&mut **qp));
        while !asking.is_finished() {
            assert_eq!(server.poll(), None);
            clock::sleep(Nanos::from_micros(50));
        }
        asking.join().unwrap()
    })
}

/// One test for each promise, on a fabric.
macro_rules! suite {
    // Where there are tags for ranges, and rights.
    (windows: $subject:expr $(, #[$when:meta])?) => {
        suite!($subject $(, #[$when])?);
        suite!(@ $subject $(, #[$when])?; binding: bound_ranges, rights, invalidated, own_memory, frame_sinks, no_reads);
    };
    ($subject:expr $(, #[$when:meta])?) => {
        suite!(@ $subject $(, #[$when])?; messages: in_order_and_whole, first_words, gathered, too_long, full, without_room, private_data, refused, nobody_listens);
        suite!(@ $subject $(, #[$when])?; memory: regions, written_before_sent, frames, marked, reads, out_of_range, arena, page_and_stamp, page_then_stamp);
        suite!(@ $subject $(, #[$when])?; waiting: ping_pong, wake_sets, timeouts);
        suite!(@ $subject $(, #[$when])?; closing: dropped_ends, last_words, many_connections);
    };
    (@ $subject:expr; $room:ident: $($promise:ident),*) => {
        $(
            #[test]
            fn $promise() {
                crate::$room::$promise(&$subject);
            }
        )*
    };
    (@ $subject:expr, #[$when:meta]; $room:ident: $($promise:ident),*) => {
        $(
            #[test]
            #[$when]
            fn $promise() {
                crate::$room::$promise(&$subject);
            }
        )*
    };
}
pub(crate) use suite;
