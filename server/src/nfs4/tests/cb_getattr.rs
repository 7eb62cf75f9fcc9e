//! GETATTR of a file that another client has a write delegation of: that client is asked.

use super::callbacks::{self, Mailbox, called_back, hearing};
use super::delegations::{BOTH, Given, attributes_op, gives_back, opens, recall};
use super::*;

/// A question that came: its xid and number, and the file.
struct Asked {
    xid: u32,
    sequence: u32,
    file: Vec<u8>,
}

fn asked(mailbox: &Mailbox) -> Asked {
    while mailbox.is_empty() {
        std::thread::yield_now();
    }
    let message = mailbox.only();
    let (xid, sequence, operation) = called_back(&message, 1);
    let CallbackOperation::GetAttributes(ask) = operation else {
        panic!("{operation:?}");
    };
    assert_eq!(ask.asked, Bitmap::of(&[Attribute::Change, Attribute::Size]));
    Asked {
        xid,
        sequence: sequence.sequence,
        file: ask.file.0.to_vec(),
    }
}

/// The holder answers with a change attribute and a size, or refuses.
fn answers(room: &Room, session: SessionId, asked: &Asked, told: Result<(u64, u64), Status>) {
    let values = told.map(|(change, size)| [change.to_be_bytes(), size.to_be_bytes()].concat());
    let result = values.as_ref().map_err(|status| *status);
    let result = CallbackResult::GetAttributes(result.map(|values| RawAttributes {
        mask: Bitmap::of(&[Attribute::Change, Attribute::Size]),
        values: AttributeValues(values),
    }));
    let status = told.err().unwrap_or(Status::Ok);
    let call = (asked.xid, asked.sequence);
    callbacks::answers((room, 1), session, call, Ok((status, result)));
}

/// The change attribute and the size, or what GETATTR was refused with.
fn attributes(client: &Client<'_>, handle: &[u8]) -> Result<(u64, u64), Status> {
    let reply = client.does(&[put(handle), attributes_op()]);
    let OperationResult::GetAttributes(result) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    let raw = result?;
    let known = Attributes::parse(&raw).expect("attributes");
    Ok((known.change.expect("asked"), known.size.expect("asked")))
}

/// A file that one client may change unseen, and another that looks at it.
struct Scene<'r> {
    room: &'r Room,
    holder: Client<'r>,
    mailbox: Arc<Mailbox>,
    given: Given,
    other: Client<'r>,
}

impl<'r> Scene<'r> {
    fn new(room: &'r Room) -> Self {
        room.file(b"file", b"data");
        let (holder, mailbox) = hearing(room, b"holder", 1);
        let given = opens(&holder, b"file", BOTH);
        assert!(given.delegation.is_ok());
        Self {
            room,
            holder,
            mailbox,
            given,
            other: Client::new(room, b"other", 2),
        }
    }

    /// What the other sees if the holder says this.
    fn sees(&mut self, told: Result<(u64, u64), Status>) -> Result<(u64, u64), Status> {
        let (room, session) = (self.room, self.holder.session);
        self.sees_after(|asked| answers(room, session, asked, told))
    }

    /// What the other sees once this has answered.
    fn sees_after(&mut self, answer: impl FnOnce(&Asked)) -> Result<(u64, u64), Status> {
        let (other, given) = (&mut self.other, &self.given);
        std::thread::scope(|scope| {
            let looks = scope.spawn(move || attributes(other, &given.handle));
            let asked = asked(&self.mailbox);
            assert_eq!(asked.file, given.handle);
            answer(&asked);
            looks.join().expect("no panic")
        })
    }
}

#[test]
fn what_its_client_has_not_changed_is_as_the_server_has_it() {
    let room = Room::new();
    let mut scene = Scene::new(&room);
    let known = attributes(&scene.holder, &scene.given.handle).expect("told");
    assert_eq!(known.1, 4);
    assert_eq!(scene.sees(Ok(known)), Ok(known));
    assert_eq!(scene.sees(Ok(known)), Ok(known));
    assert!(scene.mailbox.is_empty());
}

