use super::*;
use proptest::prelude::*;

fn request() -> Request {
    Request {
        mac: MacAlgorithm::Blake3,
        inline: true,
        marked: false,
        odd_generation: false,
        session: 0x0403_0201,
        connection: 5,
        sink_tag: 6,
        sequence: 7,
        address: 8,
        key: AccessKey(9),
        epoch: Epoch(10),
        sink_offset: 11,
        handle: Handle(12),
        length: 13,
    }
}

fn key() -> MacKey {
    MacKey::new(MacAlgorithm::Blake3, &[1; 32])
}

#[test]
fn request_layout() {
    let wire = request().seal(&key());
    let mut expected = vec![1, 1, 1, 1, 1, 2, 3, 4];
    for half in [5u32, 6] {
        expected.extend(half.to_le_bytes());
    }
    for word in [7u64, 8, 9, 10, 11] {
        expected.extend(word.to_le_bytes());
    }
    for half in [12u32, 13] {
        expected.extend(half.to_le_bytes());
    }
    assert_eq!(wire[..64], expected);
    let (parsed, body, tag) = Request::parse(&wire).unwrap();
    assert_eq!(parsed, request());
    assert!(key().verify(body, tag));
}

#[test]
fn requests_of_other_shapes_are_none() {
    let wire = request().seal(&key());
    for (at, value) in [(0, 2), (1, 3), (2, 2), (3, 8), (3, 0x80)] {
        let mut bad = wire;
        bad[at] = value;
        assert!(Request::parse(&bad).is_none(), "byte {at} = {value}");
    }
    assert!(Request::parse(&wire[..79]).is_none());
    assert!(Request::parse(&[wire.as_slice(), &[0]].concat()).is_none());
}

#[test]
fn completion_layout() {
    let completion = Completion {
        result: Ok(3),
        inline: true,
        sequence: 4,
        epoch: Epoch(5),
        feedback: 6,
    };
    let mut wire = completion.encode().to_vec();
    assert_eq!(wire[..8], [0x81, 1, 0, 0, 3, 0, 0, 0]);
    assert_eq!([wire[8], wire[16], wire[24]], [4, 5, 6]);
    assert!(Completion::parse(&wire).is_none(), "data is missing");
    wire.extend(b"abc");
    assert_eq!(Completion::parse(&wire), Some((completion, &b"abc"[..])));
    wire.push(0);
    assert!(Completion::parse(&wire).is_none(), "data is too long");
}

#[test]
fn every_exception_travels() {
    for exception in Exception::ALL {
        let completion = Completion {
            result: Err(exception),
            inline: false,
            sequence: 1,
            epoch: Epoch(2),
            feedback: 0,
        };
        assert_eq!(
            Completion::parse(&completion.encode()),
            Some((completion, &[][..]))
        );
        let refused = Attached::refuse(exception);
        let opened = Attached::open(&refused, &key(), &[0; 16], &[0; 16]).unwrap();
        assert_eq!(opened.result, Err(exception));
    }
    let mut unknown = Completion {
        result: Ok(0),
        inline: false,
        sequence: 1,
        epoch: Epoch(2),
        feedback: 0,
    }
    .encode();
    unknown[2] = 8;
    assert!(Completion::parse(&unknown).is_none());
}

