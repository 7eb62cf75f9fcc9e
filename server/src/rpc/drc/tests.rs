//! The cache by itself.

use odafs_common::wire::rpc::{AuthSys, Groups};

use super::*;

const BOUNDS: Bounds = Bounds {
    changes: 10,
    writes: 2,
    total: 25,
    age: Nanos::from_secs(120),
};
const CHANGE: Repeats<'_> = Repeats::Change { names: [None; 2] };

/// A change of a name in a directory.
fn of(name: &[u8]) -> Repeats<'_> {
    Repeats::Change {
        names: [None, Some((b"directory", name))],
    }
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
        Seen::New(call) => drop(call.served(reply)),
        other => panic!("expected a new call, got {other:?}"),
    }
}

#[test]
fn a_repeated_call_gets_the_first_reply_from_any_port() {
    let cache = DuplicateCache::new(BOUNDS);
    let call = header(1, 8, 0, 5);
    serve(
        cache.begin(&peer("10.0.0.1:700"), &call, b"args", CHANGE),
        b"reply",
    );
    let again = cache.begin(&peer("10.0.0.1:901"), &header(1, 8, 0, 6), b"args", CHANGE);
    assert!(matches!(again, Seen::Served(reply) if *reply == *b"reply"));
}

#[test]
fn whatever_differs_makes_another_call() {
    let cache = DuplicateCache::new(BOUNDS);
    let here = peer("10.0.0.1:700");
    serve(
        cache.begin(&here, &header(1, 8, 0, 0), b"args", CHANGE),
        b"reply",
    );
    let others = [
        cache.begin(&peer("10.0.0.2:700"), &header(1, 8, 0, 0), b"args", CHANGE),
        cache.begin(&here, &header(2, 8, 0, 0), b"args", CHANGE),
        cache.begin(&here, &header(1, 9, 0, 0), b"args", CHANGE),
        cache.begin(&here, &header(1, 8, 1, 0), b"args", CHANGE),
        cache.begin(&here, &header(1, 8, 0, 0), b"argz", CHANGE),
        cache.begin(&here, &header(1, 8, 0, 0), b"args\0", CHANGE),
    ];
    for other in others {
        assert!(matches!(other, Seen::New(_)), "{other:?}");
    }
}

#[test]
fn a_repeat_of_a_call_in_progress_is_dropped_until_that_ends() {
    let cache = DuplicateCache::new(BOUNDS);
    let (here, call) = (peer("10.0.0.1:700"), header(1, 8, 0, 0));
    let first = cache.begin(&here, &call, b"args", CHANGE);
    assert!(matches!(
        cache.begin(&here, &call, b"args", CHANGE),
        Seen::InProgress
    ));
    drop(first);
    assert!(matches!(
        cache.begin(&here, &call, b"args", CHANGE),
        Seen::New(_)
    ));
}

/// Whether the reply to a call of an earlier [`serve`] is still known.
fn is_kept(cache: &DuplicateCache, from: &str, xid: u32, repeats: Repeats<'_>) -> bool {
    let seen = cache.begin(&peer(from), &header(xid, 8, 0, 0), b"", repeats);
    matches!(seen, Seen::Served(_))
}

fn keep(cache: &DuplicateCache, from: &str, xid: u32, repeats: Repeats<'_>, status: u32) {
    let mut reply = Vec::new();
    let mut w = odafs_common::wire::xdr::Writer::new(&mut reply);
    rpc::reply_success(&mut w, xid);
    w.u32(status);
    let seen = cache.begin(&peer(from), &header(xid, 8, 0, 0), b"", repeats);
    serve(seen, &reply);
}

const HERE: &str = "10.0.0.1:700";

#[test]
fn data_and_other_clients_cost_nobody_a_reply() {
    let cache = DuplicateCache::new(BOUNDS);
    keep(&cache, HERE, 0, CHANGE, 0);
    for xid in 1..1000 {
        keep(&cache, HERE, xid, Repeats::Write, 0);
        keep(&cache, "10.0.0.2:700", xid, CHANGE, 0);
        keep(&cache, "10.0.0.2:700", xid, Repeats::Write, 0);
    }
    assert!(is_kept(&cache, HERE, 0, CHANGE));
    assert!(is_kept(&cache, HERE, 999, Repeats::Write));
    assert!(is_kept(&cache, "10.0.0.2:700", 999, CHANGE));
}

#[test]
fn it_is_bounded_in_number_and_size() {
    let cache = DuplicateCache::new(BOUNDS);
    for xid in 0..11 {
        keep(&cache, HERE, xid, CHANGE, 0);
    }
    assert!(!is_kept(&cache, HERE, 0, CHANGE) && is_kept(&cache, HERE, 1, CHANGE));
    for xid in 0..3 {
        keep(&cache, HERE, xid, Repeats::Write, 0);
    }
    assert!(!is_kept(&cache, HERE, 0, Repeats::Write));
    // Two more clients with all that they may have: the silent one goes.
    for from in ["10.0.0.2:700", "10.0.0.3:700"] {
        for xid in 0..10 {
            keep(&cache, from, xid, CHANGE, 0);
        }
    }
    assert!(!is_kept(&cache, HERE, 10, CHANGE));
    assert!(is_kept(&cache, "10.0.0.2:700", 0, CHANGE));
    assert_eq!(cache.calls.lock().kept, 20);
    let long = vec![0; REPLY_BYTES_MAX + 1];
    let call = header(99, 8, 0, 0);
    serve(cache.begin(&peer(HERE), &call, b"", CHANGE), &long);
    assert!(!is_kept(&cache, HERE, 99, CHANGE));
}

