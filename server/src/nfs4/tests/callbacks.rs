//! What clients are told over their connections.

use odafs_common::wire::rpc;
use odafs_common::wire::xdr::Decode as _;
use odafs_fabric::sync::Mutex;
use odafs_nic::calls::Back;

use super::delegations::{self, gives_back, opens, recall};
use super::*;

/// The other end of a connection: the messages that came, and whether it is there.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<(Vec<Vec<u8>>, bool)>);

impl Mailbox {
    /// The next message, which must be the only one.
    pub fn only(&self) -> Vec<u8> {
        let (messages, _) = &mut *self.0.lock();
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().0.is_empty()
    }

    pub fn close(&self) {
        self.0.lock().1 = true;
    }
}

impl Back for Mailbox {
    fn send(&self, message: Vec<u8>) -> bool {
        let (messages, closed) = &mut *self.0.lock();
        if !*closed {
            messages.push(message);
        }
        !*closed
    }

    fn is_open(&self) -> bool {
        !self.0.lock().1
    }
}

pub(super) fn listening(connection: u64) -> (Caller, Arc<Mailbox>) {
    let mailbox = Arc::new(Mailbox::default());
    let caller = Caller {
        back: Some(mailbox.clone()),
        ..caller(connection)
    };
    (caller, mailbox)
}

/// A client that is called back.
pub(super) fn hearing<'r>(
    room: &'r Room,
    name: &[u8],
    connection: u64,
) -> (Client<'r>, Arc<Mailbox>) {
    let (caller, mailbox) = listening(connection);
    let flag = create_session_flag::BACK_CHANNEL;
    (Client::over(room, name, caller, flag), mailbox)
}

/// A callback of this minor version that came: its xid, its sequence and what it says.
pub(super) fn called_back(
    message: &[u8],
    minor: u32,
) -> (u32, CallbackSequenceArgs, CallbackOperation<'_>) {
    let (header, mut r) = rpc::parse_call(message).expect("a call");
    assert_eq!((header.program, header.version), (0x4000_0000, 1));
    assert_eq!(header.procedure, Procedure::Compound.code());
    let compound = CallbackHeader::decode(&mut r).expect("a header");
    assert_eq!((compound.minor_version, compound.operations), (minor, 2));
    let mut next = || CallbackOperation::decode(&mut r).expect("an operation");
    let CallbackOperation::Sequence(sequence) = next() else {
        panic!("{message:?}");
    };
    (header.xid, sequence, next())
}

/// Answers a callback: with this result, or with this failure of CB_SEQUENCE.
pub(super) fn answers(
    (room, connection): (&Room, u64),
    session: SessionId,
    (xid, sequence): (u32, u32),
    result: Result<(Status, CallbackResult<'_>), Status>,
) {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    rpc::reply_success(&mut w, xid);
    let taken = CallbackSequenceOk {
        session,
        sequence,
        slot: 0,
        highest_slot: 0,
        target_highest_slot: 0,
    };
    let mut w = ResultWriter::begin(&mut w, Opaque(b""));
    match result {
        Ok((status, result)) => {
            w.push(CallbackCode::Sequence, &Ok::<_, Status>(taken));
            // It encodes its own number.
            w.push((), &result);
            w.finish(status);
        }
        Err(status) => {
            w.push(
                CallbackCode::Sequence,
                &Err::<CallbackSequenceOk, _>(status),
            );
            w.finish(status);
        }
    }
    room.nfs.answered(connection, &bytes);
}

/// The result of a callback that is only a status.
pub(super) fn status_result(status: Status) -> StatusResult {
    match status {
        Status::Ok => Ok(()),
        refused => Err(refused),
    }
}

/// CB_NOTIFY_LOCK that came: its xid, its number in the session, and whom it tells of which file.
#[derive(Debug, PartialEq)]
struct Notice {
    xid: u32,
    sequence: u32,
    file: Vec<u8>,
    owner: Vec<u8>,
}

fn notice(client: &Client<'_>, message: &[u8]) -> Notice {
    let (xid, sequence, operation) = called_back(message, 1);
    let CallbackOperation::NotifyLock(notify) = operation else {
        panic!("{operation:?}");
    };
    assert_eq!(sequence.session, client.session);
    assert_eq!(notify.owner.client_id, client.id);
    Notice {
        xid,
        sequence: sequence.sequence,
        file: notify.file.0.to_vec(),
        owner: notify.owner.owner.0.to_vec(),
    }
}

/// Answers a callback with these statuses.
fn answer(client: &Client<'_>, notice: &Notice, sequence: Status, then: Status) {
    let result = match sequence {
        Status::Ok => Ok((then, CallbackResult::NotifyLock(status_result(then)))),
        failed => Err(failed),
    };
    let to = (client.room, client.caller.connection);
    answers(to, client.session, (notice.xid, notice.sequence), result);
}

fn lock<'a>(
    client: &Client<'_>,
    kind: LockType,
    offset: u64,
    open: StateId,
    by: &'a [u8],
) -> Operation<'a> {
    Operation::Lock(LockArgs {
        kind,
        reclaim: false,
        offset,
        length: 10,
        locker: Locker::New(OpenToLockOwner {
            open_sequence: 0,
            open,
            lock_sequence: 0,
            owner: StateOwner {
                client_id: client.id,
                owner: Opaque(by),
            },
        }),
    })
}

