use super::*;

const LAYOUTS: [Layout; 2] = [
    Layout::apart(PageSize::DEFAULT),
    Layout::beside(PageSize::DEFAULT),
];

fn arena(frames: u32) -> Arena {
    arena_of(frames, LAYOUTS[0])
}

fn arena_of(frames: u32, layout: Layout) -> Arena {
    Arena::create(&ArenaConfig {
        frames,
        layout,
        huge: false,
        populate: false,
    })
    .unwrap()
}

#[test]
fn epochs_stamps_and_pins() {
    let arena = arena(3);
    let frame = FrameNumber(1);
    let any = Epoch(u64::MAX);
    let refused = |request, entry| arena.pin(frame, request, entry).err();
    let stale = Some(PinRefused::Stale);
    assert_eq!(refused(any, any), stale, "unpublished");
    let issued = arena.publish(frame);
    assert_eq!(arena.current_epoch(), issued);
    let pin = arena.pin(frame, issued, issued).unwrap();
    assert_eq!(pin.frame(), frame);
    assert!(arena.is_pinned(frame) && !arena.is_pinned(FrameNumber(0)));
    assert!(arena.revoke(frame), "a pin is there");
    assert_eq!(refused(issued, arena.current_epoch()), stale);
    assert_eq!(refused(any, issued), stale, "the entry's epoch counts too");
    assert!(arena.is_pinned(frame), "a refusal takes nobody's pin");
    drop(pin);
    assert!(!arena.is_pinned(frame));
    assert!(!arena.unpublish(frame));
    let again = arena.publish(frame);
    assert!(again > issued);
    assert_eq!(refused(issued, again), stale);
    drop(arena.pin(frame, again, again).unwrap());
    assert!(!arena.is_pinned(frame));
}

#[test]
fn a_pin_may_outlive_its_arena() {
    let arena = arena(2);
    let epoch = arena.publish(FrameNumber(1));
    let pin = arena.pin(FrameNumber(1), epoch, epoch).unwrap();
    drop(arena);
    drop(pin);
}

#[test]
fn flags() {
    let arena = arena(2);
    let (frame, other) = (FrameNumber(0), FrameNumber(1));
    arena.set_referenced(frame);
    arena.set_handed_out(frame, true);
    let epoch = arena.publish(frame);
    let _pin = arena.pin(frame, epoch, epoch).unwrap();
    assert!(arena.is_handed_out(frame) && !arena.is_handed_out(other));
    assert!(
        arena.take_referenced(frame)
            && !arena.take_referenced(frame)
            && !arena.take_referenced(other)
    );
    arena.set_handed_out(frame, false);
    assert!(!arena.is_handed_out(frame) && arena.is_pinned(frame));
}

#[test]
fn copies_within_frames() {
    let arena = arena(2);
    arena.copy_in(FrameNumber(1), 4090, b"abcdef");
    let mut out = [0; 6];
    arena.copy_out(FrameNumber(1), 4090, &mut out);
    assert_eq!(&out, b"abcdef");
    arena.zero(FrameNumber(1), 4092, 4096);
    arena.copy_out(FrameNumber(1), 4090, &mut out);
    assert_eq!(&out, b"ab\0\0\0\0");
    arena.word(FrameNumber(0), 8).store(7, Ordering::Relaxed);
    arena.copy_out(FrameNumber(0), 8, &mut out);
    assert_eq!(out[0], 7);
    assert_eq!(arena.frame_at(4096), Some(FrameNumber(1)));
    assert_eq!(arena.frame_at(8192), None);
    for bad in [(2, 0, 0), (1, 4090, 7), (1, u32::MAX, 1), (u32::MAX, 0, 1)] {
        let copied = std::panic::catch_unwind(|| {
            arena.copy_out(FrameNumber(bad.0), bad.1, &mut vec![0; bad.2])
        });
        assert!(copied.is_err(), "{bad:?}");
    }
}

