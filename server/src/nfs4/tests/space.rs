//! What minor version 2 does to bytes of files (RFC 7862, section 15).

use super::*;
use crate::vfs::testing::LocalTree;

const P: usize = 4096;

fn range(state: StateId, offset: u64, length: u64) -> RangeArgs {
    RangeArgs {
        state,
        offset,
        length,
    }
}

fn read_plus(state: StateId, offset: u64, count: u32) -> Operation<'static> {
    Operation::ReadPlus(ReadPlusArgs {
        state,
        offset,
        count,
    })
}

impl Client<'_> {
    /// Does this to the file of that handle. The reply may be too long for a slot to keep.
    pub(super) fn on(&self, handle: &[u8], operation: Operation<'_>) -> Reply {
        self.asks(handle, operation, Effort::MayBlock)
    }

    fn asks(&self, handle: &[u8], operation: Operation<'_>, effort: Effort) -> Reply {
        self.sequence.set(self.sequence.get() + 1);
        let sequence = Operation::Sequence(SequenceArgs {
            session: self.session,
            sequence: self.sequence.get(),
            slot: 0,
            highest_slot: 0,
            cache: false,
        });
        let file = put(handle);
        let bytes = compound(2, &[sequence, file, operation]);
        let (answer, reply) = self.room.run(&self.caller, &self.who, &bytes, effort);
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        reply
    }

    pub(super) fn content(&self, handle: &[u8]) -> Vec<u8> {
        let all = read(StateId::ANONYMOUS, 0, 1 << 18);
        let reply = self.on(handle, all);
        let ok = last!(reply, Read);
        ok.data.0.to_vec()
    }
}

#[test]
fn a_hole_is_made_under_a_stateid_for_writing() {
    let room = Room::new();
    room.file(b"file", &[1; 3 * P]);
    let client = Client::new(&room, b"client", 1);
    let (writer, handle) = client.opened(b"me", b"file", (share_access::BOTH, 0), None);
    let (reader, _) = client.opened(b"you", b"file", (share_access::READ, 0), None);
    let punch = |state, offset, length| {
        let reply = client.on(&handle, Operation::Deallocate(range(state, offset, length)));
        reply.status()
    };
    assert_eq!(punch(reader, 0, 10), Status::OpenMode);
    assert_eq!(punch(writer, 0, 0), Status::Inval);
    assert_eq!(punch(writer, u64::MAX, 2), Status::Inval);
    assert_eq!(punch(writer, 1 << 62, 1 << 62), Status::FBig);
    assert_eq!(client.content(&handle), [1; 3 * P]);
    assert_eq!(punch(writer, 100, 2 * P as u64), Status::Ok);
    assert_eq!(punch(StateId::ANONYMOUS, 3 * P as u64 - 1, 100), Status::Ok);
    let mut expected = [1; 3 * P];
    expected[100..2 * P + 100].fill(0);
    expected[3 * P - 1] = 0;
    assert_eq!(client.content(&handle), expected);
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        Operation::Deallocate(range(StateId::ANONYMOUS, 0, 10)),
    ]);
    assert_eq!(reply.status(), Status::WrongType);
}

#[test]
fn space_is_set_aside() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::BOTH, 0), None);
    let allocate = Operation::Allocate(range(state, 2, 8));
    assert_eq!(client.on(&handle, allocate).status(), Status::Ok);
    assert_eq!(client.content(&handle), b"data\0\0\0\0\0\0");
}

/// Data in page 1 and in the end of page 4, and nothing behind that.
fn sparse(room: &Room) -> Vec<u8> {
    let mut data = vec![0; 6 * P];
    data[P..2 * P].fill(1);
    data[5 * P - 10..5 * P].fill(2);
    room.file(b"file", &data);
    data
}

