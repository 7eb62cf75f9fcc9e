//! What a server that started anew has lost is written again, and hides nothing.

use super::fake::{Fake, Trouble};
use super::{P, connect, options};
use odafs::{Changes, Client, CreateOptions, Options, WriteError};
use std::time::Duration;

#[test]
fn what_is_written_again_hides_nothing_later() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 10_000], 0).unwrap();
    file.write_at(&[2; 6_000], 1_000).unwrap();
    // The server loses both of those, and keeps these.
    fake.plan(&[(P::Write, Trouble::Restart)]);
    file.write_at(&[3; 2_000], 500).unwrap();
    file.write_stable_at(&[4; 1_000], 3_000).unwrap();
    file.sync().unwrap();
    let mut expected = vec![1; 10_000];
    expected[1_000..7_000].fill(2);
    expected[500..2_500].fill(3);
    expected[3_000..4_000].fill(4);
    assert_eq!(fake.content("a"), expected);
    assert_eq!(fake.count(P::Commit), 2);
    file.sync().unwrap();
    assert_eq!(fake.count(P::Commit), 2);
}

#[test]
fn what_is_written_again_hides_nothing_of_others() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 4_000], 0).unwrap();
    file.write_stable_at(&[2; 1_000], 500).unwrap();
    // What was stable is there, until somebody else replaces it.
    fake.world.lock().unwrap().restart();
    let mut content = vec![0; 500];
    content.extend([3; 1_000]);
    fake.put("a", &content);
    file.sync().unwrap();
    let mut expected = vec![1; 4_000];
    expected[500..1_500].fill(3);
    assert!(fake.content("a") == expected);
}

#[test]
fn what_is_written_again_hides_nothing_that_was_not_answered() {
    let fake = Fake::start();
    let options = Options {
        deadline: Duration::from_secs(2),
        ..options()
    };
    let client = connect(&fake, options);
    let file = client.create("a").unwrap();
    file.write_at(&[1; 4_000], 0).unwrap();
    // The server loses that, does this one, and never says so.
    fake.world.lock().unwrap().restart();
    let mut trouble = vec![(P::Write, Trouble::CutAfter)];
    trouble.extend([(P::Write, Trouble::Stall); 30]);
    fake.plan(&trouble);
    let error = file.write_stable_at(&[2; 1_000], 500).unwrap_err();
    assert!(matches!(error, WriteError::Call { .. }), "{error}");
    fake.plan(&[]);
    file.sync().unwrap();
    let mut expected = vec![1; 4_000];
    expected[500..1_500].fill(2);
    assert_eq!(fake.content("a"), expected);
}

/// The server's disk failed when the write was to be made stable, and the server has it all the same.
#[test]
fn what_is_written_again_hides_nothing_that_failed() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 4_000], 0).unwrap();
    fake.plan(&[(P::Write, Trouble::Fails)]);
    let error = file.write_stable_at(&[2; 1_000], 500).unwrap_err();
    assert!(matches!(error, WriteError::Server { .. }), "{error}");
    let mut seen = [0; 1_000];
    file.read_exact_at(&mut seen, 500).unwrap();
    assert_eq!(seen, [2; 1_000]);
    file.sync().unwrap();
    let mut expected = vec![1; 4_000];
    expected[500..1_500].fill(2);
    assert_eq!(fake.content("a"), expected);
}

/// The server writes the pieces that it has when it refuses the first.
#[test]
fn what_is_written_again_hides_nothing_that_was_sent_beside_what_is_refused() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 24 << 10], 0).unwrap();
    fake.plan(&[(P::Write, Trouble::Full)]);
    let error = file.write_at(&[2; 24 << 10], 0).unwrap_err();
    assert!(matches!(error, WriteError::Server { .. }), "{error}");
    let mut expected = vec![1; 24 << 10];
    expected[8 << 10..].fill(2);
    assert_eq!(file.read_to_end().unwrap(), expected);
    fake.plan(&[(P::Commit, Trouble::Restart)]);
    file.sync().unwrap();
    assert!(fake.content("a") == expected);
}

/// Another write, of which nobody knows, hid all of it when both were lost; and that one cannot be sent again at first.
#[test]
fn a_sync_that_failed_is_made_up_for_by_the_next() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 1_000], 500).unwrap();
    fake.plan(&[(P::Write, Trouble::Fails)]);
    file.write_at(&[2; 4_000], 0).unwrap_err();
    fake.plan(&[(P::Commit, Trouble::Restart), (P::Write, Trouble::Full)]);
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert!(fake.content("a") == [2; 4_000]);
}