fn unlock(lock: StateId) -> Operation<'static> {
    Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 0,
        lock,
        offset: 0,
        length: u64::MAX,
    })
}

/// A file that one client has locked and for which two owners of another wait.
struct Waiting<'r> {
    holder: Client<'r>,
    held: StateId,
    waiter: Client<'r>,
    mailbox: Arc<Mailbox>,
    handle: Vec<u8>,
    open: StateId,
}

impl<'r> Waiting<'r> {
    fn new(room: &'r Room) -> Self {
        room.file(b"file", b"data");
        let holder = Client::new(room, b"holder", 1);
        let (waiter, mailbox) = hearing(room, b"waiter", 2);
        let share = (share_access::BOTH, 0);
        let (open, handle) = holder.opened(b"me", b"file", share, None);
        let put = put(&handle);
        let take = lock(&holder, LockType::Write, 0, open, b"o");
        let reply = holder.does(&[put, take]);
        let held = last!(reply, Lock);
        let (open, _) = waiter.opened(b"me", b"file", share, None);
        let waiting = Self {
            holder,
            held,
            waiter,
            mailbox,
            handle,
            open,
        };
        for by in [b"first", b"other"] {
            assert_eq!(waiting.asks(LockType::WriteWait, by), Status::Denied);
        }
        waiting
    }

    fn put(&self) -> Operation<'_> {
        put(&self.handle)
    }

    fn asks(&self, kind: LockType, by: &[u8]) -> Status {
        let ask = lock(&self.waiter, kind, 5, self.open, by);
        self.waiter.does(&[self.put(), ask]).status()
    }

    fn unlock(&self) {
        let reply = self.holder.does(&[self.put(), unlock(self.held)]);
        assert_eq!(reply.status(), Status::Ok);
    }

    /// The notice that came, which must be the only one.
    fn notice(&self) -> Notice {
        notice(&self.waiter, &self.mailbox.only())
    }

    /// What SEQUENCE says of the waiter.
    fn flags(&self) -> u32 {
        let reply = self.waiter.does(&[]);
        let ok = last!(reply, Sequence);
        ok.status_flags
    }
}

#[test]
fn who_was_denied_a_lock_is_told_when_it_is_free() {
    let room = Room::new();
    let waiting = Waiting::new(&room);
    assert!(waiting.mailbox.is_empty());
    waiting.unlock();
    let first = waiting.notice();
    assert_eq!(first.file, waiting.handle);
    assert_eq!((first.sequence, &first.owner[..]), (1, &b"first"[..]));
    // One after the other.
    answer(&waiting.waiter, &first, Status::Ok, Status::Ok);
    let second = waiting.notice();
    assert_eq!((second.sequence, &second.owner[..]), (2, &b"other"[..]));
    answer(&waiting.waiter, &second, Status::Ok, Status::BadHandle);
    assert!(waiting.mailbox.is_empty());
    assert_eq!(waiting.flags(), 0);
    assert_eq!(waiting.asks(LockType::WriteWait, b"first"), Status::Ok);
}

