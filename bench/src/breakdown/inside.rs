//! The terms that one processor does alone: MAC, judgement, host VM, copy, and
//! the server's file system.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use odafs_common::direct::{Attach, Request};
use odafs_common::mac::{MacAlgorithm, MacKey};
use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::{AccessKey, Epoch, Handle};
use odafs_common::session::SessionKey;
use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::odafs as wire;
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Encode as _, Writer};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaConfig, FrameNumber};
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Caller, Calls as _, ChunkSource, Notes, Outcome, Placements, Transport};
use odafs_nic::capability::{NewSession, ReaderClass};
use odafs_nic::connection::Connection;
use odafs_nic::host_vm::{HostVm, QueuedVm, SharedVm};
use odafs_nic::nic::{Nic, NicConfig, Verdict};
use odafs_nic::tpt::TptEntry;
use odafs_server::access::Access;
use odafs_server::config::Squash;
use odafs_server::drc::{Bounds, DuplicateCache};
use odafs_server::export::{Exports, ExportsConfig};
use odafs_server::file::File;
use odafs_server::odafs::{Odafs, SessionPolicy};
use odafs_server::read::{Effort, ReadRange, read};
use odafs_server::rpc::Service;
use odafs_server::store::memory::MemoryStore;
use odafs_server::store::{CreateHow, Credential, SetAttributes, Store};

use super::{Term, batches};
use crate::random::Random;

const PAGE: usize = 4096;

/// Number of repetitions that are timed together.
const BATCH: usize = 256;

/// Bytes of the file whose pages are read for T_FS: all of them stay resident.
const FILE_BYTES: u64 = 32 << 20;

const NONCE: [u8; 16] = [3; 16];
const CLASS: ReaderClass = ReaderClass(70);
const MACS: [(&str, MacAlgorithm); 2] = [
    ("hmac-sha256", MacAlgorithm::HmacSha256),
    ("blake3", MacAlgorithm::Blake3),
];

/// The arena, NIC and export on which the terms are measured.
pub struct Inside {
    arena: Arc<Arena>,
    entries: Arc<Vec<TptEntry>>,
    export: Arc<Exports>,
    file: Arc<File>,
    random: RefCell<Random>,
}

