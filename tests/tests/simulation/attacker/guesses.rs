//! A client with a session of its own, whose messages verify. It guesses what a reference holds, and reads where none of its
//! references reaches.

use super::{Attack, connect, exchange};
use crate::world::{self, World, below, name_of};
use odafs::{Cache, Route, RpcOver, fs::FileSystem};
use odafs_common::connect::{Nonce, PrivateData, Role};
use odafs_common::direct::{Attach, Attached, Completion, Request, VERSION};
use odafs_common::exception::Exception;
use odafs_common::mac::{MacAlgorithm, MacKey};
use odafs_common::reference::{AccessKey, Epoch, Reference};
use odafs_common::session::{Initiator, Pattern, Seed, SessionKey};
use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::odafs::{
    Accepted, Mode, OpenSessionArgs, OpenSessionResult, PROGRAM, Parameters, Procedure, ReadArgs,
    ReadResult, VERSION as PROGRAM_VERSION,
};
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Decode, Encode, Writer};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::{QueuePair, entropy};
use odafs_tests::page::PAGE;

const MAC: MacAlgorithm = MacAlgorithm::Blake3;
const NONCE: Nonce = [6; 16];

/// Reads with references that are genuine but for one thing. The key of the session is right, so the references alone refuse
/// them.
pub(super) fn with_a_session(world: &World) -> Attack {
    let file = handle_of(world, 0)?;
    let mut calls = connect(world, Role::Rpc)?;
    let (key, session) = open_session(&mut *calls)?;
    let mut direct = connect(world, Role::Direct)?;
    let connection = attach(&mut *direct, &key, session)?;
    let mac = key.mac_key(MAC, 0);
    for sequence in 1..=8 {
        let Some(reference) = reference_to(&mut *calls, &file, session)? else {
            continue;
        };
        let request = Request {
            mac: MAC,
            inline: true,
            marked: false,
            odd_generation: false,
            session,
            connection,
            sink_tag: 0,
            sequence,
            address: reference.address,
            key: reference.key,
            epoch: reference.epoch,
            sink_offset: 0,
            handle: reference.handle,
            length: reference.length,
        };
        try_it(world, &mut *direct, &mac, request)?;
        clock::sleep(Nanos::from_micros(below(300)));
    }
    Ok(())
}

/// Sends the request as it is, or with a guess in it.
fn try_it(world: &World, pair: &mut dyn QueuePair, mac: &MacKey, genuine: Request) -> Attack {
    use Exception::{Busy, NotResident, OutOfBounds, Revoked, Stale};
    // Beside the reasons for which a genuine request may be refused.
    let (guess, refusals): (Request, &[Exception]) = match below(5) {
        0 => (genuine, &[]),
        1 => {
            let key = AccessKey(genuine.key.0 ^ 1 << below(64));
            (Request { key, ..genuine }, &[Stale])
        }
        // Later than any that the server has issued.
        2 => {
            let epoch = Epoch(genuine.epoch.0 + (1 << 40));
            (Request { epoch, ..genuine }, &[Stale])
        }
        3 => {
            let length = genuine.length + 1 + below(PAGE as u64) as u32;
            (Request { length, ..genuine }, &[OutOfBounds])
        }
        _ => {
            let address = genuine.address ^ (1 + below(3)) * PAGE as u64;
            (Request { address, ..genuine }, &[OutOfBounds])
        }
    };
    let answer = exchange(pair, &guess.seal(mac))?;
    let (answer, data) = Completion::parse(&answer).expect("a completion");
    let mut tally = world.tally.lock();
    match answer.result {
        Ok(_) => {
            assert!(refusals.is_empty(), "bytes for a guess: {guess:?}");
            tally.all.grants_used += 1;
        }
        Err(exception) => {
            let others = [Stale, NotResident, Revoked, Busy];
            assert!(
                refusals.contains(&exception) || others.contains(&exception),
                "{exception} for {guess:?}"
            );
            assert!(data.is_empty(), "bytes with {exception}");
            tally.all.guesses_refused += u64::from(!refusals.is_empty());
        }
    }
    Ok(())
}

/// The handle of a file, from an honest client.
fn handle_of(world: &World, file: u8) -> Result<Vec<u8>, &'static str> {
    let client = world::connect(world, RpcOver::Messages, (Route::Rpc, Cache::Off))
        .map_err(|_| "cannot connect a client")?;
    let fs = FileSystem::new(&client);
    let found = fs.lookup(&fs.root(), name_of(file));
    let found = found.map_err(|_| "cannot look a file up")?;
    Ok(found.handle.as_bytes().to_vec())
}

fn open_session(calls: &mut dyn QueuePair) -> Result<(SessionKey, u32), &'static str> {
    let parameters = Parameters {
        version: VERSION.into(),
        features: 0,
        macs: MAC.bit(),
        mode: Mode::Guarded,
        pattern: Pattern::Nn,
        export: b"/",
        fabric: b"sim",
    };
    let parameters = parameters.to_bytes();
    let seed = Seed::filled(|seed| entropy::fill(seed));
    let (initiator, handshake) =
        Initiator::start(&parameters, seed, None, None).expect("a handshake");
    let arguments = OpenSessionArgs {
        parameters: &parameters,
        handshake: &handshake,
    };
    let results = call(calls, Procedure::OpenSession, &arguments)?;
    let answer = OpenSessionResult::from_bytes(&results).expect("a result");
    let answer = answer.map_err(|_| "gets no session")?;
    let (key, accepted) = initiator.finish(answer.0).expect("a key");
    let accepted = Accepted::from_bytes(&accepted).expect("granted");
    Ok((key, accepted.session))
}

/// Attaches a connection to a session. Returns its number.
fn attach(direct: &mut dyn QueuePair, key: &SessionKey, session: u32) -> Result<u32, &'static str> {
    let said = PrivateData::decode(direct.private_data()).expect("the server's nonce");
    let attach = Attach {
        session,
        nonce: NONCE,
        one_sided: false,
    };
    let key = key.attach_key();
    let answer = exchange(direct, &attach.seal(&key, &said.nonce))?;
    let attached = Attached::open(&answer, &key, &NONCE, &said.nonce).expect("an answer");
    let grant = attached.result.map_err(|_| "cannot attach")?;
    Ok(grant.connection)
}

/// A reference to the first page of a file.
fn reference_to(
    calls: &mut dyn QueuePair,
    file: &[u8],
    session: u32,
) -> Result<Option<Reference>, &'static str> {
    let arguments = ReadArgs {
        file: FileHandle(file),
        offset: 0,
        count: 64,
        session,
        want_references: true,
        chunk: None,
    };
    let results = call(calls, Procedure::Read, &arguments)?;
    let read = ReadResult::from_bytes(&results).expect("a result");
    let read = read.map_err(|_| "cannot read")?;
    Ok(read.references.first().map(|page| page.reference))
}

/// Makes a call of the ODAFS program.
fn call(
    calls: &mut dyn QueuePair,
    procedure: Procedure,
    arguments: &impl Encode,
) -> Result<Vec<u8>, &'static str> {
    let (mut message, xid) = (Vec::new(), entropy::word() as u32);
    let mut w = Writer::new(&mut message);
    let code = procedure.code();
    rpc::call(&mut w, xid, PROGRAM, PROGRAM_VERSION, code, &Auth::None);
    arguments.encode(&mut w);
    let reply = exchange(calls, &message)?;
    let reply = rpc::parse_reply(&reply).expect("a reply");
    assert_eq!(reply.xid, xid);
    Ok(reply.body.expect("an accepted call").rest().to_vec())
}
