use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const PARAMETERS: &[u8] = b"everything negotiated";

struct Ends {
    client: Option<Identity>,
    server: Option<Identity>,
    known: Option<PublicKey>,
}

fn identity(byte: u8) -> Identity {
    Identity::from_secret([byte; 32])
}

fn ends(pattern: Pattern) -> Ends {
    let server = (pattern != Pattern::Nn).then(|| identity(1));
    let known = server.as_ref().map(Identity::public);
    Ends {
        client: (pattern == Pattern::Kk).then(|| identity(2)),
        server,
        known,
    }
}

#[test]
fn both_ends_get_one_key() {
    for pattern in [Pattern::Nn, Pattern::Nk, Pattern::Kk] {
        let ends = ends(pattern);
        let (initiator, first) = Initiator::start(
            PARAMETERS,
            [3; 32].into(),
            ends.client.as_ref(),
            ends.known.as_ref(),
        )
        .unwrap();
        let responder = Responder::read(
            PARAMETERS,
            pattern,
            [4; 32].into(),
            ends.server.as_ref(),
            &|_| true,
            &first,
        )
        .unwrap();
        assert_eq!(
            responder.client().copied(),
            ends.client.as_ref().map(Identity::public)
        );
        let (server_key, second) = responder.reply(b"accepted").unwrap();
        assert!(
            !second.windows(8).any(|w| w == b"accepted"),
            "the payload is encrypted"
        );
        let (client_key, payload) = initiator.finish(&second).unwrap();
        assert_eq!(payload, b"accepted");
        for algorithm in [MacAlgorithm::HmacSha256, MacAlgorithm::Blake3] {
            let tag = client_key.mac_key(algorithm, 5).tag(b"m");
            assert!(server_key.mac_key(algorithm, 5).verify(b"m", &tag));
            assert!(!server_key.mac_key(algorithm, 6).verify(b"m", &tag));
        }
        assert!(
            server_key
                .attach_key()
                .verify(b"m", &client_key.attach_key().tag(b"m"))
        );
        assert!(
            !server_key
                .control_key()
                .verify(b"m", &client_key.attach_key().tag(b"m"))
        );
    }
}

#[test]
fn changed_parameters_fail() {
    for pattern in [Pattern::Nn, Pattern::Nk, Pattern::Kk] {
        let ends = ends(pattern);
        let (initiator, first) = Initiator::start(
            PARAMETERS,
            [3; 32].into(),
            ends.client.as_ref(),
            ends.known.as_ref(),
        )
        .unwrap();
        let heard = Responder::read(
            b"a weaker MAC",
            pattern,
            [4; 32].into(),
            ends.server.as_ref(),
            &|_| true,
            &first,
        );
        match heard {
            // NN and its first message carry nothing encrypted: the client notices.
            Ok(responder) => {
                let (_, second) = responder.reply(b"accepted").unwrap();
                assert_eq!(
                    initiator.finish(&second).err(),
                    Some(HandshakeError::BadMessage)
                );
            }
            Err(error) => assert_eq!(error, HandshakeError::BadMessage),
        }
    }
}

#[test]
fn who_is_not_admitted_or_pretends_fails() {
    let server = identity(1);
    let (_, first) = Initiator::start(
        PARAMETERS,
        [3; 32].into(),
        Some(&identity(2)),
        Some(&server.public()),
    )
    .unwrap();
    let read = |admitted: &dyn Fn(&PublicKey) -> bool, message: &[u8]| {
        Responder::read(
            PARAMETERS,
            Pattern::Kk,
            [4; 32].into(),
            Some(&server),
            admitted,
            message,
        )
        .err()
    };
    assert_eq!(read(&|_| true, &first), None);
    assert_eq!(read(&|_| false, &first), Some(HandshakeError::NotAdmitted));
    let mut pretender = first.clone();
    pretender[..32].copy_from_slice(&identity(5).public().0);
    assert_eq!(
        read(&|key| *key == identity(5).public(), &pretender),
        Some(HandshakeError::BadMessage)
    );
    assert_eq!(
        read(&|_| true, &first[..31]),
        Some(HandshakeError::BadMessage)
    );
    assert_eq!(
        read(&|_| true, &vec![0; 5000]),
        Some(HandshakeError::BadMessage)
    );

    let other = identity(6);
    let heard = Responder::read(
        PARAMETERS,
        Pattern::Kk,
        [4; 32].into(),
        Some(&other),
        &|_| true,
        &first,
    );
    assert_eq!(
        heard.err(),
        Some(HandshakeError::BadMessage),
        "made for another server"
    );
    let none = Responder::read(
        PARAMETERS,
        Pattern::Nk,
        [4; 32].into(),
        None,
        &|_| true,
        &first,
    );
    assert_eq!(none.err(), Some(HandshakeError::IdentityMissing));
    let alone = Initiator::start(PARAMETERS, [3; 32].into(), Some(&identity(2)), None);
    assert_eq!(alone.err(), Some(HandshakeError::ServerKeyMissing));
}

