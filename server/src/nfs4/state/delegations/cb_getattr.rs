//! CB_GETATTR (RFC 8881, sections 10.4.3 and 20.1): asks a client with a write delegation for the attributes of its file, so that
//! another client can look at them and the delegation need not be recalled.

use odafs_common::wire::nfs4::StateId;
use odafs_fabric::clock::Nanos;

use super::{Delegated, Delegations, Standing};
use crate::nfs4::state::State;
use crate::nfs4::state::back_channel::{Callback, Called};
use crate::nfs4::state::stateids::key_of;
use crate::vfs::ObjectId;

/// A question to the client that has the write delegation of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    pub number: u64,
    /// The client's id.
    pub client: u64,
    /// The file's change attribute when the client got the delegation.
    pub change: u64,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CbGetattrAnswer {
    /// There is none yet.
    Awaited,
    /// The change attribute and the size in bytes that the client has.
    Told(u64, u64),
    /// There will be none.
    Refused,
}

impl Delegations {
    /// Whether a thread still waits for the answer to this question.
    pub fn is_awaited(&self, question: u64) -> bool {
        self.answers.get(&question) == Some(&CbGetattrAnswer::Awaited)
    }

    /// Takes the outcome of the callback that asked.
    pub fn hear(&mut self, question: u64, called: Called) {
        if let Some(answer) = self.answers.get_mut(&question) {
            *answer = match called {
                Called::Told(change, size) => CbGetattrAnswer::Told(change, size),
                // The callback is sent again.
                Called::Lost | Called::Later => CbGetattrAnswer::Awaited,
                _ => CbGetattrAnswer::Refused,
            };
        }
    }
}

impl State {
    /// Notes the change attribute that a file had when this delegation of it was given.
    pub fn delegated_at(&mut self, given: &StateId, change: u64) {
        if let Some(known) = self.delegations.all.get_mut(&key_of(given)) {
            known.change = Some(change);
        }
    }

    /// Asks the client that has the write delegation of a file for its attributes. [`State::answer`] has the answer, and
    /// [`State::end_question`] must follow. `None`: no client can be asked.
    pub fn ask_holder(&mut self, now: Nanos, file: ObjectId) -> Option<Question> {
        let table = &self.delegations;
        let [key] = table.files.get(&file)?[..] else {
            return None;
        };
        let known = table.all.get(&key)?;
        let (change, origin) = (known.change?, known.origin);
        let stands = known.kind == Delegated::Write && known.standing == Standing::Held;
        if !stands || self.is_over(key.0, now) || !self.hears(key.0) {
            return None;
        }
        let number = self.serial();
        self.delegations
            .answers
            .insert(number, CbGetattrAnswer::Awaited);
        let ask = Callback::GetAttributes {
            question: number,
            file,
            origin,
        };
        self.say(key.0, ask);
        Some(Question {
            number,
            client: self.id(key.0),
            change,
        })
    }

    /// The answer to a question.
    pub fn answer(&self, question: &Question) -> CbGetattrAnswer {
        let answers = &self.delegations.answers;
        (answers.get(&question.number)).map_or(CbGetattrAnswer::Refused, |answer| *answer)
    }

    /// Ends a question: nobody waits for its answer any more.
    pub fn end_question(&mut self, question: &Question) {
        self.delegations.answers.remove(&question.number);
    }
}
