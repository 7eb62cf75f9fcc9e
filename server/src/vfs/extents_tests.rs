use super::*;
use crate::store::{Operation, Store as _};
use crate::vfs::space::{Range, deallocate};
use crate::vfs::testing::{PAGE, World, owner};

const P: usize = PAGE as usize;

/// Data in page 1, in the end of page 4 and in all of page 5; nothing in the half page behind it.
fn sparse(world: &World) -> Arc<File> {
    let mut data = vec![0; 6 * P + P / 2];
    data[P..2 * P].fill(1);
    data[5 * P - 10..6 * P].fill(2);
    world.file("a", &data)
}

#[test]
fn data_and_holes_are_found() {
    let world = World::new(64);
    let file = sparse(&world);
    let end = 6 * PAGE + PAGE / 2;
    let find = |offset, what| {
        let found = seek(&world.export, &owner(), &file, offset, what);
        found.map(|found| (found.offset, found.eof))
    };
    let (data, hole) = (Extent::Data, Extent::Hole);
    assert_eq!(find(0, hole), Ok((0, false)));
    assert_eq!(find(0, data), Ok((PAGE, false)));
    assert_eq!(find(PAGE + 5, data), Ok((PAGE + 5, false)));
    assert_eq!(find(PAGE + 5, hole), Ok((2 * PAGE, false)));
    assert_eq!(find(5 * PAGE, hole), Ok((6 * PAGE, false)));
    // Behind the last data there is the end, and behind that there is nothing.
    assert_eq!(find(6 * PAGE + 1, data), Ok((end, true)));
    world.write(&file, end - 1, &[3]);
    assert_eq!(find(6 * PAGE + 1, hole), Ok((end, true)));
    let nothing = Err(ReadFailed::Status(Status::Nxio));
    assert_eq!(find(end, data), nothing);
    assert_eq!(find(end, hole), nothing);
}

/// The parts of these bytes: what they are, and where each ends.
fn parts(world: &World, file: &Arc<File>, mut at: u64, end: u64) -> Vec<(Extent, u64, bool)> {
    let mut all = Vec::new();
    while at < end {
        let part = part(&world.export, &owner(), file, at, end).expect("a part");
        at += part.length;
        all.push((part.what, at, part.eof));
    }
    assert_eq!(at, end);
    all
}

#[test]
fn a_page_is_data_or_a_hole() {
    let world = World::new(64);
    let file = sparse(&world);
    let end = 6 * PAGE + PAGE / 2;
    let (data, hole) = (Extent::Data, Extent::Hole);
    let all = [
        (hole, PAGE, false),
        (data, 2 * PAGE, false),
        (hole, 4 * PAGE, false),
        (data, 6 * PAGE, false),
        (hole, end, true),
    ];
    assert_eq!(parts(&world, &file, 0, end), all);
    // From and to the middle of pages.
    let some = [(hole, 4 * PAGE, false), (data, 4 * PAGE + 1, false)];
    assert_eq!(parts(&world, &file, 2 * PAGE + 7, 4 * PAGE + 1), some);
    let within = [(hole, 3 * PAGE - 1, false)];
    assert_eq!(parts(&world, &file, 2 * PAGE + 7, 3 * PAGE - 1), within);
}

#[test]
fn what_is_in_memory_is_read_from_there() {
    let world = World::new(64);
    let file = world.file("a", &[1; 4 * P]);
    world.read(&file, 0, 4 * P as u32);
    let hole = Range {
        offset: 0,
        length: 4 * PAGE,
    };
    deallocate(&world.export, &owner(), &file, hole).expect("a hole");
    assert_eq!(
        parts(&world, &file, 0, 4 * PAGE),
        [(Extent::Hole, 4 * PAGE, true)]
    );
    // Zeros that somebody has read are a hole still.
    world.read(&file, 0, 3 * P as u32);
    assert_eq!(
        parts(&world, &file, 0, 4 * PAGE),
        [(Extent::Hole, 4 * PAGE, true)]
    );
    // Pages that are newer than what the store tells.
    world.write(&file, PAGE, &[1; 2 * P]);
    let object = file.object();
    let zeros = world.store.write_at(&owner(), object, PAGE, &[0; 2 * P]);
    assert_eq!(zeros.expect("written"), 2 * P);
    assert_eq!(
        parts(&world, &file, 0, 4 * PAGE),
        [
            (Extent::Hole, PAGE, false),
            (Extent::Data, 3 * PAGE, false),
            (Extent::Hole, 4 * PAGE, true)
        ]
    );
    // From and to the middle of pages.
    assert_eq!(
        parts(&world, &file, PAGE + 5, 3 * PAGE - 5),
        [(Extent::Data, 3 * PAGE - 5, false)]
    );
}

#[test]
fn what_a_write_is_about_to_turn_into_a_hole_is_no_hole_yet() {
    // The store has the zeros of a write, and its page still stands: whoever was told of a hole would have seen the future.
    let world = World::new(64);
    let file = world.file("a", &[1; 2 * P]);
    world.read(&file, 0, 2 * P as u32);
    let (export, held) = (&world.export, &file);
    let (told, heard) = std::sync::mpsc::channel();
    odafs_fabric::sync::thread::scope(|scope| {
        let leaf = held.find_leaf(0).expect("a leaf");
        let lock = leaf.lock(0);
        let zeros = world.store.write_at(&owner(), held.object(), 0, &[0; P]);
        assert_eq!(zeros.expect("written"), P);
        scope.spawn(move || told.send(part(export, &owner(), held, 0, PAGE)));
        let early = heard.recv_timeout(std::time::Duration::from_millis(50));
        assert!(early.is_err(), "told, and the page is locked");
        drop(lock);
        let told = heard.recv().expect("told").expect("a part");
        assert_eq!(told.what, Extent::Data);
    });
}

#[test]
fn a_store_that_does_not_know_leaves_all_to_the_read() {
    let world = World::new(64);
    let file = sparse(&world);
    let object = file.object();
    let cut = move |store: &crate::store::MemoryStore| {
        let change = crate::store::OutsideChange::Resize(10);
        store.outside_change(object, change).expect("cut");
    };
    world
        .store
        .meddle_next(Operation::GetAttributes, Box::new(cut));
    let _ = world.store.getattr(object);
    // Its size is not known here yet.
    let found = part(&world.export, &owner(), &file, PAGE, 3 * PAGE).expect("a part");
    assert_eq!((found.what, found.length), (Extent::Data, 2 * PAGE));
}