#[test]
fn a_server_without_the_key_is_noticed() {
    let (initiator, first) = Initiator::start(
        PARAMETERS,
        [3; 32].into(),
        None,
        Some(&identity(1).public()),
    )
    .unwrap();
    assert!(
        Responder::read(
            PARAMETERS,
            Pattern::Nk,
            [4; 32].into(),
            Some(&identity(9)),
            &|_| true,
            &first
        )
        .is_err()
    );
    assert_eq!(
        initiator.finish(&[0; 80]).err(),
        Some(HandshakeError::BadMessage)
    );
}

#[test]
fn seeds_decide_everything() {
    let run = |client: u8, server: u8| {
        let (initiator, first) =
            Initiator::start(PARAMETERS, [client; 32].into(), None, None).unwrap();
        let responder = Responder::read(
            PARAMETERS,
            Pattern::Nn,
            [server; 32].into(),
            None,
            &|_| true,
            &first,
        )
        .unwrap();
        let (_, second) = responder.reply(b"").unwrap();
        *initiator.finish(&second).unwrap().0.pseudorandom
    };
    assert_eq!(run(1, 2), run(1, 2));
    assert_ne!(run(1, 2), run(1, 3));
    assert_ne!(run(1, 2), run(3, 2));
}

#[test]
fn control_tags_tell_messages_apart() {
    let key = SessionKey::from_bytes([1; 32]).control_key();
    let messages = [
        Control::Rekey {
            session: 1,
            generation: 2,
        },
        Control::Rekeyed {
            session: 1,
            generation: 2,
        },
        Control::Rekey {
            session: 2,
            generation: 1,
        },
        Control::Close { session: 1 },
    ];
    let tags: HashSet<Tag> = messages.iter().map(|message| message.tag(&key)).collect();
    assert_eq!(tags.len(), messages.len());
    for message in messages {
        assert!(message.verify(&key, &message.tag(&key)));
    }
}

#[test]
fn secrets_stay_out_of_logs() {
    assert_eq!(
        format!("{:?}", SessionKey::from_bytes([0xab; 32])),
        "SessionKey(..)"
    );
    let identity = identity(0xab);
    assert!(!format!("{identity:?}").contains("abababab"));
}

#[test]
fn the_window_takes_each_number_once() {
    let mut window = SequenceWindow::default();
    assert!(!window.accept(0));
    assert!(window.accept(1));
    assert!(!window.accept(1));
    assert!(window.accept(3));
    assert!(window.accept(2));
    assert!(!window.accept(2));
    assert!(window.accept(3 + SequenceWindow::SPAN));
    assert!(!window.check(3), "left the window");
    assert!(window.accept(4), "still within it");
    assert!(window.accept(u64::MAX));
    assert!(!window.accept(u64::MAX));
    assert!(window.accept(u64::MAX - SequenceWindow::SPAN + 1));
    assert!(!window.check(u64::MAX - SequenceWindow::SPAN));
}

proptest! {
    #[test]
    fn the_window_agrees_with_a_set(steps in proptest::collection::vec((any::<bool>(), 0u64..1500), 1..400)) {
        let mut window = SequenceWindow::default();
        let mut seen = HashSet::new();
        let mut top = 0u64;
        for (ahead, distance) in steps {
            let sequence = if ahead { top + distance } else { top.saturating_sub(distance) };
            let fresh = sequence != 0
                && !seen.contains(&sequence)
                && (sequence > top || top - sequence < SequenceWindow::SPAN);
            prop_assert_eq!(window.check(sequence), fresh);
            prop_assert_eq!(window.accept(sequence), fresh);
            if fresh {
                seen.insert(sequence);
                top = top.max(sequence);
            }
        }
    }
}
