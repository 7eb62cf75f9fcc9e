//! The credential with which a compound acts. Each export of a server may give the caller another one.

use std::borrow::Cow;

use crate::rpc::access::{NOBODY, Rights};
use crate::vfs::{Credential, Status};

/// The caller's rights, and the export in which the compound acts.
pub(super) struct Acting<'a> {
    rights: Rights<'a>,
    /// The credential of the call, if exports may have others.
    base: Option<Credential>,
    uid: u32,
    tag: u16,
}

impl<'a> Acting<'a> {
    /// Begins above all exports, with the credential of the call.
    pub fn new(rights: Rights<'a>, who: &Credential) -> Self {
        Self {
            rights,
            base: rights.are_by_export().then(|| who.clone()),
            uid: rights.user(who),
            tag: 0,
        }
    }

    /// The user that the caller claims to be. Clients of version 4 belong to it, in whatever export they act. If squashed users
    /// owned them, each user could end the clients of all others.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether the caller may reach the export with this tag.
    pub fn check(&self, tag: u16) -> Result<(), Status> {
        self.rights.check(tag)
    }

    /// Acts in the export with this tag from now on, and sets `who` to the credential there. The caller has checked that the
    /// export may be reached.
    pub fn move_to(&mut self, tag: u16, who: &mut Credential) {
        let Some(base) = self.base.as_ref().filter(|_| tag != self.tag) else {
            return;
        };
        let there = self.rights.credential(tag, base);
        // The rules may have been replaced since the check.
        let nobody = || Credential::of(NOBODY, NOBODY, &[]);
        *who = there.map_or_else(|_| nobody(), Cow::into_owned);
        self.tag = tag;
    }

    /// Refuses with XDEV an export in which the caller does not act as `who`. One operation has one credential.
    pub fn check_same(&self, tag: u16, who: &Credential) -> Result<(), Status> {
        match &self.base {
            Some(base) if tag != self.tag && *self.rights.credential(tag, base)? != *who => {
                Err(Status::XDev)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use odafs_common::wire::rpc::{Auth, AuthSys, Groups};
    use odafs_fabric::Peer;
    use odafs_nic::calls::{Caller, Notes, Placements, Transport};

    use super::*;
    use crate::rpc::access::{Access, Rule, Squash};

    #[test]
    fn one_operation_has_one_credential() {
        let rule = |squash| Rule::new(Vec::new(), squash);
        let access = Access::of(rule(Squash::All), Credential::of(1000, 1000, &[]));
        let access = access.with_exports(vec![
            (1, rule(Squash::None)),
            (2, rule(Squash::All)),
            (3, rule(Squash::None)),
        ]);
        let caller = Caller {
            peer: Peer::Address("127.0.0.1:700".parse().unwrap()),
            local: None,
            connection: 1,
            transport: Transport::NfsTcp,
            reply_bytes_max: 1 << 20,
            placements: Placements::default(),
            apart: None,
            back: None,
            notes: Notes::default(),
        };
        let auth = Auth::Sys(AuthSys {
            stamp: 0,
            machine: b"m",
            uid: 5,
            gid: 5,
            gids: Groups::new(&[]),
        });
        let mut who = access.credential(&caller, &auth).unwrap();
        let mut acting = Acting::new(access.rights(&caller, &auth), &who);
        acting.move_to(1, &mut who);
        assert_eq!((who.uid, acting.uid()), (5, 5));
        // No operation reads with the rights of one export and writes with those of another.
        assert_eq!(acting.check_same(2, &who), Err(Status::XDev));
        assert_eq!(acting.check_same(3, &who), Ok(()));
        acting.move_to(2, &mut who);
        assert_eq!(who.uid, 1000);
        assert_eq!(acting.check_same(1, &who), Err(Status::XDev));
        // Nobody may reach an export that does not exist.
        acting.move_to(9, &mut who);
        assert_eq!(who.uid, NOBODY);
        assert_eq!(acting.check(9), Err(Status::Stale));
    }
}
