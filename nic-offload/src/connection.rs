//! The NIC's state of one direct connection. The engine thread that polls it owns it, so nothing here is shared.

use odafs_common::connect::Nonce;
use odafs_common::direct::Request;
use odafs_common::exception::Exception;
use odafs_common::mac::MacKey;
use odafs_common::session::SequenceWindow;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;

use crate::capability::{Keys, Session};

/// A direct connection: attached to at most one session, once.
pub struct Connection {
    number: u32,
    nonce: Nonce,
    attachment: Option<Attachment>,
    window: SequenceWindow,
    pins: usize,
    denials: Denials,
}

struct Attachment {
    session: Arc<Session>,
    keys: Keys,
    /// Number of requests that the session has not counted yet.
    uncounted: u64,
    /// Whether the current key has served too many requests.
    worn_out: bool,
}

impl Attachment {
    /// Requests are reported to the session in lots, so that connections do not contend for its counter.
    const LOT: u64 = 64;

    fn count(&mut self) {
        self.uncounted += 1;
        if self.uncounted >= Self::LOT {
            self.worn_out = self.session.worn_out(self.uncounted);
            self.uncounted = 0;
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if self.keys.is_current(&self.session) {
            // What is left of a lot counts too. Whether that was too much, the next connection learns.
            self.session.worn_out(self.uncounted);
        }
        self.session.detach();
    }
}

impl Connection {
    /// A connection with this number (never 0) whose private data contained this nonce, freshly drawn.
    pub fn new(number: u32, nonce: Nonce) -> Connection {
        Connection {
            number,
            nonce,
            attachment: None,
            window: SequenceWindow::default(),
            pins: 0,
            denials: Denials::default(),
        }
    }

    /// Its number, which requests carry.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The server's nonce.
    pub(crate) fn nonce(&self) -> &Nonce {
        &self.nonce
    }

    /// The session to which it is attached.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.attachment
            .as_ref()
            .map(|attachment| &attachment.session)
    }

    /// Number of frames pinned by its transfers, as last reported.
    pub(crate) fn pins(&self) -> usize {
        self.pins
    }

    /// Reports that this many frames are pinned by its transfers. The owner of the transfers calls this before the next
    /// one is admitted.
    pub fn set_pins(&mut self, pins: usize) {
        self.pins = pins;
    }

    /// Attaches the connection. Only once: a second time would reset the window, and all its requests could be
    /// replayed.
    pub(crate) fn attach(&mut self, session: Arc<Session>) {
        debug_assert!(self.attachment.is_none());
        let keys = session.keys();
        session.attach();
        let worn_out = session.worn_out(0);
        self.attachment = Some(Attachment {
            session,
            keys,
            uncounted: 0,
            worn_out,
        });
    }

    /// The key with which the request must be sealed. `None` if the request does not belong to the attached session.
    pub(crate) fn key_for(&mut self, request: &Request) -> Option<&MacKey> {
        let attachment = self.attachment.as_mut()?;
        if !attachment.keys.is_current(&attachment.session) {
            attachment.keys = attachment.session.keys();
            attachment.uncounted = 0;
            attachment.worn_out = false;
        }
        let ours =
            request.session == attachment.session.id().0 && request.mac == attachment.session.mac();
        if ours {
            attachment.keys.select(request.odd_generation)
        } else {
            None
        }
    }

    /// Handles a request whose MAC has verified: records its sequence number, and checks the session.
    pub(crate) fn accept(&mut self, request: &Request, now: Nanos) -> Result<(), Exception> {
        if !self.window.accept(request.sequence) {
            return Err(Exception::Replayed);
        }
        let attachment = self.attachment.as_mut().ok_or(Exception::Denied)?;
        attachment.count();
        if attachment.worn_out || !attachment.keys.is_good(request.odd_generation, now) {
            return Err(Exception::Revoked);
        }
        Ok(())
    }

    pub(crate) fn let_in(&mut self) {
        self.denials.forgive();
    }

    #[cfg(test)]
    pub(crate) fn denials_forgotten(&mut self) {
        self.denials = Denials::default();
    }

    pub(crate) fn denied(&mut self, now: Nanos) {
        self.denials.count(now);
    }

    /// Whether a request is not worth a MAC at the moment.
    pub(crate) fn throttled(&self, now: Nanos) -> bool {
        now < self.denials.until
    }
}

/// Slows down a connection that keeps being denied, so that guessing costs the client more than the server.
#[derive(Default)]
struct Denials {
    lately: u32,
    until: Nanos,
}

impl Denials {
    /// Number of denials before the first pause.
    const FREE: u32 = 8;
    /// The first pause. Each further denial doubles it.
    const PAUSE: u64 = 1_000_000;
    /// The longest pause: 2^10 times the first, about a second.
    const DOUBLINGS_MAX: u32 = 10;

    fn count(&mut self, now: Nanos) {
        self.lately = self.lately.saturating_add(1);
        if let Some(beyond) = self.lately.checked_sub(Self::FREE) {
            self.until = Nanos(
                now.0
                    .saturating_add(Self::PAUSE << beyond.min(Self::DOUBLINGS_MAX)),
            );
        }
    }

    fn forgive(&mut self) {
        self.lately = self.lately.saturating_sub(1);
    }
}
