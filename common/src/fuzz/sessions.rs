use crate::mac::MacAlgorithm;
use crate::session::{Identity, Initiator, Pattern, Responder};

const PARAMETERS: &[u8] = b"parameters";
const SEED: [u8; 32] = [7; 32];

/// The first byte chooses the pattern and whose message the rest is, the client's or the server's.
pub fn noise(bytes: &[u8]) {
    let Some((choice, message)) = bytes.split_first() else {
        return;
    };
    let Some(pattern) = Pattern::from_code(u32::from(choice >> 1) % 3) else {
        return;
    };
    if choice & 1 == 0 {
        responder(pattern, message)
    } else {
        initiator(pattern, message)
    }
}

fn responder(pattern: Pattern, message: &[u8]) {
    let server = Identity::from_secret([1; 32]);
    let read = Responder::read(
        PARAMETERS,
        pattern,
        SEED.into(),
        Some(&server),
        &|_| true,
        message,
    );
    let Ok(responder) = read else { return };
    assert_eq!(responder.client().is_some(), pattern == Pattern::Kk);
    let (key, reply) = responder.reply(b"accepted").expect("a short payload");
    assert!(reply.len() >= 32);
    key.mac_key(MacAlgorithm::HmacSha256, 0).tag(&reply);
}

fn initiator(pattern: Pattern, message: &[u8]) {
    let client = Identity::from_secret([2; 32]);
    let server = Identity::from_secret([1; 32]).public();
    let (client, server) = match pattern {
        Pattern::Nn => (None, None),
        Pattern::Nk => (None, Some(&server)),
        Pattern::Kk => (Some(&client), Some(&server)),
    };
    let (initiator, _) =
        Initiator::start(PARAMETERS, SEED.into(), client, server).expect("keys that fit");
    if let Ok((key, payload)) = initiator.finish(message) {
        assert!(payload.len() < message.len());
        key.mac_key(MacAlgorithm::HmacSha256, 0).tag(&payload);
    }
}
