//! The program as its callers see it.

mod delegations;
mod reads;

use odafs_common::direct;
use odafs_common::reference::Reference;
use odafs_common::session::{Control, Initiator, Pattern, SessionKey};
use odafs_common::wire::nfs3::{FileHandle, Status};
use odafs_common::wire::odafs::*;
use odafs_common::wire::xdr::Reader;
use odafs_fabric::Peer;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Caller, ChunkSource, Notes, Placements, Transport};

use super::*;
use crate::rpc::ApartPayloads;
use crate::rpc::access::{NOBODY, Rights};
use crate::vfs::Credential;
use crate::vfs::export::{Direct, ExportsConfig};
use crate::vfs::file::File;
use crate::vfs::read::Effort;
use crate::vfs::sessions::SessionOwner;
use crate::vfs::testing::{PAGE, World, other, owner};

const P: usize = PAGE as usize;

/// A server and a caller.
struct Room {
    world: World,
    odafs: Odafs,
    caller: Caller,
    who: Credential,
}

/// A session as the client keeps it.
struct Opened {
    key: SessionKey,
    accepted: Accepted,
}

fn peer(uid: u32) -> Peer {
    Peer::Uid {
        uid,
        gid: uid,
        groups: [].into(),
        pid: 1,
    }
}

impl Room {
    fn new(direct: Direct, policy: SessionPolicy) -> Self {
        let config = ExportsConfig {
            direct,
            ..ExportsConfig::default()
        };
        Self::of(config, policy)
    }

    fn of(config: ExportsConfig, policy: SessionPolicy) -> Self {
        let world = World::with(512, config);
        Self {
            odafs: Odafs::new(Arc::clone(&world.export), policy),
            world,
            caller: Caller {
                peer: peer(1000),
                local: None,
                connection: 1,
                transport: Transport::Shm,
                reply_bytes_max: 64 << 10,
                placements: Placements::default(),
                apart: None,
                back: None,
                notes: Notes::default(),
            },
            who: owner(),
        }
    }

    fn guarded() -> Self {
        Self::new(Direct::Guarded, SessionPolicy::default())
    }

    fn call(
        &self,
        procedure: Procedure,
        arguments: &impl Encode,
        effort: Effort,
    ) -> (Answer, Vec<u8>) {
        let arguments = arguments.to_bytes();
        let call = Call {
            caller: &self.caller,
            who: self.who.clone(),
            rights: Rights::default(),
            procedure: procedure.code(),
            arguments: Reader::new(&arguments),
            apart: ApartPayloads::default(),
            effort,
        };
        let mut results = Vec::new();
        let answer = self.odafs.call(call, &mut Writer::new(&mut results));
        (answer, results)
    }

    /// Calls a procedure that always replies.
    fn replies(&self, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let (answer, results) = self.call(procedure, arguments, Effort::MayBlock);
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        results
    }

    fn parameters(&self) -> Parameters<'static> {
        Parameters {
            version: direct::VERSION.into(),
            features: 0,
            macs: MacAlgorithm::OFFERED,
            mode: Mode::OneSided,
            pattern: Pattern::Nn,
            export: b"/",
            fabric: b"shm",
        }
    }

    fn open(&self, parameters: &Parameters<'_>) -> Result<Opened, OdafsStatus> {
        let parameters = parameters.to_bytes();
        let (initiator, handshake) =
            Initiator::start(&parameters, [1; 32].into(), None, None).expect("a handshake");
        let arguments = OpenSessionArgs {
            parameters: &parameters,
            handshake: &handshake,
        };
        let results = self.replies(Procedure::OpenSession, &arguments);
        let message = OpenSessionResult::from_bytes(&results).expect("a result")?;
        let (key, payload) = initiator.finish(message.0).expect("verifies");
        let accepted = Accepted::from_bytes(&payload).expect("what was granted");
        Ok(Opened { key, accepted })
    }

    fn session(&self) -> Opened {
        self.open(&self.parameters()).expect("opened")
    }

    fn read(&self, arguments: &ReadArgs<'_>, effort: Effort) -> Option<Vec<u8>> {
        match self.call(Procedure::Read, arguments, effort) {
            (Answer::Replied, results) => Some(results),
            (Answer::Blocks, _) => None,
            (other, _) => panic!("{other:?}"),
        }
    }
}

fn read_args(file: &File, offset: u64, count: u32, session: u32) -> ReadArgs<'_> {
    ReadArgs {
        file: FileHandle(file.handle()),
        offset,
        count,
        session,
        want_references: session != 0,
        chunk: None,
    }
}

