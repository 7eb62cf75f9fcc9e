//! A service that looks up rows allocates nothing once it runs.

use odafs::{Cache, Client, File, FileRequest, Options, Route, RouteTaken, Transfer, Url};
use odafs_server::{
    config::{Direct, ServerConfig},
    server::Server,
};
use std::{cell::Cell, fs};

#[path = "../../server/tests/common/allocator.rs"]
mod allocator;

thread_local! {
    /// How often this thread asked for memory.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: allocator::Told = allocator::Told(|_| {
    // A thread that ends has no counter any more.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
});

/// How often `work` asked for memory on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

const ROW: usize = 256;
const ROWS: u64 = 4096;

fn row(number: u64) -> [u8; ROW] {
    let mut row = [number as u8; ROW];
    row[..8].copy_from_slice(&number.to_le_bytes());
    row
}

/// A server of shared memory with a table, and a client with this route, or the default one.
fn with_table(route: Option<Route>, test: impl FnOnce(&odafs::Table)) {
    let fixed = |options: &mut Options| {
        if let Some(route) = route {
            options.route = route;
            options.cache = Cache::Off;
        }
    };
    with_options(fixed, test);
}

/// A server of shared memory with a table, and a client with these options.
fn with_options(set: impl FnOnce(&mut Options), test: impl FnOnce(&odafs::Table)) {
    let place = tempfile::tempdir().expect("a directory");
    let table: Vec<u8> = (0..ROWS).flat_map(row).collect();
    for name in ["table", "second", "third"] {
        fs::write(place.path().join(name), &table).expect("a file");
    }
    let socket = place.path().join("socket");
    let server = Server::start(ServerConfig {
        state: Some(place.path().join("state")),
        nfs: None,
        shm: Some(socket.clone()),
        direct: Direct::OneSided,
        cache_bytes: 16 << 20,
        huge_pages: false,
        ..ServerConfig::new(place.path())
    })
    .expect("a server");
    let url: Url = format!("odafs+shm://{}?/", socket.display())
        .parse()
        .expect("a URL");
    let mut options = Options::default();
    set(&mut options);
    let client = Client::connect_with(&url, options).expect("a client");
    test(&client.table("table", ROW).expect("a table"));
    drop(server);
}

fn rows_come_without_allocations(route: Option<Route>) {
    with_table(route, |table| {
        let wanted: Vec<u64> = (0..1000).map(|at| at * 2_654_435_761 % ROWS).collect();
        let (mut one, mut many) = ([0; ROW], vec![0; wanted.len() * ROW]);
        // The first ones bring references; the default route is settled by comparing routes.
        let settled = |one: &mut [u8; ROW]| {
            let trace = table.file().read_traced(one, 0).expect("a read");
            trace
                .steps
                .iter()
                .all(|step| step.taken == RouteTaken::OneSided)
        };
        for number in (0..ROWS).chain(0..ROWS) {
            table.get(number, &mut one).expect("a row");
        }
        for _ in 0..200 {
            table.get_many(&wanted, &mut many).expect("rows");
        }
        assert!(settled(&mut one), "not read one-sided");
        let rounds = 50;
        let asked: Vec<u64> = (0..rounds)
            .map(|_| allocations(|| table.get_many(&wanted, &mut many).expect("rows")))
            .collect();
        for (number, row) in wanted.iter().zip(many.chunks(ROW)) {
            assert_eq!(row, self::row(*number));
        }
        let single: Vec<u64> = (0..ROWS)
            .map(|number| {
                let asked = allocations(|| table.get(number, &mut one).expect("a row"));
                assert_eq!(one, row(number));
                asked
            })
            .collect();
        match route {
            Some(_) => {
                assert_eq!(asked.iter().sum::<u64>(), 0, "by get_many");
                assert_eq!(single.iter().sum::<u64>(), 0, "by get");
            }
            // Now and then the policy tries another route, whose calls allocate.
            None => {
                let none = |asked: &[u64]| asked.iter().filter(|asked| **asked == 0).count();
                assert!(none(&asked) * 10 >= asked.len() * 8, "by get_many");
                assert!(none(&single) * 10 >= single.len() * 9, "by get");
            }
        }
    });
}

#[test]
fn rows_come_without_allocations_one_sided() {
    rows_come_without_allocations(Some(Route::OneSided));
}

