//! Waiters and grants, and the grace period.

use std::collections::HashSet;

use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::hosts::HostKey;
use super::super::limits::FileLimits;
use super::*;
use crate::vfs::grace::GracePeriod;
use crate::vfs::locks::{LockOwner, Locks};

const FILE: ObjectId = file(7);
const FOUR: LockOwner = LockOwner {
    side: Side::Nfs4,
    number: 1,
};
const NOW: Nanos = Nanos::from_secs(1_000);

const fn file(ino: u64) -> ObjectId {
    ObjectId { ino, generation: 1 }
}

fn span(first: u64, last: u64) -> Span {
    Span { first, last }
}

fn who(address: &str) -> Who {
    Who {
        key: HostKey {
            address: address.to_owned(),
            name: b"host".to_vec(),
        },
        address: Some(address.parse().expect("an address")),
        ours: None,
    }
}

fn owner() -> OwnerKey {
    OwnerKey {
        process: 1,
        name: b"owner".to_vec(),
    }
}

fn asked(file: ObjectId, span: Span, block: bool) -> Asked<'static> {
    Asked {
        owner: owner(),
        file,
        handle: &[],
        offset: span.first,
        length: 0,
        span,
        write: true,
        block,
        reclaim: false,
        state: Some(3),
    }
}

fn hosts() -> Hosts {
    hosts_after(HashSet::new(), Nanos(0))
}

/// After a restart, as long as a lease.
fn hosts_after(reclaiming: HashSet<HostKey>, lease: Nanos) -> Hosts {
    let grace = GracePeriod::new(NOW, lease);
    Hosts::new(Arc::new(Locks::default()), reclaiming, grace)
}

/// Who has much to reclaim, or hears late of the restart, may need longer than a lease, but keeps nobody out for longer
/// than two.
#[test]
fn the_grace_period_lasts_while_hosts_reclaim() {
    // The times of reclaims, and when the grace period is over.
    for (reclaims, over) in [(89..90, 91), (50..60, 90), (89..200, 180)] {
        let at = |second| NOW + Nanos::from_secs(second);
        let (known, other) = (who("10.1.0.1"), who("10.1.0.2"));
        let mut hosts = hosts_after([known.key.clone()].into(), Nanos::from_secs(90));
        let reclaims_as = |hosts: &mut Hosts, who: &Who, second| {
            let range = span(second, second);
            let asked = Asked {
                reclaim: true,
                ..asked(FILE, range, false)
            };
            hosts.lock(at(second), who, &asked)
        };
        for second in reclaims.take_while(|second| *second < over) {
            let reclaimed = reclaims_as(&mut hosts, &known, second);
            assert_eq!(reclaimed, Status::Granted, "{second}");
            // Who held nothing prolongs nothing.
            let refused = reclaims_as(&mut hosts, &other, second + 1);
            assert_eq!(refused, Status::DeniedGracePeriod, "{second}");
        }
        hosts.tick(at(over - 1));
        assert!(hosts.in_grace(at(over - 1)) && !hosts.in_grace(at(over)));
        hosts.tick(at(over));
        let late = reclaims_as(&mut hosts, &known, over);
        assert_eq!(late, Status::DeniedGracePeriod, "{over}");
        assert!(!hosts.in_grace(at(over)));
    }
}

#[test]
fn what_another_protocol_gives_back_just_after_a_denial_is_heard_of() {
    let mut hosts = hosts();
    let locks = Arc::clone(&hosts.locks);
    locks.lock(FILE, span(0, 9), true, FOUR).expect("free");
    let one = who("10.1.0.1");
    let blocked = hosts.lock(NOW, &one, &asked(FILE, span(0, 4), true));
    assert_eq!(blocked, Status::Blocked);
    locks.unlock(FILE, span(5, 9), FOUR);
    *locks.after_denial.lock() = Some(Box::new(|locks| {
        locks.unlock(FILE, Span::ALL, FOUR);
    }));
    hosts.hear_of_locks();
    assert!(locks.after_denial.lock().is_none() && hosts.calls.is_empty());
    hosts.hear_of_locks();
    assert_eq!(hosts.calls.len(), 1);
}