#[test]
fn a_session_from_its_opening_to_its_end() {
    let room = Room::guarded();
    let Opened { key, accepted } = room.session();
    assert_ne!(accepted.session, 0);
    assert_eq!(accepted.mac, MacAlgorithm::Blake3);
    assert_eq!(accepted.mode, Mode::Guarded, "the export is not one-sided");
    assert_eq!((accepted.page_bytes, accepted.life), (4096, 1));

    let session = accepted.session;
    let rekey = |generation, key: &SessionKey| {
        let asked = Control::Rekey {
            session,
            generation,
        };
        let arguments = RekeyArgs {
            session,
            generation,
            tag: asked.tag(&key.control_key()),
        };
        let results = room.replies(Procedure::Rekey, &arguments);
        RekeyResult::from_bytes(&results).expect("a result")
    };
    let wrong = SessionKey::from_bytes([7; 32]);
    assert_eq!(rekey(1, &wrong), Err(OdafsStatus::Denied));
    assert_eq!(rekey(2, &key), Err(OdafsStatus::Denied));
    let rekeyed = rekey(1, &key).expect("the next generation");
    let said = Control::Rekeyed {
        session,
        generation: 1,
    };
    assert!(said.verify(&key.control_key(), &rekeyed.tag));
    assert_eq!(rekey(1, &key), Ok(rekeyed), "the answer may have been lost");

    let close = |key: &SessionKey| {
        let arguments = CloseSessionArgs {
            session,
            tag: Control::Close { session }.tag(&key.control_key()),
        };
        let results = room.replies(Procedure::CloseSession, &arguments);
        CloseSessionResult::from_bytes(&results).expect("a result")
    };
    assert_eq!(close(&wrong), Err(OdafsStatus::Denied));
    assert_eq!(close(&key), Ok(()));
    assert_eq!(close(&key), Err(OdafsStatus::NoSession));
    assert_eq!(rekey(2, &key), Err(OdafsStatus::NoSession));
    let nic = room.world.export.nic().expect("direct access");
    assert_eq!(nic.session_count(), 0);
}

#[test]
fn sessions_end_with_their_connection() {
    let mut room = Room::guarded();
    let first = room.session().accepted.session;
    room.caller.connection = 2;
    let second = room.session().accepted.session;
    room.odafs.closed(1);
    let sessions = room.world.export.sessions();
    assert!(sessions.get(first).is_none() && sessions.get(second).is_some());
}

#[test]
fn a_session_that_is_opened_after_the_end_of_its_connection_ends_at_once() {
    let room = Room::guarded();
    room.caller.notes.close();
    room.odafs.closed(room.caller.connection);
    let late = room.session().accepted.session;
    assert!(room.world.export.sessions().get(late).is_none());
    assert_eq!(room.world.export.nic().expect("a NIC").session_count(), 0);
}

#[test]
fn an_owner_without_room_loses_the_sessions_that_it_does_not_use() {
    let mut room = Room::guarded();
    let mine = room.session().accepted.session;
    room.caller.peer = peer(1001);
    let other = room.session().accepted.session;
    let (export, now) = (&room.world.export, clock::now());
    let owner = SessionOwner::from(&peer(1000));
    open_session::make_room(export, owner, now);
    assert!(export.sessions().get(mine).is_some());
    open_session::make_room(export, owner, now + Nanos::from_secs(61));
    assert!(export.sessions().get(mine).is_none() && export.sessions().get(other).is_some());
}

#[test]
fn a_session_that_is_over_brings_no_references() {
    let policy = SessionPolicy {
        lifetime: Nanos(0),
        ..SessionPolicy::default()
    };
    let room = Room::new(Direct::Guarded, policy);
    let file = room.world.file("a", &[1; P]);
    room.world.read(&file, 0, 1);
    let over = room.session().accepted.session;
    assert!(room.world.export.sessions().get(over).is_some());
    let arguments = GetRefsArgs {
        session: over,
        ranges: Vec::new(),
        resume: 0,
    };
    let results = room.replies(Procedure::GetRefs, &arguments);
    let asked = GetRefsResult::from_bytes(&results).expect("a result");
    assert_eq!(asked.map(drop), Err(OdafsStatus::NoSession));
    let arguments = read_args(&file, 0, 1, over);
    let results = room.read(&arguments, Effort::MayBlock).expect("resident");
    let read = ReadResult::from_bytes(&results).expect("a result");
    assert_eq!(read.expect("read").references.len(), 0);
}

