//! Errors of reads that go together name the one that failed.

use super::fake::{Fake, Trouble};
use super::{P, connect, in_the_end, options, pattern};
use odafs::{Buffer, CallError, Client, FileRequest, IntoRequest, Options, ReadError, ReadRequest};
use std::time::Duration;

/// The call is answered as any.
const NONE: Trouble = Trouble::Short(u32::MAX);

/// A client that soon gives a call up.
fn impatient(fake: &Fake) -> Client {
    let options = Options {
        deadline: Duration::from_millis(300),
        ..options()
    };
    in_the_end(|| Client::connect_with(&fake.url(), options.clone()))
}

#[test]
fn a_refusal_names_the_read_that_is_refused() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    fake.put("a", &pattern(100_000));
    fake.put("b", &pattern(100_000));
    let [a, b] = ["a", "b"].map(|name| client.open(name).unwrap());
    let mut room = [[0; 100]; 3];
    let refused = |error: ReadError| match error {
        ReadError::Server { path, offset, .. } => (path, offset),
        error => panic!("{error}"),
    };
    let [one, two, three] = &mut room;
    fake.plan(&[(P::Read, NONE), (P::Read, Trouble::Full)]);
    let mut requests = [(0, one), (50_000, two), (90_000, three)]
        .map(|(offset, buf)| ReadRequest::new(offset, buf));
    let error = a.read_batch(&mut requests).unwrap_err();
    assert_eq!(refused(error), ("a".into(), 50_000));
    let [one, two, three] = &mut room;
    fake.plan(&[(P::Read, NONE), (P::Read, NONE), (P::Read, Trouble::Full)]);
    let mut requests = [(&a, 0, one), (&b, 1_000, two), (&b, 70_000, three)]
        .map(|(file, offset, buf)| FileRequest::new(file, offset, buf));
    let error = client.read_batch(&mut requests).unwrap_err();
    assert_eq!(refused(error), ("b".into(), 70_000));
    // Of a read in many pieces, it names what was asked for.
    fake.put("a", &pattern(6 << 20));
    let mut long = vec![0; 6 << 20];
    let mut plan = vec![(P::Read, NONE); 500];
    plan.push((P::Read, Trouble::Full));
    fake.plan(&plan);
    let error = a.read_at(&mut long[1..], 1).unwrap_err();
    assert_eq!(refused(error), ("a".into(), 1));
}

#[test]
fn a_lost_answer_is_that_of_the_read_without_one() {
    let fake = Fake::start();
    let client = impatient(&fake);
    fake.put("a", &pattern(100_000));
    let file = in_the_end(|| client.open("a"));
    let mut room = [[0; 100]; 2];
    in_the_end(|| {
        let [one, two] = &mut room;
        fake.plan(&[(P::Read, NONE), (P::Read, Trouble::Stall)]);
        let mut requests = [ReadRequest::new(0, one), ReadRequest::new(50_000, two)];
        let error = file.read_batch(&mut requests).unwrap_err();
        let ReadError::Call { offset, source, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(source, CallError::TimedOut { .. }), "{error}");
        // The answer of the other is there in time, unless this machine stood still.
        if *offset == 50_000 {
            Ok(())
        } else {
            Err(error)
        }
    });
}

/// The server answers none of them, so all that were sent have come.
#[test]
fn short_reads_into_registered_memory_are_made_together() {
    let fake = Fake::start();
    let client = impatient(&fake);
    fake.put("a", &pattern(100_000));
    let file = in_the_end(|| client.open("a"));
    let mut buffer = Buffer::new(1000).unwrap();
    let requests = || [(200, 0), (0, 50_000), (600, 90_000), (650, 10_000), (0, 0)];
    let request = |(at, offset)| match offset {
        0 if at == 0 => IntoRequest::new(50..50, 7),
        _ => IntoRequest::new(at..at + 100, offset),
    };
    let mut wanted = requests().map(request);
    in_the_end(|| {
        let before = fake.count(P::Read);
        fake.plan(&[(P::Read, Trouble::Stall); 3]);
        file.read_batch_into(&mut buffer, &mut wanted).unwrap_err();
        // The fourth overlaps with the third.
        match fake.count(P::Read) - before {
            3 => Ok(()),
            other => Err(other),
        }
    });
    fake.plan(&[]);
    in_the_end(|| file.read_batch_into(&mut buffer, &mut wanted));
    assert_eq!(wanted.map(|request| request.bytes), [100, 100, 100, 100, 0]);
    let data = pattern(100_000);
    assert!(buffer[200..300] == data[..100] && buffer[..100] == data[50_000..50_100]);
    assert!(buffer[600..650] == data[90_000..90_050] && buffer[650..750] == data[10_000..10_100]);
}
