//! A reader over NFS version 4.2 and TCP, the same for every server. It uses one session on one connection with many
//! READs in flight, one in each slot (RFC 8881, sections 2.10 and 18.22).

use anyhow::{Context, Result, anyhow, bail, ensure};
use odafs_common::wire::nfs4::{
    AtMostOne, CallWriter, CallbackSecurity, ChannelAttributes, Claim, ClientOwner,
    CreateSessionArgs, ExchangeIdArgs, FileHandle, List, Name, Opaque, OpenArgs, Operation,
    OperationResult, PROGRAM, Procedure, ReadArgs, ReclaimCompleteArgs, Results, SequenceArgs,
    SessionId, StateId, StateOwner, StateProtection, VERSION, create_session_flag, share_access,
};
use odafs_common::wire::xdr::Reader;

use super::Asks;
use super::nfs::Program;

/// The minor version.
const MINOR: u32 = 2;
/// The most reads in flight.
const SLOTS: u32 = 32;

const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 1 << 20,
    max_response: (1 << 20) + (64 << 10),
    max_response_cached: 4096,
    max_operations: 16,
    max_requests: SLOTS,
    rdma_reads: AtMostOne(None),
};

/// A session on a connection of its own.
pub(crate) struct Session {
    program: Program,
    id: SessionId,
    /// The number of the last request in each slot.
    sequences: Vec<u32>,
    /// The id of the client.
    pub client: u64,
}

impl Session {
    /// Connects and makes a session; with `hears`, callbacks may come over its connection, which is for their sender to do without.
    ///
    /// # Errors
    /// The server cannot be reached, does not serve version 4.2, or does not admit this client.
    pub fn connect(url: &odafs::Url, spin: bool, hears: bool) -> Result<Self> {
        let odafs::ServerAddress::NfsTcp(host) = &url.server else {
            bail!("{url} is not an nfs:// URL");
        };
        let mut session = Self {
            program: Program::connect((&host.name, host.port), (PROGRAM, VERSION), spin)?,
            id: SessionId::default(),
            sequences: vec![0; SLOTS as usize],
            client: 0,
        };
        session.begin(hears)?;
        Ok(session)
    }

    /// Sends a compound, and passes its results to `take`.
    pub fn call<T>(
        &mut self,
        operations: &[Operation<'_>],
        take: impl FnOnce(&[OperationResult<'_>]) -> Option<T>,
    ) -> Result<T> {
        self.send(operations)?;
        let (_, body) = self.program.receive()?;
        let results = Results::begin(body)?;
        let all: Vec<_> = results.collect::<Result<_, _>>()?;
        take(&all).ok_or_else(|| anyhow!("the server refused: {:?}", all.last()))
    }

    fn send(&mut self, operations: &[Operation<'_>]) -> Result<u32> {
        self.program.send_with(Procedure::Compound.code(), |w| {
            let call = CallWriter::compound(w, Opaque(b""), MINOR);
            let pushed = operations.iter();
            pushed.fold(call, |call, one| call.push(one)).finish();
        })
    }

    fn begin(&mut self, hears: bool) -> Result<()> {
        let verifier = std::process::id().to_be_bytes();
        let name = format!("odafs bench {verifier:?} {:?}", std::time::Instant::now());
        let exchange = Operation::ExchangeId(ExchangeIdArgs {
            client: ClientOwner {
                verifier: [1; 8],
                id: Opaque(name.as_bytes()),
            },
            flags: 0,
            protection: StateProtection::None,
            implementation: AtMostOne(None),
        });
        let (client, sequence) = self.call(&[exchange], |all| match all.last() {
            Some(OperationResult::ExchangeId(Ok(done))) => Some((done.client_id, done.sequence)),
            _ => None,
        })?;
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: client,
            sequence,
            flags: if hears {
                create_session_flag::BACK_CHANNEL
            } else {
                0
            },
            fore: CHANNEL,
            back: CHANNEL,
            callback_program: 0x4000_0000,
            callback_security: List(vec![CallbackSecurity::None]),
        });
        let (session, slots) = self.call(&[create], |all| match all.last() {
            Some(OperationResult::CreateSession(Ok(made))) => {
                Some((made.session, made.fore.max_requests))
            }
            _ => None,
        })?;
        ensure!(slots >= SLOTS, "the server gives {slots} slots");
        (self.id, self.client) = (session, client);
        let complete = Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        });
        let sequence = self.sequence(0);
        self.call(&[sequence, complete], |all| match all {
            [_, OperationResult::ReclaimComplete(Ok(()))] => Some(()),
            _ => None,
        })
    }