#[test]
fn an_old_number_names_nobody_elses_session() {
    let mut room = Room::guarded();
    let file = room.world.file("a", &[1; P]);
    room.world.read(&file, 0, 1);
    let number = room.session().accepted.session;
    let references = |room: &Room| {
        let arguments = read_args(&file, 0, 1, number);
        let results = room.read(&arguments, Effort::MayBlock).expect("resident");
        let read = ReadResult::from_bytes(&results).expect("a result");
        read.expect("read").references.len()
    };
    let asked = |room: &Room| {
        let arguments = GetRefsArgs {
            session: number,
            ranges: Vec::new(),
            resume: 0,
        };
        let results = room.replies(Procedure::GetRefs, &arguments);
        GetRefsResult::from_bytes(&results)
            .expect("a result")
            .map(drop)
    };
    assert_eq!((references(&room), asked(&room)), (1, Ok(())));
    // The same user on another connection of the client, and another process.
    room.caller.connection = 2;
    assert_eq!((references(&room), asked(&room)), (1, Ok(())));
    let Peer::Uid { pid, .. } = &mut room.caller.peer else {
        unreachable!("a local caller");
    };
    *pid += 1;
    assert_eq!(
        (references(&room), asked(&room)),
        (0, Err(OdafsStatus::NoSession))
    );
    // The next life numbers its sessions differently.
    let next = Room::guarded().session().accepted.session;
    assert_ne!(next, number);
}

#[test]
fn what_does_not_fit_is_refused() {
    let room = Room::guarded();
    let good = room.parameters();
    let refused = [
        Parameters { version: 9, ..good },
        Parameters { macs: 0, ..good },
        Parameters {
            macs: 1 << 9,
            ..good
        },
        Parameters {
            export: b"/other",
            ..good
        },
        Parameters {
            fabric: b"tcp",
            ..good
        },
    ];
    for parameters in refused {
        assert_eq!(
            room.open(&parameters).err(),
            Some(OdafsStatus::Unsupported),
            "{parameters:?}"
        );
    }
    for (parameters, handshake) in [
        (b"rubbish".to_vec(), vec![0; 48]),
        (good.to_bytes(), vec![0; 3]),
        (good.to_bytes(), Vec::new()),
    ] {
        let arguments = OpenSessionArgs {
            parameters: &parameters,
            handshake: &handshake,
        };
        let results = room.replies(Procedure::OpenSession, &arguments);
        let result = OpenSessionResult::from_bytes(&results).expect("a result");
        assert_eq!(result.err(), Some(OdafsStatus::BadHandshake));
    }
    let off = Room::new(Direct::Off, SessionPolicy::default());
    assert_eq!(off.open(&good).err(), Some(OdafsStatus::Unsupported));
    let (answer, _) = room.call(Procedure::OpenSession, &0u32, Effort::MayBlock);
    assert!(matches!(answer, Answer::Garbage(_)));
}

#[test]
fn one_sided_is_for_root_and_the_serving_user() {
    let policy = SessionPolicy {
        serving_uid: 1000,
        ..SessionPolicy::default()
    };
    let mut room = Room::new(Direct::OneSided, policy);
    for (uid, mode) in [
        (0, Mode::OneSided),
        (1000, Mode::OneSided),
        (1001, Mode::Guarded),
    ] {
        room.caller.peer = peer(uid);
        assert_eq!(room.session().accepted.mode, mode, "uid {uid}");
    }
    let modest = Parameters {
        mode: Mode::Guarded,
        ..room.parameters()
    };
    room.caller.peer = peer(0);
    let opened = room.open(&modest).expect("opened");
    assert_eq!(opened.accepted.mode, Mode::Guarded);
}

