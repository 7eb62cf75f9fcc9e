use super::*;
use crate::wire::testing::{bytes, golden, hex};
use proptest::collection::vec;
use proptest::prelude::*;

const SYS: AuthSys<'static> = AuthSys {
    stamp: 0x55,
    machine: b"host1",
    uid: 1000,
    gid: 100,
    gids: Groups {
        numbers: GIDS,
        len: 2,
    },
};
const GIDS: [u32; 16] = [100, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A GETATTR call of user 1000 (RFC 5531, section 9 and appendix A).
const CALL_BYTES: &str = "
    deadbeef 00000000 00000002 000186a3 00000003 00000001
    00000001 00000024 00000055 00000005 686f7374 31000000 000003e8 00000064 00000002 00000064 00000004
    00000000 00000000";

#[test]
fn credentials() {
    golden(Auth::None, "00000000 00000000");
    golden(
        Auth::Sys(SYS),
        "00000001 00000024 00000055 00000005 686f7374 31000000 000003e8 00000064 00000002 00000064 00000004",
    );
    golden(
        Auth::Other {
            flavor: 6,
            body: b"gss",
        },
        "00000006 00000003 67737300",
    );
}

#[test]
fn the_body_of_no_credential_is_ignored() {
    assert_eq!(
        Auth::from_bytes(&hex("00000000 00000003 61626300")),
        Ok(Auth::None)
    );
}

#[test]
fn a_call() {
    let golden = hex(CALL_BYTES);
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    call(&mut w, 0xdead_beef, 100_003, 3, 1, &Auth::Sys(SYS));
    assert_eq!(message, golden);
    w = Writer::new(&mut message);
    w.u32(77);
    let (header, mut args) = parse_call(&message).unwrap();
    assert_eq!(
        (header.xid, header.program, header.version, header.procedure),
        (0xdead_beef, 100_003, 3, 1)
    );
    assert_eq!(header.credential, Auth::Sys(SYS));
    assert_eq!(header.verifier, Auth::None);
    assert_eq!(args.u32(), Ok(77));
    assert_eq!(args.finish(), Ok(()));
    for end in 0..golden.len() {
        let (xid, why) = (0xdead_beef, XdrError::Short);
        let expected = match end {
            0..8 => CallError::Malformed(why),
            _ => CallError::Header { xid, why },
        };
        let error = parse_call(&message[..end]).unwrap_err();
        assert_eq!(error, expected, "cut at {end}");
        let garbage = hex("deadbeef 00000001 00000000 00000000 00000000 00000004");
        assert_eq!(answer(error), (end >= 8).then_some(garbage));
    }
}

fn changed(at: usize, word: u32) -> Vec<u8> {
    let mut message = hex(CALL_BYTES);
    Writer::new(&mut message).patch_u32(at * 4, word);
    message
}

fn answer(error: CallError) -> Option<Vec<u8>> {
    let mut reply = Vec::new();
    error.reply(&mut Writer::new(&mut reply)).then_some(reply)
}

#[test]
fn calls_that_cannot_be_served() {
    let error = parse_call(&changed(1, 1)).unwrap_err();
    assert_eq!((error, answer(error)), (CallError::NotCall, None));

    let error = parse_call(&changed(1, 2)).unwrap_err();
    assert!(matches!(
        error,
        CallError::Malformed(XdrError::BadValue { value: 2, .. })
    ));
    assert_eq!(answer(error), None);

    let error = parse_call(&changed(2, 3)).unwrap_err();
    assert_eq!(
        error,
        CallError::RpcMismatch {
            xid: 0xdead_beef,
            version: 3
        }
    );
    assert_eq!(
        answer(error),
        Some(hex("deadbeef 00000001 00000001 00000000 00000002 00000002"))
    );

    // Seventeen groups, or a machine name that runs out of its credential.
    for (at, word) in [(14, 17), (9, 200), (9, 256)] {
        let error = parse_call(&changed(at, word)).unwrap_err();
        assert_eq!(
            error,
            CallError::BadAuth {
                xid: 0xdead_beef,
                why: AuthStat::BadCred
            }
        );
        assert_eq!(
            answer(error),
            Some(hex("deadbeef 00000001 00000001 00000001 00000001"))
        );
    }
    // A verifier of flavour AUTH_SYS without a body.
    let error = parse_call(&changed(17, 1)).unwrap_err();
    assert_eq!(
        error,
        CallError::BadAuth {
            xid: 0xdead_beef,
            why: AuthStat::BadVerf
        }
    );

    let error = parse_call(&changed(7, 401)).unwrap_err();
    assert!(matches!(
        error,
        CallError::Header {
            why: XdrError::TooLong {
                len: 401,
                max: 400,
                ..
            },
            ..
        }
    ));
}

fn reply(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = Vec::new();
    write(&mut Writer::new(&mut message));
    message
}

#[test]
fn replies() {
    let done = reply(|w| {
        reply_success(w, 7);
        w.u32(5);
    });
    assert_eq!(
        done,
        hex("00000007 00000001 00000000 00000000 00000000 00000000 00000005")
    );
    let parsed = parse_reply(&done).unwrap();
    assert_eq!(parsed.xid, 7);
    assert_eq!(parsed.body.unwrap().rest(), [0, 0, 0, 5]);
    for end in 0..24 {
        assert_eq!(parse_reply(&done[..end]).err(), Some(XdrError::Short));
    }
    // A verifier of the server's is skipped.
    let verified = hex("00000007 00000001 00000000 00000006 00000002 abcd0000 00000000");
    assert!(
        parse_reply(&verified)
            .unwrap()
            .body
            .unwrap()
            .rest()
            .is_empty()
    );
}

#[test]
fn rejections() {
    let accepted = "00000007 00000001 00000000 00000000 00000000";
    let denied = "00000007 00000001 00000001";
    let check = |message: Vec<u8>, head: &str, rest: &str, why: Rejection| {
        assert_eq!(message, hex(&[head, rest].concat()));
        let reply = parse_reply(&message).unwrap();
        assert_eq!((reply.xid, reply.body.err()), (7, Some(why)));
        for end in 0..message.len() {
            assert_eq!(parse_reply(&message[..end]).err(), Some(XdrError::Short));
        }
    };
    check(
        reply(|w| reply_prog_unavail(w, 7)),
        accepted,
        "00000001",
        Rejection::ProgramUnavailable,
    );
    check(
        reply(|w| prog_mismatch(w, 7, 3, 4)),
        accepted,
        "00000002 00000003 00000004",
        Rejection::ProgramMismatch { low: 3, high: 4 },
    );
    check(
        reply(|w| proc_unavail(w, 7)),
        accepted,
        "00000003",
        Rejection::ProcedureUnavailable,
    );
    check(
        reply(|w| garbage_args(w, 7)),
        accepted,
        "00000004",
        Rejection::GarbageArguments,
    );
    check(
        reply(|w| system_err(w, 7)),
        accepted,
        "00000005",
        Rejection::SystemError,
    );
    check(
        reply(|w| rpc_mismatch(w, 7)),
        denied,
        "00000000 00000002 00000002",
        Rejection::RpcMismatch { low: 2, high: 2 },
    );
    check(
        reply(|w| auth_error(w, 7, AuthStat::TooWeak)),
        denied,
        "00000001 00000005",
        Rejection::Auth(AuthStat::TooWeak),
    );
}

#[test]
fn what_is_no_reply() {
    for bytes in [
        "00000007 00000000 00000000 00000000 00000000 00000000",
        "00000007 00000001 00000002 00000000 00000000 00000000",
        "00000007 00000001 00000000 00000000 00000000 00000006",
        "00000007 00000001 00000001 00000002 00000000 00000000",
        "00000007 00000001 00000001 00000001 0000000f 00000000",
    ] {
        assert!(
            matches!(parse_reply(&hex(bytes)), Err(XdrError::BadValue { .. })),
            "{bytes}"
        );
    }
}

#[test]
fn a_credential_carries_sixteen_groups() {
    let many: Vec<u32> = (1..=20).collect();
    assert_eq!(Groups::new(&many).as_slice(), &many[..16]);
    assert_eq!(Groups::new(&[]).as_slice(), &[0; 0]);
}

fn auth() -> impl Strategy<Value = Auth<'static>> {
    let sys = (any::<[u32; 3]>(), bytes(255), vec(any::<u32>(), 0..=16)).prop_map(
        |([stamp, uid, gid], machine, gids)| {
            Auth::Sys(AuthSys {
                stamp,
                machine,
                uid,
                gid,
                gids: Groups::new(&gids),
            })
        },
    );
    let other = (2u32.., bytes(400)).prop_map(|(flavor, body)| Auth::Other { flavor, body });
    prop_oneof![Just(Auth::None), sys, other]
}

proptest! {
    #[test]
    fn calls_round_trip(words: [u32; 4], credential in auth(), verifier in auth(), args in bytes(40)) {
        let [xid, program, version, procedure] = words;
        let header = CallHeader { xid, program, version, procedure, credential, verifier };
        let mut message = header.to_bytes();
        message.extend_from_slice(args);
        let (parsed, rest) = parse_call(&message).unwrap();
        prop_assert_eq!(parsed, header);
        prop_assert_eq!(rest.rest(), args);
    }
}
