//! Answers to callbacks: right ones, and such as no client gives.

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::{Decode as _, Encode as _, Writer};

/// What a client says of a file that it may have changed: a mask, and values that need not be those of the mask.
const TOLD: [(Bitmap, &[u8]); 8] = {
    const ASKED: Bitmap = Bitmap::of(&[Attribute::Change, Attribute::Size]);
    [
        (ASKED, &[1; 16]),
        (ASKED, &[0; 16]),
        (ASKED, &[0xff; 16]),
        (ASKED, &[1; 12]),
        (ASKED, &[]),
        (Bitmap::of(&[Attribute::Size]), &[1; 8]),
        (ASKED.with(33).with(255), &[1; 64]),
        (Bitmap::EMPTY, &[]),
    ]
};

/// Whether a call is one for the attributes that a client keeps.
pub(super) fn asks_for_attributes(message: &[u8]) -> bool {
    let operations = operations(message);
    operations.is_some_and(|(_, all)| matches!(all[..], [_, CallbackOperation::GetAttributes(_)]))
}

fn operations(message: &[u8]) -> Option<(u32, Vec<CallbackOperation<'_>>)> {
    let (header, mut r) = rpc::parse_call(message).ok()?;
    let compound = CallbackHeader::decode(&mut r).ok()?;
    let mut operations = Vec::new();
    for _ in 0..compound.operations {
        operations.push(CallbackOperation::decode(&mut r).ok()?);
    }
    r.finish().ok()?;
    Some((header.xid, operations))
}

/// A reply to a callback. `None` if nobody can read it.
pub(crate) fn callback_reply(message: &[u8], how: u8) -> Option<Vec<u8>> {
    let (xid, operations) = operations(message)?;
    let [CallbackOperation::Sequence(sequence), told] = &operations[..] else {
        return None;
    };
    let result = result(told, how)?;
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    rpc::reply_success(&mut w, xid);
    let mut taken = CallbackSequenceOk {
        session: sequence.session,
        sequence: sequence.sequence,
        slot: sequence.slot,
        highest_slot: 0,
        target_highest_slot: 0,
    };
    match (how % 8, how >= 128) {
        (1, _) => bytes.extend_from_slice(&[how; 20]),
        (2, _) => refuses(&mut w, Status::Delay),
        (3, _) => refuses(&mut w, Status::BadSession),
        (5, true) => {
            taken.session[0] ^= 1;
            taken.sequence = u32::MAX;
            taken.slot = u32::MAX;
            answers(&mut w, taken, &result);
        }
        // The result of another operation than was sent.
        (6, true) => {
            let other = match result {
                CallbackResult::Recall(_) => CallbackResult::NotifyLock(Ok(())),
                _ => CallbackResult::Recall(Ok(())),
            };
            answers(&mut w, taken, &other);
        }
        (7, true) => {
            answers(&mut w, taken, &result);
            bytes.truncate(bytes.len() - 3);
        }
        _ => answers(&mut w, taken, &result),
    }
    Some(bytes)
}

fn refuses(w: &mut Writer<'_>, status: Status) {
    status.encode(w);
    w.opaque(b"");
    w.u32(1);
    CallbackResult::Sequence(Err(status)).encode(w);
}

fn answers(w: &mut Writer<'_>, taken: CallbackSequenceOk, result: &CallbackResult<'_>) {
    let bytes = result.to_bytes();
    w.opaque_fixed(&bytes[4..8]);
    w.opaque(b"");
    w.u32(2);
    CallbackResult::Sequence(Ok(taken)).encode(w);
    w.opaque_fixed(&bytes);
}

/// The result of a callback behind its CB_SEQUENCE. `None`: it is another CB_SEQUENCE.
fn result(told: &CallbackOperation<'_>, how: u8) -> Option<CallbackResult<'static>> {
    let statuses = [
        Status::Ok,
        Status::Ok,
        Status::Delay,
        Status::BadStateId,
        Status::BadHandle,
        Status::NotSupp,
    ];
    let done = match statuses[usize::from(how / 8) % statuses.len()] {
        Status::Ok => Ok(()),
        refused => Err(refused),
    };
    Some(match told {
        CallbackOperation::GetAttributes(_) => {
            let (mask, values) = TOLD[usize::from(how / 8) % TOLD.len()];
            CallbackResult::GetAttributes(done.map(|()| RawAttributes {
                mask,
                values: AttributeValues(values),
            }))
        }
        CallbackOperation::Recall(_) => CallbackResult::Recall(done),
        CallbackOperation::RecallAny(_) => CallbackResult::RecallAny(done),
        CallbackOperation::RecallSlot(_) => CallbackResult::RecallSlot(done),
        CallbackOperation::NotifyLock(_) => CallbackResult::NotifyLock(done),
        CallbackOperation::Offload(_) => CallbackResult::Offload(done),
        CallbackOperation::Sequence(_) => return None,
    })
}