#[test]
fn an_owner_without_room_has_its_turn_later() {
    let mut hosts = hosts();
    let (one, two) = (who("10.1.0.1"), who("10.1.0.2"));
    let whole = asked(FILE, Span::ALL, true);
    assert_eq!(hosts.lock(NOW, &two, &whole), Status::Granted);
    assert_eq!(hosts.lock(NOW, &one, &whole), Status::Blocked);
    let full = (1_000..).find(|ino| {
        let other = asked(file(*ino), Span::ALL, false);
        hosts.lock(NOW, &one, &other) == Status::DeniedNoLocks
    });
    hosts.unlock(&two, &owner(), FILE, Span::ALL);
    assert!(full.is_some() && hosts.calls.is_empty());
    hosts.tick(NOW);
    assert!(hosts.calls.is_empty());
    for ino in [1_000, 1_001] {
        hosts.unlock(&one, &owner(), file(ino), Span::ALL);
    }
    hosts.tick(NOW);
    assert_eq!(hosts.calls.len(), 1);
    hosts.tick(NOW);
    assert_eq!(hosts.calls.len(), 1);
}

#[test]
fn what_all_have_in_a_file_is_bounded() {
    let mut hosts = hosts();
    hosts.of_file = FileLimits {
        ranges: 4,
        waiters: 2,
    };
    let whos = [1, 2, 3, 4, 5, 6].map(|n| who(&format!("10.1.0.{n}")));
    let one_byte = |byte| asked(FILE, span(byte, byte), false);
    for (byte, who) in [0, 2, 4].into_iter().zip(&whos) {
        assert_eq!(hosts.lock(NOW, who, &one_byte(byte)), Status::Granted);
    }
    let fourth = hosts.lock(NOW, &whos[3], &one_byte(6));
    assert_eq!(fourth, Status::DeniedNoLocks);
    let elsewhere = asked(file(8), Span::ALL, false);
    assert_eq!(hosts.lock(NOW, &whos[3], &elsewhere), Status::Granted);
    hosts.unlock(&whos[2], &owner(), FILE, Span::ALL);
    let statuses = [Status::Blocked, Status::Blocked, Status::DeniedNoLocks];
    for (who, status) in whos[3..].iter().zip(statuses) {
        let whole = asked(FILE, Span::ALL, true);
        assert_eq!(hosts.lock(NOW, who, &whole), status);
    }
}

#[test]
fn who_waits_costs_a_walk_only_when_something_is_free() {
    let mut hosts = hosts();
    let walks = |hosts: &Hosts| hosts.locks.walks.load(Ordering::Relaxed);
    let (one, two) = (who("10.1.0.1"), who("10.1.0.2"));
    assert_eq!(
        hosts.lock(NOW, &one, &asked(FILE, span(0, 99), false)),
        Status::Granted
    );
    let before = walks(&hosts);
    for byte in 0..100 {
        let blocked = hosts.lock(NOW, &two, &asked(FILE, span(byte, byte), true));
        assert_eq!(blocked, Status::Blocked);
    }
    // The first looks once more, whether another protocol has given something back meanwhile.
    assert_eq!(walks(&hosts) - before, 1);
    let before = walks(&hosts);
    for _ in 0..10 {
        // Nothing is given back.
        let again = hosts.lock(NOW, &one, &asked(FILE, span(0, 99), false));
        assert_eq!(again, Status::Granted);
    }
    assert_eq!(walks(&hosts), before);
    let nothing = hosts.unlock(&one, &owner(), FILE, span(200, 300));
    assert_eq!((nothing, walks(&hosts) - before), (Status::Granted, 1));
    let before = walks(&hosts);
    hosts.unlock(&one, &owner(), FILE, span(99, 99));
    // To give it back, and for all who wait.
    assert_eq!((hosts.calls.len(), walks(&hosts) - before), (1, 2));
}