impl Inside {
    /// An arena of published frames, and an export of a file in memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(set_bytes: u64) -> Result<Self> {
        let arena = arena((set_bytes / PAGE as u64) as u32)?;
        let page = vec![7; PAGE];
        let entries = (0..arena.frames())
            .map(|number| {
                let frame = FrameNumber(number);
                arena.copy_in(frame, 0, &page);
                TptEntry {
                    frame,
                    address: u64::from(number) * PAGE as u64,
                    length: PAGE as u32,
                    key: AccessKey(u64::from(number) * 77),
                    epoch: arena.publish(frame),
                    class: CLASS,
                }
            })
            .collect();
        let (export, file) = export()?;
        Ok(Self {
            arena,
            entries: Arc::new(entries),
            export,
            file,
            random: RefCell::new(Random::new(1)),
        })
    }

    /// Page size of the memory of the arena, in bytes.
    pub fn backing_bytes(&self) -> u64 {
        u64::from(self.arena.backing_bytes())
    }

    /// All terms.
    pub fn terms(&self) -> Vec<Term<'_>> {
        let mut terms = Vec::new();
        for (name, mac) in MACS {
            terms.push(mac_term(name, mac, false));
            terms.push(mac_term(name, mac, true));
        }
        for queued in [false, true] {
            terms.push(self.lock_term(queued));
            terms.push(self.fault_term(queued));
        }
        for (name, mac) in MACS {
            for (queued, misses) in [(false, false), (true, false), (false, true)] {
                terms.push(self.judge_term(name, mac, queued, misses));
            }
            terms.push(self.stale_term(name, mac));
        }
        terms.extend([64, PAGE].map(|size| self.copy_term(size)));
        terms.extend([64, PAGE].map(|size| self.read_term(size)));
        terms.extend([64, PAGE].map(|size| self.call_term(size)));
        terms
    }

    /// A random entry of the set.
    fn entry(&self) -> TptEntry {
        self.entries[self.random.borrow_mut().below(self.entries.len() as u64) as usize]
    }

    fn draw(&self) -> Vec<TptEntry> {
        (0..BATCH).map(|_| self.entry()).collect()
    }

    fn vm(&self, queued: bool) -> Arc<dyn HostVm> {
        let entries = Arc::clone(&self.entries);
        let fault = move |handle: Handle| {
            entries
                .get(handle.0 as usize)
                .copied()
                .ok_or(odafs_common::exception::Exception::NotResident)
        };
        let shared = Arc::new(SharedVm::new(Arc::clone(&self.arena), Arc::new(fault)));
        if queued {
            Arc::new(QueuedVm::new(shared))
        } else {
            shared
        }
    }

    fn lock_term(&self, queued: bool) -> Term<'_> {
        let vm = self.vm(queued);
        Term::alone(
            "T_exc",
            format!("host VM {}: lock, reference, unlock", vm_name(queued)),
            0,
            move |time| {
                batches(
                    time,
                    || self.draw(),
                    |entry| {
                        if let Ok(pin) = vm.lock(&entry, entry.epoch) {
                            vm.reference(entry.frame);
                            vm.unlock(pin);
                        }
                    },
                )
            },
        )
    }

    fn fault_term(&self, queued: bool) -> Term<'_> {
        let vm = self.vm(queued);
        Term::alone(
            "T_exc",
            format!("host VM {}: fault (TPT miss)", vm_name(queued)),
            0,
            move |time| {
                batches(
                    time,
                    || self.draw(),
                    |entry| {
                        black_box(vm.fault(Handle(entry.frame.0)).is_ok());
                    },
                )
            },
        )
    }

    /// All that the NIC does for a valid request: verify, translate, check, pin, complete, unpin. With `misses`, its
    /// table has room for a sixteenth of the pages, and the NIC asks the host about the others.
    fn judge_term(&self, name: &str, mac: MacAlgorithm, queued: bool, misses: bool) -> Term<'_> {
        let room = if misses {
            self.entries.len() / 16
        } else {
            self.entries.len() * 2
        };
        let mut nic = Judge::new(self, mac, self.vm(queued), room);
        let table = if misses { ", TPT mostly missed" } else { "" };
        let what = format!(
            "NIC alone, {name}, host VM {}: a read let in, no data moved{table}",
            vm_name(queued)
        );
        let measure = move |time| nic.judge(time, true, || self.draw());
        Term {
            name: "T_exc",
            what,
            wait: "",
            size: 0,
            measure: Box::new(measure),
        }
    }

    /// All that the NIC does for a request whose reference is stale.
    fn stale_term(&self, name: &str, mac: MacAlgorithm) -> Term<'_> {
        let mut nic = Judge::new(self, mac, self.vm(false), self.entries.len() * 2);
        let outdated = || {
            let spoil = |entry: TptEntry| TptEntry {
                key: AccessKey(entry.key.0 ^ 1),
                ..entry
            };
            self.draw().into_iter().map(spoil).collect()
        };
        let what = format!("NIC alone, {name}: a read refused");
        let measure = move |time| nic.judge(time, false, outdated);
        Term {
            name: "T_stale",
            what,
            wait: "",
            size: 0,
            measure: Box::new(measure),
        }
    }

    fn copy_term(&self, size: usize) -> Term<'_> {
        let mut into = vec![0; size];
        Term::alone(
            "T_copy",
            "from a random page of the set".to_owned(),
            size,
            move |time| {
                batches(
                    time,
                    || self.draw(),
                    |entry| {
                        self.arena.copy_out(entry.frame, 0, &mut into);
                        black_box(&mut into);
                    },
                )
            },
        )
    }

    fn read_term(&self, size: usize) -> Term<'_> {
        let mut into = vec![0; size];
        let who = Credential::of_this_process();
        let pages = FILE_BYTES / PAGE as u64;
        let offsets = move || {
            (0..BATCH)
                .map(|_| self.random.borrow_mut().below(pages) * PAGE as u64)
                .collect()
        };
        Term::alone(
            "T_FS",
            "a resident page found, locked and copied".to_owned(),
            size,
            move |time| {
                batches(time, offsets, |offset| {
                    let range = ReadRange {
                        offset,
                        count: size as u32,
                    };
                    let done = read(
                        &self.export,
                        &who,
                        &self.file,
                        range,
                        Effort::ResidentOnly,
                        &mut into,
                    );
                    black_box(done.is_ok());
                })
            },
        )
    }
}

