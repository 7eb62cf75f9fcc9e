//! What clients take for one server (RFC 8881, section 2.10.5).

use super::*;

/// The owner and the scope that EXCHANGE_ID tells.
fn told(handle_key: [u8; 32]) -> (Vec<u8>, Vec<u8>) {
    let config = ExportsConfig {
        handle_key: handle_key.into(),
        ..ExportsConfig::default()
    };
    let room = Room::of(config, Records::none());
    let client = Client::unknown(&room, 1);
    let reply = client.call(1, &[exchange(b"client", 1, 0)]);
    let exchanged = last!(reply, ExchangeId);
    assert_eq!(exchanged.owner.minor, 0);
    (exchanged.owner.major.0.to_vec(), exchanged.scope.0.to_vec())
}

/// Two file systems may have the same number, as all new ones of some kinds do.
#[test]
fn servers_of_like_stores_are_told_apart_by_their_state_directories() {
    let [one, again, other] = [1, 1, 2].map(|byte| told([byte; 32]));
    assert_eq!(one, again);
    assert_ne!(one.0, other.0);
    assert_ne!(one.1, other.1);
}
