//! What a call costs.

use odafs_common::wire::nfs3::*;
use odafs_common::wire::xdr::{Decode as _, Encode as _, Reader, Writer};
use odafs_fabric::Peer;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Caller, Notes, Placements, Transport};

use super::Nfs3;
use crate::rpc::access::Rights;
use crate::rpc::{Answer, ApartPayloads, Call, Program as _};
use crate::vfs::read::Effort;
use crate::vfs::testing::{LocalTree, looks, owner};

#[test]
fn a_lookup_sees_once_where_its_directory_lies() {
    let LocalTree { world, d, .. } = &LocalTree::new();
    let caller = Caller {
        peer: Peer::Simulated(1),
        local: None,
        connection: 1,
        transport: Transport::NfsTcp,
        reply_bytes_max: 1 << 20,
        placements: Placements::default(),
        apart: None,
        back: None,
        notes: Notes::default(),
    };
    let directory = world.export.handle(*d);
    let arguments = DirectoryName {
        directory: FileHandle(&directory),
        name: b"f",
    };
    let arguments = arguments.to_bytes();
    let mut results = Vec::new();
    let nfs = Nfs3::new(Arc::clone(&world.export));
    for effort in [Effort::MayBlock, Effort::ResidentOnly] {
        let call = Call {
            caller: &caller,
            who: owner(),
            rights: Rights::default(),
            procedure: Procedure::Lookup.code(),
            arguments: Reader::new(&arguments),
            apart: ApartPayloads::default(),
            effort,
        };
        results.clear();
        let (answer, looks) = looks(|| nfs.call(call, &mut Writer::new(&mut results)));
        // Before Linux 5.12 nothing is looked up at hand.
        if matches!(answer, Answer::Blocks) && effort == Effort::ResidentOnly {
            continue;
        }
        let found = LookupResult::from_bytes(&results).expect("a result");
        assert!(found.expect("found").directory.is_some());
        assert_eq!(looks, 1);
    }
}