#[test]
fn an_attach_is_good_for_its_nonces_only() {
    let (client, server) = ([1; 16], [2; 16]);
    let attach = Attach {
        session: 9,
        nonce: client,
        one_sided: true,
    };
    let wire = attach.seal(&key(), &server);
    let (parsed, tag) = Attach::parse(&wire).unwrap();
    assert_eq!(parsed, attach);
    assert!(parsed.verify(&key(), &server, tag));
    assert!(!parsed.verify(&key(), &[3; 16], tag));
    assert!(
        !Attach {
            one_sided: false,
            ..parsed
        }
        .verify(&key(), &server, tag)
    );
    assert!(
        !Attach {
            session: 8,
            ..parsed
        }
        .verify(&key(), &server, tag)
    );

    let grant = Grant {
        connection: 4,
        one_sided: Some(ExposedMemory {
            arena: RemoteAddress {
                tag: 5,
                address: 0x7fff_0000_1000,
            },
            stamps: RemoteAddress {
                tag: 6,
                address: u64::MAX,
            },
            order: ReadOrder::Ordered,
            beside: true,
        }),
    };
    let answer = Attached::seal(grant, &key(), &client, &server);
    assert_eq!(
        Attached::open(&answer, &key(), &client, &server)
            .unwrap()
            .result,
        Ok(grant)
    );
    let orders = [
        (ReadOrder::Fence, false, 1),
        (ReadOrder::Rising, true, 1 | 4 | 8),
        (ReadOrder::Ordered, false, 1 | 2),
    ];
    for (order, beside, flags) in orders {
        let memory = ExposedMemory {
            order,
            beside,
            ..ExposedMemory::default()
        };
        let grant = Grant {
            connection: 4,
            one_sided: Some(memory),
        };
        let answer = Attached::seal(grant, &key(), &client, &server);
        assert_eq!(answer[1], flags);
        let opened = Attached::open(&answer, &key(), &client, &server).unwrap();
        assert_eq!(opened.result, Ok(grant));
    }
    // What a server says without one-sided access means nothing, and is covered by the tag as it came.
    let guarded = Grant {
        connection: 4,
        one_sided: None,
    };
    let mut odd = Attached::seal(guarded, &key(), &client, &server);
    (odd[1], odd[9]) = (2, 7);
    let sent = [&odd[..32], &client, &server].concat();
    odd[32..].copy_from_slice(&key().tag(&sent));
    let opened = Attached::open(&odd, &key(), &client, &server).unwrap();
    assert_eq!(opened.result, Ok(guarded));
    let mut both = answer;
    both[1] |= 2 | 4;
    assert!(Attached::open(&both, &key(), &client, &server).is_none());
    assert!(Attached::open(&answer, &key(), &[9; 16], &server).is_none());
    assert!(Attached::open(&answer, &key(), &client, &[9; 16]).is_none());
    for at in 0..Attached::BYTES {
        let mut forged = answer;
        forged[at] ^= 1;
        let opened = Attached::open(&forged, &key(), &client, &server);
        assert!(
            opened.is_none_or(|a| a.result.is_err()),
            "a grant with byte {at} changed was taken"
        );
    }
}

#[test]
fn feedback_packs() {
    let feedback = Feedback {
        evictions_per_second: 1 << 31,
        hit_permille: 999,
        settled_seconds: 60_000,
    };
    assert_eq!(Feedback::unpack(feedback.pack()), feedback);
}

proptest! {
    #[test]
    fn parsers_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
        let _ = Request::parse(&bytes);
        let _ = Completion::parse(&bytes);
        let _ = Attach::parse(&bytes);
        let _ = Attached::open(&bytes, &key(), &[0; 16], &[0; 16]);
    }

    #[test]
    fn requests_round_trip(a: [u32; 4], b: [u64; 5], flags: (bool, bool, bool, bool), handle: u32) {
        let request = Request {
            mac: if flags.0 { MacAlgorithm::Blake3 } else { MacAlgorithm::HmacSha256 },
            inline: flags.1,
            marked: flags.3,
            odd_generation: flags.2,
            session: a[0],
            connection: a[1],
            sink_tag: a[2],
            sequence: b[0],
            address: b[1],
            key: AccessKey(b[2]),
            epoch: Epoch(b[3]),
            sink_offset: b[4],
            handle: Handle(handle),
            length: a[3],
        };
        let wire = request.seal(&key());
        prop_assert_eq!(Request::parse(&wire).unwrap().0, request);
    }
}
