//! What a client with a write delegation says of its file when another client looks at that: the delegation need not be recalled
//! then (CB_GETATTR; RFC 8881, sections 10.4.3 and 20.1).

use odafs_common::wire::nfs4::StateId;
use odafs_fabric::clock::Nanos;

use super::{Delegated, Delegations, Standing};
use crate::nfs4::state::State;
use crate::nfs4::state::back::{Callback, Called};
use crate::nfs4::state::stateids::words;
use crate::vfs::ObjectId;

/// A question to the client that has a file's write delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which.
    pub number: u64,
    /// The client.
    pub client: u64,
    /// The file's change attribute when the client got the delegation.
    pub change: u64,
}

/// What has become of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CbGetattrAnswer {
    /// The client may still answer.
    Awaited,
    /// The change attribute and the size as the client has them, in bytes.
    Told(u64, u64),
    /// There will be no answer.
    Refused,
}

impl Delegations {
    /// Whether somebody waits for the answer.
    pub fn is_awaited(&self, question: u64) -> bool {
        self.answers.get(&question) == Some(&CbGetattrAnswer::Awaited)
    }

    /// What became of the call that asked.
    pub fn hear(&mut self, question: u64, called: Called) {
        if let Some(answer) = self.answers.get_mut(&question) {
            *answer = match called {
                Called::Told(change, size) => CbGetattrAnswer::Told(change, size),
                // The call goes out again.
                Called::Lost | Called::Later => CbGetattrAnswer::Awaited,
                _ => CbGetattrAnswer::Refused,
            };
        }
    }
}

impl State {
    /// A file had this change attribute when it was delegated so.
    pub fn delegated_at(&mut self, given: &StateId, change: u64) {
        let [_, client, number] = words(&given.other);
        if let Some(known) = self.delegations.all.get_mut(&(client, number)) {
            known.change = Some(change);
        }
    }

    /// Asks the client that has the write delegation of a file what it has made of that: [`State::answer`] tells, and
    /// [`State::end_question`] is due. `None`: nobody can be asked.
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

    /// What has become of a question.
    pub fn answer(&self, question: &Question) -> CbGetattrAnswer {
        let answers = &self.delegations.answers;
        (answers.get(&question.number)).map_or(CbGetattrAnswer::Refused, |answer| *answer)
    }

    /// Nobody waits for the answer any more.
    pub fn end_question(&mut self, question: &Question) {
        self.delegations.answers.remove(&question.number);
    }
}
