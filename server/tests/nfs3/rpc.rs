//! Calls that are none, or not ours to serve; repeated calls.

use odafs_common::wire::nfs3::{
    self, LookupResult, MakeDirectoryArgs, Procedure, RemoveResult, SetAttributes,
};
use odafs_common::wire::rpc::{self, Auth, AuthStat, Rejection};
use odafs_common::wire::xdr::{Decode as _, Encode as _};
use odafs_common::wire::{mount3, portmap};
use odafs_nic::calls::{Calls as _, Outcome};

use crate::harness::{Server, at, caller, user};

const NFS: (u32, u32) = (nfs3::PROGRAM, nfs3::VERSION);

fn rejection(server: &Server, program: (u32, u32), procedure: u32, arguments: &[u8]) -> Rejection {
    match server.call(program, procedure, &user(0, 0), arguments) {
        Ok(results) => panic!("served, with {} bytes", results.len()),
        Err(rejection) => rejection,
    }
}

#[test]
fn what_is_not_here_is_named() {
    let server = Server::new();
    let rejection = |program, procedure| rejection(&server, program, procedure, &[]);
    assert_eq!(rejection((100_021, 4), 0), Rejection::ProgramUnavailable);
    let only = |version| Rejection::ProgramMismatch {
        low: version,
        high: version,
    };
    for version in [0, 2, 4] {
        assert_eq!(rejection((nfs3::PROGRAM, version), 0), only(3));
    }
    assert_eq!(rejection((mount3::PROGRAM, 1), 0), only(3));
    let versions = Rejection::ProgramMismatch { low: 2, high: 4 };
    assert_eq!(rejection((portmap::PROGRAM, 5), 0), versions);
    for (program, beyond) in [
        (NFS, 22),
        ((mount3::PROGRAM, 3), 6),
        ((portmap::PROGRAM, 2), 1),
        ((portmap::PROGRAM, 3), 1),
        ((portmap::PROGRAM, 4), 9),
    ] {
        assert_eq!(rejection(program, beyond), Rejection::ProcedureUnavailable);
    }
    assert_eq!(rejection(NFS, u32::MAX), Rejection::ProcedureUnavailable);
}

#[test]
fn arguments_that_do_not_decode_are_garbage() {
    let server = Server::new();
    for procedure in Procedure::ALL.iter().skip(1) {
        for arguments in [&[][..], &[0xFF; 400], &[0, 0, 0, 65]] {
            assert_eq!(
                rejection(&server, NFS, procedure.code(), arguments),
                Rejection::GarbageArguments,
                "{procedure:?}"
            );
        }
    }
    let mount = (mount3::PROGRAM, mount3::VERSION);
    assert_eq!(
        rejection(&server, mount, 1, &[0xFF; 8]),
        Rejection::GarbageArguments
    );
}

#[test]
fn every_prefix_of_a_call_is_survived() {
    let server = Server::new();
    let name = at(server.root(), "name").to_bytes();
    let message = server.message(NFS, Procedure::Lookup.code(), &user(0, 0), &name);
    for length in 0..message.len() {
        let reply = server.exchange("127.0.0.1:700", &message[..length]);
        if let Some(reply) = reply {
            rpc::parse_reply(reply).expect("a reply's header");
        }
    }
    // Not even a call: nobody to answer.
    assert!(server.exchange("127.0.0.1:700", &[]).is_none());
    let reply = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    assert!(server.exchange("127.0.0.1:700", &reply).is_none());
}

#[test]
fn rpc_itself_has_a_version() {
    let server = Server::new();
    let mut message = server.message(NFS, 0, &Auth::None, &[]);
    message[11] = 3;
    let reply = server.exchange("127.0.0.1:700", &message).expect("a reply");
    let reply = rpc::parse_reply(reply).expect("a reply's header");
    let mismatch = Rejection::RpcMismatch { low: 2, high: 2 };
    assert_eq!(reply.body.err(), Some(mismatch));
}

#[test]
fn callers_who_are_not_let_in_learn_nothing_but_that() {
    let server = Server::new();
    let root = server.root().to_bytes();
    let ask = |address, procedure: Procedure, who: &Auth<'_>| {
        let message = server.message(NFS, procedure.code(), who, &root);
        let reply = server.exchange(address, &message).expect("a reply");
        let reply = rpc::parse_reply(reply).expect("a reply's header");
        reply.body.err()
    };
    let (get, root_user) = (Procedure::GetAttributes, user(0, 0));
    let weak = Some(Rejection::Auth(AuthStat::TooWeak));
    assert_eq!(ask("10.2.0.1:700", get, &root_user), weak);
    assert_eq!(ask("10.2.0.1:700", Procedure::Null, &root_user), None);
    assert_eq!(ask("10.1.0.1:700", get, &root_user), None);
    assert_eq!(ask("127.0.0.1:700", get, &Auth::None), None);
    // Anyone could say so on such a port.
    assert_eq!(ask("10.1.0.1:40000", get, &root_user), weak);
    assert_eq!(ask("127.0.0.1:1024", get, &root_user), weak);
    let gss = Auth::Other {
        flavor: 6,
        body: &[1, 2, 3],
    };
    let bad = Some(Rejection::Auth(AuthStat::BadCred));
    assert_eq!(ask("127.0.0.1:700", get, &gss), bad);
    assert_eq!(ask("127.0.0.1:40000", Procedure::Null, &gss), None);
    // A write from there must not fill the duplicate request cache either.
    assert_eq!(ask("10.2.0.1:700", Procedure::Write, &root_user), weak);
}

