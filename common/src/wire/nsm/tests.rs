use proptest::prelude::*;

use super::*;
use crate::wire::testing::{bytes, golden, round_trip};
use crate::wire::xdr::{Decode as _, Encode as _, XdrError};

const ID: MonitorId<'static> = MonitorId {
    host: HostName(b"there"),
    caller: Caller {
        name: HostName(b"here"),
        program: 100_021,
        version: 4,
        procedure: 16,
    },
};

#[test]
fn monitoring() {
    let id = "00000005 74686572 65000000 00000004 68657265 000186b5 00000004 00000010";
    golden(ID, id);
    golden(
        Monitor {
            id: ID,
            private: *b"0123456789abcdef",
        },
        &format!("{id} 30313233 34353637 38396162 63646566"),
    );
    golden(
        Monitored {
            outcome: Outcome::Fail,
            state: 5,
        },
        "00000001 00000005",
    );
}

#[test]
fn notifying() {
    golden(
        Notification {
            host: HostName(b"host"),
            state: 7,
        },
        "00000004 686f7374 00000007",
    );
    let long = HostName(&[b'a'; MAX_NAME as usize + 1]).to_bytes();
    assert!(matches!(
        HostName::from_bytes(&long),
        Err(XdrError::TooLong { max: MAX_NAME, .. })
    ));
}

proptest! {
    #[test]
    fn round_trips(
        names in [bytes(20), bytes(20)],
        numbers in any::<[u32; 4]>(),
        private in any::<[u8; 16]>(),
        outcome in proptest::sample::select(Outcome::ALL),
    ) {
        let [program, version, procedure, state] = numbers;
        let [host, name] = names.map(HostName);
        let id = MonitorId { host, caller: Caller { name, program, version, procedure } };
        round_trip(Monitor { id, private });
        round_trip(Monitored { outcome, state });
        round_trip(Notification { host, state });
    }
}
