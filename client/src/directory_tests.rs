use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const SIZE: PageSize = PageSize::DEFAULT;

fn reference(frame: u64, epoch: u64) -> Reference {
    Reference {
        address: frame * 4096,
        length: 1 + (epoch % 4096) as u32,
        handle: Handle(frame as u32 ^ 0x55),
        key: AccessKey(frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ epoch),
        epoch: Epoch(epoch),
    }
}

fn fresh(chunks: u64) -> (Directory, Arc<Tree>) {
    let directory = Directory::new(chunks * CHUNK_BYTES as u64);
    directory.begin(1, SIZE);
    (directory, Arc::new(Tree::default()))
}

#[test]
fn a_reference_takes_little_more_than_24_bytes() {
    assert!(CHUNK_BYTES as f64 / CHUNK as f64 <= 24.25, "{CHUNK_BYTES}");
}

#[test]
fn whole_references_come_back() {
    let (directory, tree) = fresh(16);
    for page in [0, 1, 63, 64, 255, 256, 65_535, 65_536, PAGES_MAX - 1] {
        let learned = reference(page % 1000, 7);
        assert_eq!(directory.learn(&tree, 1, [(page, learned)]), 1, "{page}");
        assert_eq!(
            directory.lookup(&tree, page, 1, SIZE),
            Lookup::Found(learned),
            "{page}"
        );
    }
    assert_eq!(directory.learn(&tree, 1, [(PAGES_MAX, reference(1, 7))]), 0);
    let learned = reference(1, 7);
    let location = Location {
        address: learned.address,
        length: learned.length,
        epoch: learned.epoch,
    };
    assert_eq!(directory.locate(&tree, 1, 1, SIZE), Some(location));
    assert_eq!(directory.lookup(&tree, u64::MAX, 1, SIZE), Lookup::Missing);
}

#[test]
fn every_chunk_has_a_place_of_its_own() {
    let mut expected = (0, 0);
    for number in 0..10 * SEGMENT {
        assert_eq!(segment_of(number), expected, "{number}");
        expected.1 += 1;
        if expected.1 == chunks_in(expected.0 + 1) - chunks_in(expected.0) {
            expected = (expected.0 + 1, 0);
        }
    }
}

/// Whole pages in neighbouring frames with neighbouring handles, all of one epoch.
fn in_a_row(pages: std::ops::Range<u64>, epoch: u64) -> impl Iterator<Item = (u64, Reference)> {
    pages.map(move |page| {
        let whole = Reference {
            length: 4096,
            handle: Handle(500 + page as u32),
            ..reference(1000 + page, epoch)
        };
        (page, whole)
    })
}

fn is_run(directory: &Directory, tree: &Tree, page: u64) -> bool {
    let number = tree.slot(page).unwrap().load(Relaxed);
    directory.chunk(number).unwrap().run_valid.load(Relaxed) != 0
}

#[test]
fn a_run_finds_what_its_pages_would() {
    let (directory, tree) = fresh(16);
    let chunk = CHUNK as u64;
    directory.learn(&tree, 1, in_a_row(0..3 * chunk - 1, 7));
    assert!(is_run(&directory, &tree, 0) && is_run(&directory, &tree, chunk));
    assert!(!is_run(&directory, &tree, 2 * chunk), "one is missing");
    directory.learn(&tree, 1, in_a_row(3 * chunk - 1..3 * chunk, 7));
    assert!(is_run(&directory, &tree, 2 * chunk));
    for (page, reference) in in_a_row(0..3 * chunk, 7) {
        let location = directory.locate(&tree, page, 1, SIZE).unwrap();
        assert_eq!(location.address, reference.address);
        assert_eq!((location.length, location.epoch), (4096, Epoch(7)));
        assert_eq!(
            directory.lookup(&tree, page, 1, SIZE),
            Lookup::Found(reference)
        );
    }
    assert_eq!(directory.locate(&tree, 0, 2, SIZE), None);
}