#[test]
fn data_and_holes_are_sought() {
    let room = Room::new();
    sparse(&room);
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let seek = |offset: usize, what| {
        let arguments = SeekArgs {
            state,
            offset: offset as u64,
            what,
        };
        let reply = client.on(&handle, Operation::Seek(arguments));
        match reply.last() {
            OperationResult::Seek(result) => result.map(|ok| (ok.offset as usize, ok.eof)),
            other => panic!("{other:?}"),
        }
    };
    let (data, hole) = (ContentType::Data, ContentType::Hole);
    assert_eq!(seek(0, data), Ok((P, false)));
    assert_eq!(seek(0, hole), Ok((0, false)));
    assert_eq!(seek(P + 1, hole), Ok((2 * P, false)));
    assert_eq!(seek(4 * P + 1, hole), Ok((5 * P, false)));
    assert_eq!(seek(5 * P, data), Ok((6 * P, true)));
    assert_eq!(seek(6 * P, data), Err(Status::Nxio));
    assert_eq!(seek(6 * P, hole), Err(Status::Nxio));
}

/// The contents of a READ_PLUS, put together, and how many there were of each kind.
fn put_together(ok: &ReadPlusOk<'_>, from: u64) -> (Vec<u8>, [usize; 2]) {
    let (mut bytes, mut kinds) = (Vec::new(), [0; 2]);
    for content in &ok.contents.0 {
        let at = from + bytes.len() as u64;
        match content {
            Content::Data(offset, data) => {
                assert_eq!(*offset, at);
                bytes.extend_from_slice(data.0);
                kinds[0] += 1;
            }
            Content::Hole(offset, length) => {
                assert_eq!(*offset, at);
                bytes.resize(bytes.len() + *length as usize, 0);
                kinds[1] += 1;
            }
        }
    }
    (bytes, kinds)
}

#[test]
fn read_plus_tells_holes_as_such() {
    let room = Room::new();
    let data = sparse(&room);
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let ask = |offset, count| {
        let reply = client.on(&handle, read_plus(state, offset, count));
        let ok = last!(reply, ReadPlus);
        let (bytes, kinds) = put_together(&ok, offset);
        (bytes, kinds, ok.eof)
    };
    assert_eq!(ask(0, 1 << 20), (data.clone(), [2, 3], true));
    assert_eq!(ask(P as u64, 10), (vec![1; 10], [1, 0], false));
    assert_eq!(ask(5 * P as u64, P as u32), (vec![0; P], [0, 1], true));
    assert_eq!(ask(6 * P as u64, 10), (vec![], [0, 0], true));
    assert_eq!(ask(0, 0), (vec![], [0, 0], false));
    // Once it is in memory it is data, which the thread that polls gives.
    assert_eq!(client.content(&handle), data);
    let all = read_plus(state, 0, 1 << 20);
    let reply = client.asks(&handle, all, Effort::ResidentOnly);
    let ok = last!(reply, ReadPlus);
    assert_eq!((put_together(&ok, 0), ok.eof), ((data, [1, 0]), true));
}

#[test]
fn a_hole_that_was_read_is_one_segment() {
    const PAGES: usize = 40;
    let room = Room::new();
    let mut data = vec![0; PAGES * P];
    data[30 * P] = 1;
    room.file(b"file", &data);
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let ask = || {
        let reply = client.on(&handle, read_plus(state, 0, 1 << 20));
        let ok = last!(reply, ReadPlus);
        let (bytes, kinds) = put_together(&ok, 0);
        assert!(bytes == data && ok.eof, "{} bytes", bytes.len());
        kinds
    };
    assert_eq!(ask(), [1, 2]);
    assert_eq!(ask(), [1, 2]);
    // Pages of the hole come into memory, alone and next to data.
    for (from, pages) in [(0, 8), (29, 3), (0, PAGES)] {
        let some = read(state, (from * P) as u64, (pages * P) as u32);
        assert_eq!(client.on(&handle, some).status(), Status::Ok);
        assert_eq!(ask(), [1, 2]);
    }
    // Parts of data are one segment.
    let ones = vec![1; 20 * P];
    room.world.file("other", &ones);
    let (state, other) = client.opened(b"me", b"other", (share_access::READ, 0), None);
    assert_eq!(client.content(&other), ones);
    room.world
        .write_behind("other", 5 * P as u64, &vec![0; 10 * P]);
    let reply = client.on(&other, read_plus(state, 0, 1 << 20));
    let ok = last!(reply, ReadPlus);
    assert_eq!(put_together(&ok, 0), (ones, [1, 0]));
}