#[test]
fn what_its_client_has_changed_is_as_that_says_and_another_each_time() {
    let room = Room::new();
    let mut scene = Scene::new(&room);
    let known = attributes(&scene.holder, &scene.given.handle).expect("told");
    let told = Ok((known.0 + 1, 5_000));
    let first = scene.sees(told).expect("told");
    let second = scene.sees(told).expect("told");
    assert_eq!((first.1, second.1), (5_000, 5_000));
    assert!(known.0 < first.0 && first.0 < second.0);
    // When it is back, it is newer still.
    let write = write(
        scene.given.delegation.expect("one"),
        0,
        Stable::Unstable,
        b"newer",
    );
    let wrote = scene.holder.does(&[put(&scene.given.handle), write]);
    assert_eq!(wrote.status(), Status::Ok);
    assert_eq!(gives_back(&scene.holder, &scene.given), Status::Ok);
    let last = attributes(&scene.other, &scene.given.handle).expect("nobody is asked");
    assert!(second.0 < last.0 && last.1 == 5);
    assert!(scene.mailbox.is_empty());
}

#[test]
fn names_and_rights_are_told_without_asking() {
    let room = Room::new();
    let scene = Scene::new(&room);
    let look = Operation::Lookup(Name(b"file"));
    let access = Operation::Access(AccessArgs {
        access: access::READ | access::MODIFY,
    });
    let reply = scene
        .other
        .does(&[Operation::PutRootFileHandle, look, access]);
    assert_eq!(reply.status(), Status::Ok);
    assert!(scene.mailbox.is_empty());
}

#[test]
fn who_does_not_say_is_recalled() {
    for refused in [Ok((1, 1)), Err(Status::BadHandle)] {
        let room = Room::new();
        let mut scene = Scene::new(&room);
        if refused.is_err() {
            assert_eq!(scene.sees(refused), Err(Status::Delay));
        } else {
            let looked = attributes(&scene.other, &scene.given.handle);
            assert_eq!(looked, Err(Status::Delay));
            // What comes late is no answer.
            let asked = asked(&scene.mailbox);
            answers(&room, scene.holder.session, &asked, refused);
        }
        recall(&scene.holder, &scene.mailbox);
        // Who is to return it is not asked any more.
        let again = attributes(&scene.other, &scene.given.handle);
        assert_eq!(again, Err(Status::Delay));
        assert_eq!(gives_back(&scene.holder, &scene.given), Status::Ok);
        let known = attributes(&scene.other, &scene.given.handle);
        assert_eq!(known.expect("told").1, 4);
        assert!(scene.mailbox.is_empty());
    }
}

#[test]
fn who_says_something_else_than_was_asked_is_recalled() {
    let both = Bitmap::of(&[Attribute::Change, Attribute::Size]);
    let told = |mask, values| {
        CallbackResult::GetAttributes(Ok(RawAttributes {
            mask,
            values: AttributeValues(values),
        }))
    };
    let wrong = [
        told(Bitmap::EMPTY, &[]),
        told(both, &[]),
        told(both, &[1; 12]),
        told(Bitmap::of(&[Attribute::Size]), &[1; 8]),
        told(Bitmap::of(&[Attribute::Type]).or(&both), &[1; 20]),
        told(Bitmap::of(&[Attribute::Change, Attribute::Mode]), &[1; 12]),
        CallbackResult::Recall(Ok(())),
    ];
    for result in wrong {
        let room = Room::new();
        let mut scene = Scene::new(&room);
        let session = scene.holder.session;
        let what = format!("{result:?}");
        let seen = scene.sees_after(|asked| {
            let call = (asked.xid, asked.sequence);
            callbacks::answers((&room, 1), session, call, Ok((Status::Ok, result)));
        });
        assert_eq!(seen, Err(Status::Delay), "{what}");
        recall(&scene.holder, &scene.mailbox);
    }
}

#[test]
fn what_changes_meanwhile_is_not_told_of() {
    let room = Room::new();
    let mut scene = Scene::new(&room);
    let known = attributes(&scene.holder, &scene.given.handle).expect("told");
    let (other, given) = (&mut scene.other, &scene.given);
    let looked = std::thread::scope(|scope| {
        let looks = scope.spawn(move || attributes(other, &given.handle));
        let asked = asked(&scene.mailbox);
        let write = write(
            given.delegation.expect("one"),
            0,
            Stable::Unstable,
            b"newer",
        );
        let wrote = scene.holder.does(&[put(&given.handle), write]);
        assert_eq!(wrote.status(), Status::Ok);
        answers(&room, scene.holder.session, &asked, Ok(known));
        looks.join().expect("no panic")
    });
    assert_eq!(looked, Err(Status::Delay));
    recall(&scene.holder, &scene.mailbox);
}