#[test]
fn a_run_ends_with_what_any_of_its_pages_loses_or_gains() {
    let (directory, tree) = fresh(16);
    let all = || in_a_row(0..CHUNK as u64, 7);
    directory.learn(&tree, 1, all());
    directory.forget(&tree, 9, Epoch(7));
    assert!(!is_run(&directory, &tree, 0));
    assert_eq!(directory.locate(&tree, 9, 1, SIZE), None);
    assert!(directory.locate(&tree, 8, 1, SIZE).is_some());
    directory.learn(&tree, 1, all());
    assert!(is_run(&directory, &tree, 0));
    let moved = reference(3, 8);
    directory.learn(&tree, 1, [(9, moved)]);
    let location = directory.locate(&tree, 9, 1, SIZE).unwrap();
    assert_eq!(
        (location.address, location.epoch),
        (moved.address, Epoch(8))
    );
    assert_eq!(directory.locate(&tree, 8, 1, SIZE).unwrap().epoch, Epoch(7));
    let short = Reference {
        length: 100,
        ..reference(2000, 9)
    };
    directory.learn(&tree, 1, in_a_row(0..255, 9).chain([(255, short)]));
    assert!(
        !is_run(&directory, &tree, 0),
        "the file ends within its last page"
    );
    let renumbered = in_a_row(255..256, 10).map(|(page, reference)| {
        let handle = Handle(1);
        (
            page,
            Reference {
                handle,
                ..reference
            },
        )
    });
    directory.learn(&tree, 1, in_a_row(0..255, 10).chain(renumbered));
    assert!(
        !is_run(&directory, &tree, 0),
        "its handle is no neighbour's"
    );
    directory.learn(&tree, 1, in_a_row(0..256, 11));
    assert!(is_run(&directory, &tree, 0));
    let (page, mut reference) = in_a_row(9..10, 11).next().unwrap();
    reference.key = AccessKey(1);
    directory.learn(&tree, 1, [(page, reference)]);
    assert_eq!(
        directory.lookup(&tree, page, 1, SIZE),
        Lookup::Found(reference),
        "keys are each page's own"
    );
}

#[test]
fn what_does_not_fit_is_left_out() {
    let (directory, tree) = fresh(8);
    let good = reference(1, 7);
    for bad in [
        Reference {
            address: 4097,
            ..good
        },
        Reference {
            address: u64::MAX << 12,
            ..good
        },
        Reference { length: 0, ..good },
        Reference {
            length: 4097,
            ..good
        },
        Reference {
            epoch: Epoch(0),
            ..good
        },
        Reference {
            epoch: Epoch(1 << 48),
            ..good
        },
    ] {
        assert_eq!(directory.learn(&tree, 1, [(0, bad)]), 0, "{bad:?}");
    }
}

#[test]
fn a_new_session_drops_the_references_of_the_old() {
    let (directory, tree) = fresh(8);
    directory.learn(&tree, 1, [(5, reference(5, 7))]);
    directory.begin(2, SIZE);
    assert_eq!(directory.held(), 0);
    assert_eq!(directory.lookup(&tree, 5, 1, SIZE), Lookup::Missing);
    assert_eq!(directory.lookup(&tree, 5, 2, SIZE), Lookup::Missing);
    assert_eq!(
        directory.learn(&tree, 1, [(5, reference(5, 8))]),
        0,
        "a reply that came late"
    );
    directory.learn(&tree, 2, [(5, reference(6, 1))]);
    assert_eq!(
        directory.lookup(&tree, 5, 2, SIZE),
        Lookup::Found(reference(6, 1))
    );
    assert_eq!(directory.lookup(&tree, 5, 1, SIZE), Lookup::Missing);
}

#[test]
fn an_older_reference_never_replaces_a_newer() {
    let (directory, tree) = fresh(8);
    directory.learn(&tree, 1, [(5, reference(5, 9))]);
    assert_eq!(directory.learn(&tree, 1, [(5, reference(6, 8))]), 0);
    directory.forget(&tree, 5, Epoch(8));
    assert_eq!(
        directory.lookup(&tree, 5, 1, SIZE),
        Lookup::Found(reference(5, 9))
    );
    directory.forget(&tree, 5, Epoch(9));
    assert_eq!(directory.lookup(&tree, 5, 1, SIZE), Lookup::Missing);
}

