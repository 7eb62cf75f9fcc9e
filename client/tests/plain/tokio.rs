//! The client for async programs.

use super::fake::Fake;
use super::{options, pattern};
use ::tokio::runtime;

/// 9 MiB: two pieces and a part.
const BYTES: usize = 9 << 20;

#[test]
fn a_read_up_to_the_end_of_the_file_takes_memory_for_what_comes() {
    let fake = Fake::start();
    let data = pattern(BYTES);
    fake.put("a", &data);
    let here = runtime::Builder::new_current_thread().build().unwrap();
    here.block_on(async {
        let client = odafs::tokio::Client::connect_with(fake.url(), options())
            .await
            .unwrap();
        let file = client.open("a").await.unwrap();
        assert!(file.read_at(0, usize::MAX).await.unwrap() == data);
        assert!(file.read_at(100, 5 << 20).await.unwrap() == data[100..100 + (5 << 20)]);
        assert!(
            file.read_at(u64::MAX - 1, usize::MAX)
                .await
                .unwrap()
                .is_empty()
        );
        let ranges = [
            (&file, 0..u64::MAX),
            (&file, 5..10),
            (&file, 4096..u64::MAX),
        ];
        let read = client.read_batch(&ranges).await.unwrap();
        assert!(read[0] == data && read[1] == data[5..10] && read[2] == data[4096..]);
    });
}
