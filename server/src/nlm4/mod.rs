//! Locks for clients of NFS version 3: the lock manager (NLM version 4), and the status monitor (NSM) by which hosts tell each
//! other that they have restarted.
//!
//! `hosts.rs`, a core without IO, keeps what clients hold. The ranges themselves are in [`crate::vfs::locks`], which NFS version
//! 4 shares. Procedures run on the pool, because they may wait for stable storage. Nothing waits for another host: calls to
//! clients go out through [`Peers`].
//!
//! A host is the address that a call came from, together with the name in it. No call frees the locks of another host. The
//! server does not serve the procedures that answer by a call of their own (`_MSG`, `_RES`): no known client uses them over
//! TCP.

mod grants;
mod hosts;
mod limits;
mod lock;
mod nsm;
mod peers;
mod records;
mod release;
mod share;

use std::net::IpAddr;

use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::nlm4::{FreeAllArgs, Name, PROGRAM, Procedure, ShareArgs, Status, VERSION};
use odafs_common::wire::xdr::{Decode, Encode as _, Reader, Writer, XdrError};
use odafs_fabric::Peer;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Mutex, OnceLock, Weak};
use odafs_nic::calls::Caller;

use crate::rpc::access::{Access, AccessVerdict};
use crate::rpc::drc::Repeats;
use crate::rpc::{Admission, Answer, Call, Program, reply};
use crate::vfs::attributes::{access as granted, attributes};
use crate::vfs::export::Exports;
use crate::vfs::grace::GracePeriod;
use crate::vfs::locks::Side;
use crate::vfs::metrics::gauge;
use crate::vfs::promises::Changing;
use crate::vfs::read::Effort;
use crate::vfs::{self, FileType, ObjectId, access};

use hosts::{Asked, HostKey, Hosts, Who};
pub use nsm::Nsm;
use nsm::Untold;
pub use peers::{Heard, PeerCall, Peers};
pub use records::Records;

/// The status that makes clients ask again.
const COME_AGAIN: Status = Status::DeniedGracePeriod;

/// The options of a lock manager.
pub struct Config {
    /// The state that the status monitor sends: odd, and a new one with each start of the server.
    pub state: u32,
    /// How long clients may reclaim what they held before the start. Up to twice as long while they do.
    pub grace: Nanos,
    /// The hosts that held locks before, on stable storage.
    pub records: Records,
    /// Calls clients. Without it no client can wait for a lock.
    pub peers: Option<Arc<dyn Peers>>,
}

/// The lock manager and the status monitor of an export.
pub struct Lockd {
    export: Arc<Exports>,
    access: Arc<Access>,
    hosts: Mutex<Hosts>,
    records: Mutex<Records>,
    peers: Option<Arc<dyn Peers>>,
    state: u32,
    untold: Mutex<Untold>,
    /// For those who call back.
    me: OnceLock<Weak<Lockd>>,
}

impl Lockd {
    /// For `export`, and the hosts that `access` admits. Tells the hosts that held locks before that the server has started
    /// anew.
    pub fn start(export: Arc<Exports>, access: Arc<Access>, config: Config) -> Arc<Self> {
        let before = config.records.hosts();
        let untold = Untold::new(before.iter());
        let before = before.keys().cloned().collect();
        let grace = GracePeriod::new(clock::awake(), config.grace);
        let hosts = Hosts::new(Arc::clone(export.locks()), before, grace);
        let lockd = Arc::new(Self {
            hosts: Mutex::new(hosts),
            records: Mutex::new(config.records),
            peers: config.peers,
            state: config.state,
            untold: Mutex::new(untold),
            me: OnceLock::new(),
            export,
            access,
        });
        let me = Arc::downgrade(&lockd);
        let _ = lockd.me.set(Weak::clone(&me));
        lockd.export.locks().on_news(Side::Nlm, move || {
            if let Some(lockd) = me.upgrade() {
                lockd.hear_of_locks();
            }
        });
        lockd.tell_hosts(clock::awake());
        lockd
    }

    /// Does something with the hosts, and then what follows from it. That may change which hosts the server tells of a restart.
    /// Their list is on stable storage when this returns, written by this thread or by another.
    fn with<T>(&self, act: impl FnOnce(&mut Hosts, Nanos) -> T) -> T {
        let done = act(&mut self.hosts.lock(), clock::awake());
        self.keep_records();
        self.tell_others();
        done
    }

    /// As [`Self::with`], for what does not change that list, and so waits for no stable storage.
    fn with_unrecorded<T>(&self, act: impl FnOnce(&mut Hosts, Nanos) -> T) -> T {
        let done = act(&mut self.hosts.lock(), clock::awake());
        self.tell_others();
        done
    }

    fn tell_others(&self) {
        self.call_hosts();
        self.export.locks().tell(Side::Nfs4);
    }

    /// Handles the news that NFS version 4 gave locks back.
    fn hear_of_locks(&self) {
        self.hosts.lock().hear_of_locks();
        self.call_hosts();
    }