#[test]
fn rows_come_without_allocations_by_default() {
    rows_come_without_allocations(None);
}

#[test]
fn a_batch_over_several_files_allocates_nothing() {
    with_table(Some(Route::OneSided), |table| {
        let client = table.file().client();
        let open = |name: &str| client.open(name).expect("a file");
        let files: Vec<File> = ["table", "second", "third"].map(open).into();
        let mut rows = vec![[0; ROW]; 999];
        let read = |rows: &mut [[u8; ROW]]| {
            let each = rows.len() / files.len();
            let mut requests: Vec<_> = rows
                .iter_mut()
                .enumerate()
                .map(|(at, into)| {
                    let offset = at as u64 * 2_654_435_761 % ROWS * ROW as u64;
                    FileRequest::new(&files[at / each], offset, into)
                })
                .collect();
            allocations(|| client.read_batch(&mut requests).expect("rows"))
        };
        // The first ones bring references.
        for _ in 0..20 {
            read(&mut rows);
        }
        let direct = client.statistics().one_sided_hits;
        for _ in 0..20 {
            assert_eq!(read(&mut rows), 0);
        }
        for (at, read) in (0..).zip(&rows) {
            assert_eq!(*read, row(at * 2_654_435_761 % ROWS));
        }
        let direct = client.statistics().one_sided_hits - direct;
        assert_eq!(direct, 20 * rows.len() as u64);
    });
}

#[test]
fn a_read_by_rdma_write_allocates_for_its_call_alone() {
    with_options(
        |options| {
            options.route = Route::Rpc;
            options.cache = Cache::Off;
            options.transfer = Transfer::Direct;
        },
        |table| {
            let mut page = [0; 4096];
            let mut read = |at: u64| {
                let offset = at * 4096;
                allocations(|| assert_eq!(table.file().read_at(&mut page, offset).ok(), Some(4096)))
            };
            // The first one makes the sink.
            read(0);
            for at in 1..20 {
                // The call, in the row of those to make and in that of those under way.
                assert_eq!(read(at), 2);
            }
        },
    );
}

#[test]
fn a_batch_over_several_files_finds_its_route() {
    // Where pages are kept, all reads may be hits, and there is nothing to compare.
    with_options(
        |options| options.cache = Cache::Off,
        |table| {
            let client = table.file().client();
            let files: Vec<File> = ["table", "second", "third"]
                .map(|name| client.open(name).expect("a file"))
                .into();
            let mut rows = vec![[0; ROW]; 99];
            let direct = |_| {
                let before = client.statistics().rpc_reads;
                let mut requests: Vec<_> = rows
                    .iter_mut()
                    .enumerate()
                    .map(|(at, into)| FileRequest::new(&files[at / 33], (at * ROW) as u64, into))
                    .collect();
                client.read_batch(&mut requests).expect("rows");
                client.statistics().rpc_reads == before
            };
            // The policy compares routes first, and now and then later.
            let direct: Vec<bool> = (0..10_000).map(direct).collect();
            let late = direct[9500..].iter().filter(|direct| **direct).count();
            let counted = client.statistics();
            assert!(counted.policy_trials > 0, "{counted:?}");
            assert!(late >= 400, "{late} of 500: {counted:?}");
        },
    );
}

#[test]
fn a_row_that_is_not_there_is_named() {
    with_table(None, |table| {
        assert_eq!(table.rows().expect("the size"), ROWS);
        assert_eq!(table.row_bytes(), ROW);
        let mut out = [0; 3 * ROW];
        for missing in [ROWS, u64::MAX] {
            let error = table
                .get(missing, &mut out[..ROW])
                .expect_err("no such row");
            assert!(matches!(
                error,
                odafs::ReadError::EndOfFile { bytes: 0, .. }
            ));
            let error = table.get_many(&[1, missing, 2], &mut out);
            let error = error.expect_err("no such row").to_string();
            assert!(error.contains("table"), "{error}");
        }
        table.get_many(&[], &mut []).expect("nothing");
        table.get_many(&[5, 5, ROWS - 1], &mut out).expect("rows");
        assert_eq!(out[..ROW], row(5));
        assert_eq!(out[ROW..][..ROW], row(5));
        assert_eq!(out[2 * ROW..], row(ROWS - 1));
    });
}