#[test]
fn a_lock_of_the_other_mode_survives_a_cancelled_wait() {
    let mut hosts = hosts();
    let [one, two, three] = [1, 2, 3].map(|n| who(&format!("10.1.0.{n}")));
    let reads = |block| Asked {
        write: false,
        ..asked(FILE, span(0, 9), block)
    };
    let writes = |block| asked(FILE, span(0, 9), block);
    assert_eq!(hosts.lock(NOW, &three, &writes(false)), Status::Granted);
    assert_eq!(hosts.lock(NOW, &one, &reads(true)), Status::Blocked);
    hosts.unlock(&three, &owner(), FILE, Span::ALL);
    let number = hosts.calls.pop().expect("it is told").number;
    hosts.heard(number, &Heard::Silence);
    assert_eq!(hosts.lock(NOW, &two, &reads(false)), Status::Granted);
    assert_eq!(hosts.lock(NOW, &one, &writes(true)), Status::Blocked);
    let cancelled = hosts.cancel(&one, &owner(), (FILE, span(0, 9), true));
    assert_eq!(cancelled, Status::Granted);
    hosts.unlock(&two, &owner(), FILE, Span::ALL);
    assert_eq!(hosts.lock(NOW, &three, &writes(false)), Status::Denied);
    let cancelled = hosts.cancel(&one, &owner(), (FILE, span(0, 9), false));
    assert_eq!(cancelled, Status::Granted);
    assert_eq!(hosts.lock(NOW, &three, &writes(false)), Status::Granted);
}

#[test]
fn what_a_reload_takes_goes_to_nobody_that_it_bars() {
    for _ in 0..16 {
        let mut hosts = hosts();
        let all = Vec::from_iter((1..9).map(|n| who(&format!("10.1.0.{n}"))));
        let whole = asked(FILE, span(0, 9), true);
        assert_eq!(hosts.lock(NOW, &all[0], &whole), Status::Granted);
        for who in &all[1..] {
            assert_eq!(hosts.lock(NOW, who, &whole), Status::Blocked);
        }
        assert_eq!(hosts.free_unreachable(|_, _| false), all.len());
        assert!(hosts.calls.is_empty() && hosts.grants.is_empty());
        assert_eq!(hosts.counts().hosts, 0);
    }
}

#[test]
fn who_may_not_reach_a_file_any_more_loses_what_it_has_there() {
    let mut hosts = hosts();
    let (one, two) = (who("10.1.0.1"), who("10.1.0.2"));
    let (here, there) = (FILE, file(8));
    for file in [here, there] {
        assert_eq!(
            hosts.lock(NOW, &one, &asked(file, span(0, 9), false)),
            Status::Granted
        );
        assert_eq!(
            hosts.lock(NOW, &two, &asked(file, span(0, 4), true)),
            Status::Blocked
        );
        assert_eq!(
            hosts.lock(NOW, &two, &asked(file, span(20, 29), false)),
            Status::Granted
        );
    }
    let barred = one.address;
    let lost = hosts.free_unreachable(|address, file| Some(address) != barred || file != here);
    assert_eq!(lost, 1);
    assert_eq!((hosts.calls.len(), hosts.counts().ranges), (1, 4));
    assert_eq!(hosts.counts().waiters, 2);
    // The one who waits, and the one who is just being told.
    let barred = two.address;
    assert_eq!(
        hosts.free_unreachable(|address, _| Some(address) != barred),
        1
    );
    assert_eq!((hosts.counts().ranges, hosts.counts().waiters), (1, 0));
    assert_eq!((hosts.counts().hosts, hosts.grants.len()), (1, 0));
    let all = hosts.lock(NOW, &two, &asked(here, Span::ALL, false));
    assert_eq!(all, Status::Granted);
}
