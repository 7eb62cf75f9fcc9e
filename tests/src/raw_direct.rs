//! Sessions and guarded reads over bare queue pairs, on shared memory or verbs: for what no well-behaved client sends.

use odafs_common::connect::{Nonce, PrivateData, Role};
use odafs_common::direct::{Attach, Attached, Completion, ExposedMemory, Request, VERSION};
use odafs_common::exception::Exception;
use odafs_common::mac::MacAlgorithm;
use odafs_common::reference::Reference;
use odafs_common::session::{Initiator, Pattern, Seed, SessionKey};
use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::odafs::{
    Accepted, GetRefsArgs, GetRefsResult, Mode, OdafsStatus, OpenSessionArgs, OpenSessionResult,
    PROGRAM, PageReference, Parameters, Procedure, ReadArgs, ReadResult,
    VERSION as PROGRAM_VERSION,
};
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Decode, Encode, Writer};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::{Completion as Event, QueuePair, entropy, shm, verbs};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::raw::PATIENCE;

const MAC: MacAlgorithm = MacAlgorithm::Blake3;

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum ServerPlace {
    /// Its socket.
    Shm(PathBuf),
    /// The address of an RDMA device.
    Verbs(SocketAddr),
}

impl ServerPlace {
    /// Connects with this private data.
    ///
    /// # Panics
    /// The server does not take it.
    pub fn connect(&self, said: &[u8]) -> Box<dyn QueuePair> {
        let pair = match self {
            Self::Shm(socket) => shm::connect(socket, said, &shm::ConnectOptions::default()),
            Self::Verbs(address) => {
                // Or what is not offered is never asked for, and nobody sees whether it is refused.
                let options = verbs::ConnectOptions {
                    reads_at_least: 1,
                    ..verbs::ConnectOptions::default()
                };
                verbs::connect(*address, said, &options)
            }
        };
        pair.expect("a connection")
    }

    fn fabric(&self) -> &'static [u8] {
        match self {
            Self::Shm(_) => b"shm",
            Self::Verbs(_) => b"verbs",
        }
    }

    fn connect_as(&self, role: Role, one_sided: bool) -> Box<dyn QueuePair> {
        let said = PrivateData {
            role,
            one_sided,
            nonce: [0; 16],
        };
        self.connect(&said.encode())
    }
}

/// A session, and the connection that it was opened over.
pub struct RawSession {
    place: ServerPlace,
    rpc: Box<dyn QueuePair>,
    xid: u32,
    key: SessionKey,
    /// Its number.
    pub number: u32,
}

/// Sends a message, and waits for the next one.
///
/// # Panics
/// There is none, or the connection ends.
pub fn exchange(pair: &mut dyn QueuePair, message: &[u8]) -> Vec<u8> {
    let deadline = clock::now() + Nanos::from(PATIENCE);
    pair.post_receives(1);
    pair.post_send(0, &[message]).expect("sent");
    pair.flush();
    loop {
        match pair.poll() {
            Some(Event::Recv { .. }) => return pair.message().to_vec(),
            Some(_) => {}
            None => {
                assert!(!pair.is_closed(), "the server closed the connection");
                assert!(clock::now() < deadline, "no answer");
                let _ = pair.wait(Some(Nanos::from_millis(100)));
            }
        }
    }
}

impl RawSession {
    /// Opens a session with the server at `place`.
    ///
    /// # Panics
    /// It is refused.
    pub fn open(place: &ServerPlace) -> Self {
        Self::open_for(place, Mode::Guarded)
    }

    /// The same, for reads of this mode.
    ///
    /// # Panics
    /// It is refused.
    pub fn open_for(place: &ServerPlace, mode: Mode) -> Self {
        let parameters = Parameters {
            version: VERSION.into(),
            features: 0,
            macs: MAC.bit(),
            mode,
            pattern: Pattern::Nn,
            export: b"/",
            fabric: place.fabric(),
        };
        let parameters = parameters.to_bytes();
        let seed = Seed::filled(|seed| entropy::fill(seed));
        let (initiator, handshake) =
            Initiator::start(&parameters, seed, None, None).expect("a handshake");
        let arguments = OpenSessionArgs {
            parameters: &parameters,
            handshake: &handshake,
        };
        let mut rpc = place.connect_as(Role::Rpc, false);
        let results = call(&mut *rpc, 1, Procedure::OpenSession, &arguments);
        let answer = OpenSessionResult::from_bytes(&results).expect("a result");
        let (key, accepted) = initiator
            .finish(answer.expect("a session").0)
            .expect("a key");
        Self {
            place: place.clone(),
            rpc,
            xid: 1,
            key,
            number: Accepted::from_bytes(&accepted).expect("granted").session,
        }
    }

    fn call(&mut self, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        call(&mut *self.rpc, self.xid, procedure, arguments)
    }

    /// Reads the first bytes of a file under a session's number: the references that come along.
    ///
    /// # Panics
    /// The read fails.
    pub fn references(&mut self, file: &[u8], session: u32) -> Vec<PageReference> {
        self.references_at(file, 0, session)
    }

