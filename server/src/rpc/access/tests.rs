use std::borrow::Cow;

use odafs_common::wire::rpc::{AuthSys, Groups};
use odafs_nic::calls::{Notes, Placements, Transport};

use super::*;
use crate::vfs::Status;

fn peer(address: &str) -> Peer {
    Peer::Address(address.parse().expect("an address"))
}

fn sys(uid: u32, gid: u32, groups: &[u32]) -> Auth<'static> {
    Auth::Sys(AuthSys {
        stamp: 7,
        machine: b"m",
        uid,
        gid,
        gids: Groups::new(groups),
    })
}

fn caller(peer: Peer) -> Caller {
    Caller {
        peer,
        local: None,
        connection: 1,
        transport: Transport::NfsTcp,
        reply_bytes_max: 1 << 20,
        placements: Placements::default(),
        apart: None,
        back: None,
        notes: Notes::default(),
    }
}

fn credential(access: &Access, from: &Peer, auth: &Auth<'_>) -> Result<Credential, AuthStat> {
    access.credential(&caller(from.clone()), auth)
}

fn serving(uid: u32) -> Credential {
    Credential {
        own: true,
        ..Credential::of(uid, uid, &[])
    }
}

#[test]
fn loopback_alone_is_let_in_unless_more_is_said() {
    let access = Access::new(Vec::new(), Squash::All, serving(1000));
    assert!(access.admits(&peer("127.0.0.1:700")));
    assert!(access.admits(&peer("[::1]:40000")));
    assert!(access.admits(&peer("[::ffff:127.0.0.1]:40000")));
    assert!(!access.admits(&peer("10.1.2.3:700")));

    let nets = vec!["10.1.0.0/16".parse().expect("a network")];
    let access = Access::new(nets, Squash::All, serving(1000));
    assert!(access.admits(&peer("10.1.2.3:700")));
    assert!(access.admits(&peer("[::ffff:10.1.2.3]:40000")));
    assert!(!access.admits(&peer("10.2.0.1:700")));
    assert_eq!(access.networks(0), ["10.1.0.0/16"]);
}

#[test]
fn loopback_can_be_left_out() {
    let nets = || vec!["10.1.0.0/16".parse().expect("a network")];
    let without_loopback = |nets| {
        let rule = Rule {
            loopback: false,
            ..Rule::new(nets, Squash::All)
        };
        Access::of(rule, serving(1000))
    };
    let access = without_loopback(nets());
    for stranger in ["127.0.0.1:700", "[::1]:700", "[::ffff:127.0.0.1]:700"] {
        assert!(!access.admits(&peer(stranger)), "{stranger}");
    }
    assert!(access.admits(&peer("10.1.2.3:700")));
    let v4 = vec!["127.0.0.0/8".parse().expect("a network")];
    let access = without_loopback(v4);
    assert!(access.admits(&peer("127.0.0.1:700")) && !access.admits(&peer("[::1]:700")));
}

#[test]
fn ids_count_from_privileged_ports_alone() {
    for squash in [Squash::None, Squash::Root] {
        let access = |any_port| {
            let rule = Rule {
                any_port,
                ..Rule::new(Vec::new(), squash)
            };
            Access::of(rule, serving(0))
        };
        assert!(access(false).admits(&peer("127.0.0.1:1023")));
        for anyone in ["127.0.0.1:1024", "[::1]:40000", "[::ffff:127.0.0.1]:1024"] {
            assert!(!access(false).admits(&peer(anyone)), "{anyone}");
            assert!(access(true).admits(&peer(anyone)), "{anyone}");
        }
        let process = Peer::Uid {
            uid: 12,
            gid: 13,
            groups: [].into(),
            pid: 1,
        };
        assert!(access(false).admits(&process));
    }
    let squashed = Access::new(Vec::new(), Squash::All, serving(0));
    assert!(squashed.admits(&peer("127.0.0.1:40000")));
}

#[test]
fn all_are_squashed_to_the_serving_user_but_never_to_root() {
    let from = peer("127.0.0.1:1");
    let access = Access::new(Vec::new(), Squash::All, serving(1000));
    let who = credential(&access, &from, &sys(0, 0, &[])).expect("let in");
    assert_eq!((who.uid, who.own), (1000, true));
    let access = Access::new(Vec::new(), Squash::All, serving(0));
    let who = credential(&access, &from, &sys(5, 5, &[])).expect("let in");
    assert_eq!((who.uid, who.gid, who.own), (NOBODY, NOBODY, false));
}

#[test]
fn root_becomes_nobody_in_every_place() {
    let from = peer("127.0.0.1:1");
    let access = Access::new(Vec::new(), Squash::Root, serving(0));
    let who = credential(&access, &from, &sys(5, 0, &[0, 7])).expect("let in");
    assert_eq!(
        (who.uid, who.gid, &*who.groups),
        (5, NOBODY, &[NOBODY, 7][..])
    );
    let who = credential(&access, &from, &sys(0, 5, &[5])).expect("let in");
    assert_eq!((who.uid, who.gid, &*who.groups), (NOBODY, NOBODY, &[][..]));
    let who = credential(&access, &from, &Auth::None).expect("let in");
    assert_eq!(who.uid, NOBODY);
}

