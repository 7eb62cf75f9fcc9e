//! The tests that `object_store` has for all stores.

mod served;

use object_store::integration as suite;
use odafs_object_store::OdafsStore;
use served::Served;

async fn all(store: &OdafsStore) {
    // In the order of the crate's own stores: some leave objects that others do not expect.
    suite::put_get_delete_list(store).await;
    suite::list_with_offset_exclusivity(store).await;
    suite::get_opts(store).await;
    suite::list_uses_directories_correctly(store).await;
    suite::list_with_delimiter(store).await;
    suite::rename_and_copy(store).await;
    suite::copy_if_not_exists(store).await;
    suite::copy_rename_nonexistent_object(store).await;
    suite::stream_get(store).await;
    suite::put_opts(store, true).await;
    suite::multipart_race_condition(store, true).await;
    suite::multipart_out_of_order(store).await;
}

async fn missing(store: &OdafsStore) {
    let error = suite::get_nonexistent_object(store, None)
        .await
        .unwrap_err();
    assert!(
        matches!(error, object_store::Error::NotFound { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn over_shared_memory() {
    let served = Served::start();
    let store = served.store().await;
    all(&store).await;
    missing(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_plain_nfs() {
    let served = Served::start();
    let store = OdafsStore::connect(&served.tcp).await.unwrap();
    all(&store).await;
    missing(&store).await;
}
