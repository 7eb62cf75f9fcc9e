//! The least that two threads can do that hand a page over through shared
//! memory: a flag, the peer copies a random page of the set, a flag back, and
//! the asking side copies it once more. No message, no check, no table.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::futex;

use crate::cpu;
use crate::floors::local::LocalFile;
use crate::floors::memory::{End, SLOT_BYTES, SharedSlot};
use crate::floors::{Peer, Wait};

/// What the asking side sees while a peer runs.
pub struct Asking<'a> {
    end: End<'a>,
    wait: Wait,
    peer_cpu: &'a AtomicU64,
}

impl Peer for Asking<'_> {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.end.put(&encode(offset, into.len() as u32));
        pass(&mut self.end, self.wait);
        await_turn(&self.end, self.wait);
        self.end.take(into);
        Ok(())
    }

    fn cpu_ns(&mut self) -> io::Result<u64> {
        self.read(u64::MAX, &mut [])?;
        Ok(self.peer_cpu.load(Ordering::Relaxed))
    }
}

/// Starts a peer over `set`, bound to `peer_cpus` if any are named, and runs
/// `ask` beside it. The peer ends when `ask` returns.
pub fn with_peer<T>(
    set: &LocalFile,
    wait: Wait,
    peer_cpus: Option<&[usize]>,
    ask: impl FnOnce(&mut Asking<'_>) -> T,
) -> T {
    let mut slot = Box::<SharedSlot>::default();
    let (end, peer) = slot.ends();
    let peer_cpu = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Not being bound costs placement, not correctness.
            let _ = peer_cpus.map(cpu::bind);
            answer(peer, set, wait, &peer_cpu);
        });
        let mut asking = Asking {
            end,
            wait,
            peer_cpu: &peer_cpu,
        };
        let result = ask(&mut asking);
        asking.end.put(&encode(0, u32::MAX));
        pass(&mut asking.end, wait);
        result
    })
}

fn answer(mut end: End<'_>, set: &LocalFile, wait: Wait, cpu_ns: &AtomicU64) {
    loop {
        await_turn(&end, wait);
        let mut request = [0; 12];
        end.take(&mut request);
        let (offset, length) = decode(&request);
        match (offset, length as usize) {
            (_, n) if n > SLOT_BYTES => return,
            (u64::MAX, _) => cpu_ns.store(cpu::thread_ns(), Ordering::Relaxed),
            (offset, n) => end.put(&set.bytes()[offset as usize..offset as usize + n]),
        }
        pass(&mut end, wait);
    }
}

fn encode(offset: u64, length: u32) -> [u8; 12] {
    let mut request = [0; 12];
    request[..8].copy_from_slice(&offset.to_le_bytes());
    request[8..].copy_from_slice(&length.to_le_bytes());
    request
}

fn decode(request: &[u8; 12]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *request;
    (
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u32::from_le_bytes([i, j, k, l]),
    )
}

/// Gives the turn to the other side, and wakes it if it may sleep.
pub fn pass(end: &mut End<'_>, wait: Wait) {
    end.pass();
    if wait == Wait::Block {
        // Waking nobody is no error: the other side has not slept yet.
        let _ = futex::wake(end.turn(), futex::Flags::PRIVATE, 1);
    }
}

/// Waits for the turn.
pub fn await_turn(end: &End<'_>, wait: Wait) {
    while !end.mine() {
        match wait {
            Wait::Spin => std::hint::spin_loop(),
            Wait::Block => {
                let seen = end.turn().load(Ordering::Acquire);
                if !end.mine() {
                    // Woken early or the word moved on: the loop looks again.
                    let _ = futex::wait(end.turn(), futex::Flags::PRIVATE, seen, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floors::local::write_random;
    use crate::scratch::Scratch;

    #[test]
    fn the_peer_hands_over_the_right_pages() {
        let directory = Scratch::for_bytes(1 << 20).unwrap();
        let path = directory.path().join("file");
        write_random(&path, 1 << 20, |_| {}).unwrap();
        let set = LocalFile::open(&path, false).unwrap();
        for wait in [Wait::Spin, Wait::Block] {
            with_peer(&set, wait, None, |peer| {
                for page in [0, 7, 255] {
                    let mut bytes = [0; 4096];
                    peer.read(page * 4096, &mut bytes).unwrap();
                    assert_eq!(bytes, set.bytes()[page as usize * 4096..][..4096]);
                }
                assert!(peer.cpu_ns().unwrap() > 0);
            });
        }
    }
}
