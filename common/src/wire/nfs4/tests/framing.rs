use super::*;
use crate::wire::testing::hex;
use crate::wire::xdr::{Apart, Gap, Reader, Writer, XdrError};

/// A COMPOUND of these operations.
pub fn call(minor_version: u32, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let call = CallWriter::compound(&mut w, Opaque(b"tag"), minor_version);
    let call = operations
        .iter()
        .fold(call, |call, operation| call.push(operation));
    call.finish();
    bytes
}

fn begin(bytes: &[u8]) -> Operations<'_> {
    Operations::begin(Reader::new(bytes)).expect("a compound")
}

#[test]
fn a_compound_is_the_bytes_of_the_rfc() {
    let bytes = call(1, &[Operation::PutRootFileHandle, Operation::GetFileHandle]);
    let digits = "00000003 74616700 00000001 00000002 00000018 0000000a";
    assert_eq!(bytes, hex(digits));

    let mut operations = begin(&bytes);
    assert_eq!(operations.header().tag, Opaque(b"tag"));
    assert_eq!(operations.header().minor_version, 1);
    assert_eq!(operations.left(), 2);
    assert_eq!(operations.next(), Some(Ok(Operation::PutRootFileHandle)));
    assert_eq!(operations.next(), Some(Ok(Operation::GetFileHandle)));
    assert_eq!(operations.next(), None);
    assert_eq!(operations.finish(), Ok(()));
}

#[test]
fn a_reply_is_the_bytes_of_the_rfc() {
    let mut bytes = vec![7];
    let mut w = Writer::new(&mut bytes);
    let mut reply = ResultWriter::begin(&mut w, Opaque(b"tag"));
    reply.push(OpCode::PutRootFileHandle, &StatusResult::Ok(()));
    reply.push(
        OpCode::GetFileHandle,
        &GetFileHandleResult::Ok(FileHandle(b"long")),
    );
    reply.take_back();
    reply.take_back();
    assert_eq!((reply.count(), reply.bytes()), (1, 24));
    reply.fail(OpCode::SetAttributes, Status::Delay);
    assert_eq!(reply.count(), 2);
    reply.finish(Status::Delay);
    let digits = "00002718 00000003 74616700 00000002 00000018 00000000 00000022 00002718 00000000";
    assert_eq!(bytes[1..], hex(digits));

    let mut results = Results::begin(Reader::new(&bytes[1..])).unwrap();
    assert_eq!(results.header().status, Status::Delay);
    let first = OperationResult::PutRootFileHandle(Ok(()));
    assert_eq!(results.next(), Some(Ok(first)));
    let set = SetAttributesResult {
        status: Status::Delay,
        set: Bitmap::EMPTY,
    };
    assert_eq!(
        results.next(),
        Some(Ok(OperationResult::SetAttributes(set)))
    );
    assert_eq!(results.next(), None);
    assert_eq!(results.finish(), Ok(()));
}

#[test]
fn callbacks_have_frames_of_their_own() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let slot = CallbackOperation::RecallSlot(RecallSlotArgs {
        target_highest_slot: 7,
    });
    CallWriter::callback(&mut w, Opaque(b""), 1, 9)
        .push(&slot)
        .finish();
    let digits = "00000000 00000001 00000009 00000001 0000000a 00000007";
    assert_eq!(bytes, hex(digits));
    let mut r = Reader::new(&bytes);
    let header = CallbackHeader {
        tag: Opaque(b""),
        minor_version: 1,
        ident: 9,
        operations: 1,
    };
    assert_eq!(CallbackHeader::decode(&mut r), Ok(header));
    assert_eq!(CallbackOperation::decode(&mut r), Ok(slot));

    let reply = hex("00000000 00000000 00000001 0000000a 00000000");
    let mut results = Results::begin(Reader::new(&reply)).unwrap();
    let expected = CallbackResult::RecallSlot(Ok(()));
    assert_eq!(results.next_as(), Some(Ok(expected)));
    assert_eq!(results.next_as::<CallbackResult<'_>>(), None);
}

/// The result that ends a compound whose second operation has this number.
fn refusal(minor_version: u32, number: u32) -> (OpCode, Status) {
    let mut bytes = call(minor_version, &[Operation::PutRootFileHandle]);
    bytes[15] = 9;
    bytes.extend(number.to_be_bytes());
    let mut operations = begin(&bytes);
    assert!(operations.next().unwrap().is_ok());
    let bad = operations.next().unwrap().unwrap_err();
    assert_eq!(operations.next(), None);
    (bad.code(), bad.status())
}

