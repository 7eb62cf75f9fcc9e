//! Extended attributes, where a store has them.

use super::*;
use crate::store::XattrHow;

pub(super) fn set_told_and_removed(store: &dyn Store) {
    let object = file(store, &me(), "f", 0o644);
    let set = |name: &[u8], value: &[u8], how| store.set_xattr(&me(), object, name, value, how);
    match set(b"one", b"1", XattrHow::Create) {
        Err(no) if no.status == Status::NotSupp => {
            eprintln!("suite: no extended attributes here");
            return;
        }
        done => done.unwrap(),
    }
    refused(set(b"one", b"2", XattrHow::Create), Status::Exist);
    refused(set(b"two", b"2", XattrHow::Replace), Status::NoEnt);
    refused(set(b"", b"2", XattrHow::Either), Status::Inval);
    refused(set(b"a\0b", b"2", XattrHow::Either), Status::Inval);
    refused(
        set(&[b'n'; 300], b"2", XattrHow::Either),
        Status::NameTooLong,
    );
    let huge = vec![0; (1 << 16) + 1];
    refused(set(b"big", &huge, XattrHow::Either), Status::FBig);
    set(b"one", b"more", XattrHow::Replace).unwrap();
    set(b"empty", b"", XattrHow::Either).unwrap();
    let told = |name: &[u8]| store.xattr(&me(), object, name);
    assert_eq!(told(b"one").unwrap(), b"more");
    assert_eq!(told(b"empty").unwrap(), b"");
    let names = store.xattrs(&me(), object).unwrap();
    assert_eq!(names, [b"empty".to_vec(), b"one".to_vec()]);
    store.remove_xattr(&me(), object, b"one").unwrap();
    refused(store.remove_xattr(&me(), object, b"one"), Status::NoEnt);
    refused(told(b"one"), Status::NoEnt);
    let names = store.xattrs(&me(), object).unwrap();
    assert_eq!(names, [b"empty".to_vec()]);
}
