//! Extended attributes, where the file system has them.

use super::*;
use crate::store::XattrHow;

#[test]
fn what_is_set_is_told_listed_and_removed() {
    let served = Place::on_disk().open(true);
    let file = file(&served, &me(), "f", 0o644);
    let store = &served.store;
    let set = |name: &[u8], value: &[u8], how| store.set_xattr(&me(), file, name, value, how);
    match set(b"one", b"1", XattrHow::Create) {
        Err(refused) if refused.status == Status::NotSupp => {
            println!("not tried: the file system has no extended attributes of users");
            return;
        }
        done => done.unwrap(),
    }
    let status = |done: Result<()>| done.unwrap_err().status;
    assert_eq!(status(set(b"one", b"2", XattrHow::Create)), Status::Exist);
    assert_eq!(status(set(b"two", b"2", XattrHow::Replace)), Status::NoEnt);
    assert_eq!(status(set(b"", b"2", XattrHow::Either)), Status::Inval);
    assert_eq!(status(set(b"a\0b", b"2", XattrHow::Either)), Status::Inval);
    let long = [b'n'; 300];
    let refused = status(set(&long, b"2", XattrHow::Either));
    assert_eq!(refused, Status::NameTooLong);
    let huge = vec![0; (1 << 16) + 1];
    assert_eq!(status(set(b"big", &huge, XattrHow::Either)), Status::FBig);
    set(b"one", b"more", XattrHow::Replace).unwrap();
    set(b"", b"", XattrHow::Either).unwrap_err();
    set(b"empty", b"", XattrHow::Either).unwrap();
    assert_eq!(store.xattr(&me(), file, b"one").unwrap(), b"more");
    assert_eq!(store.xattr(&me(), file, b"empty").unwrap(), b"");
    let names = store.xattrs(&me(), file).unwrap();
    assert_eq!(names, [b"empty".to_vec(), b"one".to_vec()]);
    store.remove_xattr(&me(), file, b"one").unwrap();
    assert_eq!(
        status(store.remove_xattr(&me(), file, b"one")),
        Status::NoEnt
    );
    assert_eq!(
        store.xattr(&me(), file, b"one").unwrap_err().status,
        Status::NoEnt
    );
}
