//! Operations on clients, sessions and stateids of minor versions 1 and 2 (RFC 8881, sections 18.33 to 18.38, 18.46, 18.48,
//! 18.50 and 18.51). [`super::run`] takes the SEQUENCE with which compounds begin.

use odafs_common::wire::nfs4::{
    AtMostOne, ExchangeIdArgs, ExchangeIdOk, GrantedProtection, List, OpCode, Opaque, Operation,
    ResultWriter, ServerOwner, StateProtection, Status, exchange_id_flag,
};

use super::compound::{Compound, Done, Written, plain};
use super::state::{Arrival, Principal, Sender};

/// Whether an operation needs no session. Without one it must be the only operation of its compound.
pub(super) fn needs_none(code: OpCode) -> bool {
    use OpCode as C;
    matches!(
        code,
        C::ExchangeId
            | C::CreateSession
            | C::DestroySession
            | C::DestroyClientId
            | C::BindConnection
    )
}

pub(super) fn run(
    c: &mut Compound<'_>,
    operation: &Operation<'_>,
    w: &mut ResultWriter<'_, '_>,
) -> Written {
    use Operation as O;
    let code = operation.code();
    let who = Principal(c.acting.uid());
    let mut state = c.server.state.lock();
    match operation {
        O::ExchangeId(arguments) => {
            drop(state);
            exchange_id(c, arguments, w)
        }
        O::CreateSession(arguments) => {
            drop(state);
            add_connection(c);
            let arrival = arrival(c);
            let made = c.keeping(|state| state.create_session(c.now, who, arrival, arguments))?;
            plain(w, code, made)
        }
        O::DestroySession(session) => plain(
            w,
            code,
            state.destroy_session(c.now, c.connection, session)?,
        ),
        O::DestroyClientId(client) => plain(w, code, state.destroy_client_id(*client)?),
        O::BindConnection(arguments) => {
            if matches!(c.sender, Sender::Client(_)) {
                return Err(Status::NotOnlyOp.into());
            }
            add_connection(c);
            let bound = state.bind_connection(c.now, arrival(c), arguments)?;
            plain(w, code, bound)
        }
        O::ReclaimComplete(arguments) => {
            state.reclaim_complete(client(c)?, arguments.one_file_system)?;
            plain(w, code, ())
        }
        O::FreeStateId(given) => {
            let given = c.stateid(*given)?;
            plain(w, code, state.free_state(client(c)?, &given)?)
        }
        O::TestStateId(arguments) => {
            let client = client(c)?;
            let stateids = arguments.states.0.iter();
            let found = stateids.map(|given| state.test_state(client, given));
            plain(w, code, List::<_, { u32::MAX }>(found.collect()))
        }
        O::BackchannelCtl(arguments) => {
            let origin = c.origin.ok_or(Status::OpNotInSession)?;
            plain(w, code, state.back_channel_ctl(&origin.session, arguments)?)
        }
        // SEQUENCE must be the first operation.
        O::Sequence(_) => Err(Status::SequencePos.into()),
        _ => Err(Status::ServerFault.into()),
    }
}

fn arrival(c: &Compound<'_>) -> Arrival {
    Arrival {
        connection: c.connection,
        can_call_back: c.back.is_some(),
        calls_back: c.back.as_ref().is_some_and(|back| back.is_open()),
        minor: c.minor,
    }
}

/// Lets callbacks go over the compound's connection. This comes before the session is bound to it.
fn add_connection(c: &Compound<'_>) {
    if let Some(back) = &c.back {
        c.server.callbacks.lock().add(c.connection, back);
    }
}

/// The client of the compound's session.
fn client(c: &Compound<'_>) -> Done<u64> {
    match c.sender {
        Sender::Client(client) => Ok(client),
        Sender::Named => Err(Status::OpNotInSession.into()),
    }
}

fn exchange_id(
    c: &Compound<'_>,
    arguments: &ExchangeIdArgs<'_>,
    w: &mut ResultWriter<'_, '_>,
) -> Written {
    match arguments.protection {
        StateProtection::None => {}
        // Both need RPCSEC_GSS, which the server does not have.
        StateProtection::MachineCredential(_) => return Err(Status::Inval.into()),
        StateProtection::Ssv(_) => return Err(Status::EncrAlgUnsupp.into()),
    }
    // Minor version 2 brought this flag.
    if c.minor == 1 && arguments.flags & exchange_id_flag::SUPPORTS_FENCE_OPS != 0 {
        return Err(Status::Inval.into());
    }
    let who = Principal(c.acting.uid());
    let exchanged = c.keeping(|state| state.exchange_id(c.now, who, arguments))?;
    let ok = ExchangeIdOk {
        client_id: exchanged.client_id,
        sequence: exchanged.sequence,
        flags: exchanged.flags,
        protection: GrantedProtection::None,
        owner: ServerOwner {
            minor: 0,
            major: Opaque(&c.server.server_owner),
        },
        scope: Opaque(&c.server.server_owner),
        implementation: AtMostOne(None),
    };
    plain(w, OpCode::ExchangeId, ok)
}
