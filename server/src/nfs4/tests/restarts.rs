//! Delegations and restarts: nothing is changed before it is known who had some, and who lost them gets none back.

use odafs_fabric::sync::Mutex;
use odafs_fabric::sync::atomic::{AtomicBool, Ordering};

use super::callbacks::{hearing, listening};
use super::delegations::{BOTH, READ, attributes_op, claims, gives_back, open_op, opens, recall};
use super::legacy::{confirmed, opened_and_confirmed};
use super::*;
use crate::vfs::attributes::attributes;
use crate::vfs::file::File;
use crate::vfs::namespace;
use crate::vfs::promises::{Party, changing_for};
use crate::vfs::write::{Stable as VfsStable, write as write_pages};

/// Stable storage.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<String>>, Arc<Mutex<String>>, Arc<Refusing>);

/// What stable storage does not take.
#[derive(Default)]
struct Refusing {
    clients: AtomicBool,
    files: AtomicBool,
}

/// Brings a text to stable storage, unless that refuses.
fn bring(text: &str, to: &Mutex<String>, refuses: &AtomicBool) -> std::io::Result<()> {
    match refuses.load(Ordering::Relaxed) {
        true => Err(std::io::ErrorKind::StorageFull.into()),
        false => {
            *to.lock() = text.to_owned();
            Ok(())
        }
    }
}

impl Kept {
    /// Which clients may reclaim.
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }

    /// The files of write delegations.
    pub fn files(&self) -> String {
        self.1.lock().clone()
    }

    /// From now on it takes neither, one or both of these texts.
    pub fn refuses(&self, clients: bool, files: bool) {
        self.2.clients.store(clients, Ordering::Relaxed);
        self.2.files.store(files, Ordering::Relaxed);
    }

    /// What a server reads when it starts, and then keeps.
    fn records(&self) -> Records {
        let (clients, files) = (self.clone(), self.clone());
        let records = Records::read(&self.text(), move |text| {
            bring(text, &clients.0, &clients.2.clients)
        });
        records.naming_files(&self.files(), move |text| {
            bring(text, &files.1, &files.2.files)
        })
    }

    /// A server that starts, with a file.
    pub fn room(&self) -> (Room, Arc<File>) {
        self.room_of(LEASE)
    }

    pub fn room_of(&self, lease: Nanos) -> (Room, Arc<File>) {
        let config = ExportsConfig {
            name: "/".to_owned(),
            ..ExportsConfig::default()
        };
        let room = Room::lasting(config, self.records(), lease);
        let file = room.world.file("file", b"data");
        (room, file)
    }
}

/// A write by another protocol.
pub(super) fn writes(room: &Room, file: &Arc<File>) -> Result<(), crate::vfs::Status> {
    let export = &room.world.export;
    let written = write_pages(export, &owner(), file, 0, &b"new"[..], VfsStable::Unstable);
    written.map(drop).map_err(|refused| refused.error.status)
}

pub(super) fn file_handle(client: &Client<'_>) -> Vec<u8> {
    let find = [
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(b"file")),
        Operation::GetFileHandle,
    ];
    let reply = client.does(&find);
    let handle = last!(reply, GetFileHandle);
    handle.0.to_vec()
}

pub(super) fn returning<'r>(room: &'r Room) -> (Client<'r>, Arc<super::callbacks::Mailbox>) {
    let (caller, mailbox) = listening(1);
    let flag = create_session_flag::BACK_CHANNEL;
    (Client::reclaiming(room, b"holder", caller, flag), mailbox)
}