#[test]
fn a_file_that_may_have_holes_is_not_read_plus_on_the_thread_that_polls() {
    let tree = LocalTree::new();
    let room = Room::over(tree.world, Records::none(), LEASE);
    let mut client = Client::new(&room, b"client", 1);
    client.keeps = false;
    let share = (share_access::BOTH, 0);
    let (state, handle) = client.opened(b"me", b"file", share, Some(unchecked()));
    let data = [vec![0; 24 * P], vec![1; P]].concat();
    let last_page = write(state, 24 * P as u64, Stable::Unstable, &data[24 * P..]);
    assert_eq!(client.on(&handle, last_page).status(), Status::Ok);
    let told = |reply: Reply, offset: usize| {
        let ok = last!(reply, ReadPlus);
        let (bytes, kinds) = put_together(&ok, offset as u64);
        assert!(bytes == data[offset..offset + bytes.len()]);
        (bytes.len(), kinds, ok.eof)
    };
    let ask = |offset: usize, pages: usize| {
        let operation = read_plus(state, offset as u64, (pages * P) as u32);
        client.sequence.set(client.sequence.get() + 1);
        let bytes = client.again(&[put(&handle), operation]);
        let suspended = room.suspended(&client, &bytes);
        let (answer, reply) = room.resume((&client.caller, &client.who), suspended, &bytes);
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        told(reply, offset)
    };
    for _ in 0..2 {
        assert_eq!(ask(0, 1), (P, [0, 1], false));
        assert_eq!(ask(4 * P, 16), (16 * P, [0, 1], false));
        assert_eq!(ask(0, 25), (25 * P, [1, 1], true));
    }
    assert_eq!(client.content(&handle), data);
    assert_eq!(ask(0, 25), (25 * P, [1, 1], true));
    // Without holes it is read where it is resident.
    let first = write(state, 0, Stable::Unstable, &data[..24 * P]);
    assert_eq!(client.on(&handle, first).status(), Status::Ok);
    assert_eq!(client.content(&handle), data);
    let all = read_plus(state, 0, 16 * P as u32);
    let reply = client.asks(&handle, all, Effort::ResidentOnly);
    assert_eq!(told(reply, 0), (16 * P, [1, 0], false));
}

#[test]
fn space_and_limits_are_told_on_the_thread_that_polls() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (_, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let asked = Bitmap::of(&[Attribute::SpaceFree, Attribute::MaxName]);
    // The first time the server looks whether the file is there.
    for effort in [Effort::MayBlock, Effort::ResidentOnly] {
        let reply = client.asks(&handle, get(asked), effort);
        assert_eq!(reply.status(), Status::Ok);
    }
}

#[test]
fn what_the_server_does_not_know_of_a_file_is_no_hole() {
    let room = Room::new();
    let mut data = vec![7; P];
    let live = room.world.file("file", &data);
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    data.resize(2 * P, 0);
    data.resize(3 * P, 1);
    room.world.write_outside(&live, &data);
    let from = P as u64;
    let reply = client.on(&handle, read_plus(state, from, 100));
    let ok = last!(reply, ReadPlus);
    // Zeros that end the file are neither what it was nor what it is.
    let (bytes, _) = put_together(&ok, from);
    assert!(bytes.is_empty() || !ok.eof, "{bytes:?}");
}

#[test]
fn a_file_of_many_holes_is_read_in_several_steps() {
    let room = Room::new();
    let mut data = vec![0; 100 * P];
    for page in data.chunks_mut(2 * P) {
        page[0] = 1;
    }
    room.file(b"file", &data);
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    let (mut all, mut steps) = (Vec::new(), 0);
    loop {
        let from = all.len() as u64;
        let reply = client.on(&handle, read_plus(state, from, 1 << 20));
        let ok = last!(reply, ReadPlus);
        let (bytes, kinds) = put_together(&ok, from);
        assert!(kinds[0] + kinds[1] <= 16 && !bytes.is_empty());
        all.extend(bytes);
        steps += 1;
        if ok.eof {
            break;
        }
    }
    assert!(all == data && steps > 1);
}

