use proptest::prelude::*;

use super::*;
use crate::wire::testing::{bytes, file_handle, golden, round_trip};

const LOCK: Lock<'static> = Lock {
    caller: Name(b"host"),
    file: FileHandle(&[1, 2, 3, 4, 5]),
    owner: Object(b"7@host"),
    process: 7,
    offset: 0x1_0000_0002,
    length: 3,
};
const LOCK_BYTES: &str = "00000004 686f7374
    00000005 01020304 05000000
    00000006 3740686f 73740000
    00000007 00000001 00000002 00000000 00000003";

#[test]
fn locks() {
    golden(
        LockArgs {
            cookie: Object(&[9]),
            block: true,
            exclusive: false,
            lock: LOCK,
            reclaim: false,
            state: 3,
        },
        &format!("00000001 09000000 00000001 00000000 {LOCK_BYTES} 00000000 00000003"),
    );
    golden(
        CancelArgs {
            cookie: Object(&[9]),
            block: false,
            exclusive: true,
            lock: LOCK,
        },
        &format!("00000001 09000000 00000000 00000001 {LOCK_BYTES}"),
    );
    golden(
        UnlockArgs {
            cookie: Object(&[]),
            lock: LOCK,
        },
        &format!("00000000 {LOCK_BYTES}"),
    );
    golden(
        LockResult {
            cookie: Object(&[9]),
            status: Status::Blocked,
        },
        "00000001 09000000 00000003",
    );
}

#[test]
fn tests() {
    golden(
        TestArgs {
            cookie: Object(&[9]),
            exclusive: true,
            lock: LOCK,
        },
        &format!("00000001 09000000 00000001 {LOCK_BYTES}"),
    );
    let cookie = Object(&[1, 2, 3, 4]);
    golden(
        TestResult {
            cookie,
            outcome: Ok(Status::Granted),
        },
        "00000004 01020304 00000000",
    );
    golden(
        TestResult {
            cookie,
            outcome: Err(Holder {
                exclusive: true,
                process: 0xffff_ffff,
                owner: Object(b"o"),
                offset: 5,
                length: 0,
            }),
        },
        "00000004 01020304 00000001
         00000001 ffffffff 00000001 6f000000 00000000 00000005 00000000 00000000",
    );
}

#[test]
fn shares() {
    golden(
        ShareArgs {
            cookie: Object(&[]),
            share: Share {
                caller: Name(b"h"),
                file: FileHandle(&[1]),
                owner: Object(b"o"),
                mode: ShareMode::DenyWrite,
                access: ShareAccess::Both,
            },
            reclaim: true,
        },
        "00000000 00000001 68000000 00000001 01000000 00000001 6f000000
         00000002 00000003 00000001",
    );
    golden(
        ShareResult {
            cookie: Object(&[]),
            status: Status::Failed,
            sequence: 1,
        },
        "00000000 00000009 00000001",
    );
    golden(
        FreeAllArgs {
            name: Name(b"host"),
            state: 6,
        },
        "00000004 686f7374 00000006",
    );
}

#[test]
fn limits() {
    let long = Name(&[b'a'; MAX_NAME as usize + 1]).to_bytes();
    assert!(matches!(
        Name::from_bytes(&long),
        Err(XdrError::TooLong { max: MAX_NAME, .. })
    ));
    let long = Object(&[0; MAX_OBJECT as usize + 1]).to_bytes();
    assert!(matches!(
        Object::from_bytes(&long),
        Err(XdrError::TooLong {
            max: MAX_OBJECT,
            ..
        })
    ));
    assert!(matches!(
        Status::from_bytes(&[0, 0, 0, 10]),
        Err(XdrError::BadValue { value: 10, .. })
    ));
    assert!(Procedure::from_code(6).is_none() && Procedure::from_code(15).is_none());
}

proptest! {
    #[test]
    fn round_trips(
        caller in bytes(20),
        file in file_handle(),
        owner in bytes(40),
        cookie in bytes(9),
        numbers in any::<(u32, u64, u64, u32)>(),
        flags in any::<[bool; 3]>(),
        status in proptest::sample::select(Status::ALL),
        mode in proptest::sample::select(ShareMode::ALL),
        access in proptest::sample::select(ShareAccess::ALL),
    ) {
        let (process, offset, length, state) = numbers;
        let [block, exclusive, reclaim] = flags;
        let (cookie, caller, owner) = (Object(cookie), Name(caller), Object(owner));
        let lock = Lock { caller, file, owner, process, offset, length };
        round_trip(LockArgs { cookie, block, exclusive, lock, reclaim, state });
        round_trip(CancelArgs { cookie, block, exclusive, lock });
        round_trip(TestArgs { cookie, exclusive, lock });
        round_trip(UnlockArgs { cookie, lock });
        round_trip(LockResult { cookie, status });
        let holder = Holder { exclusive, process, owner, offset, length };
        let outcome = if status == Status::Denied { Err(holder) } else { Ok(status) };
        round_trip(TestResult { cookie, outcome });
        let share = Share { caller, file, owner, mode, access };
        round_trip(ShareArgs { cookie, share, reclaim });
        round_trip(ShareResult { cookie, status, sequence: state });
        round_trip(FreeAllArgs { name: caller, state });
    }
}
