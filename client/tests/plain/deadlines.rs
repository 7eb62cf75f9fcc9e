//! How long a server may take.

use super::fake::{Fake, Trouble};
use super::{P, connect, options, pattern};
use odafs::{CallError, Client, Options, ReadError, WriteError};
use std::time::Duration;

/// A client that waits a second for each answer.
fn impatient(fake: &Fake) -> Client {
    let deadline = Duration::from_secs(1);
    connect(
        fake,
        Options {
            deadline,
            ..options()
        },
    )
}

/// The server makes calls of 8 KiB, one after the other.
#[test]
fn a_transfer_may_take_longer_than_a_call() {
    let fake = Fake::start();
    let client = impatient(&fake);
    let file = client.create("a").unwrap();
    let data = pattern(32 * 8192);
    fake.plan(&[(P::Write, Trouble::Late); 32]);
    file.write_at(&data, 0).unwrap();
    assert!(fake.content("a") == data);
    fake.plan(&[(P::Read, Trouble::Late); 32]);
    let mut buf = vec![0; data.len()];
    file.read_exact_at(&mut buf, 0).unwrap();
    assert!(buf == data);
}

#[test]
fn a_transfer_of_which_nothing_is_done_ends() {
    let fake = Fake::start();
    let client = impatient(&fake);
    let file = client.create("a").unwrap();
    let timed_out = |source: &CallError| matches!(source, CallError::TimedOut { .. });
    fake.plan(&[(P::Write, Trouble::Jukebox); 1000]);
    let error = file.write_at(&[1; 8192], 0).unwrap_err();
    assert!(
        matches!(&error, WriteError::Call { source, .. } if timed_out(source)),
        "{error}"
    );
    fake.plan(&[(P::Read, Trouble::Jukebox); 1000]);
    let error = file.read_at(&mut [0; 8192], 0).unwrap_err();
    assert!(
        matches!(&error, ReadError::Call { source, .. } if timed_out(source)),
        "{error}"
    );
}
