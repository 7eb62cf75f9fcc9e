//! The client's session with its server: opening, keeping, dropping and opening again.

use super::Shared;
use crate::{
    calls::Repeat,
    error::ConnectError,
    link::Link,
    options::Route,
    patience::Pause,
    session::{NoSession, Session},
};
use odafs_fabric::{
    clock::{self, Nanos},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::*},
    },
};

/// The present session, and what is known about earlier ones.
#[derive(Default)]
pub struct Sessions {
    /// Number of the present session, or 0 without one. It changes after the directory was emptied for the new session.
    number: AtomicU64,
    /// Life word of the server of the last session, or 0 before the first.
    life: AtomicU64,
    present: Mutex<Present>,
    /// Held by the thread that opens a session.
    opening: Mutex<Opening>,
}

#[derive(Default)]
struct Present {
    session: Option<Arc<Session>>,
}

#[derive(Default)]
struct Opening {
    opened: u64,
    not_before: Nanos,
    failures: u32,
    /// Number of useless sessions in a row.
    useless: u32,
}

impl Shared {
    /// Opens the first session, if direct reads are wanted.
    pub(super) fn first_session(&self) -> Result<(), ConnectError> {
        let wanted = match self.options.route {
            Route::Rpc => return Ok(()),
            Route::Policy => None,
            Route::Guarded => Some("guarded"),
            Route::OneSided => Some("one-sided"),
        };
        let not_granted = |reason: String| match wanted {
            None => Ok(()),
            Some(wanted) => Err(ConnectError::NotGranted {
                server: self.calls.link().address(),
                wanted,
                reason,
            }),
        };
        if let Link::NfsTcp(_) = self.calls.link() {
            return not_granted("nfs:// carries calls only (use odafs+shm:// or odafs://)".into());
        }
        let deadline = self.calls.deadline();
        match self.open_session(&mut self.sessions.opening.lock(), deadline) {
            Ok(session) if self.options.route == Route::OneSided && !session.one_sided => not_granted(
                "it grants this client guarded reads only (over networks, the server needs `--direct one-sided`; on shm, it \
                 grants them to root, to its own user and to those of `--one-sided-for`, and clients accept them only from a \
                 server of root or of their own user)"
                    .into(),
            ),
            Ok(_) => Ok(()),
            Err(NoSession::NoProgram) => {
                self.odafs.store(false, Relaxed);
                not_granted("it is not an ODAFS server (`odafs serve`)".into())
            }
            Err(NoSession::Refused(reason)) => not_granted(format!("{reason} (see `odafs serve --direct` and `--admit`)")),
            Err(NoSession::Call(error)) => Err(error.into()),
        }
    }

    /// Whether this is the present session.
    pub fn is_present(&self, session: &Session) -> bool {
        self.sessions.number.load(Acquire) == session.number
    }

    /// The present session.
    pub fn session(&self) -> Option<Arc<Session>> {
        if self.sessions.number.load(Acquire) == 0 {
            return None;
        }
        self.sessions.present.lock().session.clone()
    }

    /// The present session. Opens a new one if it is over, and renews its keys if they are due. Never waits for another
    /// thread that does the same.
    pub fn tended_session(&self) -> Option<Arc<Session>> {
        if self.options.route == Route::Rpc
            || !self.odafs.load(Relaxed)
            || matches!(self.calls.link(), Link::NfsTcp(_))
        {
            return None;
        }
        if let Some(session) = self.session() {
            session.look();
            if !session.is_over() {
                session.tend(&self.calls, clock::now());
                return Some(session);
            }
            self.retire(&session);
            if session.was_useless()
                && let Some(mut opening) = self.sessions.opening.try_lock()
            {
                opening.useless = (opening.useless + 1).min(12);
                opening.not_before = clock::now() + Nanos::from_millis(10 << opening.useless);
            }
        }
        let mut opening = self.sessions.opening.try_lock()?;
        if let Some(session) = self.session() {
            return Some(session);
        }
        if clock::now() < opening.not_before {
            return None;
        }
        self.open_session(&mut opening, self.calls.brief_deadline())
            .ok()
    }

    /// Drops a session that is over, and everything that belongs to it.
    pub fn retire(&self, session: &Session) {
        let gone = {
            let mut present = self.sessions.present.lock();
            let is_it = present
                .session
                .as_ref()
                .is_some_and(|present| present.number == session.number);
            if !is_it {
                return;
            }
            self.sessions.number.store(0, Release);
            present.session.take()
        };
        self.directory.begin(0, session.page);
        if let Some(gone) = gone {
            gone.let_go();
        }
    }

    /// Tells the server that the session is over.
    pub(super) fn close_session(&self) {
        let session = self.sessions.present.lock().session.take();
        if let Some(session) = session.filter(|session| !session.is_over()) {
            session.close(&self.calls);
        }
    }

    fn open_session(
        &self,
        opening: &mut Opening,
        deadline: Nanos,
    ) -> Result<Arc<Session>, NoSession> {
        let number = opening.opened + 1;
        let export = &self.mounted.export;
        match Session::open(&self.calls, &self.options, export, number, deadline) {
            Ok(session) => {
                opening.opened = number;
                opening.failures = 0;
                let session = Arc::new(session);
                self.sessions.life.store(session.life, Relaxed);
                self.directory.begin(number, session.page);
                self.grant(&session);
                self.sessions.present.lock().session = Some(session.clone());
                self.sessions.number.store(number, Release);
                Ok(session)
            }
            Err(error) => {
                // 10 ms, doubled each time up to about a minute, because the server may grant later what it refuses
                // now.
                opening.failures = (opening.failures + 1).min(13);
                opening.not_before = clock::now() + Nanos::from_millis(5 << opening.failures);
                if let NoSession::NoProgram = error {
                    self.odafs.store(false, Relaxed);
                }
                Err(error)
            }
        }
    }
}

impl Repeat for Shared {
    /// The server's duplicate request cache tells a repeated call from a new one, within one boot instance of the
    /// server. Where sessions reveal the instance, a call is repeated only in the same one.
    fn may_repeat(&self, deadline: Nanos) -> bool {
        let before = self.sessions.life.load(Relaxed);
        if before == 0 {
            return true;
        }
        let mut opening = self.sessions.opening.lock();
        if let Some(session) = self.session() {
            session.end();
            self.retire(&session);
        }
        let mut pause = Pause::default();
        loop {
            match self.open_session(&mut opening, deadline) {
                Ok(session) => return session.life == before,
                Err(_) if pause.before_retry(deadline) => {}
                Err(_) => return false,
            }
        }
    }
}