/// By default only on this host, and for users who may read the files anyway. Named users also count only on this host.
#[test]
fn each_user_gets_the_direct_reads_that_the_modes_and_names_say() {
    use Mode::{Guarded, OneSided};
    let of_group = |uid, group| Peer::Uid {
        uid,
        gid: uid,
        groups: [group].into(),
        pid: 1,
    };
    let remote = || Peer::Address("192.0.2.1:999".parse().expect("an address"));
    let (user, group) = (Grantee::User(7), Grantee::Group(50));
    let (local, everyone) = ([OneSided, OneSided], [OneSided; 5]);
    // Root, the serving user, user 7, user 8 of group 50, user 9 of none; another machine.
    let of_others = |others: [Mode; 3]| [local.as_slice(), &others].concat();
    let none = of_others([Guarded; 3]);
    let cases = [
        (Direct::Auto, vec![], none.clone(), Guarded),
        (Direct::OneSided, vec![], none, OneSided),
        (Direct::Guarded, vec![], vec![Guarded; 5], Guarded),
        (
            Direct::Guarded,
            vec![Grantee::All],
            vec![Guarded; 5],
            Guarded,
        ),
        (
            Direct::Auto,
            vec![user],
            of_others([OneSided, Guarded, Guarded]),
            Guarded,
        ),
        (
            Direct::Auto,
            vec![group],
            of_others([Guarded, OneSided, Guarded]),
            Guarded,
        ),
        (
            Direct::Auto,
            vec![user, group],
            of_others([OneSided, OneSided, Guarded]),
            Guarded,
        ),
        (Direct::Auto, vec![Grantee::All], everyone.to_vec(), Guarded),
        (
            Direct::OneSided,
            vec![Grantee::All],
            everyone.to_vec(),
            OneSided,
        ),
    ];
    for (direct, one_sided_for, modes, elsewhere) in cases {
        let said = format!("{direct:?} {one_sided_for:?}");
        let policy = SessionPolicy {
            serving_uid: 1000,
            one_sided_for,
            ..SessionPolicy::default()
        };
        let mut room = Room::new(direct, policy);
        let peers = [peer(0), peer(1000), peer(7), of_group(8, 50), peer(9)];
        for (peer, mode) in peers.into_iter().zip(modes) {
            room.caller.peer = peer.clone();
            assert_eq!(room.session().accepted.mode, mode, "{said}, {peer}");
        }
        room.caller.peer = remote();
        assert_eq!(room.session().accepted.mode, elsewhere, "{said}");
    }
}

/// The number of nobody may stand for any user that the server's namespace does not know.
#[test]
fn a_server_that_runs_as_nobody_has_no_user_of_its_own() {
    let policy = SessionPolicy {
        serving_uid: NOBODY,
        ..SessionPolicy::default()
    };
    let mut room = Room::new(Direct::Auto, policy);
    room.caller.peer = peer(NOBODY);
    assert_eq!(room.session().accepted.mode, Mode::Guarded);
}

#[test]
fn who_is_listed_by_key_may_open_sessions_from_elsewhere() {
    let [server, listed, stranger] = [3, 4, 5].map(|byte| Identity::from_secret([byte; 32]));
    let policy = SessionPolicy {
        identity: Some(server.clone()),
        admitted: vec![listed.public()],
        ..SessionPolicy::default()
    };
    let mut room = Room::new(Direct::Guarded, policy);
    let open = |room: &Room, pattern, identity: Option<&Identity>| {
        let parameters = Parameters {
            pattern,
            ..room.parameters()
        };
        let parameters = parameters.to_bytes();
        let key = (pattern != Pattern::Nn).then(|| server.public());
        let (_, handshake) = Initiator::start(&parameters, [1; 32].into(), identity, key.as_ref())
            .expect("a handshake");
        let arguments = OpenSessionArgs {
            parameters: &parameters,
            handshake: &handshake,
        };
        let results = room.replies(Procedure::OpenSession, &arguments);
        OpenSessionResult::from_bytes(&results)
            .expect("a result")
            .map(drop)
    };
    // On this host the kernel identifies the caller.
    assert_eq!(open(&room, Pattern::Nn, None), Ok(()));
    room.caller.peer = Peer::Address("192.0.2.1:999".parse().expect("an address"));
    let denied = Err(OdafsStatus::Denied);
    assert_eq!(open(&room, Pattern::Kk, Some(&listed)), Ok(()));
    assert_eq!(open(&room, Pattern::Kk, Some(&stranger)), denied);
    assert_eq!(open(&room, Pattern::Nk, None), denied);
    assert_eq!(open(&room, Pattern::Nn, None), denied);
}

#[test]
fn one_user_cannot_take_all_sessions() {
    let mut config = ExportsConfig::default();
    config.nic.sessions_max = 20;
    let mut room = Room::of(config, SessionPolicy::default());
    let opened = std::iter::repeat_with(|| room.open(&room.parameters()))
        .take(20)
        .take_while(Result::is_ok)
        .count();
    assert_eq!(opened, 10);
    assert_eq!(
        room.open(&room.parameters()).err(),
        Some(OdafsStatus::TooMany)
    );
    room.caller.peer = peer(1001);
    room.session();
    room.caller.peer = peer(1000);
    room.odafs.closed(1);
    room.session();
}
