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