/// Two files, the first of these bytes and the second empty, open for reading and for both: their stateids and handles.
pub(super) fn pair(
    client: &Client<'_>,
    room: &Room,
    data: &[u8],
) -> ((StateId, Vec<u8>), (StateId, Vec<u8>)) {
    room.file(b"source", data);
    room.file(b"target", b"");
    let source = client.opened(b"me", b"source", (share_access::READ, 0), None);
    let target = client.opened(b"me", b"target", (share_access::BOTH, 0), None);
    (source, target)
}

impl Client<'_> {
    /// Does this to two files, the saved and the current one.
    pub(super) fn between(&self, from: &[u8], to: &[u8], operation: Operation<'_>) -> Reply {
        self.does(&[put(from), Operation::SaveFileHandle, put(to), operation])
    }
}

pub(super) fn copy_all(source: StateId, destination: StateId) -> CopyArgs<'static> {
    CopyArgs {
        source,
        destination,
        source_offset: 0,
        destination_offset: 0,
        count: 0,
        consecutive: false,
        synchronous: false,
        source_servers: List(vec![]),
    }
}

#[test]
fn a_copy_is_over_when_it_is_answered() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let data: Vec<u8> = (0..3 * P).map(|at| (at % 251) as u8).collect();
    let (source, target) = pair(&client, &room, &data);
    let copy = |arguments| client.between(&source.1, &target.1, Operation::Copy(arguments));
    let reply = copy(copy_all(source.0, target.0));
    let ok = last!(reply, Copy);
    assert_eq!(ok.response.count, data.len() as u64);
    assert_eq!(ok.response.callback, AtMostOne(None));
    assert_eq!(ok.response.committed, Stable::Unstable);
    let done = CopyRequirements {
        consecutive: true,
        synchronous: true,
    };
    assert_eq!(ok.requirements, done);
    assert_eq!(client.content(&target.1), data);
    let commit = Operation::Commit(CommitArgs {
        offset: 0,
        count: 0,
    });
    let committed = client.on(&target.1, commit);
    let committed = last!(committed, Commit);
    assert_eq!(committed.verifier, ok.response.verifier);
    // The end of the source, to the middle of the target.
    let part = CopyArgs {
        source_offset: 3 * P as u64 - 10,
        destination_offset: 5,
        ..copy_all(source.0, target.0)
    };
    assert_eq!(copy(part).status(), Status::Ok);
    let mut expected = data.clone();
    expected.copy_within(3 * P - 10.., 5);
    assert_eq!(client.content(&target.1), expected);
}

#[test]
fn a_copy_that_cannot_be_made_is_refused() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let (source, target) = pair(&client, &room, &[1; 100]);
    let both = copy_all(source.0, target.0);
    let copy = |from: &[u8], to: &[u8], arguments: &CopyArgs<'static>| {
        let reply = client.between(from, to, Operation::Copy(arguments.clone()));
        reply.status()
    };
    let beyond = CopyArgs {
        count: 101,
        ..both.clone()
    };
    assert_eq!(copy(&source.1, &target.1, &beyond), Status::Inval);
    let elsewhere = CopyArgs {
        source_servers: List(vec![NetLocation::Name(Opaque(b"other"))]),
        ..both.clone()
    };
    assert_eq!(copy(&source.1, &target.1, &elsewhere), Status::NotSupp);
    // Each stateid for its own file, and for what is done to it.
    let exchanged = copy_all(target.0, source.0);
    assert_eq!(copy(&source.1, &target.1, &exchanged), Status::BadStateId);
    assert_eq!(copy(&target.1, &source.1, &exchanged), Status::OpenMode);
    let alone = copy_all(target.0, target.0);
    assert_eq!(copy(&target.1, &target.1, &alone), Status::Inval);
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        Operation::SaveFileHandle,
        put(&target.1),
        Operation::Copy(both.clone()),
    ]);
    assert_eq!(reply.status(), Status::WrongType);
    let reply = client.on(&target.1, Operation::Copy(both));
    assert_eq!(reply.status(), Status::NoFileHandle);
    assert!(client.content(&target.1).is_empty());
}

