//! Many threads at one export: what anyone reads, by whatever route, must be a version of that page of that file
//! that was current at some time during the read.

use odafs_fabric::memory::{ArenaView, FrameNumber};
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, Mutex, thread};

use crate::vfs::change;
use crate::vfs::copies::{FileOffset, copy};
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed, ReadRange, read, read_pinned};
use crate::vfs::space::{Range, deallocate};
use crate::vfs::testing::{PAGE, World, owner};
use crate::vfs::write::{Stable, set_attributes, write};
use odafs_nic::calls::ChunkSource;

use crate::store::SetAttributes;

const FILES: usize = 3;
const PAGES: usize = 12;
const WORDS: usize = PAGE as usize / 8;

/// What was written to a page, and what is being written.
#[derive(Default)]
struct Versions {
    writing: Mutex<()>,
    started: AtomicU64,
    acknowledged: AtomicU64,
}

struct Model {
    world: World,
    files: Vec<Arc<File>>,
    /// Where pages are written that are copied to theirs.
    drafts: Arc<File>,
    versions: Vec<Versions>,
    /// Reads that were checked, by route.
    checked: [AtomicU64; 4],
    over: AtomicBool,
}

fn word(file: usize, page: usize, version: u64) -> u64 {
    (file as u64 + 1) << 56 | (page as u64) << 48 | version
}

fn content(file: usize, page: usize, version: u64) -> Vec<u8> {
    word(file, page, version).to_le_bytes().repeat(WORDS)
}

impl Model {
    fn new(frames: u32) -> Self {
        let world = World::new(frames);
        let files = (0..FILES).map(|file| {
            let content: Vec<u8> = (0..PAGES).flat_map(|page| content(file, page, 0)).collect();
            world.file(&format!("f{file}"), &content)
        });
        Self {
            files: files.collect(),
            drafts: world.file("drafts", &[]),
            world,
            versions: (0..FILES * PAGES).map(|_| Versions::default()).collect(),
            checked: Default::default(),
            over: AtomicBool::new(false),
        }
    }

    fn versions(&self, file: usize, page: usize) -> &Versions {
        &self.versions[file * PAGES + page]
    }

    fn floor(&self, file: usize, page: usize) -> u64 {
        self.versions(file, page)
            .acknowledged
            .load(Ordering::SeqCst)
    }

