//! Space that is set aside.

use super::*;

#[test]
fn a_file_reaches_to_the_end_of_what_is_set_aside_and_reads_as_before() {
    let served = Place::on_disk().open(true);
    let file = file(&served, &me(), "f", 0o644);
    let store = &served.store;
    store.write_at(&me(), file, 0, b"data").unwrap();
    match store.allocate(&me(), file, 2, 998) {
        Err(refused) if refused.status == Status::NotSupp => {
            println!("not tried: the file system sets no space aside");
            return;
        }
        done => done.unwrap(),
    }
    assert_eq!(store.getattr(file).unwrap().size, 1000);
    store.allocate(&me(), file, 0, 10).unwrap();
    assert_eq!(store.getattr(file).unwrap().size, 1000);
    let mut read = [1; 1000];
    assert_eq!(store.read_at(file, 0, &mut read).unwrap(), 1000);
    assert_eq!(read[..4], *b"data");
    assert_eq!(read[4..], [0; 996]);
    let root = store.root();
    assert_eq!(
        store.allocate(&me(), root, 0, 10).unwrap_err().status,
        Status::IsDir
    );
}