#[test]
fn an_open_brings_no_delegation_that_the_reply_has_no_room_for() {
    let room = Room::new();
    let file = room.world.file("file", b"data");
    let (mut holder, mailbox) = hearing(&room, b"holder", 1);
    room.file(b"like", b"data");
    let open = |holder: &Client<'_>, name: &'static [u8]| {
        let open = open_op(holder, READ, Claim::Null(Name(name)));
        holder.does(&[Operation::PutRootFileHandle, open])
    };
    let reply = open(&holder, b"like");
    assert_eq!(reply.status(), Status::Ok);
    // One word less, and what is around it.
    holder.caller.reply_bytes_max = reply.0.len() as u32 - 4 + 64;
    let reply = open(&holder, b"file");
    let opened = last!(reply, Open);
    assert_eq!(opened.delegation, Delegation::None);
    assert_eq!(writes(&room, &file), Ok(()));
    assert!(mailbox.is_empty());
}

#[test]
fn a_delegation_is_returned_beside_changes_that_wait_for_it() {
    let room = Room::new();
    let may_sync = |operations: &[Operation<'_>]| {
        let bytes = compound(1, operations);
        room.nfs
            .may_sync(Procedure::Compound.code(), Reader::new(&bytes))
    };
    let give_back = Operation::DelegationReturn(StateId::ANONYMOUS);
    let get = get(Bitmap::EMPTY);
    assert!(!may_sync(&[put(b"handle"), get, give_back]));
    let remove = Operation::Remove(Name(b"file"));
    assert!(may_sync(&[put(b"handle"), remove]));
}

#[test]
fn who_has_reclaimed_and_is_not_done_when_the_grace_ends_may_reclaim_again_once_it_is() {
    let kept = Kept::default();
    let (room, _) = kept.room();
    let (holder, _) = hearing(&room, b"holder", 1);
    opens(&holder, b"file", READ | share_access::WANT_NONE);
    for done in [true, true, false] {
        let (room, _) = kept.room();
        let (holder, _) = returning(&room);
        let handle = file_handle(&holder);
        let before = Claim::Previous(DelegationType::None);
        claims(&holder, READ, put(&handle), before);
        let over = odafs_fabric::clock::awake() + LEASE + Nanos::from_secs(1);
        room.nfs.tick(over);
        assert!(kept.text().is_empty());
        if done {
            holder.completes();
        }
        assert_eq!(kept.text().is_empty(), !done);
    }
}

#[test]
fn wants_that_there_are_none_of_are_refused() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    for want in [0x600, 0xff00] {
        let open = open_op(&client, READ | want, Claim::Null(Name(b"file")));
        let reply = client.does(&[Operation::PutRootFileHandle, open]);
        assert_eq!(reply.status(), Status::Inval);
    }
}

/// A server goes down while a client has a delegation.
fn delegated() -> Kept {
    let kept = Kept::default();
    let (room, _) = kept.room();
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    assert!(opens(&holder, b"file", READ).delegation.is_ok());
    kept
}

#[test]
fn nothing_is_changed_before_a_delegation_is_reclaimed() {
    let kept = delegated();
    let (room, file) = kept.room();
    let later = Err(crate::vfs::Status::Jukebox);
    assert_eq!(writes(&room, &file), later);
    let export = &room.world.export;
    let removed = namespace::remove(export, &owner(), export.root(), b"file");
    assert_eq!(removed.map_err(|error| error.status), later);
    let other = Client::new(&room, b"other", 2);
    let remove = Operation::Remove(Name(b"file"));
    let reply = other.does(&[Operation::PutRootFileHandle, remove]);
    assert_eq!(reply.status(), Status::Delay);
    let (holder, mailbox) = returning(&room);
    let handle = file_handle(&holder);
    let claim = Claim::Previous(DelegationType::Read);
    let given = claims(&holder, READ, put(&handle), claim);
    assert!(given.delegation.is_ok());
    // There may be others to reclaim.
    assert_eq!(writes(&room, &file), later);
    assert!(mailbox.is_empty());
    holder.completes();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| writes(&room, &file));
        while mailbox.is_empty() {
            std::thread::yield_now();
        }
        recall(&holder, &mailbox);
        assert_eq!(room.world.read(&file, 0, 4), b"data");
        assert_eq!(gives_back(&holder, &given), Status::Ok);
        assert_eq!(writer.join().expect("no panic"), Ok(()));
    });
}

