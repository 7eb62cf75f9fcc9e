//! Reads a file's change counter directly, to find out whether what is cached of the file is still valid.
//!
//! The counter is a word in the server's arena with its own reference. If that memory is mapped here, the client loads
//! it. Otherwise it is read on an idle connection for direct reads: by RDMA Reads if they are granted, or by the
//! server's NIC engine. Any other way takes a call.

use crate::{direct::Alone, session::Session, shared::Shared, state::FileState};
use odafs_common::{exception::Exception, reference::Reference};
use odafs_fabric::clock;

/// Whether the counter is unchanged. `None` if it cannot be read, or was not known.
pub fn unchanged(shared: &Shared, file: &FileState) -> Option<bool> {
    look(shared, file, |session, counter| match &session.view {
        Some(view) => view.read_word(counter.address, counter.epoch),
        None => by_pair(shared, file, session, counter),
    })
}

/// The same, if it takes one load.
pub fn unchanged_at_once(shared: &Shared, file: &FileState) -> Option<bool> {
    look(shared, file, |session, counter| {
        let view = session.view.as_ref()?;
        view.read_word(counter.address, counter.epoch)
    })
}

fn look(
    shared: &Shared,
    file: &FileState,
    read: impl FnOnce(&Session, &Reference) -> Option<u64>,
) -> Option<bool> {
    let session = shared.session()?;
    let counter = file.counter(session.number)?;
    file.change()?;
    let change = read(&session, &counter)?;
    Some(file.revalidate_change(change))
}

fn by_pair(
    shared: &Shared,
    file: &FileState,
    session: &Session,
    counter: &Reference,
) -> Option<u64> {
    let mut pair = session.pairs.idle()?;
    let mut word = [0; 8];
    let deadline = || shared.calls.deadline();
    let read = match session.one_sided {
        // The stamp's place follows from the start of the frame.
        true => {
            let within = session.page.within(counter.address);
            let frame = Reference {
                address: counter.address - within as u64,
                ..*counter
            };
            pair.read_one_sided_alone(&frame, within as u32, &mut word, deadline)
        }
        false => pair.read_alone(session, counter, 0, &mut word, deadline),
    };
    match read {
        Ok(Alone::Read) => {
            session.was_served();
            drop(pair);
            session.tend(&shared.calls, clock::now());
            Some(u64::from_le_bytes(word))
        }
        Ok(Alone::Refused(why)) => {
            refused(file, session, why);
            None
        }
        Ok(Alone::TimedOut | Alone::Full) => None,
        Err(broken) => {
            session.lost(pair, &broken);
            None
        }
    }
}

/// The next reply of a READ says where the counter lies now.
fn refused(file: &FileState, session: &Session, why: Exception) {
    session.was_refused(why);
    if why.forgets_reference() {
        file.set_counter(session.number, None);
    }
}
