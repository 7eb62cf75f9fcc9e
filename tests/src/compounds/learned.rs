//! What clients learn from replies.

use std::cell::Cell;
use std::collections::VecDeque;

use odafs_common::wire::nfs4::*;
use odafs_common::wire::xdr::Encode as _;

const LEARNED_MAX: usize = 24;

const EVERYONE: Ace<'_> = Ace {
    kind: ace_type::ALLOW,
    flags: 0,
    access: ace_mask::READ_DATA | ace_mask::WRITE_DATA,
    who: Opaque(b"EVERYONE@"),
};

/// What a stateid is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Lock,
    Delegation,
    Copy,
}

/// What a client holds on a file, or has held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The client's id.
    pub client: u64,
    /// The file's handle.
    pub file: Vec<u8>,
    pub kind: Kind,
    pub state: StateId,
}

/// Values from the server's replies, for later compounds.
#[derive(Default)]
pub(super) struct Learned {
    pub handles: VecDeque<Vec<u8>>,
    pub states: VecDeque<StateId>,
    pub sessions: VecDeque<SessionId>,
    pub ids: VecDeque<u64>,
    pub confirms: VecDeque<ClientIdConfirm>,
    /// Attributes that can be set, encoded.
    pub attributes: Vec<Vec<u8>>,
    pub held: VecDeque<Held>,
    /// The stateid that operations on the current file are to have.
    pub here: Cell<Option<StateId>>,
    /// That of operations on the saved file.
    pub there: Cell<Option<StateId>>,
    /// Somebody has got a write delegation.
    pub delegated: bool,
}

/// Keeps the latest values.
fn learn<T: PartialEq>(known: &mut VecDeque<T>, value: T) {
    if known.contains(&value) {
        return;
    }
    if known.len() >= LEARNED_MAX {
        known.pop_front();
    }
    known.push_back(value);
}

impl Learned {
    pub fn new() -> Self {
        let set = [
            SetAttributes::default(),
            SetAttributes {
                mode: Some(0o644),
                ..SetAttributes::default()
            },
            SetAttributes {
                size: Some(0),
                ..SetAttributes::default()
            },
            SetAttributes {
                size: Some(5000),
                owner: Some(Opaque(b"1000")),
                ..SetAttributes::default()
            },
            SetAttributes {
                time_access: Some(SetTime::ServerTime),
                ..SetAttributes::default()
            },
            SetAttributes {
                acl: Some(List(vec![EVERYONE; 2])),
                ..SetAttributes::default()
            },
            SetAttributes {
                dacl: Some(Acl41 {
                    flags: u32::MAX,
                    aces: List(vec![EVERYONE; 1000]),
                }),
                mode_masked: Some(ModeMasked {
                    value: u32::MAX,
                    mask: 0o7777,
                }),
                ..SetAttributes::default()
            },
            SetAttributes {
                mode_umask: Some(ModeUmask {
                    mode: 0o666,
                    umask: 0o27,
                }),
                ..SetAttributes::default()
            },
        ];
        Self {
            attributes: set.iter().map(|set| set.to_bytes()).collect(),
            ..Self::default()
        }
    }

    pub fn take(&mut self, result: &OperationResult<'_>) {
        use OperationResult as R;
        match result {
            R::GetFileHandle(Ok(handle)) => learn(&mut self.handles, handle.0.to_vec()),
            R::Open(Ok(opened)) => {
                learn(&mut self.states, opened.state);
                match &opened.delegation {
                    Delegation::Read(read) => learn(&mut self.states, read.state),
                    Delegation::Write(write) => {
                        self.delegated = true;
                        learn(&mut self.states, write.state);
                    }
                    Delegation::None | Delegation::NoneBecause(_) => {}
                }
            }
            R::Lock(Ok(state))
            | R::Unlock(Ok(state))
            | R::OpenConfirm(Ok(state))
            | R::OpenDowngrade(Ok(state))
            | R::Close(Ok(state)) => learn(&mut self.states, *state),
            R::Copy(Ok(copied)) => {
                if let Some(state) = copied.response.callback.0 {
                    learn(&mut self.states, state);
                }
            }
            R::ExchangeId(Ok(exchanged)) => learn(&mut self.ids, exchanged.client_id),
            R::SetClientId(Ok(confirm)) => {
                learn(&mut self.ids, confirm.client_id);
                learn(&mut self.confirms, *confirm);
            }
            R::CreateSession(Ok(made)) => learn(&mut self.sessions, made.session),
            _ => {}
        }
    }

    /// What a client got by these operations. Returns the opens that it has to confirm.
    pub fn hold(&mut self, client: u64, sent: &[PutFile], results: Results<'_>) -> Vec<Held> {
        use OperationResult as R;
        let held = |file: &[u8], kind, state| Held {
            client,
            file: file.to_vec(),
            kind,
            state,
        };
        let (mut file, mut opened, mut unconfirmed) = (Vec::new(), Vec::new(), Vec::new());
        for (put, result) in sent.iter().zip(results.flatten()) {
            match result {
                R::PutFileHandle(Ok(())) => file.clone_from(put),
                R::GetFileHandle(Ok(handle)) => {
                    file = handle.0.to_vec();
                    for (kind, state, confirm) in opened.drain(..) {
                        let held = held(&file, kind, state);
                        if confirm {
                            unconfirmed.push(held.clone());
                        }
                        learn(&mut self.held, held);
                    }
                }
                R::Open(Ok(open)) => {
                    let confirm = open.flags & open_result::CONFIRM != 0;
                    opened.push((Kind::Open, open.state, confirm));
                    match open.delegation {
                        Delegation::Read(read) => {
                            opened.push((Kind::Delegation, read.state, false));
                        }
                        Delegation::Write(write) => {
                            opened.push((Kind::Delegation, write.state, false));
                        }
                        Delegation::None | Delegation::NoneBecause(_) => {}
                    }
                }
                R::Copy(Ok(copied)) => {
                    if let Some(state) = copied.response.callback.0 {
                        self.holds(held(&file, Kind::Copy, state));
                    }
                }
                R::Lock(Ok(state)) => self.holds(held(&file, Kind::Lock, state)),
                R::Unlock(Ok(state)) => self.holds(held(&file, Kind::Lock, state)),
                R::OpenConfirm(Ok(state)) | R::OpenDowngrade(Ok(state)) => {
                    self.holds(held(&file, Kind::Open, state));
                }
                _ => {}
            }
        }
        unconfirmed
    }

    fn holds(&mut self, now: Held) {
        let known = |held: &&mut Held| held.state.other == now.state.other;
        match self.held.iter_mut().find(known) {
            Some(held) => held.state = now.state,
            None => learn(&mut self.held, now),
        }
    }
}

/// The file handle that an operation puts, or nothing.
pub(super) type PutFile = Vec<u8>;
