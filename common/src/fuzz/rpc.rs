use super::check;
use crate::wire::record::{RecordAssembler, RecordTooLong};
use crate::wire::rpc::{CallError, parse_call, parse_reply};
use crate::wire::xdr::{Encode, Writer};
use crate::wire::{mount3, portmap};

/// A call, headers and arguments.
pub fn call(bytes: &[u8]) {
    match parse_call(bytes) {
        Ok((header, args)) => {
            let mut again = header.to_bytes();
            // Shorter where AUTH_NONE came with a body, which is ignored.
            assert!(again.len() <= bytes.len() - args.rest().len());
            again.extend_from_slice(args.rest());
            let (decoded, rest) = parse_call(&again).expect("what was encoded");
            assert_eq!((decoded, rest.rest()), (header, args.rest()));
        }
        Err(error) => {
            let mut reply = Vec::new();
            let answered = error.reply(&mut Writer::new(&mut reply));
            assert_eq!(
                answered,
                !matches!(error, CallError::Malformed(_) | CallError::NotCall)
            );
            if answered {
                let reply = parse_reply(&reply).expect("what was encoded");
                assert_eq!(reply.xid.to_be_bytes(), bytes[..4]);
                assert!(reply.body.is_err());
            }
        }
    }
}

/// A reply, headers and results.
pub fn reply(bytes: &[u8]) {
    if let Ok(reply) = parse_reply(bytes) {
        assert_eq!(reply.xid.to_be_bytes(), bytes[..4]);
        if let Ok(results) = reply.body {
            assert!(bytes.ends_with(results.rest()));
        }
    }
}

/// The first byte is the size of the pieces in which the rest, a stream of records, arrives.
pub fn record(bytes: &[u8]) {
    let Some((piece, stream)) = bytes.split_first() else {
        return;
    };
    let whole = records(stream, usize::MAX);
    let pieces = records(stream, usize::from(*piece).max(1));
    assert_eq!(whole, pieces);
}

fn records(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Result<(), RecordTooLong>) {
    const MAX: u32 = 1000;
    let mut assembler = RecordAssembler::new(MAX);
    let mut records = Vec::new();
    for mut here in stream.chunks(piece.min(stream.len().max(1))) {
        while !here.is_empty() {
            match assembler.feed(&mut here) {
                Ok(record) => records.extend(record),
                Err(error) => return (records, Err(error)),
            }
            assert!(assembler.missing() > 0);
        }
    }
    assert!(records.iter().all(|record| record.len() <= MAX as usize));
    (records, Ok(()))
}

/// The first byte chooses between a mapping and a list of them.
pub fn portmap(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, rest)) => check!(portmap::Mapping, rest),
        Some((2, rest)) => check!(portmap::Binding<'_>, rest),
        Some((3, rest)) => {
            check!(portmap::Address<'_>, rest);
            let address: Result<portmap::Address<'_>, _> =
                crate::wire::xdr::Decode::from_bytes(rest);
            if let Ok(address) = address {
                let _ = address.port();
            }
        }
        Some((_, rest)) => check!(portmap::Mappings, rest),
        None => {}
    }
}

/// The first byte is the procedure: the rest is its result, or for UMNT its arguments.
pub fn mount3(bytes: &[u8]) {
    let Some((procedure, rest)) = bytes.split_first() else {
        return;
    };
    match mount3::Procedure::from_code(u32::from(*procedure) % 6) {
        Some(mount3::Procedure::Mount) => check!(mount3::MountResult<'_>, rest),
        Some(mount3::Procedure::Dump) => check!(mount3::Mounts<'_>, rest),
        Some(mount3::Procedure::Unmount) => check!(mount3::DirPath<'_>, rest),
        Some(mount3::Procedure::Export) => check!(mount3::Exports<'_>, rest),
        Some(mount3::Procedure::Null | mount3::Procedure::UnmountAll) | None => {}
    }
}