    /// Brings the list of hosts to tell after a restart to stable storage, if it has changed.
    fn keep_records(&self) {
        let mut records = self.records.lock();
        let changes = self.hosts.lock().take_records();
        records.apply(changes);
    }

    /// Tells clients of the locks that the server took for them.
    fn call_hosts(&self) {
        let calls = std::mem::take(&mut self.hosts.lock().calls);
        for call in calls {
            let number = call.number;
            let done = {
                let me = self.me.get().cloned();
                move |heard: Heard| {
                    let lockd = me.and_then(|me| me.upgrade());
                    if let Some(lockd) = lockd {
                        lockd.with_unrecorded(|hosts, _| hosts.heard(number, &heard));
                    }
                }
            };
            match &self.peers {
                Some(peers) => {
                    let arguments = call.arguments;
                    let call = PeerCall {
                        address: call.address,
                        ours: call.ours,
                        program: PROGRAM,
                        version: VERSION,
                        procedure: Procedure::Granted.code(),
                        arguments: Box::new(move |_| arguments),
                    };
                    peers.call(call, Box::new(done));
                }
                None => self.hosts.lock().heard(number, &Heard::Unreached),
            }
        }
    }

    /// The object for which a handle was made, whether it still exists or not.
    fn named(&self, handle: FileHandle<'_>) -> Result<ObjectId, Status> {
        let named = self.export.named(handle.0);
        named.map_err(|_| Status::StaleHandle)
    }

    /// The regular file of a handle.
    fn file(&self, call: &Call<'_>, handle: FileHandle<'_>) -> Result<ObjectId, Status> {
        debug_assert_eq!(call.effort, Effort::MayBlock);
        let tag = self.export.tag_of_handle(handle.0);
        call.rights.check(tag).map_err(|_| Status::StaleHandle)?;
        let object = self.export.resolve(handle.0, call.effort);
        let object = object.map_err(|_| Status::StaleHandle)?;
        match attributes(&self.export, object) {
            Ok(known) if known.kind == FileType::Regular => Ok(object),
            Err(error) if error.status == vfs::Status::Stale => Err(Status::StaleHandle),
            Err(error) if error.status == vfs::Status::Jukebox => Err(COME_AGAIN),
            _ => Err(Status::Failed),
        }
    }

    /// Refuses callers that may neither read nor write the file.
    fn may_lock(&self, call: &Call<'_>, file: ObjectId) -> Result<(), Status> {
        let any = access::READ | access::MODIFY | access::EXTEND;
        let who = call.rights.credential(self.export.tag_of(file), &call.who);
        let who = who.map_err(|_| Status::StaleHandle)?;
        match granted(&self.export, &who, file, any) {
            Ok(rights) if rights != 0 => Ok(()),
            _ => Err(Status::Failed),
        }
    }

    /// Whether the caller may still reach the file. If the rules have changed since it was asked first, what it has there goes.
    fn still_reaches(
        &self,
        hosts: &mut Hosts,
        call: &Call<'_>,
        file: ObjectId,
    ) -> Result<(), Status> {
        let tag = self.export.tag_of(file);
        if self.access.verdict_on(call.caller, tag) == AccessVerdict::Stranger {
            self.free_unreachable(hosts);
            return Err(Status::StaleHandle);
        }
        Ok(())
    }

    fn free_unreachable(&self, hosts: &mut Hosts) -> usize {
        hosts.free_unreachable(|address, file| {
            let tag = self.export.tag_of(file);
            self.access.admits_address_on(address, tag)
        })
    }

    /// Takes away what hosts have in files that they may not reach any more.
    fn rules_changed(&self) {
        let freed = self.with(|hosts, _| self.free_unreachable(hosts));
        if freed > 0 {
            tracing::info!(
                clients = freed,
                "NFSv3 clients that may reach less than before have lost their locks there"
            );
        }
    }