impl Inside {
    /// All that the server does for an RPC that reads a resident page, except the transport.
    fn call_term(&self, size: usize) -> Term<'_> {
        let who = Credential::of_this_process();
        let odafs = Odafs::new(Arc::clone(&self.export), SessionPolicy::default());
        let access = Access::new(Vec::new(), Squash::default(), who.clone());
        let service = Service::new(
            vec![Box::new(odafs)],
            access.into(),
            DuplicateCache::new(Bounds::default()),
            false,
        );
        let caller = Caller {
            peer: Peer::Uid {
                uid: who.uid,
                gid: who.gid,
                groups: who.groups,
                pid: 1,
            },
            local: None,
            connection: 1,
            transport: Transport::Shm,
            reply_bytes_max: 64 << 10,
            placements: Placements::one(64 << 10),
            apart: None,
            back: None,
            notes: Notes::default(),
        };
        let mut reply = Vec::new();
        let mut into = vec![0; size];
        let pages = FILE_BYTES / PAGE as u64;
        let calls = move || {
            (0..BATCH)
                .map(|_| read_call(&self.file, self.random.borrow_mut().below(pages), size))
                .collect()
        };
        Term::alone(
            "T_FS",
            "a call of READ, from its message to its reply and the page".to_owned(),
            size,
            move |time| {
                batches(time, &calls, |message| {
                    reply.clear();
                    let mut outcome = service.call(&caller, &message, &mut reply);
                    if let Outcome::Deferred(job) = outcome {
                        outcome = job.run(&mut reply);
                    }
                    if let Outcome::Placed(placed) = outcome
                        && let [ChunkSource::Frame { frame, offset, .. }] = &placed.pieces[..]
                    {
                        let arena = self.export.arena();
                        arena.copy_out(frame.frame(), *offset, &mut into);
                    }
                    black_box(&mut into);
                })
            },
        )
    }
}

fn read_call(file: &File, page: u64, size: usize) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    let (program, version) = (wire::PROGRAM, wire::VERSION);
    let procedure = wire::Procedure::Read.code();
    rpc::call(&mut w, 1, program, version, procedure, &Auth::None);
    wire::ReadArgs {
        file: FileHandle(file.handle()),
        offset: page * PAGE as u64,
        count: size as u32,
        session: 0,
        want_references: false,
        chunk: None,
    }
    .encode(&mut w);
    message
}

fn vm_name(queued: bool) -> &'static str {
    if queued { "queued" } else { "shared" }
}

impl<'a> Term<'a> {
    fn alone(
        name: &'static str,
        what: String,
        size: usize,
        mut measure: impl FnMut(Duration) -> (u64, f64) + 'a,
    ) -> Self {
        Self {
            name,
            what,
            wait: "",
            size,
            measure: Box::new(move |time| Ok(measure(time))),
        }
    }
}

fn arena(frames: u32) -> Result<Arc<Arena>> {
    let config = ArenaConfig {
        frames,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: true,
        populate: true,
    };
    Ok(Arc::new(
        Arena::create(&config).context("cannot make an arena")?,
    ))
}