#[test]
fn who_has_not_come_in_time_reclaims_no_more() {
    let kept = delegated();
    let (room, file) = kept.room();
    assert!(writes(&room, &file).is_err());
    let now = odafs_fabric::clock::awake() + LEASE + Nanos::from_secs(1);
    room.nfs.tick(now);
    assert_eq!(kept.text(), "");
    assert_eq!(writes(&room, &file), Ok(()));
    let (holder, _mailbox) = returning(&room);
    let handle = file_handle(&holder);
    let claim = Claim::Previous(DelegationType::Read);
    let reply = holder.does(&[put(&handle), open_op(&holder, READ, claim)]);
    assert_eq!(reply.status(), Status::NoGrace);
}

#[test]
fn changes_go_on_where_clients_had_no_delegations() {
    let kept = Kept::default();
    let (room, _) = kept.room();
    let client = Client::new(&room, b"holder", 1);
    opens(&client, b"file", READ);
    drop(room);
    let (room, file) = kept.room();
    assert_eq!(writes(&room, &file), Ok(()));
    let (holder, _mailbox) = returning(&room);
    let handle = file_handle(&holder);
    // It cannot have had one.
    let claim = Claim::Previous(DelegationType::Read);
    let reply = holder.does(&[put(&handle), open_op(&holder, READ, claim)]);
    assert_eq!(reply.status(), Status::ReclaimBad);
    let claim = Claim::Previous(DelegationType::None);
    let reply = holder.does(&[put(&handle), open_op(&holder, READ, claim)]);
    assert_eq!(reply.status(), Status::Ok);
}

#[test]
fn who_was_expelled_for_a_change_is_forgotten_before_it() {
    let kept = Kept::default();
    // Its lease is over at once.
    let (room, file) = kept.room_of(Nanos::from_secs(0));
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    assert!(opens(&holder, b"file", READ).delegation.is_ok());
    assert_ne!(kept.text(), "");
    assert_eq!(writes(&room, &file), Ok(()));
    assert_eq!(kept.text(), "");
}

#[test]
fn what_was_written_under_a_delegation_is_awaited() {
    let kept = Kept::default();
    let (room, file) = kept.room();
    let before = file.object();
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    assert!(opens(&holder, b"file", BOTH).delegation.is_ok());
    let (room, file) = kept.room();
    let other_file = room.world.file("other", b"data");
    assert_eq!(file.object(), before);
    let other = Client::new(&room, b"other", 2);
    let sees = |name: &'static [u8]| {
        let find = Operation::Lookup(Name(name));
        let look = attributes_op();
        let root = Operation::PutRootFileHandle;
        other.does(&[root, find, look]).status()
    };
    let looks = || {
        let _acting = changing_for(Party::Returning(None));
        attributes(&room.world.export, file.object()).map_err(|error| error.status)
    };
    let reads = |file| room.world.try_read(file, 0, 4, Effort::MayBlock);
    assert!(reads(&file).is_err() && reads(&other_file).is_ok());
    assert_eq!((sees(b"file"), sees(b"other")), (Status::Delay, Status::Ok));
    let (holder, mailbox) = returning(&room);
    let handle = file_handle(&holder);
    let claim = Claim::Previous(DelegationType::Write);
    let given = claims(&holder, BOTH, put(&handle), claim);
    assert!(given.delegation.is_ok() && reads(&other_file).is_ok());
    // From now on it can be asked.
    assert!(mailbox.is_empty() && looks().is_err());
    recall(&holder, &mailbox);
    assert_eq!(gives_back(&holder, &given), Status::Ok);
    assert!(looks().is_ok() && reads(&file).is_ok());
    assert_eq!(sees(b"file"), Status::Ok);
}

