//! A disk that loses what was written and not synced, before anybody asks for a sync. The next to sync the file must hear of it.

use crate::world::{World, below};
use odafs::WriteError;
use odafs_fabric::clock::{self, Nanos};
use odafs_server::store::{MemoryStore, ObjectId};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// EIO (RFC 1813, section 2.6).
const IO: u32 = 5;

/// What a call told its caller of the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// They are stable.
    Stable,
    /// EIO.
    Loss,
    /// Another error, or nothing.
    Nothing,
}

impl Told {
    /// By a write, or a sync. `None` if it says nothing of stable storage and does not fail.
    pub fn by(result: &Result<(), WriteError>, stable: bool) -> Option<Self> {
        match result {
            Ok(()) => stable.then_some(Self::Stable),
            Err(WriteError::Server { status, .. }) if status.0 == IO => Some(Self::Loss),
            Err(_) => Some(Self::Nothing),
        }
    }
}

/// A span of the history's clock.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    to: u64,
}

#[derive(Default)]
struct Ledger {
    lost: Vec<Span>,
    told: Vec<(Span, Told)>,
}

/// By file: when the disk lost something, and what callers were told.
#[derive(Default)]
pub struct Losses(Mutex<BTreeMap<u8, Ledger>>);

impl Losses {
    fn change(&self, file: u8, change: impl FnOnce(&mut Ledger)) {
        change(self.0.lock().expect("one thread").entry(file).or_default());
    }

    /// Notes that a call between these times told this.
    pub fn told(&self, file: u8, (from, to): (u64, u64), told: Told) {
        self.change(file, |of| of.told.push((Span { from, to }, told)));
    }

    fn lost(&self, file: u8, (from, to): (u64, u64)) {
        self.change(file, |of| of.lost.push(Span { from, to }));
    }

    /// How many losses there were, and of how many somebody was told.
    pub fn all(&self) -> (u64, u64) {
        let (mut losses, mut heard) = (0, 0);
        for Ledger { lost, told } in self.0.lock().expect("one thread").values() {
            let of = |loss: &&Span| {
                let told = told.iter().filter(|(_, told)| *told == Told::Loss);
                told.into_iter().any(|(span, _)| span.to > loss.from)
            };
            losses += lost.len() as u64;
            heard += lost.iter().filter(of).count() as u64;
        }
        (losses, heard)
    }

    /// Checks that somebody was told of each loss before bytes that were synced behind it were called stable.
    ///
    /// # Errors
    /// Nobody was.
    pub fn check(&self) -> Result<(), String> {
        for (file, Ledger { lost, told }) in &*self.0.lock().expect("one thread") {
            for loss in lost {
                let stable = told.iter().filter(|(_, told)| *told == Told::Stable);
                let stable = stable.filter(|(span, _)| span.from > loss.to);
                let Some(stable) = stable.map(|(span, _)| span.to).min() else {
                    continue;
                };
                let failed = told.iter().any(|(span, told)| {
                    *told != Told::Stable && span.to > loss.from && span.from < stable
                });
                if !failed {
                    return Err(format!(
                        "file {file}: nobody heard of {loss:?}, and a sync succeeded at {stable}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Loses some of what was written and not synced.
pub fn failing_disk(world: &World, store: &MemoryStore, files: &[ObjectId]) {
    // Where there are leases, clients take their time.
    let apart = world
        .model
        .as_ref()
        .map_or(1_000_000, |model| model.lease.0);
    for _ in 0..3 {
        clock::sleep(Nanos(below(apart)));
        let all = world.files();
        let file = all[below(all.len() as u64) as usize];
        let from = world.history.now();
        if store.write_back_badly(files[usize::from(file)]) {
            let history = &world.history;
            history.say(&format!("unsynced data of file {file} was lost"));
            world.losses.lost(file, (from, history.now()));
        }
    }
}

#[test]
fn a_loss_that_nobody_hears_of_is_found() {
    let losses = |told: &[(u64, u64, Told)]| {
        let losses = Losses::default();
        losses.lost(1, (10, 11));
        for (from, to, told) in told {
            losses.told(1, (*from, *to), *told);
        }
        losses.told(2, (1, 99), Told::Loss);
        assert_eq!(losses.all().0, 1);
        losses.check().ok().map(|()| losses.all().1)
    };
    use Told::{Loss, Nothing, Stable};
    assert_eq!(losses(&[]), Some(0));
    assert_eq!(losses(&[(12, 13, Stable)]), None);
    // It began before the loss.
    assert_eq!(losses(&[(9, 13, Stable)]), Some(0));
    assert_eq!(losses(&[(5, 12, Loss), (13, 14, Stable)]), Some(1));
    assert_eq!(losses(&[(13, 16, Loss), (14, 15, Stable)]), Some(1));
    assert_eq!(losses(&[(5, 12, Nothing), (13, 14, Stable)]), Some(0));
    // Too early, and too late.
    assert_eq!(losses(&[(5, 9, Loss), (13, 14, Stable)]), None);
    assert_eq!(losses(&[(15, 16, Loss), (13, 14, Stable)]), None);
}