/// A server whose callers without ids of their own have these.
fn with_anonymous(squash: Squash, uid: Option<u32>, gid: Option<u32>) -> Access {
    let rule = Rule {
        anonymous: Anonymous { uid, gid },
        ..Rule::new(Vec::new(), squash)
    };
    Access::of(rule, serving(1000))
}

#[test]
fn callers_without_ids_of_their_own_get_those_of_the_rule() {
    let from = peer("127.0.0.1:1");
    let ids = |access: &Access, auth: &Auth<'_>| {
        let who = credential(access, &from, auth).expect("let in");
        (who.uid, who.gid, who.groups.to_vec(), who.own)
    };
    let access = with_anonymous(Squash::All, Some(99), Some(98));
    assert_eq!(ids(&access, &sys(5, 6, &[7])), (99, 98, vec![], false));
    assert_eq!(ids(&access, &Auth::None), (99, 98, vec![], false));
    let access = with_anonymous(Squash::Root, Some(99), Some(98));
    assert_eq!(ids(&access, &sys(0, 0, &[0])), (99, 98, vec![], false));
    assert_eq!(
        ids(&access, &sys(5, 0, &[0, 7])),
        (5, 98, vec![98, 7], false)
    );
    let access = with_anonymous(Squash::None, Some(99), Some(98));
    assert_eq!(ids(&access, &sys(0, 0, &[])), (0, 0, vec![], false));
    assert_eq!(ids(&access, &Auth::None), (99, 98, vec![], false));
    // One alone: the other is nobody's, whoever serves.
    let access = with_anonymous(Squash::All, Some(99), None);
    assert_eq!(ids(&access, &sys(5, 6, &[])), (99, NOBODY, vec![], false));
    let access = with_anonymous(Squash::All, None, Some(0));
    assert_eq!(ids(&access, &sys(5, 6, &[])), (NOBODY, 0, vec![], false));
    let access = with_anonymous(Squash::All, None, None);
    assert_eq!(ids(&access, &sys(5, 6, &[])), (1000, 1000, vec![], true));
    // On one host the kernel says who calls.
    let access = with_anonymous(Squash::All, Some(99), Some(98));
    let process = Peer::Uid {
        uid: 12,
        gid: 13,
        groups: [].into(),
        pid: 1,
    };
    let who = credential(&access, &process, &sys(0, 0, &[])).expect("let in");
    assert_eq!((who.uid, who.gid), (12, 13));
}

#[test]
fn an_export_takes_what_it_does_not_say_from_the_server() {
    let of = |uid, gid| Anonymous { uid, gid };
    let server = of(Some(1), Some(2));
    assert_eq!(of(None, None).or(server), server);
    assert_eq!(of(Some(3), None).or(server), of(Some(3), Some(2)));
}

#[test]
fn ids_are_trusted_where_nothing_is_squashed_and_on_one_host() {
    let access = Access::new(Vec::new(), Squash::None, serving(0));
    let who = credential(&access, &peer("127.0.0.1:1"), &sys(0, 3, &[4])).expect("let in");
    assert_eq!((who.uid, who.gid, &*who.groups), (0, 3, &[4][..]));

    let access = Access::new(Vec::new(), Squash::All, serving(0));
    let process = Peer::Uid {
        uid: 12,
        gid: 13,
        groups: [14].into(),
        pid: 1,
    };
    let who = credential(&access, &process, &sys(0, 0, &[])).expect("let in");
    assert_eq!((who.uid, who.gid, &*who.groups), (12, 13, &[14][..]));
}

#[test]
fn other_flavours_are_refused() {
    let access = Access::new(Vec::new(), Squash::All, serving(1000));
    let gss = Auth::Other {
        flavor: 6,
        body: &[],
    };
    assert_eq!(
        credential(&access, &peer("127.0.0.1:1"), &gss),
        Err(AuthStat::BadCred)
    );
}

/// The tags of three exports, and a server of them: for a network, for a port below 1024, and for everybody who may call
/// any of them.
fn by_export() -> Access {
    let net = |text: &str| vec![text.parse().expect("a network")];
    let closed = |rule: Rule| Rule {
        loopback: false,
        ..rule
    };
    Access::new(Vec::new(), Squash::All, serving(1000)).with_exports(vec![
        (7, closed(Rule::new(net("10.1.0.0/16"), Squash::Root))),
        (3, closed(Rule::new(net("10.2.0.0/16"), Squash::All))),
        (900, Rule::new(net("10.0.0.0/8"), Squash::All)),
    ])
}

