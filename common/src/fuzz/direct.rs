use crate::connect::PrivateData;
use crate::direct::{Attach, Attached, Completion, Feedback, Request};
use crate::mac::{MacAlgorithm, MacKey};

const NONCES: [[u8; 16]; 2] = [[1; 16], [2; 16]];

/// A message of the direct protocol, taken for each kind of them.
pub fn messages(bytes: &[u8]) {
    request(bytes);
    completion(bytes);
    attach(bytes);
    attached(bytes);
}

fn request(bytes: &[u8]) {
    let Some((request, body, tag)) = Request::parse(bytes) else {
        return;
    };
    let key = MacKey::new(request.mac, &[3; 32]);
    let sealed = request.seal(&key);
    assert_eq!(
        sealed[..Request::BODY],
        body[..],
        "one form for each request"
    );
    let (again, body, good) = Request::parse(&sealed).expect("what was sealed");
    assert_eq!(again, request);
    assert!(key.verify(body, good));
    assert_eq!(key.verify(body, tag), tag == good);
}

fn completion(bytes: &[u8]) {
    let Some((completion, data)) = Completion::parse(bytes) else {
        return;
    };
    let again = [&completion.encode()[..], data].concat();
    assert_eq!(Completion::parse(&again), Some((completion, data)));
    assert_eq!(
        Feedback::unpack(completion.feedback).pack(),
        completion.feedback
    );
}

fn attach(bytes: &[u8]) {
    let Some((attach, tag)) = Attach::parse(bytes) else {
        return;
    };
    let [_, server] = NONCES;
    let key = MacKey::new(MacAlgorithm::HmacSha256, &[3; 32]);
    let sealed = attach.seal(&key, &server);
    let (again, good) = Attach::parse(&sealed).expect("what was sealed");
    assert_eq!(again, attach);
    assert!(attach.verify(&key, &server, good));
    assert_eq!(attach.verify(&key, &server, tag), tag == good);
}

fn attached(bytes: &[u8]) {
    let [client, server] = NONCES;
    let key = MacKey::new(MacAlgorithm::HmacSha256, &[3; 32]);
    if let Some(attached) = Attached::open(bytes, &key, &client, &server) {
        let again = match attached.result {
            Ok(grant) => Attached::seal(grant, &key, &client, &server),
            Err(exception) => Attached::refuse(exception),
        };
        assert_eq!(
            Attached::open(&again, &key, &client, &server),
            Some(attached)
        );
    }
}

/// Private data of a connection.
pub fn private_data(bytes: &[u8]) {
    if let Some(data) = PrivateData::decode(bytes) {
        assert_eq!(PrivateData::decode(&data.encode()), Some(data));
    }
}
