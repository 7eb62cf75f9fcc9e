//! Asking without waiting.

use super::{Changing, ObjectId, Party, Promises, acting_for};

impl Promises {
    /// As [`Promises::ask`], if nobody has to be asked: there are no promises of the object, or it is left to the caller alone.
    pub(crate) fn ask_at_hand(&self, object: ObjectId) -> Option<Changing<'_>> {
        // First, so that none is made from here on.
        let changing = Changing::count(&self.shard(object).changes);
        let is_callers = match acting_for() {
            Party::Returning(Some(client)) => self.alone_for(object) == Some(client),
            Party::Returning(None) | Party::Stranger => false,
        };
        let nobody_else = is_callers || !self.is_promised(object);
        let may_change = !self.is_closed() && self.held().is_none();
        (nobody_else && may_change).then_some(changing)
    }
}