#[test]
fn an_export_is_for_those_whom_its_own_rule_admits() {
    let access = by_export();
    let on = |address: &str| {
        let caller = caller(peer(address));
        let found = [0, 7, 3, 900, 4].map(|tag| access.verdict_on(&caller, tag));
        // What is kept with the connection is what was found.
        assert_eq!(
            found,
            [0, 7, 3, 900, 4].map(|tag| access.verdict_on(&caller, tag))
        );
        found
    };
    let (stranger, port) = (AccessVerdict::Stranger, AccessVerdict::WrongPort);
    let (all, root) = (
        AccessVerdict::Admitted(Squash::All),
        AccessVerdict::Admitted(Squash::Root),
    );
    assert_eq!(on("10.1.0.1:700"), [all, root, stranger, all, stranger]);
    assert_eq!(on("10.1.0.1:7000"), [all, port, stranger, all, stranger]);
    assert_eq!(on("10.2.0.1:7000"), [all, stranger, all, all, stranger]);
    assert_eq!(
        on("127.0.0.1:7000"),
        [all, stranger, stranger, all, stranger]
    );
    assert_eq!(on("192.0.2.1:700"), [stranger; 5]);
    assert!(access.admits_address("10.9.9.9".parse().unwrap()));
    assert!(!access.admits_address("192.0.2.1".parse().unwrap()));
    assert_eq!(access.networks(7), ["10.1.0.0/16"]);
    assert_eq!(
        access.networks(0),
        ["10.1.0.0/16", "10.2.0.0/16", "10.0.0.0/8"]
    );
}

#[test]
fn ids_are_squashed_as_each_export_says() {
    let access = by_export();
    let caller = caller(peer("10.1.0.1:700"));
    let auth = sys(5, 6, &[7]);
    let base = access.credential(&caller, &auth).expect("admitted");
    let rights = access.rights(&caller, &auth);
    assert_eq!(base, serving(1000));
    let on = |tag| rights.credential(tag, &base).map(Cow::into_owned);
    assert_eq!(on(900), Ok(serving(1000)));
    assert_eq!(on(7), Ok(Credential::of(5, 6, &[7])));
    assert_eq!(on(3), Err(Status::Stale));
    let identity = rights.identity(&base);
    assert_eq!(identity, Credential::of(5, 6, &[7]));
    assert!(rights.is_identity(&identity, &base) && !rights.is_identity(&base, &base));
    assert!(!rights.reach_all());
    let auth = sys(0, 0, &[]);
    let rights = access.rights(&caller, &auth);
    let root = rights.credential(7, &base).expect("admitted");
    assert_eq!((root.uid, rights.user(&base)), (NOBODY, 0));
    assert!(!rights.is_identity(&identity, &base));
}

#[test]
fn in_a_server_without_a_table_a_call_has_one_credential() {
    let access = Access::new(Vec::new(), Squash::Root, serving(0));
    let (caller, auth) = (caller(peer("127.0.0.1:700")), sys(5, 6, &[]));
    let base = access.credential(&caller, &auth).expect("admitted");
    let rights = access.rights(&caller, &auth);
    assert!(!rights.are_by_export() && rights.reach_all());
    assert_eq!(rights.user(&base), 5);
    assert_eq!(rights.credential(77, &base), Ok(Cow::Borrowed(&base)));
    assert_eq!(rights.check(77), Ok(()));
    assert!(rights.is_identity(&base, &base));
}

#[test]
fn verdicts_are_void_once_the_rules_are_replaced() {
    let access = by_export();
    let inside = caller(peer("10.1.0.1:700"));
    let admitted = |tag| matches!(access.verdict_on(&inside, tag), AccessVerdict::Admitted(_));
    assert!(admitted(0) && admitted(7) && admitted(900));
    let local = || Rule::new(Vec::new(), Squash::All);
    let mut rules = vec![local(), local()];
    assert!(access.replace(local(), rules.clone()).is_err());
    rules.push(Rule::new(vec!["10.0.0.0/8".parse().unwrap()], Squash::All));
    let replaced = access.replace(local(), rules.clone()).expect("as many");
    assert!(admitted(0) && !admitted(7) && admitted(900));
    let concerns = |address: &str| replaced.concerns(address.parse().unwrap());
    assert!(concerns("10.1.0.1") && concerns("10.2.0.1") && concerns("127.0.0.1"));
    assert!(!concerns("10.3.0.1") && !concerns("192.0.2.1"));
    rules.pop();
    rules.push(local());
    access.replace(local(), rules).expect("as many");
    assert!(!admitted(0) && !admitted(900));
}

#[test]
fn verdicts_of_many_exports_are_kept_apart() {
    let rule = |tag: u16| {
        let squash = [Squash::All, Squash::Root, Squash::None][usize::from(tag) % 3];
        let mut rule = Rule::new(Vec::new(), squash);
        rule.loopback = !tag.is_multiple_of(5);
        (tag, rule)
    };
    let exports: Vec<_> = (1..=100).map(rule).collect();
    let wanted: Vec<_> = exports
        .iter()
        .map(|(_, rule)| rule.verdict(&peer("127.0.0.1:700")))
        .collect();
    let access = Access::new(Vec::new(), Squash::All, serving(1000)).with_exports(exports);
    let caller = caller(peer("127.0.0.1:700"));
    for _ in 0..2 {
        let found: Vec<_> = (1..=100)
            .map(|tag| access.verdict_on(&caller, tag))
            .collect();
        assert_eq!(found, wanted);
    }
}
