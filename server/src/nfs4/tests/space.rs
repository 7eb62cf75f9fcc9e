//! What minor version 2 does to bytes of files (RFC 7862, section 15).

use super::*;

const P: usize = 4096;

fn range(state: StateId, offset: u64, length: u64) -> RangeArgs {
    RangeArgs {
        state,
        offset,
        length,
    }
}

fn read(state: StateId, offset: u64, count: u32) -> ReadArgs {
    ReadArgs {
        state,
        offset,
        count,
    }
}

impl Client<'_> {
    /// Does this to the file of that handle. The reply may be too long for a slot to keep.
    fn on(&self, handle: &[u8], operation: Operation<'_>) -> Reply {
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
        let file = Operation::PutFileHandle(FileHandle(handle));
        let bytes = compound(2, &[sequence, file, operation]);
        let (answer, reply) = self.room.run(&self.caller, &self.who, &bytes, effort);
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        reply
    }

    fn content(&self, handle: &[u8]) -> Vec<u8> {
        let all = Operation::Read(read(StateId::ANONYMOUS, 0, 1 << 18));
        let reply = self.on(handle, all);
        let OperationResult::Read(Ok(ok)) = reply.last() else {
            panic!("{:?}", reply.last());
        };
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
        let reply = client.on(&handle, Operation::ReadPlus(read(state, offset, count)));
        let OperationResult::ReadPlus(Ok(ok)) = reply.last() else {
            panic!("{:?}", reply.last());
        };
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
    let all = Operation::ReadPlus(read(state, 0, 1 << 20));
    let reply = client.asks(&handle, all, Effort::ResidentOnly);
    let OperationResult::ReadPlus(Ok(ok)) = reply.last() else {
        panic!("{:?}", reply.last());
    };
    assert_eq!((put_together(&ok, 0), ok.eof), ((data, [1, 0]), true));
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
        let reply = client.on(&handle, Operation::ReadPlus(read(state, from, 1 << 20)));
        let OperationResult::ReadPlus(Ok(ok)) = reply.last() else {
            panic!("{:?}", reply.last());
        };
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
