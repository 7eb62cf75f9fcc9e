//! A writer that changes files behind the server's back, what clients may see of that, and that all of it is seen in the end.

use crate::history::{History, PagePosition};
use crate::life::UID;
use crate::world::{OUTSIDE, PAGES, World, below, connect, name_of, page_of, value_of};
use odafs::{Cache, Client, File, Route, RpcOver};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Mutex};
use odafs_server::store::{
    CreateHow, Credential, MemoryStore, ObjectId, OutsideChange, SetAttributes, Store,
};
use odafs_tests::linear::Action;
use odafs_tests::page::PAGE;

/// The number of logs.
const LOGS: u64 = 3;
/// Bytes of a record of the log; all are in one page.
const RECORD: usize = 512;
const RECORDS: usize = PAGE / RECORD;
/// How often something is tried that must succeed in the end.
const ATTEMPTS: u32 = 20;

/// A file of records. The outside writer appends, and clients write a record behind the end with a gap. Once the outside writer
/// has appended a record, nobody may read zeros there before a client's later record.
pub struct Log {
    name: String,
    object: ObjectId,
    store: Arc<MemoryStore>,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// Records of the outside writer, and when each was complete.
    outside: Vec<(usize, u64)>,
    /// Records of clients, and when each write began.
    ours: Vec<(usize, u64)>,
}

impl Log {
    /// Empty logs.
    pub fn some(store: &Arc<MemoryStore>) -> Vec<Self> {
        (0..LOGS)
            .map(|number| Self::new(store, format!("log-{number}")))
            .collect()
    }

    fn new(store: &Arc<MemoryStore>, name: String) -> Self {
        let who = Credential::of(UID, UID, &[]);
        let new = SetAttributes {
            mode: Some(0o666),
            ..SetAttributes::default()
        };
        let how = CreateHow::Unchecked(&new);
        let made = store.create(&who, store.root(), name.as_bytes(), how);
        Self {
            name,
            object: made.expect("create").object,
            store: Arc::clone(store),
            written: Mutex::default(),
        }
    }

    pub fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Records that there are.
    fn end(&self) -> usize {
        let now = self.store.getattr(self.object).expect("there");
        (now.size as usize).div_ceil(RECORD)
    }

    /// The outside writer appends a record.
    fn append(&self, history: &History) {
        let record = self.end();
        if record >= RECORDS {
            return;
        }
        let change = OutsideChange::Write {
            offset: (record * RECORD) as u64,
            data: &[0xAA; RECORD],
        };
        let appended = self.store.outside_change(self.object, change);
        appended.expect("outside change");
        self.written.lock().outside.push((record, history.now()));
    }

    /// A client writes behind the end, with a gap. Returns false if it could not.
    fn write(&self, file: &File, history: &History) -> bool {
        let record = self.end() + 1;
        if record >= RECORDS {
            return true;
        }
        self.written.lock().ours.push((record, history.now()));
        file.write_at(&[0xBB; RECORD], (record * RECORD) as u64)
            .is_ok()
    }

    /// A client reads the whole log. Returns false if it could not.
    pub fn read(&self, file: &File, history: &History) -> bool {
        let mut page = [0; PAGE];
        let Ok(bytes) = file.read_at(&mut page, 0) else {
            return false;
        };
        let is_there = |record: usize| record * RECORD < bytes && page[record * RECORD] != 0;
        let written = self.written.lock();
        for (ours, began) in &written.ours {
            for (outside, over) in &written.outside {
                assert!(
                    !is_there(*ours) || outside >= ours || over >= began || is_there(*outside),
                    "record {outside}, appended before record {ours} was written, is not there\n{}",
                    history.check()
                );
            }
        }
        true
    }
}

/// Writes pages behind the server's back. Nothing promises when clients see that.
pub fn outsider(world: &World, store: &MemoryStore, file: ObjectId) {
    for _ in 0..3 {
        clock::sleep(Nanos::from_micros(below(500)));
        world.log().append(&world.history);
        let page = below(PAGES.into()) as u8;
        let (invoked, value) = (world.history.now(), world.history.fresh_value());
        let (offset, data) = (u64::from(page) * PAGE as u64, page_of(value));
        let data = &data[..];
        let all_at_once = [OutsideChange::Write { offset, data }];
        // The times change first, the bytes later.
        let in_turn = [
            OutsideChange::BeginWrite,
            OutsideChange::EndWrite { offset, data },
        ];
        let changes = match below(2) {
            0 => &all_at_once[..],
            _ => &in_turn[..],
        };
        for change in changes {
            store.outside_change(file, *change).expect("outside change");
            clock::sleep(Nanos::from_micros(below(300)));
        }
        let action = Action::Write {
            value,
            stable: false,
        };
        world
            .history
            .record("outsider", [(OUTSIDE, page)], invoked, action, false);
    }
}

