//! Objects that change while they are used, by this store, by another and behind both their backs.

mod served;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{Error, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, path::Path};
use odafs::fs::FileSystem;
use odafs_object_store::OdafsStore;
use served::Served;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// More than one piece of a stream.
const LENGTH: usize = 20 << 20;

fn all_of(byte: u8, length: usize) -> Bytes {
    vec![byte; length].into()
}

/// The one byte that all of these are.
fn only(bytes: &[u8]) -> u8 {
    let first = bytes[0];
    assert!(bytes.iter().all(|byte| *byte == first), "a mixture");
    first
}

fn overwrite(other: &FileSystem, name: &str, byte: u8, length: usize) {
    let file = other.resolve(name, true).unwrap().handle;
    other.write_stable(&file, &vec![byte; length], 0).unwrap();
}

#[tokio::test]
async fn a_stream_ends_when_its_object_changes_between_the_parts() {
    let served = Served::start();
    let (store, second, other) = (served.store().await, served.store().await, served.other());
    let at = Path::from("a");
    let changes: [(&str, &dyn Fn()); 2] = [
        ("in place", &|| overwrite(&other, "a", 2, LENGTH)),
        ("removed", &|| other.unlink(&other.root(), "a").unwrap()),
    ];
    for (how, change) in changes {
        store.put(&at, all_of(1, LENGTH).into()).await.unwrap();
        // Once through, so that what is cached is put to the test too.
        assert_eq!(
            only(&store.get(&at).await.unwrap().bytes().await.unwrap()),
            1
        );
        let mut parts = store.get(&at).await.unwrap().into_stream();
        let first = parts.next().await.unwrap().unwrap();
        assert!(first.len() < LENGTH);
        change();
        let rest: Result<Vec<Bytes>, Error> = parts.try_collect().await;
        let error = rest.unwrap_err();
        assert!(
            matches!(error, Error::Precondition { .. }),
            "{how}: {error}"
        );
        assert!(error.to_string().contains("get it again"), "{error}");
    }
    // Replaced by a put of another store.
    store.put(&at, all_of(1, LENGTH).into()).await.unwrap();
    let mut parts = store.get(&at).await.unwrap().into_stream();
    parts.next().await.unwrap().unwrap();
    second.put(&at, all_of(3, LENGTH).into()).await.unwrap();
    let rest: Result<Vec<Bytes>, Error> = parts.try_collect().await;
    assert!(matches!(rest.unwrap_err(), Error::Precondition { .. }));
    let now = store.get(&at).await.unwrap();
    assert_eq!(only(&now.bytes().await.unwrap()), 3);
}