#[test]
fn a_reply_ages() {
    let bounds = Bounds {
        age: Nanos(0),
        ..BOUNDS
    };
    let cache = DuplicateCache::new(bounds);
    keep(&cache, HERE, 1, CHANGE, 0);
    let kept = clock::now();
    while clock::now() == kept {}
    assert!(!is_kept(&cache, HERE, 1, CHANGE));
}

#[test]
fn who_changes_a_name_has_had_the_answers_about_it() {
    let cache = DuplicateCache::new(BOUNDS);
    keep(&cache, HERE, 1, of(b"made"), 0);
    keep(&cache, HERE, 2, of(b"other"), 0);
    // Refused: nothing was changed.
    keep(&cache, HERE, 3, of(b"made"), 66);
    // Of another client nothing is known.
    keep(&cache, "10.0.0.2:700", 4, of(b"made"), 0);
    assert!(is_kept(&cache, HERE, 1, of(b"made")));
    keep(&cache, HERE, 5, of(b"made"), 0);
    for (xid, kept) in [(1, false), (2, true), (3, false), (5, true)] {
        assert_eq!(is_kept(&cache, HERE, xid, of(b"made")), kept, "{xid}");
    }
    assert!(is_kept(&cache, "10.0.0.2:700", 4, of(b"made")));
    // Another client of the same address, or the same one after it has lost its connection.
    let beside = format!("{}1", &HERE[..HERE.len() - 1]);
    assert_ne!(beside, HERE);
    keep(&cache, &beside, 6, of(b"made"), 0);
    assert!(is_kept(&cache, HERE, 5, of(b"made")));
}

/// The replies about each name are known without a walk through all.
#[test]
fn what_is_kept_about_names_is_what_is_kept() {
    let cache = DuplicateCache::new(BOUNDS);
    let mut random = 1_u32;
    for xid in 0..500 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [a, b, port, status] = random.to_be_bytes();
        let names = [a % 8, b % 8].map(|name| [b'n', name]);
        let named = [&names[0], &names[1]].map(|name| Some((&b"directory"[..], &name[..])));
        let repeats = Repeats::Change { names: named };
        let from = format!("10.0.0.1:{}", 700 + u16::from(port % 2));
        // Some numbers come again once the reply is forgotten.
        keep_again(&cache, &from, xid % 40, repeats, u32::from(status % 2));
        let calls = cache.calls.lock();
        for (_, client) in &calls.clients {
            let mut about: HashMap<_, HashSet<Key>> = HashMap::new();
            for (key, served) in &client.changes {
                for name in served.of_port() {
                    about.entry(name).or_default().insert(*key);
                }
            }
            assert_eq!(client.about, about);
        }
    }
}

/// As [`keep`], unless there is a reply already.
fn keep_again(cache: &DuplicateCache, from: &str, xid: u32, repeats: Repeats<'_>, status: u32) {
    let mut reply = Vec::new();
    let mut w = odafs_common::wire::xdr::Writer::new(&mut reply);
    rpc::reply_success(&mut w, xid);
    w.u32(status);
    let seen = cache.begin(&peer(from), &header(xid, 8, 0, 0), b"", repeats);
    if let Seen::New(call) = seen {
        call.served(&reply);
    }
}

#[test]
fn the_checksum_sees_every_byte() {
    let bytes = [7_u8; 100];
    let checksum = |seed, bytes: &[u8]| checksum(seed, &bytes.into());
    let whole = checksum(1, &bytes);
    for at in 0..bytes.len() {
        let mut other = bytes;
        other[at] ^= 0x80;
        assert_ne!(checksum(1, &other), whole, "byte {at}");
    }
    assert_ne!(checksum(1, &bytes[..99]), whole);
    assert_ne!(checksum(2, &bytes), whole);
}

/// A call is the same, whatever of it came apart.
#[test]
fn the_checksum_does_not_see_where_bytes_lie() {
    let bytes: Vec<u8> = (0..200).map(|at| (at * 7) as u8).collect();
    let whole = Gather::from(&bytes);
    for cut in 0..bytes.len() {
        for piece in [1, 31, 32, 100] {
            let mut pieces = Gather::new();
            pieces.push_part(&whole, 0, cut);
            let rest = bytes.len() - cut;
            pieces.push_part(&whole, cut, piece.min(rest));
            pieces.push_part(&whole, cut + piece.min(rest), rest.saturating_sub(piece));
            assert_eq!(checksum(1, &pieces), checksum(1, &whole), "{cut} {piece}");
        }
    }
}