    /// The next request of a slot.
    pub fn sequence(&mut self, slot: u32) -> Operation<'static> {
        let number = &mut self.sequences[slot as usize];
        *number += 1;
        Operation::Sequence(SequenceArgs {
            session: self.id,
            sequence: *number,
            slot,
            highest_slot: SLOTS - 1,
            cache: false,
        })
    }
}

/// The names of a path.
pub(crate) fn names(path: &[u8]) -> Vec<&[u8]> {
    let names = path.split(|&byte| byte == b'/');
    names.filter(|name| !name.is_empty()).collect()
}

/// A file that is open on a server.
pub struct Nfs4File {
    session: Session,
    handle: Vec<u8>,
    state: StateId,
    free: Vec<u32>,
    /// Slots in use, by the number of the call.
    asked: Vec<(u32, u32)>,
}

impl Nfs4File {
    /// Opens the URL's file, in a session of its own.
    ///
    /// # Errors
    /// The server cannot be reached, speaks no version 4.2, or does not let us in.
    pub fn open(url: &odafs::Url, spin: bool) -> Result<Self> {
        let mut session = Session::connect(url, spin, false)?;
        let names = names(&url.path);
        let (file, directories) = names.split_last().context("the URL names no file")?;
        let mut operations = vec![session.sequence(0), Operation::PutRootFileHandle];
        operations.extend(directories.iter().map(|name| Operation::Lookup(Name(name))));
        operations.push(Operation::Open(OpenArgs {
            sequence: 0,
            share_access: share_access::READ,
            share_deny: 0,
            owner: StateOwner {
                client_id: session.client,
                owner: Opaque(b"bench"),
            },
            create: None,
            claim: Claim::Null(Name(file)),
        }));
        operations.push(Operation::GetFileHandle);
        let (state, handle) = session.call(&operations, |all| match all {
            [
                ..,
                OperationResult::Open(Ok(opened)),
                OperationResult::GetFileHandle(Ok(handle)),
            ] => Some((opened.state, handle.0.to_vec())),
            _ => None,
        })?;
        Ok(Self {
            session,
            handle,
            state,
            free: (0..SLOTS).collect(),
            asked: Vec::new(),
        })
    }
}

impl Asks for Nfs4File {
    fn ask(&mut self, offset: u64, length: usize) -> Result<u64> {
        let slot = self.free.pop().context("more reads than slots")?;
        let sequence = self.session.sequence(slot);
        let read = Operation::Read(ReadArgs {
            state: self.state,
            offset,
            count: length as u32,
        });
        let number = self.session.send(&[
            sequence,
            Operation::PutFileHandle(FileHandle(&self.handle)),
            read,
        ])?;
        self.asked.push((number, slot));
        Ok(u64::from(number))
    }

    fn answer(&mut self) -> Result<(u64, &[u8])> {
        let (number, body): (u32, Reader<'_>) = self.session.program.receive()?;
        let at = self.asked.iter().position(|(asked, _)| *asked == number);
        let (_, slot) = self
            .asked
            .swap_remove(at.context("an answer to no question")?);
        self.free.push(slot);
        let results = Results::begin(body)?;
        match results.last() {
            Some(Ok(OperationResult::Read(Ok(read)))) => Ok((u64::from(number), read.data.0)),
            other => bail!("READ fails: {other:?}"),
        }
    }
}
