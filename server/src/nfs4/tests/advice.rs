//! IO_ADVISE: the reply names the hints that the server takes, and these have an effect.

use super::*;
use crate::vfs::file::File;

const P: u64 = 4096;
/// The frames of a [`Room`], one of which holds change counters.
const FRAMES: u64 = 256;

/// Pages of a file that are in memory.
fn resident(file: &File) -> u64 {
    let leaves = file.leaves_from(0);
    leaves.iter().map(|leaf| u64::from(leaf.resident())).sum()
}

impl Client<'_> {
    /// The hints that the server takes.
    fn advises(
        &self,
        handle: &[u8],
        (state, offset, count): (StateId, u64, u64),
        hints: &[u32],
    ) -> Vec<u32> {
        let hints = hints
            .iter()
            .fold(Bitmap::EMPTY, |set, hint| set.with(*hint));
        let advice = IoAdviseArgs {
            state,
            offset,
            count,
            hints,
        };
        let reply = self.on(handle, Operation::IoAdvise(advice));
        let taken = last!(reply, IoAdvise);
        (0..=io_advice::INIT_PROXIMITY)
            .filter(|hint| taken.has(*hint))
            .collect()
    }

    fn reads(&self, handle: &[u8], state: StateId, offset: u64) {
        let reply = self.on(handle, read(state, offset, 1));
        assert_eq!(reply.status(), Status::Ok);
    }
}

/// A file of so many pages, and a client that has it open.
fn opened<'r>(room: &'r Room, pages: u64) -> (Client<'r>, StateId, Vec<u8>, Arc<File>) {
    let file = room.world.file("file", &vec![7; (pages * P) as usize]);
    let client = Client::new(room, b"client", 1);
    let (state, handle) = client.opened(b"me", b"file", (share_access::READ, 0), None);
    (client, state, handle, file)
}

#[test]
fn what_will_be_needed_comes_into_memory_up_to_a_bound() {
    let room = Room::new();
    let (client, state, handle, file) = opened(&room, 2 * FRAMES);
    let need = [io_advice::WILL_NEED];
    let bytes = (state, 10 * P + 5, 3 * P);
    assert_eq!(client.advises(&handle, bytes, &need), need);
    assert_eq!(resident(&file), 4);
    let misses = room.world.export.metrics().page_misses.get();
    for page in 10..14 {
        client.reads(&handle, state, page * P + 7);
    }
    assert_eq!(room.world.export.metrics().page_misses.get(), misses);
    // All of it, which is more than there is room for: a quarter of the cache.
    assert_eq!(client.advises(&handle, (state, 0, 0), &need), need);
    assert_eq!(resident(&file), (FRAMES - 1) / 4);
    // There is nothing behind the end.
    for offset in [2 * FRAMES * P, u64::MAX] {
        assert!(
            client
                .advises(&handle, (state, offset, 0), &need)
                .is_empty()
        );
    }
}

#[test]
fn what_may_cost_nothing_takes_only_free_frames() {
    let room = Room::new();
    let (client, state, handle, file) = opened(&room, 2 * FRAMES);
    let perhaps = [io_advice::WILL_NEED_OPPORTUNISTIC];
    for (offset, pages) in [(0, 63), (63, 126), (126, 189), (189, 252)] {
        let taken = client.advises(&handle, (state, offset * P, 0), &perhaps);
        assert_eq!((&taken[..], resident(&file)), (&perhaps[..], pages));
    }
    assert!(
        client
            .advises(&handle, (state, 252 * P, 0), &perhaps)
            .is_empty()
    );
    assert_eq!(resident(&file), 252);
    let need = [io_advice::WILL_NEED];
    assert_eq!(client.advises(&handle, (state, 252 * P, 0), &need), need);
}

#[test]
fn an_order_is_that_of_an_open_and_not_of_others() {
    use io_advice::{NORMAL, RANDOM, SEQUENTIAL};
    let room = Room::new();
    let (client, state, handle, file) = opened(&room, 200);
    let other = Client::new(&room, b"other", 2);
    let (others, _) = other.opened(b"you", b"file", (share_access::READ, 0), None);
    let all = (state, 0, 0);
    assert_eq!(client.advises(&handle, all, &[RANDOM]), [RANDOM]);
    // Where a file begins, more is filled for somebody who has said nothing.
    client.reads(&handle, state, 0);
    assert_eq!(resident(&file), 1);
    other.reads(&handle, others, P);
    let before = resident(&file);
    assert!(before >= 2);
    let whole = (state, 0, 200 * P);
    assert_eq!(client.advises(&handle, whole, &[SEQUENTIAL]), [SEQUENTIAL]);
    client.reads(&handle, state, 100 * P);
    let ahead = u64::from(room.world.export.read_ahead_pages());
    assert!(ahead > 4);
    assert_eq!(resident(&file), before + ahead);
    other.reads(&handle, others, 180 * P);
    assert_eq!(resident(&file), before + ahead + 1);
    // An order that is not taken ends the one before.
    let none: [u32; 0] = [];
    assert_eq!(client.advises(&handle, all, &[NORMAL, SEQUENTIAL]), none);
    client.reads(&handle, state, 60 * P);
    assert_eq!(resident(&file), before + ahead + 2);
}

#[test]
fn an_order_that_cannot_be_kept_is_not_taken() {
    use io_advice::*;
    let room = Room::new();
    let (client, state, handle, _) = opened(&room, 10);
    let none = |(state, offset, count): (StateId, u64, u64), hints: &[u32]| {
        let taken = client.advises(&handle, (state, offset, count), hints);
        assert!(taken.is_empty(), "{hints:?} of {offset} {count}: {taken:?}");
    };
    for order in [NORMAL, SEQUENTIAL, RANDOM] {
        none((state, P, 0), &[order]);
        none((state, 0, 9 * P), &[order]);
        none((StateId::ANONYMOUS, 0, 0), &[order]);
    }
    none((state, 0, 0), &[SEQUENTIAL, RANDOM]);
    none((state, 0, 0), &[SEQUENTIAL_BACKWARDS]);
    none((state, 0, 0), &[SEQUENTIAL, SEQUENTIAL_BACKWARDS]);
    none((state, 0, 0), &[NO_REUSE, READ, WRITE, INIT_PROXIMITY]);
    // One that nobody knows.
    none((state, 0, 0), &[31]);
    let both = [RANDOM, WILL_NEED];
    assert_eq!(client.advises(&handle, (state, 0, 0), &both), both);
    let bad = IoAdviseArgs {
        state: StateId {
            sequence: 0,
            other: [9; 12],
        },
        offset: 0,
        count: 0,
        hints: Bitmap::EMPTY.with(RANDOM),
    };
    let reply = client.on(&handle, Operation::IoAdvise(bad));
    assert_ne!(reply.status(), Status::Ok);
}
