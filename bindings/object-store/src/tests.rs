//! What no program can bring about from outside: orders of calls of several processes, and calls whose answer is lost.

#[path = "../tests/served/mod.rs"]
mod served;

use crate::{
    fault::Kind,
    lock::{self, Lock, Patience},
    names::{self, Place},
    objects::{Mode, Objects},
};
use odafs::{Client, fs::FileHandle};
use served::Served;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

const LONG: Duration = Duration::from_secs(3600);

fn objects(served: &Served) -> Objects {
    Objects::new(Client::connect(&served.shm).unwrap())
}

/// The file of somebody's lock.
fn lock_file(objects: &Objects, name: &str) -> FileHandle {
    let made = objects.fs.create(&objects.fs.root(), name, &lock::how());
    made.unwrap().handle
}

#[test]
fn only_a_dead_holders_lock_is_taken_away() {
    let served = Served::start();
    let (waiting, next) = (objects(&served), objects(&served));
    let (root, name) = (waiting.fs.root(), names::lock("a"));
    let dead = lock_file(&waiting, &name);
    lock::remove(&waiting, &root, &name, dead);
    assert!(served.names().is_empty());
    // Another has taken the dead one's away, and holds the lock now.
    let _held = lock_file(&next, &name);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let third = scope.spawn(|| {
            while !stop.load(Relaxed) {
                let made = next.fs.create(&root, &name, &lock::how());
                assert!(made.is_err(), "two hold the lock");
            }
        });
        for _ in 0..500 {
            lock::remove(&waiting, &root, &name, dead);
        }
        stop.store(true, Relaxed);
        third.join().unwrap();
    });
    assert_eq!(served.names(), [name]);
}

#[test]
fn a_lock_is_waited_for_until_its_holder_is_dead_or_the_time_is_over() {
    let served = Served::start();
    let objects = objects(&served);
    let (root, name) = (objects.fs.root(), names::lock("a"));
    lock_file(&objects, &name);
    let take = |dead, whole| {
        let patience = Patience { dead, whole };
        Lock::take_within(&objects, &root, name.clone(), "a", patience)
    };
    let Err(fault) = take(LONG, Duration::from_millis(50)) else {
        panic!("two hold the lock");
    };
    assert!(fault.cause.to_string().contains(&name), "{}", fault.cause);
    let lock = take(Duration::from_millis(50), LONG).ok();
    assert!(lock.is_some_and(|lock| lock.check("a").is_ok()));
    assert!(served.names().is_empty());
}

#[test]
fn what_is_in_its_place_is_told_as_put() {
    let served = Served::start();
    let (objects, other, root) = (objects(&served), served.other(), served.other().root());
    let draft = |location: &str| objects.draft(&Place::of(location).unwrap()).unwrap();
    let hidden = || {
        served
            .names()
            .into_iter()
            .find(|name| names::is_hidden(name))
    };

    // The hidden name cannot be removed any more.
    let created = draft("a");
    other
        .rename(&root, hidden().unwrap(), &root, "kept")
        .unwrap();
    assert!(created.publish(&Mode::Create).unwrap().is_some());

    // The answer of a rename was lost, and the call repeated.
    let renamed = draft("b");
    other.rename(&root, hidden().unwrap(), &root, "b").unwrap();
    assert!(renamed.publish(&Mode::Overwrite).unwrap().is_some());
    assert_eq!(served.names(), ["a", "b", "kept"]);

    // That of a link.
    let linked = draft("c");
    let handle = other.lookup(&root, hidden().unwrap()).unwrap().handle;
    other.link(&handle, &root, "c").unwrap();
    linked.publish(&Mode::Create).unwrap();
    assert_eq!(served.names(), ["a", "b", "c", "kept"]);

    // Another's object is not taken for one's own.
    let fault = draft("c").publish(&Mode::Create).unwrap_err();
    assert_eq!(fault.kind, Kind::Exists);
    let lost = draft("c");
    other.unlink(&root, hidden().unwrap()).unwrap();
    lost.publish(&Mode::Overwrite).unwrap_err();
}

#[test]
fn a_directory_that_is_gone_is_not_an_empty_one() {
    let served = Served::start();
    let (objects, other) = (objects(&served), served.other());
    std::fs::create_dir(served.files.join("d")).unwrap();
    let handle = other.resolve("d", true).unwrap().handle;
    other.rmdir(&other.root(), "d").unwrap();
    // As a listing finds it that has looked the name up before.
    let Err(fault) = objects.entries("d", &handle) else {
        panic!("it was listed");
    };
    assert_eq!(fault.kind, Kind::Changed);
    assert!(objects.list("d").unwrap().is_empty());
}
