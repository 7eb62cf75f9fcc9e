//! An open file, as reads and writes see it.

use crate::{session::Session, shared::Shared, state::FileState};
use odafs_fabric::sync::Arc;

/// The inside of a [`File`](crate::File). Cheap to clone.
#[derive(Clone)]
pub struct OpenFile {
    shared: Arc<Shared>,
    state: Arc<FileState>,
    path: Arc<str>,
    /// The session in which it was opened: at hand without a lock as long as it is the present one. `None` where reads
    /// are recorded: so no read that has a session at hand need ask whether it is recorded.
    session: Option<Arc<Session>>,
}

impl OpenFile {
    /// A file of the client `shared`.
    pub fn new(shared: Arc<Shared>, state: Arc<FileState>, path: Arc<str>) -> Self {
        let records = shared.options.record.is_some();
        let session = shared.session().filter(|_| !records);
        Self {
            shared,
            state,
            path,
            session,
        }
    }

    /// Another file of this client, of which no path is known.
    pub fn sibling(&self, state: Arc<FileState>) -> Self {
        Self::new(self.shared.clone(), state, "(written before)".into())
    }

    /// The client.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What the client keeps about the file.
    pub fn state(&self) -> &FileState {
        &self.state
    }

    /// The path with which it was opened, as the caller gave it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The session in which it was opened, if that is the present one.
    pub fn session_at_hand(&self) -> Option<&Arc<Session>> {
        let session = self.session.as_ref()?;
        self.shared.is_present(session).then_some(session)
    }
}
