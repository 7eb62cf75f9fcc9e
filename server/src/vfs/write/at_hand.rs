//! Small writes on the thread that polls. They only try the locks that a write takes, and the turn to sync, before they put a
//! byte. What follows waits for nothing, because the store has said so.

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;

use super::{Put, Refused, Settling, Stable, Written};
use crate::store::Credential;
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::Effort;

/// The longest write that the polling thread makes itself.
const BYTES_MAX: usize = 16 << 10;

/// As [`write`](super::write()), if it waits for nobody and keeps the size of the file. `None`: nothing has been done.
pub fn write_at_hand(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    offset: u64,
    data: &Gather<'_>,
    stable: Stable,
) -> Option<Result<Written, Refused>> {
    let end = offset.checked_add(data.len() as u64)?;
    let is_small = (1..=BYTES_MAX).contains(&data.len());
    if !is_small || !export.store().is_write_at_hand(who, file.object()) {
        return None;
    }
    let _changing = export.promises().ask_at_hand(file.object())?;
    let settling = Settling::begin_at_hand(export, file, stable)?;
    let put = Put {
        export,
        who,
        file,
        offset,
        data,
        effort: Effort::ResidentOnly,
    };
    let done = {
        let gate = file.enter(Effort::ResidentOnly)?;
        let size = file.attributes().size;
        (end <= size).then(|| put.put(&gate, size)).flatten()?
    };
    Some(put.conclude(done).and_then(|done| settling.end(done)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use odafs_fabric::sync::thread;

    use super::*;
    use crate::store::{MemoryStore, Operation, OutsideChange, Status, Store as _};
    use crate::vfs::file::Leaf;
    use crate::vfs::testing::{World, owner};
    use crate::vfs::write::commit;

    /// The number of bytes written. The store has a write at hand at every second call.
    fn put(world: &World, file: &Arc<File>, offset: u64, data: &[u8]) -> Option<u32> {
        let (who, stable) = (owner(), Stable::FileSync);
        let written = (0..2)
            .find_map(|_| write_at_hand(&world.export, &who, file, offset, &data.into(), stable));
        written.map(|written| written.expect("no error").count)
    }

    #[test]
    fn a_small_write_is_made_if_it_waits_for_nobody() {
        let world = World::new(64);
        let file = world.file("a", &[7; 40_000]);
        world.read(&file, 0, 40_000);
        assert_eq!(put(&world, &file, 4090, b"new bytes"), Some(9));
        assert_eq!(world.read(&file, 4090, 10), b"new bytes\x07");
        let mut stored = [0; 10];
        world.store.crash();
        assert_eq!(
            world.store.read_at(file.object(), 4090, &mut stored),
            Ok(10)
        );
        assert_eq!(&stored, b"new bytes\x07");

        assert_eq!(
            put(&world, &file, 39_999, b"xx"),
            None,
            "the file would grow"
        );
        assert_eq!(
            put(&world, &file, 0, &[1; BYTES_MAX + 1]),
            None,
            "it is long"
        );
        assert_eq!(put(&world, &file, 0, b""), None, "rights alone");
        {
            let (first, second) = (file.leaf(0), file.leaf(1));
            let _locked = second.lock(Leaf::slot(1));
            assert_eq!(put(&world, &file, 4090, b"new bytes"), None);
            assert!(
                first.try_lock(Leaf::slot(0)).is_some(),
                "nothing stays locked"
            );
        }
        {
            let _closed = file.close();
            assert_eq!(put(&world, &file, 0, b"x"), None);
        }
        {
            let _looking = file.recording.lock();
            assert_eq!(put(&world, &file, 0, b"x"), None);
        }
        {
            let _turn = file.syncs().try_turn().expect("nobody syncs");
            assert_eq!(put(&world, &file, 0, b"x"), None);
        }
        world.store.fail_next(Operation::Sync, Status::Io);
        assert_eq!(put(&world, &file, 0, b"x"), None, "the sync is not at hand");
        assert!(commit(&world.export, &file).is_err(), "planned");
        assert_eq!(world.read(&file, 0, 1), [7]);
        assert_eq!(put(&world, &file, 0, b"x"), Some(1), "nothing stays taken");
    }

    #[test]
    fn a_file_that_others_have_changed_is_left_to_threads_that_may_wait() {
        let world = World::new(64);
        let file = world.file("a", &[7; 4096]);
        let change = OutsideChange::Mode(0o640);
        (world.store.outside_change(file.object(), change)).expect("it is there");
        assert_eq!(put(&world, &file, 0, b"x"), None);
        assert_eq!(world.read(&file, 0, 1), [7]);
    }

    #[test]
    fn a_change_by_others_during_the_write_is_noted_later() {
        let world = World::new(64);
        let file = world.file("a", &[7; 10_000]);
        let object = file.object();
        world.read(&file, 0, 10_000);
        world.observe();
        // Between the looks around the write, which are the second and the third.
        world.store.meddle_next(
            Operation::GetAttributes,
            Box::new(move |store| {
                let cut = move |store: &MemoryStore| {
                    let cut = store.outside_change(object, OutsideChange::Resize(5000));
                    cut.expect("it is there");
                };
                store.meddle_next(Operation::GetAttributes, Box::new(cut));
            }),
        );
        thread::scope(|scope| {
            let (told, heard) = mpsc::channel();
            let (world, file) = (&world, &file);
            let reading = file.enter_blocking();
            scope.spawn(move || told.send(put(world, file, 0, b"x")));
            let written = heard.recv_timeout(Duration::from_secs(10));
            drop(reading);
            assert_eq!(written, Ok(Some(1)), "it waited for the gate");
        });
        assert_eq!(file.attributes().size, 10_000, "nobody has taken note");
        world.observe();
        assert_eq!(file.attributes().size, 5000);
    }
}