#[test]
fn current_stateids_are_those_of_the_saved_and_of_the_current_file() {
    let room = Room::new();
    room.file(b"source", b"data");
    let client = Client::new(&room, b"client", 1);
    let reply = client.does(&[
        Operation::PutRootFileHandle,
        client.open(b"me", b"source", (share_access::READ, 0), None),
        Operation::SaveFileHandle,
        Operation::PutRootFileHandle,
        client.open(b"me", b"target", (share_access::BOTH, 0), Some(unchecked())),
        Operation::Copy(copy_all(StateId::CURRENT, StateId::CURRENT)),
        Operation::GetFileHandle,
    ]);
    assert_eq!(reply.status(), Status::Ok, "{:?}", reply.all());
    let handle = last!(reply, GetFileHandle);
    assert_eq!(client.content(handle.0), b"data");
}

#[test]
fn a_clone_is_in_blocks_that_an_attribute_tells() {
    let room = Room::new();
    let client = Client::new(&room, b"client", 1);
    let data = vec![3; 2 * P + 100];
    let (source, target) = pair(&client, &room, &data);
    let asked = Bitmap::of(&[Attribute::CloneBlockSize]);
    let ask = get(asked);
    let reply = client.on(&source.1, ask);
    let raw = last!(reply, GetAttributes);
    let told = Attributes::parse(&raw).expect("attributes");
    assert_eq!(told.clone_block_size, Some(P as u32));
    let clone = |source_offset, destination_offset, count| {
        let arguments = CloneArgs {
            source: source.0,
            destination: target.0,
            source_offset,
            destination_offset,
            count,
        };
        client
            .between(&source.1, &target.1, Operation::Clone(arguments))
            .status()
    };
    let block = P as u64;
    assert_eq!(clone(1, 0, block), Status::Inval);
    assert_eq!(clone(0, 0, 3 * block), Status::Inval);
    assert_eq!(clone(0, 0, block), Status::Ok);
    assert_eq!(client.content(&target.1), &data[..P]);
    assert_eq!(clone(0, block, 0), Status::Ok);
    assert_eq!(client.content(&target.1), [&data[..P], &data].concat());
}

#[test]
fn what_this_server_does_not_do_is_refused() {
    let room = Room::new();
    room.file(b"file", b"data");
    let client = Client::new(&room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::BOTH, 0), None);
    let block = DataBlock {
        offset: 0,
        block_size: 4,
        block_count: 1,
        number_offset: 0,
        number: 0,
        pattern_offset: 0,
        pattern: Data(b"same"),
    };
    let same = WriteSameArgs {
        state,
        stable: Stable::FileSync,
        block,
    };
    let notify = CopyNotifyArgs {
        source: state,
        destination: NetLocation::Name(Opaque(b"other")),
    };
    for operation in [Operation::CopyNotify(notify), Operation::WriteSame(same)] {
        assert_eq!(client.on(&handle, operation).status(), Status::NotSupp);
    }
    // Delegations come with OPEN, and of files alone.
    let nothing = Time {
        seconds: 0,
        nanoseconds: 0,
    };
    let of_directory = GetDirDelegationArgs {
        signal_when_available: false,
        notifications: Bitmap::EMPTY,
        child_delay: nothing,
        directory_delay: nothing,
        child_attributes: Bitmap::EMPTY,
        directory_attributes: Bitmap::EMPTY,
    };
    let want = WantDelegationArgs {
        want: share_access::WANT_READ,
        claim: DelegationClaim::File,
    };
    for operations in [
        [
            Operation::PutRootFileHandle,
            Operation::GetDirDelegation(of_directory),
        ],
        [put(&handle), Operation::WantDelegation(want)],
    ] {
        for minor in [1, 2] {
            let reply = client.does_by(minor, &operations);
            assert_eq!(reply.status(), Status::NotSupp);
            // It is the operation that is refused, behind SEQUENCE and the one that sets the file handle.
            assert_eq!(reply.all().len(), 3);
        }
    }
    // An open is no copy.
    for operation in [
        Operation::OffloadStatus(state),
        Operation::OffloadCancel(state),
    ] {
        assert_eq!(client.on(&handle, operation).status(), Status::BadStateId);
    }
}