/// What a view of the same arena accepts.
#[test]
fn views_validate() {
    for layout in LAYOUTS {
        view_validates(&arena_of(4, layout));
    }
}

fn view_validates(arena: &Arena) {
    let life = crate::memory::LifeWord::in_memory(9).unwrap();
    let view = crate::memory::ArenaView::of(arena, &life).unwrap();
    for frame in 0..4 {
        arena.copy_in(FrameNumber(frame), 0, &[frame as u8 + 1; 4096]);
    }
    let first = arena.publish(FrameNumber(1));
    let second = arena.publish(FrameNumber(2));
    let mut out = [0; 8192];
    assert!(view.read(4096, &mut out, second));
    assert!(out[..4096].iter().all(|b| *b == 2) && out[4096..].iter().all(|b| *b == 3));
    assert!(
        !view.read(4096, &mut out, first),
        "the second frame is younger"
    );
    assert!(view.read(4096, &mut out[..4096], first));
    assert!(
        !view.read(4095, &mut out[..2], second),
        "frame 0 is unpublished"
    );
    assert!(!view.read(4095, &mut out[..2], Epoch(u64::MAX)));
    assert!(
        !view.read(16384 - 1, &mut out[..2], second),
        "beyond the arena"
    );
    assert!(!view.read(u64::MAX, &mut out[..2], second));
    assert!(!view.read(16384, &mut [], second));
    assert_eq!(view.read_word(4096, first), Some(0x0202_0202_0202_0202));
    assert_eq!(view.read_word(4097, first), None, "not aligned");
    arena.revoke(FrameNumber(1));
    assert_eq!(view.read_word(4096, second), None);
    life.poison();
    assert!(!view.read(8192, &mut out[..1], second) && !view.is_alive());
}

/// Where stamps lie beside frames, memory comes whole pages at a time: nobody reads what is there beyond the frames.
#[test]
#[cfg(not(any(shuttle, miri)))]
fn room_beyond_the_frames_is_nobodys() {
    let config = ArenaConfig {
        frames: 3,
        layout: LAYOUTS[1],
        huge: true,
        populate: false,
    };
    let arena = Arena::create(&config).unwrap();
    let life = crate::memory::LifeWord::in_memory(9).unwrap();
    let view = crate::memory::ArenaView::of(&arena, &life).unwrap();
    let epoch = (0..3).map(|frame| arena.publish(FrameNumber(frame))).last();
    let epoch = epoch.unwrap();
    assert_eq!(view.len(), (2 << 20) / (4096 + 64) * 4096);
    for address in (0..view.len()).step_by(4096) {
        let there = view.read(address, &mut [0; 8], epoch);
        assert_eq!(there, address < 3 * 4096, "{address}");
        assert_eq!(arena.frame_at(address).is_some(), there);
    }
    assert!(!view.read(view.len(), &mut [0], Epoch(u64::MAX)));
}

/// A page that changes all the time is never read torn.
#[test]
#[cfg(not(shuttle))]
fn never_torn() {
    let arena = Arc::new(arena(1));
    let frame = FrameNumber(0);
    let life = crate::memory::LifeWord::in_memory(9).unwrap();
    let view = crate::memory::ArenaView::of(&arena, &life).unwrap();
    let issued = Arc::new(AtomicU64::new(arena.publish(frame).0));
    let writer = {
        let (arena, issued) = (Arc::clone(&arena), Arc::clone(&issued));
        std::thread::spawn(move || {
            for round in 1..20_000u32 {
                assert!(!arena.revoke(frame));
                arena.copy_in(frame, 0, &[round as u8; 4096]);
                issued.store(arena.publish(frame).0, Ordering::Release);
            }
        })
    };
    let mut page = [0; 4096];
    let mut read = 0;
    while !writer.is_finished() || read == 0 {
        let epoch = Epoch(issued.load(Ordering::Acquire));
        if view.read(0, &mut page, epoch) {
            assert!(page.iter().all(|byte| *byte == page[0]), "torn");
            read += 1;
        }
    }
    writer.join().unwrap();
}