#[test]
fn at_the_limit_the_oldest_goes_that_was_not_looked_into() {
    let (directory, tree) = fresh(4);
    let page = |chunk: u64| chunk * CHUNK as u64;
    let find = |chunk: u64| directory.lookup(&tree, page(chunk), 1, SIZE);
    directory.learn(&tree, 1, (0..4).map(|c| (page(c), reference(c, 7))));
    directory.learn(&tree, 1, [(page(4), reference(4, 7))]);
    assert_eq!(find(0), Lookup::Evicted, "the oldest");
    assert_eq!(find(1), Lookup::Found(reference(1, 7)));
    directory.learn(&tree, 1, [(page(5), reference(5, 7))]);
    assert_eq!(find(1), Lookup::Found(reference(1, 7)));
    assert_eq!(find(2), Lookup::Evicted);
    // The hand is beyond them: what comes next goes before what was passed over.
    assert_eq!(find(3), Lookup::Found(reference(3, 7)));
    directory.learn(&tree, 1, [(page(6), reference(6, 7))]);
    assert_eq!(find(3), Lookup::Found(reference(3, 7)));
    assert_eq!(find(4), Lookup::Evicted);
    assert_eq!(directory.bytes(), 4 * CHUNK_BYTES as u64);
    directory.set_limit(CHUNK_BYTES as u64);
    assert_eq!(directory.held(), 1);
}

#[test]
fn what_would_take_anothers_place_again_is_asked_for_seldom() {
    let (directory, tree) = fresh(2);
    let page = |chunk: u64| chunk * CHUNK as u64;
    let asks = |chunk: u64| {
        (0..80)
            .filter(|_| directory.wants(&tree, page(chunk)))
            .count()
    };
    directory.learn(&tree, 1, (0..2).map(|c| (page(c), reference(c, 7))));
    assert_eq!([asks(0), asks(2)], [80, 80], "nothing had to go yet");
    directory.learn(&tree, 1, [(page(2), reference(2, 7))]);
    assert_eq!(directory.lookup(&tree, page(0), 1, SIZE), Lookup::Evicted);
    assert_eq!([asks(1), asks(3)], [80, 80], "it is there, or never was");
    assert_eq!(asks(0), 10);
    directory.forget(&tree, page(2), Epoch(7));
    assert_eq!(asks(0), 80, "there is room");
    directory.learn(&tree, 1, [(page(2), reference(2, 7))]);
    assert_eq!(asks(0), 10);
    directory.set_limit(4 * CHUNK_BYTES as u64);
    assert_eq!(asks(0), 80, "there may be more");
}

#[test]
fn emptied_chunks_are_used_before_others_are_taken() {
    let (directory, tree) = fresh(2);
    directory.learn(
        &tree,
        1,
        [(0, reference(0, 7)), (CHUNK as u64, reference(1, 7))],
    );
    directory.forget(&tree, CHUNK as u64, Epoch(7));
    directory.learn(&tree, 1, [(2 * CHUNK as u64, reference(2, 7))]);
    assert_eq!(
        directory.lookup(&tree, 0, 1, SIZE),
        Lookup::Found(reference(0, 7))
    );
}

/// What asks for references far apart asks for no more than there is room for.
#[test]
fn pages_far_apart_take_a_chunk_each() {
    let chunk = CHUNK as u64;
    assert_eq!(room_of(&(0..0)), 0);
    assert_eq!(room_of(&(5..6)), chunk);
    assert_eq!(room_of(&(0..chunk)), chunk);
    assert_eq!(room_of(&(chunk - 1..chunk + 1)), 2 * chunk);
}

