//! Objects as the files that they are: long ones, links, permissions.

mod served;

use futures_util::StreamExt as _;
use object_store::{
    Error, ObjectStore as _, ObjectStoreExt as _, PutMode, UpdateVersion, path::Path,
};
use odafs::{Credential, Options};
use odafs_object_store::OdafsStore;
use served::Served;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::PathBuf,
    process::Command,
};

/// Runs an ignored test, against a server of this process, in another process that begins with a command of the shell.
fn run_after(command: &str, test: &str, served: &Served) {
    let script = format!("{command} && exec \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env("SERVED_SHM", &served.shm)
        .env("SERVED_FILES", &served.files)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// In that process: a store over the server, and the files that it serves.
async fn served_elsewhere() -> (OdafsStore, PathBuf) {
    let told = |name: &str| std::env::var(name).unwrap();
    let store = OdafsStore::connect(&told("SERVED_SHM")).await.unwrap();
    (store, told("SERVED_FILES").into())
}

#[tokio::test]
#[ignore = "is run by the next one"]
async fn a_long_object_in_little_memory() {
    const LENGTH: u64 = 100 << 30;
    let (store, files) = served_elsewhere().await;
    let file = fs::File::create(files.join("long")).unwrap();
    file.set_len(LENGTH).unwrap();
    // The second one is of an object that is open.
    for _ in 0..2 {
        let got = store.get(&Path::from("long")).await.unwrap();
        assert_eq!(got.meta.size, LENGTH);
        let mut parts = got.into_stream();
        for _ in 0..3 {
            let part = parts.next().await.unwrap().unwrap();
            assert!(part.len() <= 64 << 20 && part.iter().all(|byte| *byte == 0));
        }
    }
}

/// No get takes memory for all of it.
#[test]
fn an_object_longer_than_memory_is_streamed() {
    // In KiB.
    let little = "ulimit -v 33554432";
    run_after(little, "a_long_object_in_little_memory", &Served::start());
}

#[tokio::test]
async fn an_update_of_a_link_compares_what_is_read() {
    let served = Served::start();
    let store = served.store().await;
    let (object, link) = (Path::from("a"), Path::from("link"));
    store.put(&object, "one".into()).await.unwrap();
    symlink("a", served.files.join("link")).unwrap();
    let e_tag = store.get(&link).await.unwrap().meta.e_tag;
    assert_eq!(e_tag, store.head(&object).await.unwrap().e_tag);
    let listed: Vec<_> = store
        .list(None)
        .map(|meta| meta.unwrap().e_tag)
        .collect()
        .await;
    assert_eq!(listed, [e_tag.clone(), e_tag.clone()]);
    let mode = PutMode::Update(UpdateVersion {
        e_tag,
        version: None,
    });
    store
        .put_opts(&link, "two".into(), mode.into())
        .await
        .unwrap();
    let bytes = store.get(&link).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, "two");
    let bytes = store.get(&object).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, "one", "the link was replaced");
}

#[tokio::test]
#[ignore = "is run by the next one"]
async fn put_with_another_umask() {
    let (store, files) = served_elsewhere().await;
    store
        .put(&Path::from("made/above/a"), "a".into())
        .await
        .unwrap();
    fs::write(files.join("local"), "a").unwrap();
    fs::create_dir(files.join("above")).unwrap();
    let mode = |name: &str| fs::metadata(files.join(name)).unwrap().mode();
    assert_eq!(mode("local") & 0o777, 0o664);
    assert_eq!(mode("made/above/a"), mode("local"));
    assert_eq!(mode("made/above"), mode("above"));
    assert_eq!(mode("made"), mode("above"));
}

#[test]
fn permissions_are_those_that_the_umask_leaves() {
    run_after("umask 002", "put_with_another_umask", &Served::start());
}

#[tokio::test]
async fn what_may_not_be_removed_is_not_told_as_missing() {
    let served = Served::start();
    let root = fs::metadata(&served.files).unwrap();
    if root.uid() != 0 {
        eprintln!("not tested: a server that serves others than its user has to be root's");
        return;
    }
    // Anyone may make files here, and remove none but his own.
    fs::set_permissions(&served.files, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(served.files.join("a"), "a").unwrap();
    fs::create_dir(served.files.join("directory")).unwrap();
    let options = Options {
        credential: Credential {
            uid: 1000,
            gid: 1000,
            groups: Vec::new(),
        },
        ..Options::default()
    };
    let store = OdafsStore::connect_with(&served.tcp, options)
        .await
        .unwrap();
    let error = store.delete(&Path::from("a")).await.unwrap_err();
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
    for missing in ["directory", "none"] {
        let error = store.delete(&Path::from(missing)).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}
