use super::golden::ATTRIBUTES;
use crate::wire::nfs3::*;
use crate::wire::xdr::{Encode as _, Writer};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_read_reply_in_place_is_the_result(data: Vec<u8>, spare in 0u32..9, eof: bool, before: Vec<u8>) {
        let count = data.len() as u32;
        let mut bytes = before.clone();
        let mut w = Writer::new(&mut bytes);
        let mut reply = ReadReply::begin(&mut w, count + spare);
        prop_assert_eq!(reply.data().len() as u32, count + spare);
        reply.data().fill(0xee);
        reply.data()[..data.len()].copy_from_slice(&data);
        reply.finish(count, eof, &ATTRIBUTES);

        let attributes = Some(ATTRIBUTES);
        let whole = ReadResult::Ok(ReadOk { attributes, count, eof, data: Payload(&data) });
        prop_assert_eq!(&bytes[..before.len()], &before[..]);
        prop_assert_eq!(&bytes[before.len()..], &whole.to_bytes()[..]);
    }
}

#[test]
fn a_cancelled_read_reply_leaves_nothing() {
    let mut bytes = vec![7];
    let mut w = Writer::new(&mut bytes);
    ReadReply::begin(&mut w, 100).cancel();
    assert_eq!(bytes, [7]);
}

#[test]
#[should_panic(expected = "more data than there is room for")]
fn a_read_reply_holds_no_more_than_its_room() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    ReadReply::begin(&mut w, 100).finish(101, false, &ATTRIBUTES);
}