/// An export of one resident file in memory.
fn export() -> Result<(Arc<Exports>, Arc<File>)> {
    let store = MemoryStore::new(1);
    let who = Credential::of_this_process();
    let attributes = SetAttributes {
        mode: Some(0o644),
        ..SetAttributes::default()
    };
    let failed = |what: &str| anyhow!("the store in memory refuses to {what}");
    let made = store
        .create(
            &who,
            store.root(),
            b"file",
            CreateHow::Unchecked(&attributes),
        )
        .map_err(|_| failed("make a file"))?;
    let block = vec![9; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(block.len()) {
        store
            .write_at(&who, made.object, offset, &block)
            .map_err(|_| failed("write"))?;
    }
    let arena = arena((FILE_BYTES / PAGE as u64) as u32 * 5 / 4)?;
    let export = Arc::new(Exports::new(
        ExportsConfig::default(),
        Arc::new(store),
        arena,
    ));
    let file = export.file(made.object).map_err(|_| failed("open"))?;
    let mut into = vec![0; PAGE];
    for offset in (0..FILE_BYTES).step_by(PAGE) {
        let range = ReadRange {
            offset,
            count: PAGE as u32,
        };
        read(&export, &who, &file, range, Effort::MayBlock, &mut into)
            .map_err(|_| failed("read"))?;
    }
    Ok((export, file))
}

fn mac_term<'a>(name: &str, mac: MacAlgorithm, verify: bool) -> Term<'a> {
    let key = MacKey::new(mac, &[5; 32]);
    let verb = if verify { "verify" } else { "make" };
    Term::alone(
        "T_MAC",
        format!("{name}: {verb}"),
        Request::BODY,
        move |time| {
            let messages = || {
                let seal =
                    |i: usize| ([i as u8; Request::BODY], key.tag(&[i as u8; Request::BODY]));
                (0..BATCH).map(seal).collect::<Vec<_>>()
            };
            batches(time, messages, |(message, tag)| match verify {
                true => {
                    black_box(key.verify(&message, &tag));
                }
                false => {
                    black_box(key.tag(&message));
                }
            })
        },
    )
}

/// A NIC with one client attached.
struct Judge {
    nic: Nic,
    connection: Connection,
    key: MacKey,
    request: Request,
}

impl Judge {
    fn new(inside: &Inside, mac: MacAlgorithm, host: Arc<dyn HostVm>, room: usize) -> Self {
        let config = NicConfig {
            tpt_entries: room,
            ..NicConfig::default()
        };
        let nic = Nic::new(config, Arc::clone(&inside.arena), host);
        for entry in inside.entries.iter() {
            nic.tpt_enter(Handle(entry.frame.0), *entry);
        }
        let key = SessionKey::from_bytes([1; 32]);
        let session = nic
            .open_session(NewSession {
                key: key.clone(),
                mac,
                one_sided: false,
                credential: 1,
                expires: Nanos(u64::MAX),
                rekey_requests: u64::MAX / 4,
                rekey_after: Nanos(u64::MAX / 4),
                rekey_grace: Nanos(0),
                now: Nanos(0),
            })
            .expect("it is the first session");
        session.admit(CLASS);
        let mut connection = Connection::new(9, NONCE);
        let attach = Attach {
            session: session.id().0,
            nonce: [4; 16],
            one_sided: false,
        };
        let message = attach.seal(&key.attach_key(), &NONCE);
        if let Verdict::Attach(request) = nic.receive(&mut connection, &message, Nanos(1)) {
            nic.attached(&mut connection, request, None);
        }
        let request = Request {
            mac,
            inline: true,
            marked: false,
            odd_generation: false,
            session: session.id().0,
            connection: 9,
            sink_tag: 0,
            sequence: 0,
            address: 0,
            key: AccessKey(0),
            epoch: Epoch(0),
            sink_offset: 0,
            handle: Handle(0),
            length: PAGE as u32,
        };
        Self {
            nic,
            connection,
            key: key.mac_key(mac, 0),
            request,
        }
    }

    /// Judges requests for random entries. All must be admitted, or all refused.
    fn judge(
        &mut self,
        time: Duration,
        good: bool,
        mut draw: impl FnMut() -> Vec<TptEntry>,
    ) -> Result<(u64, f64)> {
        let (nic, connection, key) = (&self.nic, &mut self.connection, &self.key);
        let request = &mut self.request;
        let seal = || -> Vec<[u8; Request::BYTES]> {
            let seal = |entry: TptEntry| {
                request.sequence += 1;
                request.address = entry.address;
                request.key = entry.key;
                request.epoch = entry.epoch;
                request.handle = Handle(entry.frame.0);
                request.seal(key)
            };
            draw().into_iter().map(seal).collect()
        };
        let mut let_in = 0;
        let (times, ns) = batches(time, seal, |message| {
            match nic.receive(connection, &message, Nanos(2)) {
                Verdict::Read(transfer) => {
                    let_in += 1;
                    black_box(nic.complete(&transfer));
                    nic.finish(transfer);
                }
                Verdict::Refused(answer) => {
                    black_box(answer);
                }
                Verdict::Attach(_) | Verdict::NotAttached(_) => {}
            }
        });
        ensure!(
            let_in == if good { times } else { 0 },
            "the NIC let {let_in} of {times} reads in"
        );
        Ok((times, ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_can_be_measured() {
        let inside = Inside::new(1 << 20).unwrap();
        for mut term in inside.terms() {
            let (times, ns) = (term.measure)(Duration::from_millis(1)).unwrap();
            assert!(times >= BATCH as u64 && ns > 0.0, "{}", term.what);
        }
    }
}
