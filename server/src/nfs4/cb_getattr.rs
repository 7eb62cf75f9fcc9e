//! GETATTR of a file that another client may have changed under a write delegation. The server asks that client for the
//! attributes (CB_GETATTR; RFC 8881, section 10.4.3). If it does not answer soon, the delegation is recalled, as for other
//! operations.

use odafs_fabric::clock::{self, Nanos};

use super::compound::Compound;
use super::recalls::Messenger;
use super::state::{CbGetattrAnswer, Question};
use crate::vfs::attributes::attributes_told;
use crate::vfs::read::Effort;
use crate::vfs::{Attributes, ObjectId};

/// How long the server waits for an answer.
const PATIENCE: Nanos = Nanos::from_millis(100);

/// The attributes of a file as the client with its write delegation has them. `None`: no client was asked, or it did not answer.
pub(super) fn attributes(c: &Compound<'_>, object: ObjectId) -> Option<Attributes> {
    let promises = c.export.promises();
    if c.effort == Effort::ResidentOnly || !promises.is_hidden(object) {
        return None;
    }
    // This counts among the threads that wait for delegations, whose number is bounded.
    let _waiting = promises.waiting()?;
    let messenger = &c.server.messenger;
    let before = c.export.live(object)?.attributes();
    let question = messenger.state.lock().ask_holder(c.now, object)?;
    messenger.call_back();
    let size = match messenger.await_answer(&question) {
        CbGetattrAnswer::Told(change, _) if change == question.change => None,
        CbGetattrAnswer::Told(_, size) => Some(size),
        CbGetattrAnswer::Awaited | CbGetattrAnswer::Refused => return None,
    };
    let told = attributes_told(c.export, object, &before, size)?;
    // If the client still has the delegation, nobody else has changed the file.
    (promises.alone_for(object) == Some(question.client)).then_some(told)
}

impl Messenger {
    /// Waits for the answer, for no longer than [`PATIENCE`].
    fn await_answer(&self, question: &Question) -> CbGetattrAnswer {
        let begun = clock::now();
        let mut state = self.state.lock();
        loop {
            let answer = state.answer(question);
            let waited = clock::now().since(begun);
            if answer != CbGetattrAnswer::Awaited || waited >= PATIENCE {
                state.end_question(question);
                return answer;
            }
            (state, _) = self.answered.wait_timeout(state, PATIENCE.since(waited));
        }
    }
}
