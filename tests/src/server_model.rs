//! Calls and direct reads in any order against a plain map of what was written: no call may panic, no reply may be
//! malformed, a repeated call gets the reply of the first, and a read, by NFS, by the ODAFS program or by reference,
//! returns what the writes left, whatever was paged out, cut off, removed or changed from outside in between.
//!
//! The calls come from bytes, so that a fuzzer can choose them.

pub(crate) mod choices;
mod direct;
mod steps;

use std::collections::BTreeMap;
use std::time::Duration;

use odafs_common::mac::MacAlgorithm;
use odafs_common::page::{Layout, PageSize};
use odafs_common::wire::nfs3::*;
use odafs_common::wire::rpc::{Auth, AuthSys, Groups, Rejection, call, parse_reply};
use odafs_common::wire::xdr::{Decode, Encode, Writer};
use odafs_common::wire::{mount3, portmap};
use odafs_fabric::Peer;
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Caller, Calls, Notes, Outcome, Placements, Transport};
use odafs_nic::nic::NicConfig;
use odafs_server::access::Access;
use odafs_server::change::observe;
use odafs_server::config::Squash;
use odafs_server::drc::{Bounds, DuplicateCache};
use odafs_server::export::{Exports, ExportsConfig};
use odafs_server::mount3::MountProgram;
use odafs_server::nfs2::Nfs2;
use odafs_server::nfs3::Nfs3;
use odafs_server::odafs::{Odafs, SessionPolicy};
use odafs_server::portmap::{Port, Portmap};
use odafs_server::read::Effort;
use odafs_server::rpc::{Program, Service};
use odafs_server::store::{Credential, MemoryStore, OutsideChange, Store};

use choices::Choices;
use direct::Client;

const STEPS_MAX: usize = 200;
const HANDLES_MAX: usize = 32;
const REPLY_BYTES_MAX: u32 = 64 << 10;
const STORE_BYTES: u64 = 1 << 20;
const NAMES: [&[u8]; 8] = [b"a", b"b", b"cc", b"d.d", b".", b"..", b"", b"no/slash"];

/// How often each procedure succeeded (`true`) and failed. `Direct` is a guarded read; before the procedures of the ODAFS program
/// stands `Odafs`.
pub type Answered = BTreeMap<(String, bool), u32>;

/// Makes the calls that `bytes` say: how they were answered.
///
/// # Panics
/// When the server does not keep its word.
pub fn run(bytes: &[u8]) -> Answered {
    let mut choices = Choices(bytes);
    let mut world = World::new();
    let mut client =
        world.open_session(choices.one_of(&[MacAlgorithm::HmacSha256, MacAlgorithm::Blake3]));
    for _ in 0..STEPS_MAX {
        let Some(step) = choices.next() else { break };
        world.step(step, &mut client, &mut choices);
    }
    let answered = std::mem::take(&mut world.answered);
    world.check_everything();
    answered
}