    /// Takes back the delegations of a file, because clients of version 4 lock under a delegation without telling the server.
    /// No new one is given until the result is dropped. A reclaimed lock takes none back: it stood beside the delegations of
    /// before.
    fn ask(&self, file: ObjectId, reclaim: bool) -> Result<Changing<'_>, Status> {
        let asked = self.export.promises().ask_to_lock(file, reclaim);
        asked.map_err(|_| COME_AGAIN)
    }

    /// Takes away what clients of version 4 hold in the way of this, if their leases are over.
    fn make_way(&self, asked: &Asked<'_>) {
        let now = clock::awake();
        // In the grace period nobody gets anything that it did not have before.
        if !self.hosts.lock().in_grace(now) {
            let locks = self.export.locks();
            locks.make_way(Side::Nlm, now, asked.file, asked.span, asked.write);
        }
    }

    fn dispatch(
        &self,
        procedure: Procedure,
        call: &Call<'_>,
        results: &mut Writer<'_>,
    ) -> Result<Answer, XdrError> {
        let arguments = &mut call.arguments.clone();
        macro_rules! decoded {
            () => {
                &last(arguments)?
            };
        }
        Ok(match procedure {
            // The server calls it.
            Procedure::Null | Procedure::Granted => Answer::NoProcedure,
            _ if call.effort == Effort::ResidentOnly => Answer::Blocks,
            Procedure::Test => {
                lock::test(self, call, decoded!(), |result| result.encode(results));
                Answer::Replied
            }
            Procedure::Lock => reply(results, &lock::lock(self, call, decoded!(), true)),
            Procedure::UnmonitoredLock => {
                reply(results, &lock::lock(self, call, decoded!(), false))
            }
            Procedure::Cancel => reply(results, &lock::cancel(self, call, decoded!())),
            Procedure::Unlock => reply(results, &lock::unlock(self, call, decoded!())),
            Procedure::Share | Procedure::Unshare => {
                let arguments: ShareArgs<'_> = last(arguments)?;
                let begins = procedure == Procedure::Share;
                reply(results, &share::share(self, call, &arguments, begins))
            }
            Procedure::FreeAll => {
                let arguments: FreeAllArgs<'_> = last(arguments)?;
                let who = who(call.caller, arguments.name);
                self.with(|hosts, _| hosts.free_all(&who.key));
                Answer::Replied
            }
        })
    }

    fn tick(&self, now: Nanos) {
        let changes = self.with_unrecorded(|hosts, _| {
            hosts.tick(now);
            hosts.hear_of_locks();
            hosts.has_records()
        });
        if changes {
            self.keep_records();
        }
        let wanted = self.hosts.lock().wanted();
        for (file, span, write) in wanted {
            let locks = self.export.locks();
            locks.make_way(Side::Nlm, now, file, span, write);
        }
        self.tell_hosts(now);
    }
}

/// Decodes arguments, and refuses bytes after them.
fn last<'a, T: Decode<'a>>(r: &mut Reader<'a>) -> Result<T, XdrError> {
    let value = T::decode(r)?;
    r.finish()?;
    Ok(value)
}

/// The caller, under this name.
fn who(caller: &Caller, name: Name<'_>) -> Who {
    let address = match &caller.peer {
        Peer::Address(address) => Some(address.ip().to_canonical()),
        Peer::Uid { .. } | Peer::Simulated(_) => None,
    };
    Who {
        key: HostKey {
            address: text_of(&caller.peer, address),
            name: name.0.to_vec(),
        },
        address,
        ours: caller.local.map(|ours| ours.to_canonical()),
    }
}

/// The address of a host as a text.
fn text_of(peer: &Peer, address: Option<IpAddr>) -> String {
    match (peer, address) {
        (_, Some(address)) => address.to_string(),
        (Peer::Uid { uid, .. }, None) => format!("uid {uid}"),
        (peer, None) => peer.to_string(),
    }
}

/// NLM version 4.
pub struct Nlm4(Arc<Lockd>);

impl Nlm4 {
    /// The program of this lock manager.
    pub fn new(lockd: Arc<Lockd>) -> Self {
        Self(lockd)
    }
}

impl Program for Nlm4 {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "nlm4"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &[
            "NULL",
            "TEST",
            "LOCK",
            "CANCEL",
            "UNLOCK",
            "GRANTED",
            "TEST_MSG",
            "LOCK_MSG",
            "CANCEL_MSG",
            "UNLOCK_MSG",
            "GRANTED_MSG",
            "TEST_RES",
            "LOCK_RES",
            "CANCEL_RES",
            "UNLOCK_RES",
            "GRANTED_RES",
            "16",
            "17",
            "18",
            "19",
            "SHARE",
            "UNSHARE",
            "NM_LOCK",
            "FREE_ALL",
        ]
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Listed
    }

    /// A repetition that comes late could take or free what its owner has freed or taken since.
    fn repeats<'a>(&self, procedure: u32, _arguments: Reader<'a>) -> Repeats<'a> {
        match Procedure::from_code(procedure) {
            None | Some(Procedure::Null | Procedure::Test | Procedure::Granted) => {
                Repeats::Harmless
            }
            Some(_) => Repeats::Change { names: [None; 2] },
        }
    }

    fn may_sync(&self, procedure: u32, _arguments: Reader<'_>) -> bool {
        let procedure = Procedure::from_code(procedure);
        matches!(
            procedure,
            Some(Procedure::Lock | Procedure::Share | Procedure::FreeAll)
        )
    }

    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match Procedure::from_code(call.procedure) {
            Some(procedure) => self
                .0
                .dispatch(procedure, &call, results)
                .unwrap_or_else(Answer::from),
            None => Answer::NoProcedure,
        }
    }

    fn tick(&self, now: Nanos) {
        self.0.tick(now);
    }

    fn rules_changed(&self) {
        self.0.rules_changed();
    }

    fn append_text(&self, out: &mut String) {
        let counts = self.0.hosts.lock().counts();
        gauge(out, "nlm_hosts", "Hosts that use NLM.", counts.hosts);
        let help = "Ranges of files locked by NLM.";
        gauge(out, "nlm_locks", help, counts.ranges);
        let help = "Locks that clients of NLM wait for.";
        gauge(out, "nlm_waiters", help, counts.waiters);
    }
}