    /// `floor` was the latest acknowledged version before the read began.
    fn check(&self, route: usize, (file, page): (usize, usize), floor: u64, data: &[u8]) {
        let words: Vec<u64> = data
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("whole words")))
            .collect();
        let first = words[0];
        assert!(
            words.iter().all(|word| *word == first),
            "route {route}: a torn page: {:x?}",
            words.windows(2).find(|pair| pair[0] != pair[1])
        );
        let version = first & ((1 << 48) - 1);
        assert_eq!(
            first,
            word(file, page, version),
            "route {route}: another page"
        );
        let newest = self.versions(file, page).started.load(Ordering::SeqCst);
        assert!(
            (floor..=newest).contains(&version),
            "route {route}: version {version} of {floor}..={newest}"
        );
        self.checked[route].fetch_add(1, Ordering::Relaxed);
    }

    fn write(&self, random: &mut Random) {
        let (file, page) = random.page();
        let versions = self.versions(file, page);
        let _writing = versions.writing.lock();
        let version = versions.started.fetch_add(1, Ordering::SeqCst) + 1;
        let data = content(file, page, version);
        let offset = page as u64 * PAGE;
        let (export, target) = (&self.world.export, &self.files[file]);
        let put = |file: &Arc<File>, offset| {
            write(export, &owner(), file, offset, &data, Stable::Unstable).expect("written");
        };
        if random.below(4) == 0 {
            let draft = (file * PAGES + page) as u64 * PAGE;
            put(&self.drafts, draft);
            let place = |file, offset| FileOffset { file, offset };
            let (from, to) = (place(&self.drafts, draft), place(target, offset));
            let copied = copy(export, &owner(), from, to, PAGE).expect("copied");
            assert_eq!(copied.count, PAGE);
        } else {
            put(target, offset);
        }
        versions.acknowledged.store(version, Ordering::SeqCst);
    }

    fn read(&self, random: &mut Random) {
        let (file, page) = random.page();
        let floor = self.floor(file, page);
        let mut data = vec![0; PAGE as usize];
        let range = ReadRange {
            offset: page as u64 * PAGE,
            count: PAGE as u32,
        };
        let effort = match random.below(2) {
            0 => Effort::ResidentOnly,
            _ => Effort::MayBlock,
        };
        let export = &self.world.export;
        match read(
            export,
            &owner(),
            &self.files[file],
            range,
            effort,
            &mut data,
        ) {
            Ok(done) => {
                assert_eq!(u64::from(done.count), PAGE);
                self.check(0, (file, page), floor, &data);
            }
            Err(ReadFailed::NotResident) => assert_eq!(effort, Effort::ResidentOnly),
            Err(failed) => panic!("{failed:?}"),
        }
    }

    /// A reply that is sent from the frames, some time later.
    fn read_pinned(&self, random: &mut Random) {
        let (file, page) = random.page();
        let floor = self.floor(file, page);
        let range = ReadRange {
            offset: page as u64 * PAGE,
            count: PAGE as u32,
        };
        let (export, effort) = (&self.world.export, Effort::MayBlock);
        let (_, pieces) =
            read_pinned(export, &owner(), &self.files[file], range, effort).expect("read");
        thread::yield_now();
        for piece in pieces {
            match piece {
                ChunkSource::Frame {
                    frame,
                    offset,
                    length,
                } => {
                    let mut data = vec![0; length as usize];
                    export.arena().copy_out(frame.frame(), offset, &mut data);
                    drop(frame);
                    self.check(1, (file, page), floor, &data);
                }
                ChunkSource::Bytes(data) => self.check(1, (file, page), floor, &data),
            }
        }
    }

    /// References, kept for a while and used again and again: by the NIC, or without it.
    fn read_directly(&self, random: &mut Random, view: Option<&ArenaView>, reads: usize) {
        let mut client = self.world.client(&owner());
        let mut known = vec![None; FILES * PAGES];
        let mut data = vec![0; PAGE as usize];
        for _ in 0..reads {
            let (file, page) = random.page();
            let slot = &mut known[file * PAGES + page];
            let Some(reference) = *slot else {
                *slot = client.reference(&self.files[file], page as u64);
                continue;
            };
            let floor = self.floor(file, page);
            let good = match view {
                Some(view) => view.read(reference.address, &mut data, reference.epoch),
                None => client.read(&reference).map(|found| data = found).is_ok(),
            };
            if good {
                let route = if view.is_some() { 2 } else { 3 };
                self.check(route, (file, page), floor, &data);
            } else {
                *slot = None;
            }
        }
    }
}

/// A small generator with a seed of its own for each thread.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn page(&mut self) -> (usize, usize) {
        (self.below(FILES), self.below(PAGES))
    }
}

/// What one thread does.
type Body = Box<dyn FnOnce(&Model) + Send>;