struct World {
    service: Service,
    export: Arc<Exports>,
    store: Arc<MemoryStore>,
    caller: Caller,
    xid: u32,
    /// Handles that came back, the root first.
    handles: Vec<Vec<u8>>,
    /// What regular files hold, by handle.
    contents: BTreeMap<Vec<u8>, Vec<u8>>,
    written: u8,
    answered: Answered,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new(1));
        store.set_capacity(STORE_BYTES);
        let arena = ArenaConfig {
            frames: 32,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&arena).expect("memory"));
        let nic = NicConfig {
            tpt_entries: 64,
            ..NicConfig::default()
        };
        let config = ExportsConfig {
            nic,
            read_ahead_bytes: 16 << 10,
            ..ExportsConfig::default()
        };
        let export = Arc::new(Exports::new(
            config,
            Arc::clone(&store) as Arc<dyn Store>,
            arena,
        ));
        let nobody = Credential::of(65_534, 65_534, &[]);
        let access = Arc::new(Access::new(Vec::new(), Squash::None, nobody));
        let replies = DuplicateCache::new(Bounds::default());
        let root = export.handle(store.root());
        let mount = MountProgram::new(Arc::clone(&export), Arc::clone(&access));
        let [_, older_mount] = mount.for_version_2();
        let programs: Vec<Box<dyn Program>> = vec![
            Box::new(Nfs3::new(Arc::clone(&export))),
            Box::new(Nfs2::new(Arc::clone(&export))),
            Box::new(mount),
            Box::new(older_mount),
            Box::new(Odafs::new(Arc::clone(&export), SessionPolicy::default())),
            Box::new(Portmap::new([(PROGRAM, VERSION)], Port::default())),
        ];
        Self {
            service: Service::new(programs, access, replies, false),
            export,
            store,
            caller: Caller {
                peer: Peer::Simulated(1),
                local: None,
                connection: 1,
                transport: Transport::Sim,
                reply_bytes_max: REPLY_BYTES_MAX,
                placements: Placements::default(),
                apart: None,
                back: None,
                notes: Notes::default(),
            },
            xid: 0,
            handles: vec![root.to_vec()],
            contents: BTreeMap::new(),
            written: 0,
            answered: Answered::new(),
        }
    }

    fn step(&mut self, step: u8, client: &mut Client, choices: &mut Choices<'_>) {
        // Every eighth call or so is another user's.
        let uid = if step >> 5 == 7 { 1000 } else { 0 };
        match step % 40 {
            0..=3 => self.create(uid, choices),
            4 => self.make_directory(uid, choices),
            5 => self.symlink(uid, choices),
            6 => self.make_node(uid, choices),
            7 => self.lookup(uid, choices),
            8..=12 => self.write(uid, choices),
            13..=17 => self.read(uid, choices),
            18 | 19 => self.set_attributes(uid, choices),
            20 => self.remove(uid, choices),
            21 => self.rename(uid, choices),
            22 => self.link(uid, choices),
            23 => self.list(uid, choices),
            24 => self.list_plus(uid, choices),
            25 => self.ask(uid, choices),
            26 => self.commit(uid, choices),
            27 | 28 => self.outside(choices),
            29 => self.mangled(uid, choices),
            30 => self.raw(uid, choices),
            31 => self.forged(uid, choices),
            32 => self.ask_for_references(client, choices),
            33 | 34 => self.read_for_references(client, choices),
            35..=37 => self.read_directly(client, choices),
            38 => self.revalidate(client, choices),
            _ => self.rekey(client),
        }
    }

    /// Results of a call that decodes; served twice if it changes anything.
    fn call(&mut self, uid: u32, procedure: Procedure, args: &impl Encode) -> Vec<u8> {
        let message = self.message(uid, procedure, args);
        let reply = self.serve(&message);
        use Procedure as P;
        let repeats = matches!(
            procedure,
            P::Create | P::Write | P::Remove | P::Rename | P::SetAttributes | P::Link
        );
        if repeats && self.xid.is_multiple_of(4) {
            assert_eq!(
                self.serve(&message),
                reply,
                "a repeated call gets the first reply"
            );
        }
        let parsed = parse_reply(&reply).expect("a reply");
        assert_eq!(parsed.xid, self.xid);
        let results = parsed.body.expect("an accepted call").rest().to_vec();
        self.count(format!("{procedure:?}"), results.starts_with(&[0; 4]));
        results
    }

    /// Counts an answer. Results of all procedures that are called begin with a status, 0 if they succeed.
    fn count(&mut self, what: String, succeeded: bool) {
        *self.answered.entry((what, succeeded)).or_default() += 1;
    }

    fn message(&mut self, uid: u32, procedure: Procedure, args: &impl Encode) -> Vec<u8> {
        self.message_to(uid, [PROGRAM, VERSION, procedure.code()], &args.to_bytes())
    }

    fn message_to(&mut self, uid: u32, whom: [u32; 3], args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let sys = AuthSys {
            stamp: 0,
            machine: b"",
            uid,
            gid: uid,
            gids: Groups::default(),
        };
        let [program, version, procedure] = whom;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        call(
            &mut w,
            self.xid,
            program,
            version,
            procedure,
            &Auth::Sys(sys),
        );
        message.extend_from_slice(args);
        message
    }

    fn serve(&self, message: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        let mut outcome = self.service.call(&self.caller, message, &mut reply);
        while let Outcome::Deferred(job) = outcome {
            reply.clear();
            outcome = job.run(&mut reply);
        }
        assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
        assert!(reply.len() <= REPLY_BYTES_MAX as usize);
        reply
    }

    /// Mostly a regular file's.
    fn handle(&self, choices: &mut Choices<'_>) -> Vec<u8> {
        let choice = usize::from(choices.byte());
        match self.contents.len() {
            files if choice >= 64 && files > 0 => self
                .contents
                .keys()
                .nth(choice % files)
                .expect("a file")
                .clone(),
            _ => self.handles[choice % self.handles.len()].clone(),
        }
    }

    fn directory(&self, choices: &mut Choices<'_>) -> Vec<u8> {
        self.handles[usize::from(choices.byte() % 64) % self.handles.len()].clone()
    }

    fn learn(&mut self, handle: &[u8]) {
        if self.handles.len() < HANDLES_MAX && !self.handles.iter().any(|known| known == handle) {
            self.handles.push(handle.to_vec());
        }
    }

    /// Every file that is still there holds what was written.
    fn check_everything(&mut self) {
        let files: Vec<_> = self.contents.keys().cloned().collect();
        for handle in files {
            let mut offset = 0;
            while let Some(read) = self.read_at(0, &handle, offset, 30_000)
                && read > 0
            {
                offset += u64::from(read);
            }
        }
    }
}
