//! Many ranges in one call: threads that help, and memory that is used again.

mod served;

use object_store::{ObjectStore as _, ObjectStoreExt as _, path::Path};
use odafs_object_store::OdafsStore;
use served::Served;
use std::{ops::Range, time::Duration};
use tokio::runtime::Builder;

const LENGTH: usize = 9 << 20;
const PAGE: u64 = 4096;

fn content(seed: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + at / 251 + seed * 31) as u8;
    (0..LENGTH).map(byte).collect()
}

/// As many ranges as have 8 MiB together, in no order.
fn ranges() -> Vec<Range<u64>> {
    let pages = LENGTH as u64 / PAGE - 1;
    let start = |n: u64| n * 7919 % pages * PAGE + n % PAGE;
    (0..2048).map(|n| start(n)..start(n) + PAGE).collect()
}

#[track_caller]
fn check(got: &[bytes::Bytes], content: &[u8]) {
    assert_eq!(got.len(), ranges().len());
    for (range, got) in ranges().into_iter().zip(got) {
        assert!(
            got[..] == content[range.start as usize..range.end as usize],
            "{range:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_stays_while_more_is_read() {
    let served = Served::start();
    let store = served.store().await;
    let objects = ["a", "b"].map(Path::from);
    let contents = [content(0), content(1)];
    for (at, content) in objects.iter().zip(&contents) {
        store.put(at, content.clone().into()).await.unwrap();
    }
    let all = ranges();
    let mut kept = store.get_ranges(&objects[0], &all).await.unwrap();
    // One of each allocation is enough to keep it.
    let last = kept.split_off(2000);
    let few: Vec<_> = kept.iter().step_by(100).cloned().collect();
    drop(kept);
    for _ in 0..20 {
        let one = store.get_ranges(&objects[1], &all);
        let other = store.get_ranges(&objects[0], &all);
        let (one, other) = futures_util::future::join(one, other).await;
        check(&one.unwrap(), &contents[1]);
        check(&other.unwrap(), &contents[0]);
    }
    let of = |range: &Range<u64>| &contents[0][range.start as usize..range.end as usize];
    for (range, few) in all[..2000].iter().step_by(100).zip(&few) {
        assert!(few[..] == *of(range), "{range:?}");
    }
    for (range, last) in all[2000..].iter().zip(&last) {
        assert!(last[..] == *of(range), "{range:?}");
    }
}

/// A call is over although the threads that are to help never begin.
#[test]
fn a_call_waits_for_no_thread_that_has_not_begun() {
    let served = Served::start();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = OdafsStore::connect(&served.shm).await.unwrap();
        let (at, content) = (Path::from("a"), content(0));
        store.put(&at, content.clone().into()).await.unwrap();
        let all = ranges();
        let got = store.get_ranges(&at, &all);
        let got = tokio::time::timeout(Duration::from_secs(60), got).await;
        check(&got.expect("it waits").unwrap(), &content);
    });
}
