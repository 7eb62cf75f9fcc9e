use super::*;
use crate::direct::Feedback;
use crate::mac::{MacAlgorithm, Tag};
use crate::reference::{AccessKey, Epoch, Handle, Reference};
use crate::session::Pattern;
use crate::wire::nfs3::{Failed, FileHandle, Payload, Status};
use crate::wire::testing::{
    attributes, bytes, file_handle, golden, payload, post_attributes, round_trip,
};
use crate::wire::xdr::{Decode, Encode, Writer, XdrError};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

const REFERENCE: Reference = Reference {
    address: 0x1_0000_2000,
    length: 0x1000,
    handle: Handle(0x77),
    key: AccessKey(0x0102_0304_0506_0708),
    epoch: Epoch(0x99),
};
const REFERENCE_HEX: &str =
    "00000001 00002000 00001000 00000077 01020304 05060708 00000000 00000099";

const FEEDBACK: Feedback = Feedback {
    evictions_per_second: 3,
    hit_permille: 995,
    settled_seconds: 60,
};
/// 60, 995 and 3 from the highest to the lowest byte.
const FEEDBACK_HEX: &str = "003c03e3 00000003";

const FILE: FileHandle<'static> = FileHandle(&[0xaa; 4]);
const FILE_HEX: &str = "00000004 aaaaaaaa";