/// Writers in place and writers that replace, readers of whole objects and of ranges of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_get_ever_mixes_versions() {
    const SIZE: usize = 256 << 10;
    let served = Served::start();
    let (store, writer, other) = (served.store().await, served.store().await, served.other());
    let at = Path::from("a");
    store.put(&at, all_of(0, SIZE).into()).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, path) = (Arc::clone(&stop), at.clone());
    let writing = tokio::spawn(async move {
        let mut byte = 0_u8;
        while !ended.load(Relaxed) {
            byte = byte.wrapping_add(1);
            if byte.is_multiple_of(4) {
                writer.put(&path, all_of(byte, SIZE).into()).await.unwrap();
            } else {
                // One write of one call: a version begins and ends with it.
                overwrite(&other, "a", byte, SIZE);
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    let ranges: Vec<_> = (0..64_u64).map(|n| n * 4096..n * 4096 + 1000).collect();
    let (mut whole, mut refused, mut seen) = (0, 0, std::collections::BTreeSet::new());
    let began = Instant::now();
    while whole < 100 || seen.len() < 10 {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{whole} gets, {refused} refused"
        );
        match store.get(&at).await {
            Ok(got) => match got.bytes().await {
                Ok(bytes) => {
                    seen.insert(only(&bytes));
                    whole += 1;
                }
                Err(Error::Precondition { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            },
            Err(Error::Precondition { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        match store.get_ranges(&at, &ranges).await {
            Ok(parts) => {
                only(&parts.concat());
            }
            Err(Error::Precondition { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    stop.store(true, Relaxed);
    writing.await.unwrap();
}

#[tokio::test]
async fn changes_by_others_are_seen_by_the_next_get() {
    let served = Served::start();
    let (store, second, other) = (served.store().await, served.store().await, served.other());
    let (at, away) = (Path::from("a"), Path::from("b"));
    let root = other.root();
    for round in 0..20_u8 {
        store.put(&at, all_of(1, 8192).into()).await.unwrap();
        let mut tag = store.head(&at).await.unwrap().e_tag;
        // Until it comes from shared memory without a call.
        for _ in 0..20 {
            assert_eq!(only(&store.get_range(&at, 0..4096).await.unwrap()), 1);
        }
        let mut changed = async |expected: u8| {
            let got = store.get(&at).await.unwrap();
            assert_ne!(got.meta.e_tag, tag, "round {round}");
            tag = got.meta.e_tag.clone();
            assert_eq!(only(&got.bytes().await.unwrap()), expected);
            assert_eq!(
                only(&store.get_range(&at, 0..4096).await.unwrap()),
                expected
            );
        };
        overwrite(&other, "a", 2, 8192);
        changed(2).await;
        second.put(&at, all_of(3, 8192).into()).await.unwrap();
        changed(3).await;
        other.rename(&root, "a", &root, "b").unwrap();
        let gone = store.get_range(&at, 0..4096).await.unwrap_err();
        assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
        assert_eq!(only(&store.get_range(&away, 0..4096).await.unwrap()), 3);
        second.delete(&away).await.unwrap();
        let gone = store.head(&away).await.unwrap_err();
        assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
    }
}

#[tokio::test]
async fn gets_are_of_the_version_asked_for() {
    let served = Served::start();
    let store = served.store().await;
    let at = Path::from("a");
    let put = store.put(&at, "one".into()).await.unwrap();
    let same = GetOptions::new().with_if_match(put.e_tag.clone());
    for _ in 0..10 {
        store.get_opts(&at, same.clone()).await.unwrap();
        let known = GetOptions::new().with_if_none_match(put.e_tag.clone());
        let error = store.get_opts(&at, known).await.unwrap_err();
        assert!(matches!(error, Error::NotModified { .. }), "{error}");
    }
    overwrite(&served.other(), "a", b'2', 3);
    let error = store.get_opts(&at, same).await.unwrap_err();
    assert!(matches!(error, Error::Precondition { .. }), "{error}");
}

/// Two stores, as on two machines, count together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_of_two_stores_lose_nothing() {
    const EACH: u64 = 30;
    let served = Served::start();
    let at = Path::from("count");
    served.store().await.put(&at, "0".into()).await.unwrap();
    let mut counting = Vec::new();
    for _ in 0..2 {
        let (store, at) = (served.store().await, at.clone());
        counting.push(tokio::spawn(async move {
            let mut done = 0;
            while done < EACH {
                let Ok(got) = store.get(&at).await else {
                    continue;
                };
                let version = object_store::UpdateVersion {
                    e_tag: got.meta.e_tag.clone(),
                    version: None,
                };
                let text = got.bytes().await.unwrap();
                let count: u64 = std::str::from_utf8(&text).unwrap().parse().unwrap();
                let next = (count + 1).to_string();
                let mode = PutMode::Update(version);
                match store.put_opts(&at, next.into(), mode.into()).await {
                    Ok(_) => done += 1,
                    Err(Error::Precondition { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    for counter in counting {
        counter.await.unwrap();
    }
    let count = std::fs::read(served.files.join("count")).unwrap();
    assert_eq!(count, (2 * EACH).to_string().as_bytes());
    assert_eq!(
        served.names(),
        ["count"],
        "neither locks nor unfinished objects stay"
    );
}

#[tokio::test]
async fn unfinished_objects_are_hidden_and_go() {
    let served = Served::start();
    let store = served.store().await;
    let at = Path::from("a");
    let mut upload = store.put_multipart(&at).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    let hidden = served.names();
    assert!(
        hidden.len() == 1 && hidden[0].starts_with(".odafs-"),
        "{hidden:?}"
    );
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    assert!(
        store
            .list_with_delimiter(None)
            .await
            .unwrap()
            .objects
            .is_empty()
    );
    let place = Path::from(hidden[0].as_str());
    assert!(store.get(&place).await.is_err() && store.put(&place, "x".into()).await.is_err());
    upload.abort().await.unwrap();
    assert!(served.names().is_empty());
    let late = upload.complete().await.unwrap_err();
    assert!(late.to_string().contains("aborted before"), "{late}");

    let mut upload = store.put_multipart(&at).await.unwrap();
    // Never polled: nothing may be published.
    drop(upload.put_part("lost".into()));
    let error = upload.complete().await.unwrap_err();
    assert!(error.to_string().contains("await every part"), "{error}");
    assert!(served.names().is_empty());

    let mut upload = store.put_multipart(&at).await.unwrap();
    // The length is that of all parts, since the last one is there.
    drop(upload.put_part("lost".into()));
    upload.put_part("last".into()).await.unwrap();
    let error = upload.complete().await.unwrap_err();
    assert!(error.to_string().contains("await every part"), "{error}");
    assert!(served.names().is_empty());

    drop(store.put_multipart(&at).await.unwrap());
    let began = Instant::now();
    while !served.names().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let exists = store
        .put_opts(&at, "x".into(), PutMode::Create.into())
        .await;
    exists.unwrap();
    let again = store
        .put_opts(&at, "y".into(), PutMode::Create.into())
        .await;
    assert!(matches!(again.unwrap_err(), Error::AlreadyExists { .. }));
    assert_eq!(served.names(), ["a"]);
}

#[tokio::test]
async fn ranges_are_read_together() {
    let served = Served::start();
    let store = served.store().await;
    let at = Path::from("dir/a");
    let data: Vec<u8> = (0..9 << 20).map(|at| (at * 7 + at / 251) as u8).collect();
    store.put(&at, data.clone().into()).await.unwrap();
    let size = data.len() as u64;
    let mut ranges: Vec<_> = (0..2000)
        .map(|n| n * 4099 % (size - 5000)..n * 4099 % (size - 5000) + 4096)
        .collect();
    ranges.push(0..5 << 20);
    ranges.push(100..101);
    ranges.push(size - 10..size + 10);
    let got = store.get_ranges(&at, &ranges).await.unwrap();
    assert_eq!(got.len(), ranges.len());
    for (range, got) in ranges.iter().zip(got) {
        assert_eq!(
            got,
            data[range.start as usize..range.end.min(size) as usize]
        );
    }
    assert!(store.get_ranges(&at, &[]).await.unwrap().is_empty());
    #[allow(clippy::reversed_empty_ranges)]
    for bad in [size..size + 1, 10..10, 10..5] {
        assert!(store.get_ranges(&at, &[0..1, bad]).await.is_err());
    }
}

#[tokio::test]
async fn errors_name_the_remedy() {
    for (url, remedy) in [
        ("s3://bucket/data", "odafs+shm://"),
        ("odafs+shm:///no/such/socket?/", "is it running"),
    ] {
        let error = OdafsStore::connect(url).await.unwrap_err().to_string();
        assert!(error.contains(remedy), "{url}: {error}");
    }
    let served = Served::with(&["--read-only"]);
    let error = served.store().await.put(&Path::from("a"), "x".into()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
    let told = error.to_string();
    assert!(
        told.contains("put a") && told.contains("read-only"),
        "{told}"
    );
    assert!(!told.contains(".tmp"), "{told}");
}