    /// The same, of the bytes from `offset` on.
    ///
    /// # Panics
    /// The read fails.
    pub fn references_at(&mut self, file: &[u8], offset: u64, session: u32) -> Vec<PageReference> {
        let arguments = ReadArgs {
            file: FileHandle(file),
            offset,
            count: 64,
            session,
            want_references: true,
            chunk: None,
        };
        let results = self.call(Procedure::Read, &arguments);
        let read = ReadResult::from_bytes(&results).expect("a result");
        read.expect("read").references
    }

    /// Does GET_REFS know a session of this number?
    ///
    /// # Errors
    /// What the server says.
    ///
    /// # Panics
    /// It says nothing that makes sense.
    pub fn ask(&mut self, session: u32) -> Result<(), OdafsStatus> {
        let arguments = GetRefsArgs {
            session,
            ranges: Vec::new(),
            resume: 0,
        };
        let results = self.call(Procedure::GetRefs, &arguments);
        GetRefsResult::from_bytes(&results)
            .expect("a result")
            .map(drop)
    }

    /// Attaches a connection.
    ///
    /// # Panics
    /// It is refused.
    pub fn attach(&self) -> RawDirect {
        self.attach_for(false).0
    }

    /// Attaches a connection for one-sided reads, or for guarded ones: and what it may read by itself.
    ///
    /// # Panics
    /// It is refused.
    pub fn attach_for(&self, one_sided: bool) -> (RawDirect, Option<ExposedMemory>) {
        let mut direct = RawDirect::connect_for(&self.place, one_sided);
        let message = self.sealed_attach(&direct.nonce, one_sided);
        let answer = direct.exchange(&message);
        let key = self.key.attach_key();
        let attached = Attached::open(&answer, &key, &CLIENT_NONCE, &direct.nonce);
        let grant = attached.expect("an answer").result.expect("a grant");
        direct.number = grant.connection;
        (direct, grant.one_sided)
    }

    /// The message that attaches the connection of this nonce.
    pub fn attach_message(&self, server: &Nonce) -> Vec<u8> {
        self.sealed_attach(server, false)
    }

    fn sealed_attach(&self, server: &Nonce, one_sided: bool) -> Vec<u8> {
        let attach = Attach {
            session: self.number,
            nonce: CLIENT_NONCE,
            one_sided,
        };
        attach.seal(&self.key.attach_key(), server).to_vec()
    }

    /// A request of this session on `on` for all that a reference covers.
    pub fn request(&self, on: &mut RawDirect, reference: &Reference) -> Request {
        on.sequence += 1;
        Request {
            mac: MAC,
            inline: true,
            marked: false,
            odd_generation: false,
            session: self.number,
            connection: on.number,
            sink_tag: 0,
            sequence: on.sequence,
            address: reference.address,
            key: reference.key,
            epoch: reference.epoch,
            sink_offset: 0,
            handle: reference.handle,
            length: reference.length,
        }
    }

    /// The request under this session's key.
    pub fn seal(&self, request: &Request) -> Vec<u8> {
        request.seal(&self.key.mac_key(MAC, 0)).to_vec()
    }
}

const CLIENT_NONCE: Nonce = [6; 16];

fn call(
    rpc: &mut dyn QueuePair,
    xid: u32,
    procedure: Procedure,
    arguments: &impl Encode,
) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    rpc::call(
        &mut w,
        xid,
        PROGRAM,
        PROGRAM_VERSION,
        procedure.code(),
        &Auth::None,
    );
    arguments.encode(&mut w);
    let reply = exchange(rpc, &message);
    let reply = rpc::parse_reply(&reply).expect("a reply");
    assert_eq!(reply.xid, xid);
    reply.body.expect("an accepted call").rest().to_vec()
}

/// A direct connection.
pub struct RawDirect {
    pair: Box<dyn QueuePair>,
    /// The server's nonce.
    pub nonce: Nonce,
    number: u32,
    sequence: u64,
}

impl RawDirect {
    /// One that is attached to no session.
    ///
    /// # Panics
    /// The server does not take it.
    pub fn connect(place: &ServerPlace) -> Self {
        Self::connect_for(place, false)
    }

    /// The same, for one-sided reads or guarded ones.
    ///
    /// # Panics
    /// The server does not take it.
    pub fn connect_for(place: &ServerPlace, one_sided: bool) -> Self {
        let pair = place.connect_as(Role::Direct, one_sided);
        let nonce = PrivateData::decode(pair.private_data())
            .expect("the server's nonce")
            .nonce;
        Self {
            pair,
            nonce,
            number: 0,
            sequence: 0,
        }
    }

    /// Its queue pair.
    pub fn pair(&mut self) -> &mut dyn QueuePair {
        &mut *self.pair
    }

    /// Sends a message as it is: the answer.
    ///
    /// # Panics
    /// There is none, or the connection ends.
    pub fn exchange(&mut self, message: &[u8]) -> Vec<u8> {
        exchange(&mut *self.pair, message)
    }

    /// Sends a sealed request: the bytes that come back.
    ///
    /// # Errors
    /// The exception.
    ///
    /// # Panics
    /// The connection ends, or an exception comes with data.
    pub fn read(&mut self, sealed: &[u8]) -> Result<Vec<u8>, Exception> {
        let answer = self.exchange(sealed);
        let (completion, data) = Completion::parse(&answer).expect("a completion");
        match completion.result {
            Ok(_) => Ok(data.to_vec()),
            Err(exception) => {
                assert!(data.is_empty(), "bytes with {exception}");
                Err(exception)
            }
        }
    }
}