fn run(model: &Arc<Model>, threads: Vec<Body>) {
    let running: Vec<_> = threads
        .into_iter()
        .map(|body| {
            let model = Arc::clone(model);
            thread::spawn(move || body(&model))
        })
        .collect();
    let results: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
    for result in results {
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Two writers, two readers by calls, two direct readers (with and without the NIC), and one whose replies are sent
/// from the frames.
fn readers_and_writers(frames: u32, operations: usize) -> Arc<Model> {
    let model = Arc::new(Model::new(frames));
    let mut threads: Vec<Body> = Vec::new();
    for seed in 1..=2 {
        threads.push(Box::new(move |model| {
            let mut random = Random(seed * 77);
            for _ in 0..operations {
                model.write(&mut random);
            }
        }));
        threads.push(Box::new(move |model| {
            let mut random = Random(seed * 99);
            for _ in 0..operations {
                model.read(&mut random);
            }
        }));
        threads.push(Box::new(move |model| {
            let view = (seed == 1).then(|| model.world.view());
            model.read_directly(&mut Random(seed * 55), view.as_ref(), operations * 2);
        }));
    }
    threads.push(Box::new(move |model| {
        let mut random = Random(1234);
        for _ in 0..operations {
            model.read_pinned(&mut random);
        }
    }));
    run(&model, threads);
    // All frames are accounted for.
    let arena = model.world.export.arena();
    for frame in (0..arena.frames()).map(FrameNumber) {
        assert!(!arena.is_pinned(frame));
    }
    model
}

/// Runs [`readers_and_writers`] until every route was tested: on a busy machine some threads end before others begin.
#[cfg(not(shuttle))]
fn by_every_route(frames: u32, operations: usize, check: impl Fn(&Model)) {
    for _ in 0..50 {
        let model = readers_and_writers(frames, operations);
        check(&model);
        let tested = |checked: &AtomicU64| checked.load(Ordering::Relaxed) > 0;
        if model.checked.iter().all(tested) {
            return;
        }
    }
    panic!("some route was never tested");
}

#[cfg(not(shuttle))]
#[test]
fn pages_are_linearizable_by_every_route() {
    by_every_route((FILES * PAGES) as u32 + 20, 3000, |_| ());
}

#[cfg(not(shuttle))]
#[test]
fn pages_are_linearizable_while_memory_is_short() {
    by_every_route(14, 2000, |model| {
        assert!(model.world.export.metrics().evictions.get() > 100);
    });
}

/// The same under many schedules, each the seed's alone.
#[cfg(shuttle)]
#[test]
fn pages_are_linearizable_under_any_schedule() {
    odafs_fabric::sim::explore(1, 60, || drop(readers_and_writers(6, 12)));
    odafs_fabric::sim::explore(1000, 60, || drop(readers_and_writers(60, 12)));
}

#[cfg(shuttle)]
#[test]
fn sizes_and_gates_come_and_go_under_any_schedule() {
    odafs_fabric::sim::explore(1, 60, || resizing(12));
}

#[cfg(not(shuttle))]
#[test]
fn sizes_and_gates_come_and_go() {
    resizing(1500);
}

/// Someone truncates, extends and makes holes, the observer and SETATTR close gates: what is read is a page or zeros.
fn resizing(operations: usize) {
    let model = Arc::new(Model::new(24));
    let resize = |model: &Model, size: u64| {
        let new = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        let object = model.files[0].object();
        set_attributes(&model.world.export, &owner(), object, &new, None).expect("resized");
    };
    let mut threads: Vec<Body> = Vec::new();
    threads.push(Box::new(move |model| {
        let mut random = Random(5);
        for _ in 0..operations / 4 {
            resize(model, random.below(PAGES * PAGE as usize) as u64);
            let page = random.below(PAGES);
            let data = content(0, page, 1);
            let offset = page as u64 * PAGE;
            let export = &model.world.export;
            write(
                export,
                &owner(),
                &model.files[0],
                offset,
                &data,
                Stable::Unstable,
            )
            .expect("written");
            // To the end of a page, so that there is no content behind zeros.
            let offset = random.below(PAGES * PAGE as usize) as u64;
            let length = PAGE - offset % PAGE + random.below(3) as u64 * PAGE;
            let hole = Range { offset, length };
            deallocate(export, &owner(), &model.files[0], hole).expect("a hole");
        }
        model.over.store(true, Ordering::SeqCst);
    }));
    threads.push(Box::new(|model| {
        while !model.over.load(Ordering::SeqCst) {
            change::observe(&model.world.export, std::time::Duration::from_millis(1));
        }
    }));
    for seed in 1..=2 {
        threads.push(Box::new(move |model| {
            let view = model.world.view();
            let client = model.world.client(&owner());
            let mut random = Random(seed);
            let mut data = vec![0; PAGE as usize];
            for _ in 0..operations {
                let page = random.below(PAGES);
                let range = ReadRange {
                    offset: page as u64 * PAGE,
                    count: PAGE as u32,
                };
                let (export, file) = (&model.world.export, &model.files[0]);
                let done =
                    read(export, &owner(), file, range, Effort::MayBlock, &mut data).expect("read");
                assert_page_or_zeros(page, &data[..done.count as usize]);
                if let Some(reference) = client.reference(file, page as u64) {
                    let into = &mut data[..reference.length as usize];
                    if view.read(reference.address, into, reference.epoch) {
                        assert_page_or_zeros(page, into);
                    }
                }
            }
        }));
    }
    run(&model, threads);
    assert_eq!(model.world.export.metrics().outside_changes.get(), 0);
}

fn assert_page_or_zeros(page: usize, data: &[u8]) {
    let versions: Vec<Vec<u8>> = (0..2).map(|version| content(0, page, version)).collect();
    let split = data
        .iter()
        .zip(&versions[0])
        .zip(&versions[1])
        .position(|((byte, old), new)| byte != old && byte != new)
        .unwrap_or(data.len());
    // A page that was cut and has grown again: its beginning, then zeros.
    assert!(
        data[split..].iter().all(|byte| *byte == 0),
        "page {page}: neither content nor zeros from byte {split} of {}",
        data.len()
    );
}
