//! Compounds that are sent again over RDMA: with chunks of their own, and the number of the slot as before.

use super::*;

/// A WRITE by read chunk has a short reply, without data: the slot keeps it.
#[test]
fn a_write_from_a_chunk_is_made_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), 10);
    let on_disk = directory.path().join("tree/one");
    for minor in [1, 2] {
        // More than a thread that polls takes, and less.
        for length in [100_001, 5001] {
            let mut client = Client::new(&server, minor);
            let data = content(2, length);
            let ask = [&find("one")[..], &[write(0, &data)]].concat();
            let mut message = client.kept_in_session(&ask);
            // Memory is lent anew each time.
            let call = |client: &mut Client, mut message: Vec<u8>| {
                let (chunks, _regions) = client.apart(&mut message, &[&data]);
                client.call(chunks, &message).expect("results").1
            };
            let first = call(&mut client, message.clone());
            assert_eq!(status(&first), Status::Ok);
            let written = std::fs::read(&on_disk).expect("the file");
            assert!(written[..length] == data);
            // Somebody else writes. The repetition must not undo that.
            let mut other = Client::new(&server, minor);
            let change = [&find("one")[..], &[write(3, b"other")]].concat();
            let message_of_other = other.in_session(&change);
            let (_, changed) = other
                .call(Chunks::default(), &message_of_other)
                .expect("results");
            assert_eq!(status(&changed), Status::Ok);
            client.again(&mut message);
            let second = call(&mut client, message);
            assert_eq!(first, second, "of minor version {minor}");
            let written = std::fs::read(&on_disk).expect("the file");
            assert_eq!(written[3..8], *b"other");
        }
    }
    server.shutdown();
}

/// What was read goes to the chunks of the repetition, as it was. Nothing is done again.
#[test]
fn data_in_write_chunks_are_kept_if_the_client_asks() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), 600);
    for minor in [1, 2] {
        let mut client = Client::new(&server, minor);
        let name = format!("made-{minor}");
        let link = Operation::Create(CreateArgs {
            kind: CreateType::Symlink(Payload(b"to")),
            name: Name(name.as_bytes()),
            attributes: RawAttributes::default(),
        });
        let ask = [
            &find("one")[..],
            &[read(0, 301), Operation::PutRootFileHandle, link],
            &find("two"),
            &[read(100, 99)],
        ]
        .concat();
        let mut message = client.kept_in_session(&ask);
        let reads = |client: &mut Client, message: &[u8], lengths: &[&[u32]]| {
            let (chunks, regions) = client.room(lengths);
            let (returned, results) = client.call(chunks, message).expect("results");
            Read::new(&returned, &regions, results)
        };
        let first = reads(&mut client, &message, &[&[301], &[50, 50]]);
        assert_eq!(status(&first.results), Status::Ok);
        let data = [content(0, 301), content(1, 199)[100..].to_vec()];
        assert_eq!(first.chunks, data);
        client.again(&mut message);
        let second = reads(&mut client, &message, &[&[301], &[50, 50]]);
        assert_eq!(
            (&second.chunks, &second.results),
            (&first.chunks, &first.results)
        );
        // Without chunks for them, they are in the reply.
        client.again(&mut message);
        let inline = reads(&mut client, &message, &[]);
        let (all, whole) = (first.all(), inline.all());
        assert_eq!(
            (all.len(), status(&inline.results)),
            (whole.len(), Status::Ok)
        );
        let found = whole.iter().filter_map(|result| match result {
            OperationResult::Read(Ok(ok)) => Some(ok.data.0.to_vec()),
            _ => None,
        });
        assert_eq!(found.collect::<Vec<_>>(), data);
    }
    server.shutdown();
}

/// A reply that is to be kept and is too long for that is refused, wherever its data go.
#[test]
fn data_in_write_chunks_that_are_too_long_to_be_kept_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), 5000);
    for minor in [1, 2] {
        let mut client = Client::new(&server, minor);
        let ask = [&find("one")[..], &[read(0, 5000)]].concat();
        let mut message = client.kept_in_session(&ask);
        let mut results = Vec::new();
        for _ in 0..2 {
            let (chunks, regions) = client.room(&[&[5000]]);
            let (returned, told) = client.call(chunks, &message).expect("results");
            let told = Read::new(&returned, &regions, told);
            assert_eq!(told.chunks, [[0; 0]]);
            assert_eq!(status(&told.results), Status::RepTooBigToCache);
            results.push(told.results);
            client.again(&mut message);
        }
        assert_eq!(results[0], results[1]);
        // A client that does not ask for that gets the data, and a repetition of it an error.
        let mut message = client.in_session(&ask);
        for expected in [Status::Ok, Status::RetryUncachedRep] {
            let (chunks, regions) = client.room(&[&[5000]]);
            let (returned, told) = client.call(chunks, &message).expect("results");
            let told = Read::new(&returned, &regions, told);
            assert_eq!(status(&told.results), expected);
            let all = told.all();
            assert!(matches!(all[0], OperationResult::Sequence(Ok(_))));
            client.again(&mut message);
        }
    }
    server.shutdown();
}
