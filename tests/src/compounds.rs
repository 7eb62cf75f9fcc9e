//! Compounds of NFS version 4 in any order, by clients of all minor versions, of which some send what no client would send.
//! Nothing may panic. Each reply must be one that a client can read: whole, its last result the only failure. State must stay
//! within its bounds. Another client must be served at any time, and once all have been silent for long nothing may be left.
//!
//! The compounds come from bytes, so that a fuzzer can choose them.

mod answers;
mod arguments;
mod learned;
mod mailbox;
mod operations;
mod scenes;

use std::collections::BTreeMap;

use odafs_common::page::{Layout, PageSize};
use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc::{self, Auth, AuthSys, Groups};
use odafs_common::wire::xdr::{Encode, Reader, Writer};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Calls, Outcome};
use odafs_nic::nic::NicConfig;
use odafs_server::access::Access;
use odafs_server::config::Squash;
use odafs_server::drc::{Bounds, DuplicateCache};
use odafs_server::export::{Exports, ExportsConfig};
use odafs_server::nfs4::{CACHED_BYTES, Config, LEASE, MinorVersions, Nfs4, OwnersConfig, Records};
use odafs_server::rpc::{Program, Service};
use odafs_server::store::{Credential, MemoryStore, Store};

use crate::server_model::choices::Choices;
pub(crate) use answers::callback_reply;
pub(crate) use arguments::{create_session, exchange_id, set_client_id};
use learned::{Held, Learned, PutFile};
use mailbox::Line;
pub(crate) use operations::status;
use operations::{Sent, operation};
use scenes::scene;

const STEPS_MAX: usize = 150;
const CLIENTS_MAX: usize = 6;
const CONNECTIONS: u64 = 4;
pub(crate) const SLOTS: u32 = 4;
/// One call in this many is another user's.
const USERS: u32 = 16;
const REPLY_BYTES_MAX: u32 = 64 << 10;
const STORE_BYTES: u64 = 1 << 20;
/// The most bytes of a copy that ends before its reply.
const COPY_BYTES: u64 = 1000;
/// Bytes of replies that slots may keep in a narrow world: a few sessions take them up.
const NARROW_BYTES: usize = 64 << 10;
/// A time after which the server keeps nothing of a silent client.
const SILENCE: Nanos = Nanos::from_secs(48 * 3600);

/// How often operations were answered with a status.
pub type Answered = BTreeMap<(OpCode, Status), u32>;

/// Sends the compounds that `bytes` encode, and returns what was answered.
///
/// # Panics
/// The server breaks one of the rules above.
pub fn run(bytes: &[u8]) -> Answered {
    let mut choices = Choices(bytes);
    let mut world = World::new(bytes.len() % 4 == 3);
    for _ in 0..STEPS_MAX {
        let Some(step) = choices.next() else { break };
        world.step(step, &mut choices);
    }
    world.is_bounded();
    world.serves_another();
    world.keeps_nothing_for_the_silent();
    world.answered
}

/// A client that behaves more often than not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    pub minor: u32,
    pub connection: u64,
    pub id: u64,
    pub session: SessionId,
    /// The slots that its session has.
    pub granted: u32,
    /// The last number of each slot.
    pub slots: [u32; SLOTS as usize],
    /// The last number of its owner (4.0).
    pub turn: u32,
}

impl Client {
    /// Whether a SEQUENCE took the slot by the client's last number.
    fn has_used(&self, taken: &SequenceOk) -> bool {
        let number = self.slots.get(taken.slot as usize);
        self.session == taken.session && number == Some(&taken.sequence)
    }
}

/// The arguments of COMPOUND, and the file handle that each operation puts.
struct Prepared {
    bytes: Vec<u8>,
    puts: Vec<PutFile>,
}

impl Prepared {
    fn new(minor: u32, operations: &[Sent<'_>]) -> Self {
        let put = |sent: &Sent<'_>| match sent {
            Sent::Known(Operation::PutFileHandle(handle)) => handle.0.to_vec(),
            _ => PutFile::new(),
        };
        Self {
            bytes: compound(minor, operations),
            puts: operations.iter().map(put).collect(),
        }
    }
}