#[test]
fn chunks_of_closed_files_go_before_touched_ones() {
    let (directory, tree) = fresh(2);
    let closed = Arc::new(Tree::default());
    directory.learn(&tree, 1, [(0, reference(0, 7))]);
    directory.learn(&closed, 1, [(0, reference(1, 7))]);
    drop(closed);
    let open = || directory.lookup(&tree, 0, 1, SIZE);
    assert_eq!(open(), Lookup::Found(reference(0, 7)));
    directory.learn(&tree, 1, [(CHUNK as u64, reference(2, 7))]);
    assert_eq!(
        directory.lookup(&tree, 0, 1, SIZE),
        Lookup::Found(reference(0, 7))
    );
}

#[derive(Debug, Clone)]
enum Op {
    Learn {
        file: usize,
        page: u64,
        frame: u64,
        epoch: u64,
    },
    Forget {
        file: usize,
        page: u64,
        epoch: u64,
    },
    ForgetRange {
        file: usize,
        first: u64,
        pages: u64,
    },
    Touch {
        file: usize,
        page: u64,
    },
    Begin,
}

fn op() -> impl Strategy<Value = Op> {
    let page = prop_oneof![0u64..300, 65_000u64..66_000];
    prop_oneof![
        8 => (0usize..2, page.clone(), 0u64..1000, 1u64..50).prop_map(|(file, page, frame, epoch)| Op::Learn { file, page, frame, epoch }),
        2 => (0usize..2, page.clone(), 1u64..50).prop_map(|(file, page, epoch)| Op::Forget { file, page, epoch }),
        1 => (0usize..2, page.clone(), 0u64..200).prop_map(|(file, first, pages)| Op::ForgetRange { file, first, pages }),
        1 => (0usize..2, page).prop_map(|(file, page)| Op::Touch { file, page }),
        1 => Just(Op::Begin),
    ]
}

proptest! {
    /// Against a plain map: with room enough the two agree; without, what is found is what the map holds.
    #[test]
    fn behaves_as_a_map_that_may_lose_entries(chunks in prop_oneof![Just(1000u64), 1u64..8], ops in proptest::collection::vec(op(), 1..200)) {
        let (directory, _) = fresh(chunks);
        let trees = [Arc::new(Tree::default()), Arc::new(Tree::default())];
        let mut model: HashMap<(usize, u64), Reference> = HashMap::new();
        let mut session = 1;
        for op in ops {
            match op {
                Op::Learn { file, page, frame, epoch } => {
                    let newer = model.get(&(file, page)).is_some_and(|held| held.epoch.0 > epoch);
                    let evicted = !matches!(directory.lookup(&trees[file], page, session, SIZE), Lookup::Found(_));
                    directory.learn(&trees[file], session, [(page, reference(frame, epoch))]);
                    if !newer || evicted {
                        model.insert((file, page), reference(frame, epoch));
                    }
                }
                Op::Forget { file, page, epoch } => {
                    directory.forget(&trees[file], page, Epoch(epoch));
                    if model.get(&(file, page)).is_some_and(|held| held.epoch.0 == epoch) {
                        model.remove(&(file, page));
                    }
                }
                Op::ForgetRange { file, first, pages } => {
                    directory.forget_range(&trees[file], first, first + pages);
                    model.retain(|(f, page), _| *f != file || !(first..=first + pages).contains(page));
                }
                Op::Touch { file, page } => {
                    _ = directory.locate(&trees[file], page, 1, SIZE);
                }
                Op::Begin => {
                    session += 1;
                    directory.begin(session, SIZE);
                    model.clear();
                }
            }
            prop_assert!(directory.bytes() <= chunks * CHUNK_BYTES as u64);
        }
        let mut held = 0;
        for (file, tree) in trees.iter().enumerate() {
            for page in (0..600).chain(64_900..66_300) {
                let expected = model.get(&(file, page)).copied();
                match directory.lookup(tree, page, session, SIZE) {
                    Lookup::Found(found) => {
                        held += 1;
                        prop_assert_eq!(Some(found), expected);
                    }
                    Lookup::Missing | Lookup::Evicted => prop_assert!(chunks < 8 || expected.is_none()),
                }
            }
        }
        prop_assert_eq!(directory.held(), held);
    }
}
