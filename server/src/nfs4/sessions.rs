//! Clients, sessions and the like of minor versions 1 and 2 (RFC 8881, sections 18.33 to 18.38, 18.46, 18.48, 18.50 and
//! 18.51). SEQUENCE, with which compounds begin, is taken by [`super::compound`].

use odafs_common::wire::nfs4::{
    AtMostOne, ExchangeIdArgs, ExchangeIdOk, GrantedProtection, List, OpCode, Opaque, Operation,
    ResultWriter, ServerOwner, StateProtection, Status, exchange_id_flag,
};
use odafs_common::wire::xdr::Encode;

use super::compound::{Compound, Done};
use super::state::{Principal, Sender, Way};

/// Operations that need no session, and are alone in their compound without one.
pub(super) fn need_none(code: OpCode) -> bool {
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
) -> Done<Status> {
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
            know_way(c);
            let made = state.create_session(c.now, who, way(c), arguments)?;
            done(w, code, made)
        }
        O::DestroySession(session) => {
            state.destroy_session(c.now, c.connection, session)?;
            done(w, code, ())
        }
        O::DestroyClientId(client) => {
            state.destroy_client_id(c.now, *client)?;
            done(w, code, ())
        }
        O::BindConnection(arguments) => {
            if matches!(c.sender, Sender::Client(_)) {
                return Err(Status::NotOnlyOp.into());
            }
            know_way(c);
            let bound = state.bind_connection(c.now, way(c), arguments)?;
            done(w, code, bound)
        }
        O::ReclaimComplete(arguments) => {
            state.reclaim_complete(c.now, client(c)?, arguments.one_file_system)?;
            done(w, code, ())
        }
        O::FreeStateId(given) => {
            let given = c.state(*given)?;
            state.free_state(c.now, client(c)?, &given)?;
            done(w, code, ())
        }
        O::TestStateId(arguments) => {
            let client = client(c)?;
            let states = arguments.states.0.iter();
            let found = states.map(|given| state.test_state(c.now, client, given));
            done(w, code, List::<_, { u32::MAX }>(found.collect()))
        }
        O::BackchannelCtl(arguments) => {
            let session = c.session.ok_or(Status::OpNotInSession)?;
            state.back_channel_ctl(&session, arguments)?;
            done(w, code, ())
        }
        // Only the first operation is one.
        O::Sequence(_) => Err(Status::SequencePos.into()),
        _ => Err(Status::ServerFault.into()),
    }
}

/// How the compound came.
fn way(c: &Compound<'_>) -> Way {
    Way {
        connection: c.connection,
        carries: c.back.is_some(),
        back: c.back.as_ref().is_some_and(|back| back.is_open()),
        minor: c.minor,
    }
}

/// Callbacks may go the way that the compound came. To be said before the session is told so.
fn know_way(c: &Compound<'_>) {
    if let Some(back) = &c.back {
        c.server.callbacks.lock().know(c.connection, back);
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
) -> Done<Status> {
    match arguments.protection {
        StateProtection::None => {}
        // Both take RPCSEC_GSS, which nobody speaks here.
        StateProtection::MachineCredential(_) => return Err(Status::Inval.into()),
        StateProtection::Ssv(_) => return Err(Status::EncrAlgUnsupp.into()),
    }
    // A flag of minor version 2.
    if c.minor == 1 && arguments.flags & exchange_id_flag::SUPPORTS_FENCE_OPS != 0 {
        return Err(Status::Inval.into());
    }
    let mut state = c.server.state.lock();
    let exchanged = state.exchange_id(c.now, Principal(c.acting.uid()), arguments)?;
    drop(state);
    let ok = ExchangeIdOk {
        client_id: exchanged.client_id,
        sequence: exchanged.sequence,
        flags: exchanged.flags,
        protection: GrantedProtection::None,
        owner: ServerOwner {
            minor: 0,
            major: Opaque(&c.server.owner),
        },
        scope: Opaque(&c.server.owner),
        implementation: AtMostOne(None),
    };
    done(w, OpCode::ExchangeId, ok)
}

fn done(w: &mut ResultWriter<'_, '_>, code: OpCode, body: impl Encode) -> Done<Status> {
    w.push(code, &Ok::<_, Status>(body));
    Ok(Status::Ok)
}