struct World {
    service: Service,
    lines: Vec<Line>,
    clients: Vec<Client>,
    learned: Learned,
    xid: u32,
    /// The last message and its connection.
    last: (usize, Vec<u8>),
    names: u32,
    /// Clients and sessions that were asked for.
    asked: [u64; 2],
    answered: Answered,
    /// Slots may keep little.
    narrow: bool,
}

impl World {
    fn new(narrow: bool) -> Self {
        let store = Arc::new(MemoryStore::new(1));
        store.set_capacity(STORE_BYTES);
        let arena = ArenaConfig {
            frames: 32,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&arena).expect("memory"));
        let behind = Arc::clone(&store) as Arc<dyn Store>;
        // No client reads directly.
        let shown = ExportsConfig {
            nic: NicConfig {
                tpt_entries: 64,
                ..NicConfig::default()
            },
            ..ExportsConfig::default()
        };
        let export = Arc::new(Exports::new(shown, behind, arena));
        let config = Config {
            minors: MinorVersions::ALL,
            lease: LEASE,
            boot: 7,
            records: Records::none(),
            owners: OwnersConfig::default(),
            cached_bytes: if narrow { NARROW_BYTES } else { CACHED_BYTES },
        };
        let nfs4 = Nfs4::new(export, config).with_copies_that_go_on(COPY_BYTES);
        let programs: Vec<Box<dyn Program>> = vec![Box::new(nfs4)];
        let nobody = Credential::of(65_534, 65_534, &[]);
        let access = Arc::new(Access::new(Vec::new(), Squash::None, nobody));
        let replies = DuplicateCache::new(Bounds::default());
        Self {
            service: Service::new(programs, access, replies, false),
            lines: (0..CONNECTIONS).map(Line::new).collect(),
            clients: Vec::new(),
            learned: Learned::new(),
            xid: 0,
            last: (0, Vec::new()),
            names: 0,
            asked: [0; 2],
            answered: Answered::new(),
            narrow,
        }
    }

    fn step(&mut self, step: u8, choices: &mut Choices<'_>) {
        match step % 24 {
            0 => self.introduce(choices),
            1 => self.introduce_without_session(choices),
            2 => self.spoilt(choices),
            3 => self.arbitrary(choices),
            4 => {
                let (connection, message) = self.last.clone();
                self.serve(connection, &message);
            }
            5 => {
                let connection = u64::from(choices.byte()) % CONNECTIONS;
                self.service.closed(connection);
            }
            6 | 7 => self.answer_callbacks(choices),
            8 => {
                let passes = [1, 45, 100, 200, 25 * 3600];
                let seconds = choices.one_of(&passes);
                let now = clock::awake() + Nanos::from_secs(seconds);
                self.service.tick(now);
            }
            9..16 => {
                let compound = self.next_compound(choices);
                self.compound(compound);
            }
            _ => {
                let scene = self.next_scene(choices);
                self.compound(scene);
            }
        }
    }

    /// A client that does all that the protocol asks for before a call.
    fn introduce(&mut self, choices: &mut Choices<'_>) {
        self.names += 1;
        let client = Client {
            minor: u32::from(choices.byte() % 3),
            connection: u64::from(choices.byte()) % CONNECTIONS,
            ..Client::default()
        };
        let client = self.introduced(client, &self.names.to_be_bytes());
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.remove(0);
        }
        self.clients.extend(client);
    }

    fn introduced(&mut self, mut client: Client, name: &[u8]) -> Option<Client> {
        if client.minor == 0 {
            let set = arguments::set_client_id(name, 1);
            let reply = self.call(&client, &[set])?;
            let confirm = match last(&reply) {
                OperationResult::SetClientId(Ok(confirm)) => confirm,
                _ => return None,
            };
            client.id = confirm.client_id;
            self.call(&client, &[Operation::SetClientIdConfirm(confirm)])?;
            return Some(client);
        }
        let reply = self.call(&client, &[exchange_id(name, 1, 0)])?;
        let exchanged = match last(&reply) {
            OperationResult::ExchangeId(Ok(exchanged)) => (exchanged.client_id, exchanged.sequence),
            _ => return None,
        };
        client.id = exchanged.0;
        let create = create_session(exchanged.0, exchanged.1, SLOTS);
        let reply = self.call(&client, &[create])?;
        (client.session, client.granted) = match last(&reply) {
            OperationResult::CreateSession(Ok(made)) => (made.session, made.fore.max_requests),
            _ => return None,
        };
        let complete = Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        });
        let sequence = next(&mut client, 0);
        self.call(&client, &[sequence, complete])?;
        Some(client)
    }

    /// The operations that need no session, with values from replies and with invented ones.
    fn introduce_without_session(&mut self, choices: &mut Choices<'_>) {
        let client = Client {
            minor: u32::from(choices.byte() % 4),
            connection: u64::from(choices.byte()) % CONNECTIONS,
            ..Client::default()
        };
        let operation = operations::without_session(choices, &self.learned);
        let bytes = compound(client.minor, &[operation]);
        self.send(&client, bytes);
    }

    /// A client, and its next compound's SEQUENCE, if it needs one.
    fn next_client<'a>(&self, choices: &mut Choices<'_>) -> (usize, Client, Vec<Sent<'a>>) {
        let at = usize::from(choices.byte()) % self.clients.len().max(1);
        let mut client = self.clients.get(at).cloned().unwrap_or_default();
        let mut all = Vec::new();
        if client.minor > 0 {
            let how = choices.byte();
            let slot = u32::from(how) % client.granted.clamp(1, SLOTS);
            let mut sequence = next(&mut client, slot);
            if let Operation::Sequence(arguments) = &mut sequence {
                arguments::spoil_sequence(arguments, how >> 2, choices, &self.learned);
            }
            all.push(Sent::Known(sequence));
        }
        (at, client, all)
    }

    /// A client's next compound, of any operations.
    fn next_compound(&mut self, choices: &mut Choices<'_>) -> (usize, Client, Prepared) {
        let (at, client, mut all) = self.next_client(choices);
        let count = match choices.byte() {
            255 => 300,
            some => usize::from(some % 12),
        };
        let mut turn = client.turn;
        let operations =
            (0..count).map(|_| operation(choices, &self.learned, (client.id, &mut turn)));
        all.extend(operations);
        let prepared = Prepared::new(client.minor, &all);
        (at, client, prepared)
    }

    /// A client's next compound, of operations that may well succeed.
    fn next_scene(&mut self, choices: &mut Choices<'_>) -> (usize, Client, Prepared) {
        if self.clients.is_empty() {
            self.introduce(choices);
        }
        let (at, client, mut all) = self.next_client(choices);
        let mut turn = client.turn;
        let who = (client.id, client.minor);
        all.extend(scene(choices, &self.learned, who, &mut turn));
        let prepared = Prepared::new(client.minor, &all);
        (at, client, prepared)
    }

    fn compound(&mut self, (at, mut client, prepared): (usize, Client, Prepared)) {
        let mut used = client.minor == 0;
        let mut gone = false;
        if let Some(reply) = self.send(&client, prepared.bytes) {
            client.turn = client.turn.wrapping_add(counted(&reply));
            let results = Results::begin(Reader::new(&reply)).expect("results");
            match results.clone().flatten().next() {
                Some(OperationResult::Sequence(Ok(taken))) => used = client.has_used(&taken),
                Some(OperationResult::Sequence(Err(Status::BadSession))) => gone = true,
                _ => {}
            }
            for open in self.learned.hold(client.id, &prepared.puts, results) {
                self.confirm(&mut client, &open);
            }
        }
        match self.clients.get_mut(at) {
            Some(_) if gone => drop(self.clients.remove(at)),
            Some(known) if used => *known = client,
            _ => {}
        }
    }

    fn confirm(&mut self, client: &mut Client, open: &Held) {
        let confirm = Operation::OpenConfirm(OpenConfirmArgs {
            state: open.state,
            sequence: client.turn.wrapping_add(1),
        });
        let put = Operation::PutFileHandle(FileHandle(&open.file));
        let all = [put, confirm].map(Sent::Known);
        let prepared = Prepared::new(client.minor, &all);
        if let Some(reply) = self.send(client, prepared.bytes) {
            client.turn = client.turn.wrapping_add(counted(&reply));
            let results = Results::begin(Reader::new(&reply)).expect("results");
            self.learned.hold(client.id, &prepared.puts, results);
        }
    }

    fn spoilt(&mut self, choices: &mut Choices<'_>) {
        let (_, client, prepared) = self.next_compound(choices);
        let mut bytes = prepared.bytes;
        for _ in 0..choices.byte() % 6 {
            let (at, value) = (choices.small() as usize, choices.byte());
            let length = bytes.len();
            bytes[at % length] = value;
        }
        if choices.byte().is_multiple_of(4) {
            let at = choices.small() as usize % bytes.len();
            bytes.truncate(at);
        }
        self.send(&client, bytes);
    }

    fn arbitrary(&mut self, choices: &mut Choices<'_>) {
        let count = choices.small() as usize % 400;
        let bytes: Vec<u8> = (0..count).map(|_| choices.byte()).collect();
        self.send(&Client::default(), bytes);
    }

    /// Some of the callbacks that came: answered well, badly, twice, or not at all.
    fn answer_callbacks(&mut self, choices: &mut Choices<'_>) {
        for at in 0..self.lines.len() {
            let how = choices.byte();
            self.lines[at].how = how;
            let Some(message) = self.lines[at].mailbox.next() else {
                continue;
            };
            if how.is_multiple_of(8) {
                continue;
            }
            let reply = callback_reply(&message, how).expect("a callback that can be read");
            for _ in 0..=how >> 7 {
                self.serve(at, &reply);
            }
        }
    }

    /// A call by root or by another user.
    fn send(&mut self, client: &Client, arguments: Vec<u8>) -> Option<Vec<u8>> {
        self.xid += 1;
        let sys = AuthSys {
            stamp: 0,
            machine: b"",
            uid: if self.xid.is_multiple_of(USERS) {
                1000
            } else {
                0
            },
            gid: 0,
            gids: Groups::default(),
        };
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        let procedure = Procedure::Compound.code();
        let auth = Auth::Sys(sys);
        rpc::call(&mut w, self.xid, PROGRAM, VERSION, procedure, &auth);
        message.extend_from_slice(&arguments);
        let connection = client.connection as usize;
        self.last = (connection, message.clone());
        self.serve(connection, &message)
    }

    fn call(&mut self, client: &Client, operations: &[Operation<'_>]) -> Option<Vec<u8>> {
        self.send(client, compound(client.minor, operations))
    }

    /// The results of a call, which must be readable. `None` if there are none.
    fn serve(&mut self, connection: usize, message: &[u8]) -> Option<Vec<u8>> {
        let looks = self.count(message);
        let caller = &self.lines[connection].caller;
        let mut reply = Vec::new();
        let mut outcome = self.service.call(caller, message, &mut reply);
        while let Outcome::Deferred(job) = outcome {
            reply.clear();
            outcome = if looks && self.learned.delegated {
                // It may wait until another client says what it has made of the file.
                mailbox::answering(&self.service, &self.lines, || job.run(&mut reply))
            } else {
                job.run(&mut reply)
            };
        }
        match outcome {
            Outcome::Replied => {}
            Outcome::Dropped => return None,
            other => panic!("{other:?}"),
        }
        assert!(reply.len() <= REPLY_BYTES_MAX as usize, "{}", reply.len());
        let parsed = rpc::parse_reply(&reply).expect("a reply");
        let body = parsed.body.ok()?;
        let bytes = body.rest().to_vec();
        let mut results = Results::begin(body).expect("results");
        let status = results.header().status;
        let mut found = Vec::new();
        for result in results.by_ref() {
            let result = result.expect("a result");
            self.learned.take(&result);
            let status = operations::status(&result);
            *self.answered.entry((result.code(), status)).or_default() += 1;
            found.push(status);
        }
        results.finish().expect("nothing behind the results");
        if let Some((latest, before)) = found.split_last() {
            assert_eq!(*latest, status);
            assert!(before.iter().all(|one| *one == Status::Ok), "{found:?}");
        }
        Some(bytes)
    }

    /// Counts the clients and sessions that a call asks for. Whether it looks at attributes.
    fn count(&mut self, message: &[u8]) -> bool {
        let mut looks = false;
        let call = rpc::parse_call(message).ok();
        let operations = call.and_then(|(_, arguments)| Operations::begin(arguments).ok());
        for operation in operations.into_iter().flatten().flatten() {
            match operation {
                Operation::ExchangeId(_) | Operation::SetClientId(_) => self.asked[0] += 1,
                Operation::CreateSession(_) => self.asked[1] += 1,
                Operation::GetAttributes(_) => looks = true,
                _ => {}
            }
        }
        looks
    }

    /// What the server counts by this name.
    fn figure(&self, name: &str) -> u64 {
        let mut text = String::new();
        self.service.append_text(&mut text);
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no figure {name}"))
    }

    /// Checks that the server keeps no more than was asked for, and no more than one client may have.
    fn is_bounded(&self) {
        assert!(self.figure("odafs_nfs4_clients") <= self.asked[0]);
        assert!(self.figure("odafs_nfs4_sessions") <= self.asked[1]);
        let waiting: u64 = self.lines.iter().map(|line| line.mailbox.count()).sum();
        assert!(waiting <= self.figure("odafs_nfs4_callbacks_total"));
    }

    fn serves_another(&mut self) {
        let client = Client {
            minor: 2,
            ..Client::default()
        };
        // All of its calls are root's.
        self.xid = self.xid.next_multiple_of(USERS) + 1;
        let mut introduced = self.introduced(client.clone(), b"well-behaved");
        if self.narrow && introduced.is_none() {
            // Others have all slots, for as long as they give signs of life.
            self.service
                .tick(clock::awake() + Nanos::from_secs(25 * 3600));
            introduced = self.introduced(client, b"well-behaved");
        }
        let mut client = introduced.expect("a client");
        let sequence = next(&mut client, 0);
        let look = [sequence, Operation::PutRootFileHandle];
        let reply = self.call(&client, &look).expect("results");
        let done = OperationResult::PutRootFileHandle(Ok(()));
        assert_eq!(last(&reply), done);
    }

    fn keeps_nothing_for_the_silent(&self) {
        for passed in 1..=3 {
            let now = clock::awake() + Nanos(SILENCE.0 * passed);
            self.service.tick(now);
        }
        for of in [
            "clients",
            "sessions",
            "opens",
            "locks",
            "delegations",
            "copies",
        ] {
            assert_eq!(self.figure(&format!("odafs_nfs4_{of}")), 0, "{of}");
        }
    }
}

/// The arguments of COMPOUND with these operations.
pub fn compound(minor: u32, operations: &[impl Encode]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let call = CallWriter::compound(&mut w, Opaque(b""), minor);
    let call = operations.iter().fold(call, |call, one| call.push(one));
    call.finish();
    bytes
}

/// SEQUENCE for the next compound of a slot.
pub(crate) fn next(client: &mut Client, slot: u32) -> Operation<'static> {
    let number = &mut client.slots[slot as usize];
    *number = number.wrapping_add(1);
    Operation::Sequence(SequenceArgs {
        session: client.session,
        sequence: *number,
        slot,
        highest_slot: client.granted.max(1) - 1,
        cache: number.is_multiple_of(2),
    })
}

fn last(reply: &[u8]) -> OperationResult<'_> {
    let results = Results::begin(Reader::new(reply)).expect("results");
    let last = results.last().expect("a result");
    last.expect("a result that can be read")
}

/// How many results of a compound of minor version 0 its owner counts, if they are all one owner's.
fn counted(reply: &[u8]) -> u32 {
    let results = Results::begin(Reader::new(reply)).expect("results");
    let counts = results.flatten().filter(operations::counts);
    counts.count() as u32
}
