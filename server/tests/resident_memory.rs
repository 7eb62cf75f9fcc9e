//! A READ of what is in memory ends on the thread that polls and allocates nothing, whichever program it is of.

#![cfg(not(shuttle))]
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;

use odafs_common::page::{Layout, PageSize};
use odafs_common::wire::nfs4::{CallWriter, FileHandle, Opaque, Operation, ReadArgs, StateId};
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Encode as _, Writer};
use odafs_common::wire::{nfs3, nfs4};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_nic::calls::{Caller, Calls as _, Notes, Outcome, Placements, Transport};
use odafs_server::access::Access;
use odafs_server::config::{MinorVersions, Squash};
use odafs_server::drc::{Bounds, DuplicateCache};
use odafs_server::export::{Exports, ExportsConfig};
use odafs_server::nfs3::Nfs3;
use odafs_server::nfs4::{CACHED_BYTES, Config, Nfs4, OwnersConfig, Records};
use odafs_server::rpc::{Program, Service};
use odafs_server::store::{CreateHow, Credential, MemoryStore, SetAttributes, Store as _};

#[path = "common/allocator.rs"]
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

const BYTES: u32 = 4096;

/// A server of one file, and the file's handle.
fn server() -> (Service, Vec<u8>) {
    let store = Arc::new(MemoryStore::new(1));
    let (who, root) = (Credential::of(1000, 1000, &[]), store.root());
    let new = SetAttributes {
        mode: Some(0o644),
        ..SetAttributes::default()
    };
    let made = store.create(&who, root, b"file", CreateHow::Guarded(&new));
    let file = made.expect("a file").object;
    let wrote = store.write_at(&who, file, 0, &[7; BYTES as usize]);
    assert_eq!(wrote.expect("written"), BYTES as usize);
    let arena = ArenaConfig {
        frames: 64,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: false,
        populate: false,
    };
    let arena = Arc::new(Arena::create(&arena).expect("memory"));
    let export = Arc::new(Exports::new(ExportsConfig::default(), store, arena));
    let handle = export.handle(file).to_vec();
    let four = Config {
        minors: MinorVersions::ALL,
        lease: Nanos::from_secs(3600),
        boot: 1,
        records: Records::read("", |_| Ok(())),
        owners: OwnersConfig::default(),
        cached_bytes: CACHED_BYTES,
    };
    let programs: Vec<Box<dyn Program>> = vec![
        Box::new(Nfs3::new(Arc::clone(&export))),
        Box::new(Nfs4::new(export, four)),
    ];
    let access = Arc::new(Access::new(Vec::new(), Squash::All, who));
    let duplicates = DuplicateCache::new(Bounds::default());
    (Service::new(programs, access, duplicates, false), handle)
}

fn message(
    program: (u32, u32),
    procedure: u32,
    arguments: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    rpc::call(&mut w, 1, program.0, program.1, procedure, &Auth::None);
    arguments(&mut w);
    message
}

#[test]
fn a_read_of_what_is_in_memory_allocates_nothing() {
    let (service, handle) = server();
    let caller = Caller {
        peer: Peer::Simulated(1),
        local: None,
        connection: 1,
        transport: Transport::Sim,
        reply_bytes_max: 1 << 20,
        placements: Placements::default(),
        apart: None,
        back: None,
        notes: Notes::default(),
    };
    let three = nfs3::ReadArgs {
        file: nfs3::FileHandle(&handle),
        offset: 0,
        count: BYTES,
    };
    let procedure = nfs3::Procedure::Read.code();
    let three = message((nfs3::PROGRAM, nfs3::VERSION), procedure, |w| {
        three.encode(w)
    });
    let procedure = nfs4::Procedure::Compound.code();
    let four = message((nfs4::PROGRAM, nfs4::VERSION), procedure, |w| {
        let read = ReadArgs {
            state: StateId::ANONYMOUS,
            offset: 0,
            count: BYTES,
        };
        CallWriter::compound(w, Opaque(b""), 0)
            .push(&Operation::PutFileHandle(FileHandle(&handle)))
            .push(&Operation::Read(read))
            .finish();
    });
    let mut reply = Vec::with_capacity(2 * BYTES as usize);
    for call in [&three, &four] {
        // The first one may have to wait for the store.
        reply.clear();
        let mut outcome = service.call(&caller, call, &mut reply);
        while let Outcome::Deferred(job) = outcome {
            outcome = job.run(&mut reply);
        }
        // All are counted, and one in 16 is timed.
        for _ in 0..40 {
            reply.clear();
            let before = ASKED.get();
            let outcome = service.call(&caller, call, &mut reply);
            let asked = ASKED.get() - before;
            assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
            assert!(reply.len() > BYTES as usize, "{} bytes", reply.len());
            assert_eq!(asked, 0);
        }
    }
}
