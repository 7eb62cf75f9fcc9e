//! A server with some published frames, and a client.

use std::collections::HashMap;

use odafs_common::direct::{ReadOrder, RemoteAddress};
use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::{AccessKey, Reference};
use odafs_common::session::SessionKey;
use odafs_fabric::memory::{ArenaConfig, FrameNumber};
use odafs_fabric::sync::Mutex;

use super::*;
use crate::host_vm::SharedVm;

pub const PAGE: u64 = 4096;
pub const MINUTE: Nanos = Nanos::from_secs(60);
pub const NONCE: Nonce = [3; 16];
pub const CLASS: ReaderClass = ReaderClass(70);

pub type Pages = Mutex<HashMap<u32, TptEntry>>;

/// A server with some published frames, and a client with a session on one connection.
pub struct World {
    pub arena: Arc<Arena>,
    pub pages: Arc<Pages>,
    pub nic: Nic,
    pub session: Arc<Session>,
    pub client: Client,
    pub connection: Connection,
    pub now: Nanos,
}

/// What a client knows.
pub struct Client {
    pub key: SessionKey,
    pub mac: MacAlgorithm,
    pub generation: u32,
    pub session: u32,
    pub connection: u32,
    pub sequence: u64,
}

impl Client {
    pub fn request(&mut self, reference: &Reference) -> Request {
        self.sequence += 1;
        Request {
            mac: self.mac,
            inline: true,
            marked: false,
            odd_generation: self.generation & 1 == 1,
            session: self.session,
            connection: self.connection,
            sink_tag: 0,
            sequence: self.sequence,
            address: reference.address,
            key: reference.key,
            epoch: reference.epoch,
            sink_offset: 0,
            handle: reference.handle,
            length: reference.length,
        }
    }

    pub fn seal(&self, request: &Request) -> [u8; Request::BYTES] {
        request.seal(&self.key.mac_key(self.mac, self.generation))
    }
}

pub fn new_session(key: u8, mac: MacAlgorithm) -> NewSession {
    NewSession {
        key: SessionKey::from_bytes([key; 32]),
        mac,
        one_sided: false,
        credential: 1000,
        expires: Nanos::from_secs(3600),
        rekey_requests: 1 << 20,
        rekey_after: Nanos::from_secs(600),
        rekey_grace: Nanos::from_secs(2),
        now: Nanos(0),
    }
}

pub fn arena() -> Arc<Arena> {
    let config = ArenaConfig {
        frames: 16,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: false,
        populate: false,
    };
    Arc::new(Arena::create(&config).unwrap())
}

impl World {
    pub fn with(config: NicConfig, new: NewSession) -> World {
        let arena = arena();
        let pages: Arc<Pages> = Arc::default();
        let looked_up = Arc::clone(&pages);
        let fault = move |handle: Handle| {
            looked_up
                .lock()
                .get(&handle.0)
                .copied()
                .ok_or(Exception::NotResident)
        };
        let host = Arc::new(SharedVm::new(Arc::clone(&arena), Arc::new(fault)));
        let nic = Nic::new(config, Arc::clone(&arena), host);
        let (key, mac) = (new.key.clone(), new.mac);
        let session = nic.open_session(new).unwrap();
        session.admit(CLASS);
        let client = Client {
            key,
            mac,
            generation: 0,
            session: session.id().0,
            connection: 9,
            sequence: 0,
        };
        let mut connection = Connection::new(9, NONCE);
        attach(&nic, &mut connection, &client, false);
        World {
            arena,
            pages,
            nic,
            session,
            client,
            connection,
            now: MINUTE,
        }
    }

    pub fn new(mac: MacAlgorithm) -> World {
        World::with(
            NicConfig {
                tpt_entries: 64,
                ..NicConfig::default()
            },
            new_session(1, mac),
        )
    }

    /// Fills a frame and hands it out: in the page cache, and as the client's reference.
    pub fn publish(&self, frame: u32, byte: u8, length: u32) -> Reference {
        let number = FrameNumber(frame);
        self.arena.copy_in(number, 0, &[byte; PAGE as usize]);
        let epoch = self.arena.publish(number);
        let key = AccessKey(epoch.0 * 77);
        let entry = TptEntry {
            frame: number,
            address: u64::from(frame) * PAGE,
            length,
            key,
            epoch,
            class: CLASS,
        };
        self.pages.lock().insert(frame, entry);
        Reference {
            address: entry.address,
            length,
            handle: Handle(frame),
            key,
            epoch,
        }
    }

    pub fn receive(&mut self, message: &[u8]) -> Verdict {
        self.nic.receive(&mut self.connection, message, self.now)
    }

    /// Sends what the client would for this reference.
    pub fn read(&mut self, reference: &Reference) -> Result<u32, Exception> {
        let request = self.client.request(reference);
        self.send(&request)
    }

    /// Seals, sends, and finishes the transfer if one is allowed.
    pub fn send(&mut self, request: &Request) -> Result<u32, Exception> {
        let message = self.client.seal(request);
        self.judge(&message)
    }

    pub fn judge(&mut self, message: &[u8]) -> Result<u32, Exception> {
        let answer = match self.receive(message) {
            Verdict::Read(transfer) => {
                assert!(self.arena.is_pinned(transfer.frame.frame()));
                let answer = self.nic.complete(&transfer);
                self.nic.finish(transfer);
                completion_of(&answer)
            }
            Verdict::Refused(answer) => completion_of(&answer),
            Verdict::Attach(_) | Verdict::NotAttached(_) => panic!("no attach was sent"),
        };
        assert!(
            (0..16).all(|frame| !self.arena.is_pinned(FrameNumber(frame))),
            "a pin was left"
        );
        answer.result
    }
}

pub const EXPOSED: ExposedMemory = ExposedMemory {
    arena: RemoteAddress {
        tag: 1,
        address: 1 << 40,
    },
    stamps: RemoteAddress {
        tag: 2,
        address: 1 << 41,
    },
    order: ReadOrder::Fence,
    beside: false,
};

/// The header alone, whatever follows it.
pub fn completion_of(answer: &[u8; Completion::BYTES]) -> Completion {
    let mut header = *answer;
    header[1] = 0;
    Completion::parse(&header).unwrap().0
}

pub fn attach(
    nic: &Nic,
    connection: &mut Connection,
    client: &Client,
    one_sided: bool,
) -> Attached {
    attach_at(nic, connection, client, one_sided, MINUTE)
}

pub fn attach_at(
    nic: &Nic,
    connection: &mut Connection,
    client: &Client,
    one_sided: bool,
    now: Nanos,
) -> Attached {
    let attach = Attach {
        session: client.session,
        nonce: [4; 16],
        one_sided,
    };
    let message = attach.seal(&client.key.attach_key(), &NONCE);
    let answer = match nic.receive(connection, &message, now) {
        Verdict::Attach(request) => nic.attached(connection, request, Some(EXPOSED)),
        Verdict::NotAttached(answer) => answer,
        Verdict::Refused(_) | Verdict::Read(_) => panic!("an attach is no read"),
    };
    Attached::open(&answer, &client.key.attach_key(), &[4; 16], &NONCE).unwrap()
}