#[test]
fn what_is_not_reclaimed_in_time_is_as_the_store_has_it() {
    let kept = Kept::default();
    let (room, _) = kept.room();
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    assert!(opens(&holder, b"file", BOTH).delegation.is_ok());
    let (room, file) = kept.room();
    let reads = || room.world.try_read(&file, 0, 4, Effort::MayBlock);
    assert!(reads().is_err());
    let now = odafs_fabric::clock::awake() + LEASE + Nanos::from_secs(1);
    room.nfs.tick(now);
    assert_eq!(kept.text(), "");
    assert!(reads().is_ok());
}

#[test]
fn who_has_reclaimed_what_it_had_keeps_nobody_waiting() {
    let kept = Kept::default();
    let (room, _) = kept.room();
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    assert!(opens(&holder, b"file", BOTH).delegation.is_ok());
    let (room, file) = kept.room();
    let (holder, _mailbox) = returning(&room);
    holder.completes();
    let read = room.world.try_read(&file, 0, 4, Effort::MayBlock);
    assert!(read.is_ok());
}

#[test]
fn stable_storage_names_the_files_of_write_delegations() {
    let kept = Kept::default();
    let (room, file) = kept.room();
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    let object = file.object();
    let name = format!(" {:x}:{:x}\n", object.ino, object.generation);
    let given = opens(&holder, b"file", BOTH);
    assert!(kept.files().ends_with(&name), "{}", kept.files());
    assert_eq!(gives_back(&holder, &given), Status::Ok);
    room.nfs.tick(odafs_fabric::clock::awake());
    assert_eq!(kept.files(), "");
    room.file(b"read", b"data");
    assert!(opens(&holder, b"read", READ).delegation.is_ok());
    room.nfs.tick(odafs_fabric::clock::awake());
    assert_eq!(kept.files(), "");
}

pub(super) fn lock<'a>(client: &Client<'_>, open: StateId, reclaim: bool) -> Operation<'a> {
    Operation::Lock(LockArgs {
        kind: LockType::Write,
        reclaim,
        offset: 0,
        length: 1,
        locker: Locker::New(OpenToLockOwner {
            open_sequence: 0,
            open,
            lock_sequence: 0,
            owner: client.owner(b"locker"),
        }),
    })
}

/// A server goes down while stable storage still names the file of a write delegation that was returned.
#[test]
fn who_has_reclaimed_what_is_awaited_gives_it_back() {
    let kept = Kept::default();
    let (room, _) = kept.room();
    let (holder, _mailbox) = hearing(&room, b"holder", 1);
    let given = opens(&holder, b"file", BOTH);
    assert_eq!(gives_back(&holder, &given), Status::Ok);
    let old = confirmed(&room, b"old");
    opened_and_confirmed(&old, b"file");
    let other = Client::new(&room, b"other", 2);
    let (open, handle) = other.opened(b"me", b"file", (BOTH, 0), None);
    let reply = other.does(&[put(&handle), lock(&other, open, false)]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    assert!(!kept.files().is_empty());

    let (room, _) = kept.room();
    let other = Client::reclaiming(&room, b"other", caller(2), 0);
    let handle = file_handle(&other);
    let before = Claim::Previous(DelegationType::None);
    let open = claims(&other, BOTH, put(&handle), before).open;
    let reply = other.does(&[put(&handle), lock(&other, open, true)]);
    let OperationResult::Lock(Ok(state)) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    // In minor version 0 the owner tells who reclaims.
    let old = confirmed(&room, b"old");
    let reply = old.call(0, &[put(&handle), open_op(&old, READ, before)]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    // From now on this client awaits the holder as the others do.
    other.completes();
    let look = other.does(&[put(&handle), attributes_op()]);
    assert_eq!(look.status(), Status::Delay);
    let unlock = Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 0,
        lock: state,
        offset: 0,
        length: 1,
    });
    let close = Operation::Close(CloseArgs {
        sequence: 0,
        state: open,
    });
    let reply = other.does(&[put(&handle), unlock, close]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
}