#[test]
fn operations_that_a_minor_version_lacks_are_illegal() {
    let illegal = (OpCode::Illegal, Status::OpIllegal);
    for (minor, number) in [(0, 2), (0, 40), (1, 59), (2, 76), (2, 10044), (2, u32::MAX)] {
        assert_eq!(refusal(minor, number), illegal, "{number}");
    }
}

#[test]
fn operations_that_are_not_implemented_are_refused() {
    for code in [OpCode::LayoutGet, OpCode::GetDeviceInfo, OpCode::SetSsv] {
        assert_eq!(refusal(1, code.code()), (code, Status::NotSupp));
    }
    for code in OpCode::ALL {
        if code.is_of_minor_version_0_alone() {
            assert_eq!(refusal(1, code.code()), (*code, Status::NotSupp));
            assert_eq!(refusal(0, code.code()), (*code, Status::BadXdr));
        }
    }
}

#[test]
fn arguments_that_are_none_come_after_the_operations_before_them() {
    assert_eq!(
        refusal(0, OpCode::Read.code()),
        (OpCode::Read, Status::BadXdr)
    );
    let bytes = hex("00000000 00000000 00000002 00000018");
    let mut operations = begin(&bytes);
    assert!(operations.next().unwrap().is_ok());
    let missing = BadOperation::Missing(XdrError::Short);
    assert_eq!(operations.next(), Some(Err(missing)));
    assert_eq!(missing.status(), Status::BadXdr);
}

#[test]
fn a_claim_of_a_million_operations_costs_nothing() {
    let bytes = hex("00000000 00000002 000f4240");
    let operations = begin(&bytes);
    assert_eq!(operations.left(), 1_000_000);
}

#[test]
fn every_golden_operation_goes_through_a_compound() {
    for (operation, _) in operations() {
        let code = operation.code();
        let minor = code.minor_version();
        let bytes = call(minor, std::slice::from_ref(&operation));
        assert_eq!(begin(&bytes).next(), Some(Ok(operation)));
    }
}

/// Some data to write.
fn write(data: &'static [u8]) -> Operation<'static> {
    Operation::Write(WriteArgs {
        state: StateId::ANONYMOUS,
        offset: 0,
        stable: Stable::Unstable,
        data: Payload(data),
    })
}

/// A message without these payloads, which occur in it in this order, and their gaps.
fn without(message: &[u8], payloads: &[&[u8]]) -> (Vec<u8>, Vec<Gap>) {
    let (mut rest, mut gaps, mut missing) = (message.to_vec(), Vec::new(), 0);
    for payload in payloads {
        let word = (payload.len() as u32).to_be_bytes();
        let item = [&word[..], payload].concat();
        let found = rest.windows(item.len()).position(|bytes| bytes == item);
        let at = found.expect("a payload") + 4;
        let gap = Gap {
            at: (at + missing) as u32,
            bytes: payload.len() as u32,
        };
        rest.drain(at..at + gap.padded());
        missing += gap.padded();
        gaps.push(gap);
    }
    (rest, gaps)
}

#[test]
fn a_compound_is_read_on_from_where_its_reader_stopped() {
    let all = [
        Operation::PutRootFileHandle,
        write(b"data"),
        Operation::GetFileHandle,
        write(b"more data"),
        write(b""),
    ];
    // The first two payloads come apart from the message, or one of them, or none.
    let (data, more) = (&b"data"[..], &b"more data"[..]);
    for apart in [&[][..], &[data], &[more], &[data, more]] {
        let (bytes, gaps) = without(&call(1, &all), apart);
        // What came apart is known to be there, and not read.
        let known = |operation: &Operation<'static>| match operation {
            Operation::Write(write) if apart.contains(&write.data.0) => self::write(b""),
            operation => operation.clone(),
        };
        let all: Vec<_> = all.iter().map(known).collect();
        let reader = || Reader::new(&bytes).reduced(Apart::Gaps(&gaps));
        for stop in 0..=all.len() {
            let mut operations = Operations::begin(reader()).expect("a compound");
            for expected in &all[..stop] {
                assert_eq!(operations.next().as_ref(), Some(&Ok(expected.clone())));
            }
            let mark = operations.mark();
            let mut resumed = Operations::resume(reader(), mark).expect("the same compound");
            assert_eq!(resumed.header(), operations.header());
            assert_eq!(resumed.left() as usize, all.len() - stop);
            assert_eq!(resumed.apart_left(), operations.apart_left());
            let rest: Result<Vec<_>, _> = resumed.by_ref().collect();
            assert_eq!(rest.as_deref(), Ok(&all[stop..]), "stopped at {stop}");
            assert_eq!((resumed.finish(), resumed.apart_left()), (Ok(()), 0));
        }
    }
    let bytes = call(1, &all);
    let reader = || Reader::new(&bytes);
    let mark = begin(&bytes).mark();
    let elsewhere = Reader::new(&bytes[..12]);
    assert!(Operations::resume(elsewhere, mark).is_err());
    let mut behind = reader();
    assert!(behind.words::<4>().is_ok());
    assert!(behind.resume(reader().mark()).is_err());
}

