//! The duplicate request cache: a call that is sent again is not served again.
//!
//! A client that gets no reply in time sends its call again, often over another connection. That is
//! harmless for a READ; a second REMOVE would answer "no such file" for a file that the first one removed.
//! So the replies to such calls are kept for a while. The cache knows messages, no transport: what it keeps
//! has no record marks.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroUsize;

use lru::LruCache;
use odafs_common::wire::rpc::{Auth, CallHeader};
use odafs_fabric::Peer;
use odafs_fabric::sync::{Arc, Mutex};

/// What tells a repeated call from a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    peer: PeerKey,
    xid: u32,
    program: u32,
    procedure: u32,
    /// Of the credential and the arguments: a client that starts its xids anew is not taken for another's echo.
    checksum: u64,
    length: usize,
}

/// A peer, whichever of its connections it uses: clients come back from another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerKey {
    Address(IpAddr),
    Process { uid: u32, pid: i32 },
    Simulated(u32),
}

impl From<&Peer> for PeerKey {
    fn from(peer: &Peer) -> Self {
        match peer {
            Peer::Address(address) => Self::Address(address.ip().to_canonical()),
            Peer::Uid { uid, pid, .. } => Self::Process {
                uid: *uid,
                pid: *pid,
            },
            Peer::Simulated(node) => Self::Simulated(*node),
        }
    }
}

/// What the cache knows of a call.
#[derive(Debug)]
pub enum Seen {
    /// Nothing: serve it, and tell the [`InProgress`] what was replied.
    New(InProgress),
    /// It is being served: say nothing.
    InProgress,
    /// It was served, with this reply.
    Served(Arc<[u8]>),
}

/// The cache. Holds a bounded number of replies, the latest ones, and no reply above a bounded size.
#[derive(Debug)]
pub struct DuplicateCache {
    calls: Arc<Mutex<Calls>>,
    seed: RandomState,
}

#[derive(Debug)]
struct Calls {
    /// Apart from the replies, so that a call under way is never forgotten. As many as the transports let in.
    in_progress: HashSet<Key>,
    served: LruCache<Key, Arc<[u8]>>,
}

/// The longest reply that is kept, in bytes: those to the calls concerned are short.
const REPLY_BYTES_MAX: usize = 4096;

impl DuplicateCache {
    /// Keeps the latest `replies`.
    pub fn new(replies: NonZeroUsize) -> Self {
        let served = LruCache::new(replies);
        Self {
            calls: Arc::new(Mutex::new(Calls {
                in_progress: HashSet::new(),
                served,
            })),
            seed: RandomState::new(),
        }
    }

    /// Looks a call up, and remembers it as in progress if it is new. `arguments` are those on the wire.
    pub fn begin(&self, peer: &Peer, header: &CallHeader<'_>, arguments: &[u8]) -> Seen {
        let key = Key {
            peer: peer.into(),
            xid: header.xid,
            program: header.program,
            procedure: header.procedure,
            checksum: checksum(self.credential(header), arguments),
            length: arguments.len(),
        };
        let mut calls = self.calls.lock();
        if let Some(reply) = calls.served.get(&key) {
            return Seen::Served(reply.clone());
        }
        if !calls.in_progress.insert(key) {
            return Seen::InProgress;
        }
        Seen::New(InProgress {
            calls: self.calls.clone(),
            key,
        })
    }

    /// The ids alone: a repeated call may bear another stamp.
    fn credential(&self, header: &CallHeader<'_>) -> u64 {
        match &header.credential {
            Auth::None => self.seed.hash_one(0_u32),
            Auth::Sys(sys) => self
                .seed
                .hash_one((1_u32, sys.uid, sys.gid, sys.gids.as_slice())),
            Auth::Other { flavor, body } => self.seed.hash_one((flavor, body)),
        }
    }
}

/// A call that is being served. Dropped without [`InProgress::served`], the call is as if never seen.
#[derive(Debug)]
pub struct InProgress {
    calls: Arc<Mutex<Calls>>,
    key: Key,
}

impl InProgress {
    /// The call has been served with this reply.
    pub fn served(self, reply: &[u8]) {
        if reply.len() <= REPLY_BYTES_MAX {
            self.calls.lock().served.put(self.key, reply.into());
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.calls.lock().in_progress.remove(&self.key);
    }
}

/// A checksum that runs at the speed of memory (a WRITE brings a mebibyte): four lanes of multiply and
/// rotate. It guards against accidents; who forges one deceives nobody but himself.
fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let word = |bytes: &[u8]| {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(padded)
    };
    let mut lanes = [seed, !seed, seed.rotate_left(32), seed ^ FACTOR];
    let blocks = bytes.chunks_exact(32);
    let rest = blocks.remainder();
    for block in blocks {
        for (lane, part) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            *lane = mix(*lane, word(part));
        }
    }
    for (lane, part) in lanes.iter_mut().zip(rest.chunks(8)) {
        *lane = mix(*lane, word(part));
    }
    lanes.into_iter().fold(bytes.len() as u64, mix)
}

