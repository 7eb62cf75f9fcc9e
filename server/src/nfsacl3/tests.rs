//! Calls against a store in memory, as clients of Linux and Solaris make them.

use odafs_common::wire::nfsacl3::{Entry, MAX_ENTRIES, tag};
use odafs_common::wire::xdr::Encode;
use odafs_fabric::Peer;
use odafs_nic::calls::{Caller, Notes, Placements, Transport};

use super::*;
use crate::rpc::ApartPayloads;
use crate::rpc::access::Rights;
use crate::vfs::testing::{World, other, owner};
use crate::vfs::{AclKind, SetAttributes, namespace};

struct Room {
    world: World,
    program: NfsAcl3,
}

fn entry(tag: u32, id: u32, permissions: u32) -> Entry {
    Entry {
        tag,
        id,
        permissions,
    }
}

/// `u::rw- u:2000:r-- g::r-- m::r-- o::---` of the owner's.
fn named() -> Vec<Entry> {
    vec![
        entry(tag::OWNER, 1000, 6),
        entry(tag::USER, 2000, 4),
        entry(tag::OWNING_GROUP, 1000, 4),
        entry(tag::MASK, 0, 4),
        entry(tag::OTHER, 0, 0),
    ]
}

fn setting(mask: u32, access: &[Entry], default: &[Entry]) -> Acls {
    Acls {
        mask,
        access_count: access.len() as u32,
        access: access.to_vec(),
        default_count: default.len() as u32,
        default: default.to_vec(),
    }
}

impl Room {
    fn new() -> Self {
        let world = World::new(64);
        Self {
            program: NfsAcl3::new(Arc::clone(&world.export)),
            world,
        }
    }

    fn call(&self, who: &Credential, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        self.call_with(1 << 20, who, procedure, arguments)
    }

    /// The same for a caller with so much room for the reply.
    fn call_with(
        &self,
        reply_bytes_max: u32,
        who: &Credential,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> Vec<u8> {
        let caller = Caller {
            peer: Peer::Simulated(1),
            local: None,
            connection: 1,
            transport: Transport::Sim,
            reply_bytes_max,
            placements: Placements::default(),
            apart: None,
            back: None,
            notes: Notes::default(),
        };
        let bytes = arguments.to_bytes();
        let call = |effort, results: &mut Writer<'_>| {
            let call = Call {
                caller: &caller,
                who: who.clone(),
                rights: Rights::default(),
                procedure: procedure.code(),
                arguments: Reader::new(&bytes),
                apart: ApartPayloads::default(),
                effort,
            };
            self.program.call(call, results)
        };
        let mut results = Vec::new();
        let answer = call(Effort::ResidentOnly, &mut Writer::new(&mut results));
        assert!(matches!(answer, Answer::Blocks) && results.is_empty());
        let answer = call(Effort::MayBlock, &mut Writer::new(&mut results));
        assert!(matches!(answer, Answer::Replied));
        results
    }

    fn get(&self, object: ObjectId, mask: u32) -> GetAclResult {
        let handle = self.world.export.handle(object);
        let file = FileHandle(&handle);
        // Whoever may find an object may see its lists.
        let result = self.call(&other(), Procedure::GetAcl, &GetAclArgs { file, mask });
        GetAclResult::from_bytes(&result).expect("a result")
    }

    fn told(&self, object: ObjectId, mask: u32) -> Acls {
        let ok = self.get(object, mask).expect("told");
        assert!(ok.attributes.is_some());
        ok.acls
    }

    fn set(&self, who: &Credential, object: ObjectId, acls: Acls) -> Result<u32, Status> {
        let handle = self.world.export.handle(object);
        let file = FileHandle(&handle);
        let result = self.call(who, Procedure::SetAcl, &SetAclArgs { file, acls });
        let result = SetAclResult::from_bytes(&result).expect("a result");
        match result {
            Ok(attributes) => Ok(attributes.expect("attributes").mode & 0o7777),
            Err(failed) => Err(failed.status),
        }
    }
}

#[test]
fn a_mode_is_told_as_a_list_of_four() {
    let room = Room::new();
    let file = room.world.file("f", b"x").object();
    let expected = [
        entry(tag::OWNER, 1000, 6),
        entry(tag::OWNING_GROUP, 1000, 4),
        entry(tag::MASK, 0, 4),
        entry(tag::OTHER, 0, 4),
    ];
    let told = room.told(file, mask::ALL);
    assert_eq!(told, setting(mask::ALL, &expected, &[]));
    // And is set as one.
    assert_eq!(room.set(&owner(), file, told), Ok(0o644));
    assert!(room.world.store_list(file, AclKind::Access).is_none());
    // Numbers alone.
    let counts = room.told(file, mask::ACCESS_COUNT | mask::DEFAULT_COUNT);
    assert_eq!((counts.access_count, counts.default_count), (4, 0));
    assert!(counts.access.is_empty());
    let nothing = room.told(file, 0);
    assert_eq!(nothing, Acls::default());
    assert_eq!(room.get(file, 16).unwrap_err().status, Status::Inval);
}