#[test]
fn a_reply_is_written_on_from_where_its_writer_stopped() {
    let link = ReadLinkOk {
        target: Payload(b"target"),
    };
    let push = |reply: &mut ResultWriter<'_, '_>, at: usize| match at {
        0 => reply.push(OpCode::PutRootFileHandle, &StatusResult::Ok(())),
        1 => reply.push(OpCode::ReadLink, &Ok::<_, Status>(link)),
        2 => {
            reply.push(OpCode::ReadLink, &Ok::<_, Status>(link));
            reply.take_back();
            reply.fail(OpCode::Access, Status::Access);
        }
        _ => {}
    };
    let written = |stop: usize| {
        let mut bytes = vec![7];
        let mut w = Writer::new(&mut bytes);
        let mut reply = ResultWriter::begin(&mut w, Opaque(b"tag"));
        (0..stop).for_each(|at| push(&mut reply, at));
        let (mark, payload) = (reply.mark(), w.payload_range());
        assert_eq!(mark.start(), 1);
        let mut moved = bytes.clone();
        let mut w = Writer::resume(&mut moved, payload);
        let mut reply = ResultWriter::resume(&mut w, mark);
        assert_eq!(reply.count() as usize, stop);
        (stop..3).for_each(|at| push(&mut reply, at));
        reply.finish(Status::Access);
        let payload = w.payload_range();
        (moved, payload)
    };
    let (whole, payload) = written(0);
    let payload = payload.expect("the target");
    assert_eq!(whole[payload.clone()], *b"target");
    for stop in 1..=3 {
        assert_eq!(written(stop), (whole.clone(), Some(payload.clone())));
    }
}

#[test]
fn the_payloads_of_a_compound_that_came_apart_are_found_where_they_belong() {
    let write = write(b"data");
    let more = self::write(b"more data");
    let symlink = Operation::Create(CreateArgs {
        kind: CreateType::Symlink(Payload(b"to")),
        name: Name(b"link"),
        attributes: RawAttributes::default(),
    });
    let directory = Operation::Create(CreateArgs {
        kind: CreateType::Directory,
        name: Name(b"data"),
        attributes: RawAttributes::default(),
    });
    let put = Operation::PutFileHandle(FileHandle(b"data"));
    let bytes = call(0, &[put, write, directory, symlink, more]);
    let found = |rest: &[u8], gaps: &[Gap]| {
        let reader = Reader::new(rest).reduced(Apart::Gaps(gaps));
        payloads_apart(reader).to_vec()
    };
    let (to, more) = (&b"to"[..], &b"more data"[..]);
    for (apart, lengths) in [
        (&[][..], &[][..]),
        (&[to], &[2]),
        (&[more], &[9]),
        (&[to, more], &[2, 9]),
    ] {
        let (rest, mut gaps) = without(&bytes, apart);
        assert_eq!(found(&rest, &gaps), lengths);
        // Their padding may come with them, and nothing else.
        for gap in &mut gaps {
            gap.bytes = gap.padded() as u32;
        }
        assert_eq!(found(&rest, &gaps), lengths);
        if let Some(first) = gaps.first_mut() {
            first.bytes += 1;
            assert_eq!(found(&rest, &gaps), []);
        }
    }
    // The file handle is no payload, and the name is none. What is behind them cannot be read.
    let (rest, gaps) = without(&bytes, &[b"data"]);
    assert_eq!(found(&rest, &gaps), []);
    let (rest, gaps) = without(&bytes, &[b"to", b"link"]);
    assert_eq!(found(&rest, &gaps), [2]);
    assert_eq!(found(&[0; 7], &gaps), []);
}