fn join(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn opening_a_session() {
    golden(
        Parameters {
            version: 1,
            features: 0,
            macs: 3,
            mode: Mode::OneSided,
            pattern: Pattern::Nk,
            export: b"/data",
            fabric: b"shm",
        },
        "00000001 00000000 00000000 00000003 00000001 00000001
         00000005 2f646174 61000000 00000003 73686d00",
    );
    golden(
        OpenSessionArgs {
            parameters: b"pppp",
            handshake: b"hello",
        },
        "00000004 70707070 00000005 68656c6c 6f000000",
    );
    golden(
        OpenSessionResult::Ok(Handshake(b"ok")),
        "00000000 00000002 6f6b0000",
    );
    golden(
        OpenSessionResult::Err(OdafsStatus::BadHandshake),
        "00000003",
    );
    golden(
        Accepted {
            session: 5,
            features: 1,
            mac: MacAlgorithm::Blake3,
            mode: Mode::Guarded,
            page_bytes: 4096,
            life: 0x1111_2222_3333_4444,
            rekey_requests: 1 << 32,
            rekey_seconds: 3600,
            max_read: 65536,
        },
        "00000005 00000000 00000001 00000001 00000000 00001000 11112222 33334444
         00000001 00000000 00000e10 00010000",
    );
}

#[test]
fn reading() {
    golden(
        ReadArgs {
            file: FILE,
            offset: 0x1000,
            count: 4096,
            session: 5,
            want_references: true,
            chunk: None,
        },
        &join(&[
            FILE_HEX,
            "00000000 00001000 00001000 00000005 00000001 00000000",
        ]),
    );
    golden(
        ReadArgs {
            file: FILE,
            offset: 0,
            count: 1,
            session: 0,
            want_references: false,
            chunk: Some(Chunk {
                tag: 0xabcd,
                offset: 0x10,
                length: 0x20,
            }),
        },
        &join(&[
            FILE_HEX,
            "00000000 00000000 00000001 00000000 00000000
             00000001 0000abcd 00000000 00000010 00000020",
        ]),
    );
    golden(
        ReadResult::Ok(ReadOk {
            attributes: None,
            change: 0x42,
            eof: true,
            count: 2,
            data: Payload(b"hi"),
            references: vec![PageReference {
                page: 1,
                reference: REFERENCE,
            }],
            counter: Some(REFERENCE),
            feedback: FEEDBACK,
        }),
        &join(&[
            "00000000 00000000 00000000 00000042 00000001 00000002 00000002 68690000
             00000001 00000000 00000001",
            REFERENCE_HEX,
            "00000001",
            REFERENCE_HEX,
            FEEDBACK_HEX,
        ]),
    );
    golden(
        ReadResult::Err(Failed {
            status: Status::Stale,
            rest: None,
        }),
        "00000046 00000000",
    );
}

#[test]
fn asking_for_references() {
    golden(
        GetRefsArgs {
            session: 5,
            ranges: vec![Range {
                file: FILE,
                offset: 0,
                length: u64::MAX,
            }],
            resume: 6,
        },
        &join(&[
            "00000005 00000001",
            FILE_HEX,
            "00000000 00000000 ffffffff ffffffff 00000000 00000006",
        ]),
    );
    golden(
        GetRefsResult::Ok(GetRefsOk {
            files: vec![
                FileReferences {
                    range: 0,
                    status: Status::Ok,
                    change: 2,
                    size: 3,
                    counter: None,
                    references: vec![PageReference {
                        page: 4,
                        reference: REFERENCE,
                    }],
                },
                FileReferences {
                    range: 7,
                    status: Status::Access,
                    change: 0,
                    size: 0,
                    counter: None,
                    references: vec![],
                },
            ],
            resume: 9,
        }),
        &join(&[
            "00000000 00000002
             00000000 00000000 00000000 00000002 00000000 00000003 00000000 00000001 00000000 00000004",
            REFERENCE_HEX,
            "00000007 0000000d 00000000 00000000 00000000 00000000 00000000 00000000
             00000000 00000009",
        ]),
    );
    golden(GetRefsResult::Err(OdafsStatus::NoSession), "00000002");
}

#[test]
fn delegations() {
    golden(
        DelegateArgs {
            session: 5,
            returned: vec![6],
            file: Some(FILE),
        },
        &join(&["00000005 00000001 00000000 00000006 00000001", FILE_HEX]),
    );
    golden(DelegateResult::Ok(None), "00000000 00000000");
    golden(DelegateResult::Err(OdafsStatus::TryLater), "00000006");
    let many = DelegateArgs {
        session: 5,
        returned: vec![6; MAX_RETURNED as usize + 1],
        file: None,
    };
    assert!(DelegateArgs::from_bytes(&many.to_bytes()).is_err());
}

#[test]
fn rekeying_and_closing() {
    let tag = *b"0123456789abcdef";
    let tag_hex = "30313233 34353637 38396162 63646566";
    golden(
        RekeyArgs {
            session: 5,
            generation: 6,
            tag,
        },
        &join(&["00000005 00000006", tag_hex]),
    );
    golden(
        RekeyResult::Ok(Rekeyed { generation: 6, tag }),
        &join(&["00000000 00000006", tag_hex]),
    );
    golden(RekeyResult::Err(OdafsStatus::Denied), "00000001");
    golden(
        CloseSessionArgs { session: 5, tag },
        &join(&["00000005", tag_hex]),
    );
    golden(CloseSessionResult::Ok(()), "00000000");
    golden(
        CloseSessionResult::Err(OdafsStatus::ServerFault),
        "00000007",
    );
}

#[test]
fn limits() {
    let too_long = |result: Result<(), XdrError>, limit: u32| {
        assert!(
            matches!(result, Err(XdrError::TooLong { max, .. }) if max == limit),
            "{result:?}"
        );
    };
    let long = [0u8; 2049];
    let parameters = OpenSessionArgs {
        parameters: &long,
        handshake: b"",
    }
    .to_bytes();
    too_long(
        OpenSessionArgs::from_bytes(&parameters).map(drop),
        MAX_PARAMETERS,
    );
    let handshake = OpenSessionArgs {
        parameters: b"",
        handshake: &long[..1025],
    }
    .to_bytes();
    too_long(
        OpenSessionArgs::from_bytes(&handshake).map(drop),
        MAX_HANDSHAKE,
    );
    let range = Range {
        file: FILE,
        offset: 0,
        length: 0,
    };
    let ranges = GetRefsArgs {
        session: 1,
        ranges: vec![range; 65],
        resume: 0,
    }
    .to_bytes();
    too_long(GetRefsArgs::from_bytes(&ranges).map(drop), MAX_RANGES);
    let references = vec![
        PageReference {
            page: 0,
            reference: REFERENCE
        };
        2049
    ];
    let file = FileReferences {
        range: 0,
        status: Status::Ok,
        change: 0,
        size: 0,
        counter: None,
        references,
    };
    too_long(
        FileReferences::from_bytes(&file.to_bytes()).map(drop),
        MAX_RANGE_REFERENCES,
    );
}

#[test]
fn unknown_choices_are_refused() {
    for (at, what) in [(16, "direct mode"), (20, "handshake pattern")] {
        let mut bytes = Parameters {
            version: 1,
            features: 0,
            macs: 1,
            mode: Mode::Guarded,
            pattern: Pattern::Nn,
            export: b"/",
            fabric: b"tcp",
        }
        .to_bytes();
        Writer::new(&mut bytes).patch_u32(at, 9);
        let error = XdrError::BadValue { what, value: 9 };
        assert_eq!(Parameters::from_bytes(&bytes), Err(error));
    }
}

fn reference() -> impl Strategy<Value = Reference> {
    any::<([u64; 3], [u32; 2])>().prop_map(|([address, key, epoch], [length, handle])| Reference {
        address,
        length,
        handle: Handle(handle),
        key: AccessKey(key),
        epoch: Epoch(epoch),
    })
}

fn references() -> impl Strategy<Value = Vec<PageReference>> {
    let one =
        (any::<u64>(), reference()).prop_map(|(page, reference)| PageReference { page, reference });
    vec(one, 0..4)
}

fn feedback() -> impl Strategy<Value = Feedback> {
    any::<u64>().prop_map(Feedback::unpack)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sessions(
        words: [u32; 4],
        longs: [u64; 3],
        mode in select(Mode::ALL),
        pattern in select(&[Pattern::Nn, Pattern::Nk, Pattern::Kk][..]),
        mac in select(&[MacAlgorithm::HmacSha256, MacAlgorithm::Blake3][..]),
        (export, fabric) in (bytes(30), bytes(16)),
        (parameters, handshake) in (bytes(60), bytes(60)),
        tag: Tag,
        status in select(&OdafsStatus::ALL[1..]),
    ) {
        let [session, version, macs, generation] = words;
        let [features, life, rekey_requests] = longs;
        round_trip(Parameters { version, features, macs, mode, pattern, export, fabric });
        round_trip(OpenSessionArgs { parameters, handshake });
        round_trip(OpenSessionResult::Ok(Handshake(handshake)));
        round_trip(OpenSessionResult::Err(status));
        round_trip(Accepted {
            session,
            features,
            mac,
            mode,
            page_bytes: version,
            life,
            rekey_requests,
            rekey_seconds: macs,
            max_read: generation,
        });
        round_trip(RekeyArgs { session, generation, tag });
        round_trip(RekeyResult::Ok(Rekeyed { generation, tag }));
        round_trip(CloseSessionArgs { session, tag });
    }

    #[test]
    fn reads(
        file in file_handle(),
        (offset, change) in any::<(u64, u64)>(),
        (count, session) in any::<(u32, u32)>(),
        (want_references, eof) in any::<(bool, bool)>(),
        chunk in of(any::<(u32, u64, u32)>()),
        attributes in post_attributes(),
        data in payload(),
        references in references(),
        counter in of(reference()),
        feedback in feedback(),
    ) {
        let chunk = chunk.map(|(tag, offset, length)| Chunk { tag, offset, length });
        round_trip(ReadArgs { file, offset, count, session, want_references, chunk });
        round_trip(ReadResult::Ok(ReadOk {
            attributes,
            change,
            eof,
            count,
            data,
            references,
            counter,
            feedback,
        }));
    }

    #[test]
    fn queries(
        files in vec(file_handle(), 0..4),
        (offset, length, resume) in any::<(u64, u64, u64)>(),
        session: u32,
        status in select(Status::ALL),
        references in references(),
        counter in of(reference()),
    ) {
        let ranges = files.iter().map(|file| Range { file: *file, offset, length }).collect();
        round_trip(GetRefsArgs { session, ranges, resume });
        let file = FileReferences { range: session, status, change: offset, size: length, counter, references };
        round_trip(GetRefsResult::Ok(GetRefsOk { files: vec![file; files.len()], resume }));
    }

    #[test]
    fn delegating(
        file in of(file_handle()),
        returned in vec(any::<u64>(), 0..4),
        (session, lease_ms) in any::<(u32, u32)>(),
        (number, change) in any::<(u64, u64)>(),
        attributes in attributes(),
        status in select(&OdafsStatus::ALL[1..]),
    ) {
        round_trip(DelegateArgs { session, returned, file });
        round_trip(DelegateResult::Ok(Some(Delegated { number, lease_ms, change, attributes })));
        round_trip(DelegateResult::Ok(None));
        round_trip(DelegateResult::Err(status));
    }

    #[test]
    fn a_reply_in_place_is_the_result(
        data: Vec<u8>,
        spare in 0u32..9,
        eof: bool,
        change: u64,
        attributes in attributes(),
        references in references(),
        counter in of(reference()),
        feedback in feedback(),
    ) {
        let count = data.len() as u32;
        let mut bytes = vec![7];
        let mut w = Writer::new(&mut bytes);
        let mut reply = ReadReply::begin(&mut w, count + spare);
        prop_assert_eq!(reply.data().len() as u32, count + spare);
        reply.data().fill(0xee);
        reply.data()[..data.len()].copy_from_slice(&data);
        reply.finish(ReadFacts {
            count,
            eof,
            attributes: &attributes,
            change,
            references: &references,
            counter,
            feedback,
        });
        let attributes = Some(attributes);
        let data = Payload(&data);
        let whole = ReadOk { attributes, change, eof, count, data, references, counter, feedback };
        prop_assert_eq!(&bytes[1..], &ReadResult::Ok(whole).to_bytes()[..]);
    }
}

#[test]
fn a_cancelled_reply_leaves_nothing() {
    let mut bytes = vec![7];
    let mut w = Writer::new(&mut bytes);
    ReadReply::begin(&mut w, 100).cancel();
    assert_eq!(bytes, [7]);
}
