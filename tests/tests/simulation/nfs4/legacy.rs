//! The differences of minor version 0 (RFC 7530): no sessions and no delegations. Owners number their operations, and the
//! server recognizes a repeated call by its xid.

use super::client::{Answer, Client};
use super::lines::By;
use super::ops::Op;
use super::session::{self, Sent, Session, results};
use odafs_common::wire::nfs4::*;

/// Whether an operation that ended so has taken its owner's turn (RFC 7530, section 9.1.7).
fn counts(status: Status) -> bool {
    !matches!(
        status,
        Status::StaleClientId
            | Status::StaleStateId
            | Status::BadStateId
            | Status::BadSeqId
            | Status::BadXdr
            | Status::Resource
            | Status::NoFileHandle
            | Status::Moved
    )
}

/// Whether a reply shows that the lease was renewed.
fn renews(reply: &[u8]) -> bool {
    use OperationResult as R;
    results(reply).iter().any(|result| {
        matches!(
            result,
            R::Open(Ok(_))
                | R::OpenConfirm(Ok(_))
                | R::OpenDowngrade(Ok(_))
                | R::Close(Ok(_))
                | R::Read(Ok(_))
                | R::Write(Ok(_))
                | R::Lock(Ok(_))
                | R::Unlock(Ok(_))
                | R::Renew(Ok(()))
        )
    })
}

impl Client<'_> {
    /// Runs a compound.
    pub fn exchange_legacy(
        &mut self,
        sent: &[Sent],
        bodies: &[&[u8]],
        by: Option<By>,
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        for (reply, sent) in self.deliver(bodies, by).into_iter().zip(sent) {
            answers.push(match session::status(&reply) {
                Status::StaleClientId | Status::StaleStateId | Status::Expired => Answer::Gone,
                _ => {
                    if renews(&reply) {
                        self.heard(sent.first, 0);
                    }
                    Answer::Reply(reply)
                }
            });
        }
        answers
    }

    /// Gets a client id, and reclaims what the client held.
    pub fn establish_legacy(&mut self) {
        let set = Operation::SetClientId(SetClientIdArgs {
            client: ClientOwner {
                verifier: self.verifier.to_be_bytes(),
                id: Opaque(self.name.as_bytes()),
            },
            callback: CallbackClient {
                program: 0x4000_0000,
                address: NetAddress {
                    network: Opaque(b"tcp"),
                    address: Opaque(b"127.0.0.1.8.1"),
                },
            },
            callback_ident: 0,
        });
        let body = session::compound(0, &[set]);
        let reply = self.deliver(&[&body], None).remove(0);
        let confirm = match results(&reply)[..] {
            [OperationResult::SetClientId(Ok(confirm))] => confirm,
            ref other => self.fail(&format!("SETCLIENTID: {other:?}")),
        };
        let body = session::compound(0, &[Operation::SetClientIdConfirm(confirm)]);
        let reply = self.deliver(&[&body], None).remove(0);
        match results(&reply)[..] {
            [OperationResult::SetClientIdConfirm(Ok(()))] => {}
            // The server died in between.
            [OperationResult::SetClientIdConfirm(Err(Status::StaleClientId))] => return,
            ref other => self.fail(&format!("SETCLIENTID_CONFIRM: {other:?}")),
        }
        let known = confirm.client_id == self.id;
        self.say(&format!("has a client id, the same: {known}"));
        self.id = confirm.client_id;
        self.session = Session::none();
        self.alive = true;
        self.tally.legacy += 1;
        if !known {
            self.turn = 0;
            for held in &mut self.held {
                held.turns = Default::default();
            }
            self.unknown_to_server();
        }
    }

    /// Counts an owner's operation.
    pub fn count(&mut self, op: &Op, last: &OperationResult<'_>) {
        use OperationResult as R;
        let status = match last {
            R::Open(result) => result.as_ref().err().copied(),
            R::OpenConfirm(result)
            | R::OpenDowngrade(result)
            | R::Close(result)
            | R::Unlock(result) => result.as_ref().err().copied(),
            R::Lock(Ok(_)) => None,
            R::Lock(Err(LockFailed::Denied(_))) => Some(Status::Denied),
            R::Lock(Err(LockFailed::Other(status))) => Some(*status),
            _ => return,
        };
        let counted = u32::from(status.is_none_or(counts));
        match *op {
            Op::Lock { file, owner, .. } => {
                if self.open_of(file).locks[owner].state.is_some() {
                    self.held[file].turns[owner] += counted;
                } else {
                    // Both owners count it.
                    self.turn += counted;
                    self.held[file].turns[owner] += counted;
                }
            }
            Op::Unlock { file, owner, .. } => self.held[file].turns[owner] += counted,
            _ => self.turn += counted,
        }
    }
}
