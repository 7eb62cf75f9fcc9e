//! Sessions as the server sees them: their credential, and the connection on which they were opened.

use std::collections::HashMap;
use std::net::IpAddr;

use dashmap::DashMap;
use odafs_fabric::Peer;
use odafs_fabric::sync::{Arc, Mutex};
use odafs_nic::capability::Session;

use crate::store::Credential;

/// A session that is open.
pub(crate) struct OpenSession {
    nic: Arc<Session>,
    who: Credential,
    owner: SessionOwner,
    peer: PeerKey,
    connection: u64,
}

impl OpenSession {
    /// The NIC's part of the session.
    pub(crate) fn nic(&self) -> &Arc<Session> {
        &self.nic
    }

    /// The address of its peer, if that is on a network.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self.peer {
            PeerKey::Address(address) => Some(address),
            PeerKey::Process { .. } | PeerKey::Simulated(_) => None,
        }
    }

    /// Whose sessions it counts to.
    pub(crate) fn owner(&self) -> SessionOwner {
        self.owner
    }

    /// The credential of the caller that opened it.
    pub(crate) fn who(&self) -> &Credential {
        &self.who
    }

    /// Whether this peer opened it. A number alone says nothing: it may be of a session of an earlier life of the server.
    pub(crate) fn is_of_peer(&self, peer: &Peer) -> bool {
        self.peer == PeerKey::from(peer)
    }
}

/// A peer, whichever of its connections it uses, because clients come back from other ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerKey {
    Address(IpAddr),
    Process { uid: u32, pid: i32 },
    Simulated(u32),
}

impl From<&Peer> for PeerKey {
    fn from(peer: &Peer) -> Self {
        match peer {
            Peer::Address(address) => Self::Address(address.ip().to_canonical()),
            Peer::Uid { uid, pid, .. } => Self::Process {
                uid: *uid,
                pid: *pid,
            },
            Peer::Simulated(node) => Self::Simulated(*node),
        }
    }
}

/// Whose sessions are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SessionOwner {
    User(u32),
    Address(IpAddr),
    Simulated(u32),
}

impl From<&Peer> for SessionOwner {
    fn from(peer: &Peer) -> Self {
        match peer {
            Peer::Uid { uid, .. } => SessionOwner::User(*uid),
            Peer::Address(address) => SessionOwner::Address(address.ip().to_canonical()),
            Peer::Simulated(node) => SessionOwner::Simulated(*node),
        }
    }
}

/// The sessions of an export.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Sessions by number. Each call of the ODAFS program looks one up. The map's own locks are held only during a
    /// lookup, since the simulator does not know them.
    open: DashMap<u32, Arc<OpenSession>>,
    owned: Mutex<HashMap<SessionOwner, usize>>,
}

/// One of the owner's places for sessions. Dropping it gives the place back.
pub(crate) struct SessionPermit<'a> {
    sessions: &'a Sessions,
    owner: SessionOwner,
    kept: bool,
}

impl Sessions {
    pub(crate) fn get(&self, id: u32) -> Option<Arc<OpenSession>> {
        self.open.get(&id).map(|session| Arc::clone(&session))
    }

    /// Takes one of the owner's `max` places, before the work of a handshake is done. `None` if all are taken.
    pub(crate) fn reserve(&self, owner: SessionOwner, max: usize) -> Option<SessionPermit<'_>> {
        let mut owned = self.owned.lock();
        let count = owned.entry(owner).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(SessionPermit {
            sessions: self,
            owner,
            kept: false,
        })
    }

    /// Adds a session that this peer has opened on this connection, with which it ends.
    pub(crate) fn add(
        &self,
        mut place: SessionPermit<'_>,
        nic: Arc<Session>,
        who: Credential,
        opened_by: (&Peer, u64),
    ) {
        place.kept = true;
        let (peer, connection) = opened_by;
        let session = OpenSession {
            who,
            peer: peer.into(),
            owner: place.owner,
            connection,
            nic,
        };
        let id = session.nic.id().0;
        self.open.insert(id, Arc::new(session));
    }

    /// Forgets a session. The caller closes the NIC's part.
    pub(crate) fn remove(&self, id: u32) -> Option<Arc<OpenSession>> {
        let (_, session) = self.open.remove(&id)?;
        self.give_back(session.owner);
        Some(session)
    }

    /// The sessions opened on a connection.
    pub(crate) fn of_connection(&self, connection: u64) -> Vec<u32> {
        self.matching(|session| session.connection == connection)
    }

    /// The sessions for which `test` holds.
    pub(crate) fn matching(&self, test: impl Fn(&OpenSession) -> bool) -> Vec<u32> {
        let open = self.open.iter();
        let all: Vec<_> = open
            .map(|entry| (*entry.key(), Arc::clone(entry.value())))
            .collect();
        all.into_iter()
            .filter(|(_, session)| test(session))
            .map(|(id, _)| id)
            .collect()
    }

    fn give_back(&self, owner: SessionOwner) {
        let mut owned = self.owned.lock();
        if let Some(count) = owned.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                owned.remove(&owner);
            }
        }
    }
}

impl Drop for SessionPermit<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.sessions.give_back(self.owner);
        }
    }
}