#[test]
fn lists_are_set_and_told() {
    let room = Room::new();
    let file = room.world.file("f", b"x").object();
    let mut shuffled = named();
    shuffled.reverse();
    // Solaris sets more bits of the mask.
    shuffled[1].permissions |= 0o70;
    let set = setting(mask::ACCESS | mask::DEFAULT, &shuffled, &[]);
    assert_eq!(room.set(&owner(), file, set.clone()), Ok(0o640));
    assert_eq!(room.told(file, mask::ACCESS).access, named());
    assert_eq!(room.set(&other(), file, set), Err(Status::Perm));
    // A list that the mask does not name stays.
    let nothing = setting(mask::DEFAULT, &[], &[]);
    assert_eq!(room.set(&owner(), file, nothing), Ok(0o640));
    assert_eq!(room.told(file, mask::ACCESS).access, named());
}

#[test]
fn a_list_that_does_not_fit_the_reply_is_not_told() {
    let room = Room::new();
    let file = room.world.file("f", b"x").object();
    let users = (0..MAX_ENTRIES - 4).map(|uid| entry(tag::USER, uid, 4));
    let long: Vec<Entry> = named()
        .into_iter()
        .filter(|known| known.tag != tag::USER)
        .chain(users)
        .collect();
    let set = setting(mask::ACCESS, &long, &[]);
    assert_eq!(room.set(&owner(), file, set), Ok(0o640));
    let handle = room.world.export.handle(file);
    let arguments = GetAclArgs {
        file: FileHandle(&handle),
        mask: mask::ACCESS,
    };
    let get = |bytes| {
        let result = room.call_with(bytes, &owner(), Procedure::GetAcl, &arguments);
        assert!(result.len() <= bytes as usize);
        let result = GetAclResult::from_bytes(&result).expect("a result");
        result
            .map(|ok| ok.acls.access.len())
            .map_err(|no| no.status)
    };
    assert_eq!(get(1 << 14), Ok(MAX_ENTRIES as usize));
    assert_eq!(get(1 << 12), Err(Status::TooSmall));
}

#[test]
fn directories_hand_lists_on() {
    let room = Room::new();
    let export = &room.world.export;
    let root = export.root();
    let new = SetAttributes {
        mode: Some(0o755),
        ..SetAttributes::default()
    };
    let made = namespace::mkdir(export, &owner(), root, b"d", &new);
    let (directory, _) = made.expect("made");
    let default: Vec<Entry> = named()
        .into_iter()
        .map(|known| entry(known.tag | tag::DEFAULT, known.id, known.permissions))
        .collect();
    let set = setting(mask::DEFAULT, &[], &default);
    assert_eq!(room.set(&owner(), directory, set), Ok(0o755));
    let told = room.told(directory, mask::ALL);
    assert_eq!(told.default, default);
    assert_eq!(told.access_count, 4);
    let made = namespace::mkdir(export, &owner(), directory, b"e", &new);
    let (inner, attributes) = made.expect("made");
    assert_eq!(attributes.mode, 0o640);
    let told = room.told(inner, mask::ALL);
    assert_eq!((told.access, told.default), (named(), default));
    // Without entries it is taken away.
    let set = setting(mask::DEFAULT, &[], &[]);
    assert_eq!(room.set(&owner(), inner, set), Ok(0o640));
    assert_eq!(room.told(inner, mask::ALL).default_count, 0);
}

#[test]
fn what_is_no_list_is_refused_and_changes_nothing() {
    let room = Room::new();
    let file = room.world.file("f", b"x").object();
    let with = |at: usize, changed: Entry| {
        let mut entries = named();
        entries[at] = changed;
        setting(mask::ACCESS, &entries, &[])
    };
    let without = |at: usize| {
        let mut entries = named();
        entries.remove(at);
        setting(mask::ACCESS, &entries, &[])
    };
    let many = (0..MAX_ENTRIES).map(|uid| entry(tag::USER, uid, 4));
    let refused = [
        with(0, entry(0x40, 0, 6)),
        with(0, entry(tag::OTHER, 0, 6)),
        with(1, entry(tag::USER, 2000, 8)),
        with(1, entry(tag::USER, 2000, 256)),
        without(0),
        without(3),
        setting(mask::ACCESS, &[], &[]),
        setting(mask::ACCESS, &many.collect::<Vec<_>>(), &[]),
        setting(16, &named(), &[]),
        Acls {
            access_count: 4,
            ..setting(mask::ACCESS, &named(), &[])
        },
    ];
    for acls in refused {
        let said = format!("{acls:?}");
        assert_eq!(room.set(&owner(), file, acls), Err(Status::Inval), "{said}");
    }
    assert!(room.world.store_list(file, AclKind::Access).is_none());
    // No file hands a list on.
    let default = setting(mask::DEFAULT, &[], &named());
    assert_eq!(room.set(&owner(), file, default), Err(Status::Access));
    let gone = ObjectId { ino: 999, ..file };
    assert_eq!(room.get(gone, 1).unwrap_err().status, Status::Stale);
}