/// Nobody will ever sync files that are closed, or removed: they take no memory without end all the same.
#[test]
fn what_nobody_syncs_is_committed_when_it_is_much() {
    const FILES: usize = 100;
    let fake = Fake::start();
    let client = connect(&fake, options());
    for number in 0..FILES {
        let name = format!("file {number}");
        let file = client.create(&name).unwrap();
        file.write_at(&[number as u8; 1 << 20], 0).unwrap();
        if number % 2 == 0 {
            client.remove(&name).unwrap();
        }
    }
    // Half of 64 MiB are committed when there are more.
    let commits = fake.count(P::Commit);
    assert!((60..FILES).contains(&commits), "{commits}");
    let first = client.open("file 1").unwrap();
    first.sync().unwrap();
    assert_eq!(fake.count(P::Commit), commits, "it is stable already");
    let last = client.open("file 99").unwrap();
    last.sync().unwrap();
    assert_eq!(fake.count(P::Commit), commits + 1);
}

/// What is wrong with one file keeps nobody from committing the others.
#[test]
fn what_cannot_be_committed_keeps_no_others_back() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    fake.plan(&[(P::Commit, Trouble::Fails); 30]);
    for number in 0..70 {
        let file = client.create(format!("file {number}")).unwrap();
        file.write_at(&[number; 1 << 20], 0).unwrap();
    }
    let commits = fake.count(P::Commit);
    assert!(commits >= 60, "{commits}");
}

/// Cuts a file by its path.
fn cut(client: &Client, path: &str, size: u64) {
    let changes = Changes {
        size: Some(size),
        ..Changes::default()
    };
    client.set_attributes(path, &changes).unwrap();
}

#[test]
fn what_was_cut_off_is_not_written_again() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 20_000], 0).unwrap();
    cut(&client, "a", 5_000);
    file.write_at(&[2; 1_000], 7_000).unwrap();
    fake.world.lock().unwrap().restart();
    file.sync().unwrap();
    let mut expected = vec![1; 8_000];
    expected[5_000..7_000].fill(0);
    expected[7_000..].fill(2);
    assert_eq!(fake.content("a"), expected);
    // What was stable hid some of what is cut off.
    file.write_at(&[3; 8_000], 0).unwrap();
    file.write_stable_at(&[4; 1_000], 2_000).unwrap();
    cut(&client, "a", 2_500);
    cut(&client, "a", 0);
    fake.world.lock().unwrap().restart();
    file.sync().unwrap();
    assert_eq!(fake.content("a"), []);
}

#[test]
fn a_cut_that_is_refused_forgets_no_write() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 20_000], 0).unwrap();
    fake.plan(&[(P::SetAttributes, Trouble::Full)]);
    let changes = Changes {
        size: Some(0),
        ..Changes::default()
    };
    client.set_attributes("a", &changes).unwrap_err();
    fake.world.lock().unwrap().restart();
    file.sync().unwrap();
    assert_eq!(fake.content("a"), [1; 20_000]);
}

#[test]
fn what_was_cut_off_by_creating_it_again_is_not_written_again() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 20_000], 0).unwrap();
    client.create("a").unwrap();
    assert_eq!(fake.content("a"), []);
    fake.world.lock().unwrap().restart();
    file.sync().unwrap();
    assert_eq!(fake.content("a"), []);
    // Here the server has lost it before, so the file is empty already.
    file.write_at(&[2; 20_000], 0).unwrap();
    fake.world.lock().unwrap().restart();
    client.create("a").unwrap();
    file.sync().unwrap();
    assert_eq!(fake.content("a"), []);
    // Who does not cut it does not forget either.
    file.write_at(&[3; 20_000], 0).unwrap();
    fake.world.lock().unwrap().restart();
    let keeps = CreateOptions {
        truncate: false,
        ..CreateOptions::default()
    };
    client.create_with("a", &keeps).unwrap();
    file.sync().unwrap();
    assert_eq!(fake.content("a"), [3; 20_000]);
}

/// A file of another client is not known to this one, and has another size than a new one.
#[test]
fn a_file_of_others_is_cut_when_it_is_created() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    fake.put("a", &[1; 20_000]);
    let cuts = fake.count(P::SetAttributes);
    client.create("a").unwrap();
    assert_eq!(fake.content("a"), []);
    assert_eq!(fake.count(P::SetAttributes), cuts + 1);
    client.create("b").unwrap();
    assert_eq!(fake.count(P::SetAttributes), cuts + 1, "it is new");
}

/// Who has it open shall hear that it is gone.
#[test]
fn what_was_written_to_a_removed_file_is_kept_while_it_is_open() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("removed").unwrap();
    file.write_at(&[1; 1_000], 0).unwrap();
    client.remove("removed").unwrap();
    // So many that the client commits all that is kept.
    for number in 0..70 {
        let other = client.create(format!("file {number}")).unwrap();
        other.write_at(&[2; 1 << 20], 0).unwrap();
    }
    assert!(matches!(file.sync(), Err(WriteError::Server { .. })));
    file.forget_unsynced();
    file.sync().unwrap();
}
