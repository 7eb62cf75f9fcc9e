//! An open file, as reads and writes see it.

use crate::{session::Session, shared::Shared, state::FileState};
use odafs_fabric::sync::Arc;

/// The state behind a [`File`](crate::File). Cheap to clone.
#[derive(Clone)]
pub struct OpenFile {
    shared: Arc<Shared>,
    state: Arc<FileState>,
    path: Arc<str>,
    /// The session in which the file was opened, which is available without a lock as long as it is the present one.
    /// `None` if reads are recorded, so that a read that finds a session here need not check for recording.
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

    /// Another file of this client, whose path is unknown.
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

    /// The path with which the file was opened, as the caller gave it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The session in which the file was opened, if it is the present one.
    pub fn session_at_hand(&self) -> Option<&Arc<Session>> {
        let session = self.session.as_ref()?;
        self.shared.is_present(session).then_some(session)
    }
}
