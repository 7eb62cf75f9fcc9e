//! What calls keep pinned.

use odafs_common::wire::rpcrdma::{Body, Chunks, Segments, WriteList};
use odafs_fabric::Access;
use odafs_fabric::sim::NetworkConfig;

use super::rig::{PAGE, PAGES, Rig, load, pages, segment};
use crate::engine::RdmaConfig;

/// Calls keep their pins while the workers have them. At the bound, the connection's next calls wait.
#[test]
fn what_calls_have_placed_before_they_wait_counts_as_pinned() {
    let (rig, mut engine) = Rig::at_rest(NetworkConfig::default(), RdmaConfig::default());
    engine.config.pins_max = 2 * PAGES as usize;
    *rig.threads.held.lock() = Some(Vec::new());
    let mut client = std::thread::scope(|scope| {
        let client = scope.spawn(|| rig.client());
        while engine.connections() == 0 {
            engine.poll_once();
        }
        client.join().unwrap()
    });
    let length = PAGES * PAGE as u32;
    let regions: [_; 4] =
        std::array::from_fn(|_| client.region(&vec![0; length as usize], Access::WRITE));
    for region in &regions {
        let chunks = Chunks {
            writes: WriteList::one(&Segments::one(segment(region, 0, length))),
            ..Chunks::default()
        };
        let message = client.message(b'k', &[]);
        client.send(Body::Msg(chunks), &message);
    }
    while engine.poll_once() {}
    for left in [2, 0] {
        let held = rig.threads.held.lock().replace(Vec::new()).unwrap();
        assert_eq!(held.len(), 2, "{left} wait");
        held.into_iter().for_each(|task| task());
        while engine.poll_once() {}
    }
    for region in &regions {
        assert!(matches!(client.receive().0.body, Body::Msg(_)));
        assert_eq!(load(region, 0, length as usize), pages());
    }
    drop((client, engine));
    rig.end();
}
