//! The server's answer to a call: a result, or the reason why there is none.

use crate::{
    error::CallError,
    nfs::procedure::Procedure,
    transport::{PlacedData, RpcTransport},
};
use odafs_common::wire::{
    rpc::{self, Rejection},
    xdr::{Apart, Reader},
};

/// The xid of a reply and a reader of its result, or the reason why there is none. Data that came apart from the reply
/// is read as `data`.
pub fn answer<'a>(
    transport: &'a dyn RpcTransport,
    data: &'a [u8],
    procedure: &Procedure,
) -> Result<(u32, Result<Reader<'a>, CallError>), CallError> {
    let reply = rpc::parse_reply(transport.message());
    let reply = reply.map_err(|error| misbehaved(procedure, &error))?;
    let body = match reply.body {
        Ok(reader) => {
            let apart = |placed: PlacedData<'_>| Apart::Next {
                bytes: placed.bytes,
                data,
            };
            Ok(match transport.placed().map(apart) {
                Some(apart) => reader.reduced(apart),
                None => reader,
            })
        }
        Err(rejection) => Err(rejected(procedure, rejection)),
    };
    Ok((reply.xid, body))
}

/// The error for an answer that makes no sense.
pub fn misbehaved(procedure: &Procedure, error: &dyn std::fmt::Display) -> CallError {
    CallError::Misbehaved {
        call: procedure.name,
        what: error.to_string(),
    }
}

fn rejected(procedure: &Procedure, rejection: Rejection) -> CallError {
    let call = procedure.name;
    match rejection {
        Rejection::ProgramUnavailable => CallError::Unavailable {
            call,
            what: "no such program",
        },
        Rejection::ProgramMismatch { .. } => CallError::Unavailable {
            call,
            what: "no such version",
        },
        Rejection::ProcedureUnavailable => CallError::Unavailable {
            call,
            what: "no such procedure",
        },
        Rejection::GarbageArguments
        | Rejection::SystemError
        | Rejection::RpcMismatch { .. }
        | Rejection::Auth(_) => CallError::Refused {
            call,
            reason: rejection.to_string(),
        },
    }
}