#[test]
fn a_repeated_call_is_answered_as_before_and_not_served_again() {
    let server = Server::new();
    server.create(server.root(), "once");
    let name = at(server.root(), "once").to_bytes();
    let message = server.message(NFS, Procedure::Remove.code(), &user(0, 0), &name);
    let first = server.exchange("127.0.0.1:700", &message).expect("a reply");
    let before = server.deferred();
    // From another port, as after a reconnection.
    let again = server.exchange("127.0.0.1:999", &message).expect("a reply");
    assert_eq!(first, again);
    assert_eq!(server.deferred(), before);
    let removed: RemoveResult = server.nfs(Procedure::Remove, &at(server.root(), "once"));
    assert!(removed.is_err(), "another call finds nothing to remove");
    assert_eq!(server.service.counts().duplicates, 1);
}

#[test]
fn what_was_undone_since_is_done_again() {
    let server = Server::new();
    let place = at(server.root(), "d");
    let made = MakeDirectoryArgs {
        place,
        attributes: SetAttributes::default(),
    };
    let call = Procedure::MakeDirectory.code();
    let message = server.message(NFS, call, &user(0, 0), &made.to_bytes());
    let first = server.exchange("127.0.0.1:700", &message);
    assert_eq!(
        first,
        server.exchange("127.0.0.1:701", &message),
        "repeated"
    );
    let removed: RemoveResult = server.nfs(Procedure::RemoveDirectory, &place);
    removed.expect("removed");
    server.exchange("127.0.0.1:700", &message).expect("a reply");
    let found: LookupResult<'_> = server.nfs(Procedure::Lookup, &place);
    found.expect("it is there, as the reply says");
}

#[test]
fn a_repetition_of_a_call_under_way_is_dropped() {
    let server = Server::new();
    let name = at(server.root(), "absent").to_bytes();
    let message = server.message(NFS, Procedure::Remove.code(), &user(0, 0), &name);
    let (from, mut reply) = (caller("127.0.0.1:700"), Vec::new());
    let Outcome::Deferred(job) = server.service.call(&from, &message, &mut reply) else {
        panic!("a REMOVE that does not go to the pool");
    };
    assert!(server.exchange("127.0.0.1:700", &message).is_none());
    assert!(matches!(job.run(&mut reply), Outcome::Replied));
    let again = server.exchange("127.0.0.1:700", &message);
    assert_eq!(again, Some(&reply[..]));
}

#[test]
fn a_call_whose_job_is_lost_can_be_made_again() {
    let server = Server::new();
    let name = at(server.root(), "absent").to_bytes();
    let message = server.message(NFS, Procedure::Remove.code(), &user(0, 0), &name);
    let (from, mut reply) = (caller("127.0.0.1:700"), Vec::new());
    drop(server.service.call(&from, &message, &mut reply));
    assert!(server.exchange("127.0.0.1:700", &message).is_some());
}

#[test]
fn the_portmapper_tells_one_port_for_all() {
    let server = Server::new();
    let ask = |program, version, protocol| {
        let wanted = portmap::Mapping {
            program,
            version,
            protocol,
            port: 0,
        };
        let program = (portmap::PROGRAM, portmap::VERSION);
        let results = server.call(program, 3, &Auth::None, &wanted.to_bytes());
        u32::from_bytes(results.expect("served")).expect("a port")
    };
    let port = u32::from(crate::harness::PORT);
    assert_eq!(ask(nfs3::PROGRAM, 3, portmap::TCP), port);
    assert_eq!(ask(mount3::PROGRAM, 3, portmap::TCP), port);
    assert_eq!(ask(nfs3::PROGRAM, 4, portmap::TCP), 0);
    assert_eq!(ask(nfs3::PROGRAM, 3, portmap::UDP), 0);
    assert_eq!(ask(100_021, 4, portmap::TCP), 0);
    let udp = u32::from(crate::harness::UDP_PORT);
    assert_eq!(ask(100_024, 1, portmap::UDP), udp);
    assert_eq!(ask(portmap::PROGRAM, 2, portmap::UDP), udp);
    assert_eq!(ask(100_024, 1, portmap::TCP), 0);
    let program = (portmap::PROGRAM, portmap::VERSION);
    let all = server.call(program, 4, &Auth::None, &[]).expect("served");
    let all = portmap::Mappings::from_bytes(all).expect("mappings");
    let (tcp, by_datagrams): (Vec<&portmap::Mapping>, Vec<&portmap::Mapping>) = all
        .0
        .iter()
        .partition(|mapping| mapping.protocol == portmap::TCP);
    assert_eq!((tcp.len(), by_datagrams.len()), (3, 2));
    assert!(tcp.iter().all(|mapping| mapping.port == port));
    assert!(by_datagrams.iter().all(|mapping| mapping.port == udp));
}

#[test]
fn rpcbind_tells_the_same_in_its_own_form() {
    let server = Server::new();
    let ask = |version, program, transport: &'static str| {
        let wanted = portmap::Binding {
            program,
            version: if program == 100_024 { 1 } else { 3 },
            transport: transport.as_bytes(),
            address: b"",
            owner: b"",
        };
        let rpcbind = (portmap::PROGRAM, version);
        let results = server.call(
            rpcbind,
            portmap::GET_ADDRESS,
            &Auth::None,
            &wanted.to_bytes(),
        );
        let address = portmap::Address::from_bytes(results.expect("served")).expect("an address");
        std::str::from_utf8(address.0).expect("a text")
    };
    for version in portmap::RPCBIND_VERSIONS {
        assert_eq!(ask(version, nfs3::PROGRAM, "tcp"), "0.0.0.0.48.57");
        assert_eq!(ask(version, nfs3::PROGRAM, "tcp6"), "::.48.57");
        assert_eq!(ask(version, 100_024, "udp6"), "::.0.111");
        for transport in ["udp", "sctp", ""] {
            assert_eq!(ask(version, nfs3::PROGRAM, transport), "");
        }
    }
}