#[test]
fn only_who_waits_is_told_and_only_what_is_free() {
    let room = Room::new();
    let waiting = Waiting::new(&room);
    // A part of what the second one wants stays locked.
    let rest = Operation::Unlock(UnlockArgs {
        kind: LockType::Write,
        sequence: 0,
        lock: waiting.held,
        offset: 0,
        length: 6,
    });
    let reply = waiting.holder.does(&[waiting.put(), rest]);
    let held = last!(reply, Unlock);
    assert!(waiting.mailbox.is_empty());
    // This one asks again, and does not wait this time.
    assert_eq!(waiting.asks(LockType::Write, b"first"), Status::Denied);
    let reply = waiting.holder.does(&[waiting.put(), unlock(held)]);
    assert_eq!(reply.status(), Status::Ok);
    let told = waiting.notice();
    assert_eq!(&told.owner[..], b"other");
    answer(&waiting.waiter, &told, Status::Ok, Status::Ok);
    assert!(waiting.mailbox.is_empty());
}

#[test]
fn what_a_lost_connection_may_have_kept_goes_over_the_next_one() {
    let room = Room::new();
    let mut waiting = Waiting::new(&room);
    waiting.unlock();
    let first = waiting.notice();
    waiting.mailbox.close();
    room.nfs.closed(2);
    let down = sequence_status::CALLBACK_PATH_DOWN | sequence_status::CALLBACK_PATH_DOWN_SESSION;
    assert_eq!(waiting.flags(), down);
    (waiting.waiter.caller, waiting.mailbox) = listening(3);
    let bind = waiting.waiter.bind(WantedChannel::BackOrBoth);
    let reply = waiting.waiter.call(1, &[bind]);
    let bound = last!(reply, BindConnection);
    assert_eq!(bound.channel, GrantedChannel::Both);
    let again = waiting.notice();
    assert_eq!((again.sequence, &again.owner), (1, &first.owner));
    assert_ne!(again.xid, first.xid);
    assert_eq!(waiting.flags(), 0);
    // An answer to what was lost is none to this.
    answer(&waiting.waiter, &first, Status::Ok, Status::Ok);
    assert!(waiting.mailbox.is_empty());
    // As Linux says it.
    let lost = Status::RetryUncachedRep;
    answer(&waiting.waiter, &again, Status::Ok, lost);
    assert_eq!(waiting.notice().sequence, 2);
}

/// Linux says it with the operation behind CB_SEQUENCE, others with CB_SEQUENCE itself.
#[test]
fn a_recall_whose_answer_is_lost_with_its_connection_comes_again_with_the_next_number() {
    for early in [false, true] {
        let room = Room::new();
        room.file(b"file", b"data");
        let (mut holder, mailbox) = hearing(&room, b"holder", 1);
        let other = Client::new(&room, b"other", 2);
        opens(&holder, b"file", share_access::READ);
        let open = delegations::open_op(&other, share_access::WRITE, Claim::Null(Name(b"file")));
        let reply = other.does(&[Operation::PutRootFileHandle, open]);
        assert_eq!(reply.status(), Status::Delay);
        let first = recall(&holder, &mailbox);
        mailbox.close();
        room.nfs.closed(1);
        let mailbox;
        (holder.caller, mailbox) = listening(3);
        let bind = holder.bind(WantedChannel::BackOrBoth);
        assert_eq!(holder.call(1, &[bind]).status(), Status::Ok);
        let again = recall(&holder, &mailbox);
        assert_eq!((again.sequence, again.state), (1, first.state));
        let lost = Status::RetryUncachedRep;
        if early {
            let to = (&room, 3);
            answers(to, holder.session, (again.xid, again.sequence), Err(lost));
        } else {
            delegations::answer(&holder, &again, lost);
        }
        assert!(mailbox.is_empty());
        room.nfs.tick(odafs_fabric::clock::awake());
        let next = recall(&holder, &mailbox);
        assert_eq!((next.sequence, next.state), (2, first.state));
    }
}

