//! DELEGATE.

use super::*;
use crate::odafs::GivenRecord;
use crate::vfs::SetAttributes;
use crate::vfs::write::set_attributes;

fn room() -> Room {
    let policy = SessionPolicy {
        delegations: Some(GivenRecord::new(false, || Ok(()))),
        ..SessionPolicy::default()
    };
    Room::new(Direct::Guarded, policy)
}

impl Room {
    fn delegate(&self, session: u32, file: Option<&[u8]>, returned: &[u64]) -> DelegateResult {
        let arguments = DelegateArgs {
            session,
            returned: returned.to_vec(),
            file: file.map(FileHandle),
        };
        let results = self.replies(Procedure::Delegate, &arguments);
        DelegateResult::from_bytes(&results).expect("a result")
    }

    fn held(&self) -> usize {
        self.odafs.delegations.counts().held
    }
}

#[test]
fn a_file_is_delegated_and_given_back() {
    let room = room();
    let file = room.world.file("a", b"data");
    let session = room.session().accepted.session;
    let handle = &file.handle()[..];
    let first = room.delegate(session, Some(handle), &[]);
    let first = first.expect("granted").expect("asked for");
    assert_eq!(first.change, file.change());
    assert_eq!(first.attributes.size, 4);
    assert_eq!(room.held(), 1);
    let next = room.delegate(session, Some(handle), &[first.number]);
    let next = next.expect("granted").expect("asked for");
    assert_ne!(next.number, first.number);
    assert_eq!(room.held(), 1);
    // A late repetition gives back nothing that is in use.
    assert_eq!(room.delegate(session, None, &[first.number]), Ok(None));
    assert_eq!(room.held(), 1);
    assert_eq!(room.delegate(session, None, &[next.number]), Ok(None));
    assert_eq!(room.held(), 0);
}

#[test]
fn nobody_gets_one_of_what_he_may_not_read() {
    let mut room = room();
    let file = room.world.file("a", b"data");
    let private = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let set = set_attributes(&room.world.export, &owner(), file.object(), &private, None);
    set.expect("changed");
    room.who = other();
    let session = room.session().accepted.session;
    let denied = Err(OdafsStatus::Denied);
    assert_eq!(
        room.delegate(session, Some(&file.handle()[..]), &[]),
        denied
    );
    assert_eq!(room.delegate(session, Some(&[0; 9]), &[]), denied);
    assert_eq!(room.held(), 0);
}

#[test]
fn the_end_of_a_connection_ends_none_and_the_end_of_a_session_does() {
    let mut room = room();
    let file = room.world.file("a", b"data");
    let handle = &file.handle()[..];
    let lost = room.session().accepted.session;
    assert!(room.delegate(lost, Some(handle), &[]).is_ok());
    // Its client may not know it, and read on.
    room.odafs.closed(1);
    assert_eq!(room.held(), 1);
    let gone = Err(OdafsStatus::NoSession);
    assert_eq!(room.delegate(lost, Some(handle), &[]), gone);

    let Opened { key, accepted } = room.session();
    let session = accepted.session;
    assert!(room.delegate(session, Some(handle), &[]).is_ok());
    let before = room.held();
    let arguments = CloseSessionArgs {
        session,
        tag: Control::Close { session }.tag(&key.control_key()),
    };
    room.replies(Procedure::CloseSession, &arguments);
    assert_eq!(room.held(), before - 1);

    // The session of another is none.
    let session = room.session().accepted.session;
    room.caller.peer = peer(2000);
    assert_eq!(room.delegate(session, Some(handle), &[]), gone);
}

#[test]
fn without_stable_storage_the_program_gives_none() {
    let room = Room::guarded();
    let file = room.world.file("a", b"data");
    let session = room.session().accepted.session;
    assert_eq!(
        room.delegate(session, Some(&file.handle()[..]), &[]),
        Err(OdafsStatus::Unsupported)
    );
}

#[test]
fn metrics_tell_of_them() {
    let room = room();
    let file = room.world.file("a", b"data");
    let session = room.session().accepted.session;
    let granted = room.delegate(session, Some(&file.handle()[..]), &[]);
    granted.expect("granted");
    let mut text = String::new();
    room.odafs.append_text(&mut text);
    for line in [
        "odafs_direct_delegations 1\n",
        "odafs_direct_delegations_granted_total 1\n",
        "odafs_direct_delegations_recalled_total 0\n",
        "odafs_direct_delegations_lapsed_total 0\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