/// Writes to the logs, often right behind what the outside writer has just appended.
pub fn scribe(world: &World) {
    let Ok(client) = connect(world, RpcOver::Messages, (Route::Rpc, Cache::Off)) else {
        return world.failed("the scribe cannot connect");
    };
    for _ in 0..2 * LOGS {
        let log = world.log();
        let Ok(file) = client.open(log.path()) else {
            world.failed("the scribe cannot open");
            continue;
        };
        // So it is in memory.
        let _ = log.read(&file, &world.history);
        if below(4) != 0 {
            log.append(&world.history);
        }
        if !log.write(&file, &world.history) {
            world.failed("the scribe cannot write");
        }
    }
}

/// Reads the logs meanwhile.
pub fn reader(world: &World) {
    let route = [Route::OneSided, Route::Guarded, Route::Rpc][below(3) as usize];
    let Ok(client) = connect(world, RpcOver::Messages, (route, Cache::Off)) else {
        return world.failed("the reader of logs cannot connect");
    };
    for _ in 0..8 * LOGS {
        let log = world.log();
        let file = client.open(log.path());
        if !file.is_ok_and(|file| log.read(&file, &world.history)) {
            world.failed("the reader cannot read a log");
        }
    }
}

/// A client reads during a write of the outside writer whose times are visible already, and whose bytes come late. So the page
/// is in memory.
fn read_beside_a_long_write(client: &Client, world: &World, store: &MemoryStore, file: ObjectId) {
    let begin = store.outside_change(file, OutsideChange::BeginWrite);
    begin.expect("outside change");
    at_last(world, "the outside writer's file cannot be read", || {
        let file = client.open(format!("/{}", name_of(OUTSIDE))).ok()?;
        file.read_at(&mut [0; PAGE], 0).ok()
    });
    let data = page_of(world.history.fresh_value());
    let end = OutsideChange::EndWrite {
        offset: 0,
        data: &data,
    };
    store.outside_change(file, end).expect("outside change");
    world.tally.lock().all.outside_of_cached += 1;
}

/// Tries until it succeeds: a connection may be cut once more, and a deadline pass early, but in the end all must be served.
fn at_last<T>(world: &World, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..ATTEMPTS {
        if let Some(done) = attempt() {
            return done;
        }
        world.failed(&format!("{what} at last"));
        clock::sleep(Nanos::from_secs(1));
    }
    panic!("{what} at last\n{}", world.history.check());
}

/// Checks, after all clients have ended and the server has had time to look, that a read returns what the store holds, and that
/// some are direct.
pub fn look_at_last(world: &World, store: &MemoryStore, files: &[ObjectId]) {
    let client = at_last(world, "nobody can connect", || {
        connect(world, RpcOver::Messages, (Route::Rpc, Cache::Off)).ok()
    });
    read_beside_a_long_write(&client, world, store, files[usize::from(OUTSIDE)]);
    clock::sleep(Nanos::from_secs(5));
    for (number, object) in files.iter().enumerate() {
        let number = number as u8;
        for page in 0..PAGES {
            read_what_is_stored(&client, world, store, *object, (number, page));
        }
    }
    for log in &world.logs {
        at_last(world, "a log cannot be read", || {
            let file = client.open(log.path()).ok()?;
            log.read(&file, &world.history).then_some(())
        });
    }
    let client = at_last(world, "nobody gets a session", || {
        connect(world, RpcOver::Messages, (Route::Guarded, Cache::Off)).ok()
    });
    let direct = at_last(world, "nobody reads directly", || {
        let before = client.statistics().direct_hits;
        // The first brings a reference, and the second uses it.
        for _ in 0..2 {
            read_what_is_stored(&client, world, store, files[0], (0, 0));
        }
        Some(client.statistics().direct_hits - before).filter(|direct| *direct > 0)
    });
    if world.kills > 0 {
        world.tally.lock().all.direct_after_kill += direct;
    }
}

fn read_what_is_stored(
    client: &Client,
    world: &World,
    store: &MemoryStore,
    object: ObjectId,
    place: PagePosition,
) {
    let (number, page) = place;
    let (mut seen, mut stored) = (vec![0; PAGE], vec![0; PAGE]);
    let at = u64::from(page) * PAGE as u64;
    let bytes = at_last(world, "a file cannot be read", || {
        let file = client.open(format!("/{}", name_of(number))).ok()?;
        file.read_at(&mut seen, at).ok()
    });
    let there = store.read_at(object, at, &mut stored).expect("read");
    let value = value_of(&seen[..bytes], &world.history, place);
    let now = value_of(&stored[..there], &world.history, place);
    assert_eq!(value, now, "{place:?} at last\n{}", world.history.check());
}