#[test]
fn who_refuses_callbacks_is_told_so_and_who_asks_for_time_has_it() {
    let room = Room::new();
    let waiting = Waiting::new(&room);
    waiting.unlock();
    let first = waiting.notice();
    answer(&waiting.waiter, &first, Status::Delay, Status::Ok);
    assert!(waiting.mailbox.is_empty());
    room.nfs.tick(odafs_fabric::clock::awake());
    let again = waiting.notice();
    assert_eq!((again.sequence, &again.file), (1, &first.file));
    answer(&waiting.waiter, &again, Status::BadSession, Status::Ok);
    assert!(waiting.mailbox.is_empty());
    assert_ne!(waiting.flags(), 0);
    // Bound anew, it is told the next, and not again what it does not take: that would be in the way of the rest.
    let bind = waiting.waiter.bind(WantedChannel::BackOrBoth);
    assert_eq!(waiting.waiter.call(1, &[bind]).status(), Status::Ok);
    assert_eq!(waiting.flags(), 0);
    let next = waiting.notice();
    assert_eq!(next.sequence, 1);
    assert_ne!(next.owner, again.owner);
}

#[test]
fn who_is_not_called_back_is_told_nothing() {
    let room = Room::new();
    room.file(b"file", b"data");
    let (caller, mailbox) = listening(1);
    let client = Client::over(&room, b"quiet", caller, 0);
    let share = (share_access::BOTH, 0);
    let (open, handle) = client.opened(b"me", b"file", share, None);
    let put = || put(&handle);
    let reply = client.does(&[put(), lock(&client, LockType::Write, 0, open, b"o")]);
    let held = last!(reply, Lock);
    let other = lock(&client, LockType::WriteWait, 0, open, b"p");
    assert_eq!(client.does(&[put(), other]).status(), Status::Denied);
    assert_eq!(client.does(&[put(), unlock(held)]).status(), Status::Ok);
    assert!(mailbox.is_empty());
}

#[test]
fn a_reply_that_nobody_asked_for_is_passed_over() {
    let room = Room::new();
    let waiting = Waiting::new(&room);
    waiting.unlock();
    let told = waiting.notice();
    let other = Notice { xid: 77, ..told };
    answer(&waiting.waiter, &other, Status::Ok, Status::Ok);
    room.nfs.answered(2, &[0; 3]);
    room.nfs.answered(9, &77u32.to_be_bytes());
    assert!(waiting.mailbox.is_empty());
}

#[test]
fn what_a_client_may_have_seen_has_its_number_alone() {
    let room = Room::new();
    room.file(b"one", b"data");
    room.file(b"two", b"data");
    let (mut holder, mailbox) = hearing(&room, b"holder", 1);
    let other = Client::new(&room, b"other", 2);
    let [one, two] = [b"one", b"two"].map(|name| opens(&holder, name, share_access::READ));
    let writes = |name: &[u8]| {
        let open = delegations::open_op(&other, share_access::WRITE, Claim::Null(Name(name)));
        other.does(&[Operation::PutRootFileHandle, open]).status()
    };
    assert_eq!(writes(b"one"), Status::Delay);
    let first = recall(&holder, &mailbox);
    // The answer is lost with the connection, and what was recalled is returned all the same.
    mailbox.close();
    room.nfs.closed(1);
    let mailbox;
    (holder.caller, mailbox) = listening(3);
    assert_eq!(gives_back(&holder, &one), Status::Ok);
    let bind = holder.bind(WantedChannel::BackOrBoth);
    assert_eq!(holder.call(1, &[bind]).status(), Status::Ok);
    assert!(mailbox.is_empty());
    assert_eq!(writes(b"two"), Status::Delay);
    let again = recall(&holder, &mailbox);
    assert_eq!((again.sequence, again.state), (1, first.state));
    delegations::answer(&holder, &again, Status::BadStateId);
    room.nfs.tick(odafs_fabric::clock::awake());
    let second = recall(&holder, &mailbox);
    assert_eq!((second.sequence, Ok(second.state)), (2, two.delegation));
}