#[cfg(test)]
mod tests {
    use odafs_common::wire::rpc::{AuthSys, Groups};

    use super::*;

    fn cache(replies: usize) -> DuplicateCache {
        DuplicateCache::new(NonZeroUsize::new(replies).expect("not zero"))
    }

    fn peer(address: &str) -> Peer {
        Peer::Address(address.parse().expect("an address"))
    }

    fn header(xid: u32, procedure: u32, uid: u32, stamp: u32) -> CallHeader<'static> {
        CallHeader {
            xid,
            program: 100_003,
            version: 3,
            procedure,
            credential: Auth::Sys(AuthSys {
                stamp,
                machine: b"here",
                uid,
                gid: 0,
                gids: Groups::new(&[]),
            }),
            verifier: Auth::None,
        }
    }

    fn serve(seen: Seen, reply: &[u8]) {
        match seen {
            Seen::New(call) => call.served(reply),
            other => panic!("expected a new call, got {other:?}"),
        }
    }

    #[test]
    fn a_repeated_call_gets_the_first_reply_from_any_port() {
        let cache = cache(10);
        let call = header(1, 8, 0, 5);
        serve(cache.begin(&peer("10.0.0.1:700"), &call, b"args"), b"reply");
        let again = cache.begin(&peer("10.0.0.1:901"), &header(1, 8, 0, 6), b"args");
        assert!(matches!(again, Seen::Served(reply) if *reply == *b"reply"));
    }

    #[test]
    fn whatever_differs_makes_another_call() {
        let cache = cache(10);
        let here = peer("10.0.0.1:700");
        serve(cache.begin(&here, &header(1, 8, 0, 0), b"args"), b"reply");
        let others = [
            cache.begin(&peer("10.0.0.2:700"), &header(1, 8, 0, 0), b"args"),
            cache.begin(&here, &header(2, 8, 0, 0), b"args"),
            cache.begin(&here, &header(1, 9, 0, 0), b"args"),
            cache.begin(&here, &header(1, 8, 1, 0), b"args"),
            cache.begin(&here, &header(1, 8, 0, 0), b"argz"),
            cache.begin(&here, &header(1, 8, 0, 0), b"args\0"),
        ];
        for other in others {
            assert!(matches!(other, Seen::New(_)), "{other:?}");
        }
    }

    #[test]
    fn a_repeat_of_a_call_in_progress_is_dropped_until_that_ends() {
        let cache = cache(10);
        let (here, call) = (peer("10.0.0.1:700"), header(1, 8, 0, 0));
        let first = cache.begin(&here, &call, b"args");
        assert!(matches!(
            cache.begin(&here, &call, b"args"),
            Seen::InProgress
        ));
        drop(first);
        assert!(matches!(cache.begin(&here, &call, b"args"), Seen::New(_)));
    }

    #[test]
    fn it_is_bounded_in_number_and_size() {
        let cache = cache(2);
        let here = peer("10.0.0.1:700");
        for xid in 0..3 {
            serve(cache.begin(&here, &header(xid, 8, 0, 0), b""), b"reply");
        }
        assert!(matches!(
            cache.begin(&here, &header(0, 8, 0, 0), b""),
            Seen::New(_)
        ));
        assert!(matches!(
            cache.begin(&here, &header(2, 8, 0, 0), b""),
            Seen::Served(_)
        ));
        let long = vec![0; REPLY_BYTES_MAX + 1];
        serve(cache.begin(&here, &header(9, 8, 0, 0), b""), &long);
        assert!(matches!(
            cache.begin(&here, &header(9, 8, 0, 0), b""),
            Seen::New(_)
        ));
    }

    #[test]
    fn the_checksum_sees_every_byte() {
        let bytes = [7_u8; 100];
        let whole = checksum(1, &bytes);
        for at in 0..bytes.len() {
            let mut other = bytes;
            other[at] ^= 0x80;
            assert_ne!(checksum(1, &other), whole, "byte {at}");
        }
        assert_ne!(checksum(1, &bytes[..99]), whole);
        assert_ne!(checksum(2, &bytes), whole);
    }
}
