//! What one caller may do at each export of a table.

use std::borrow::Cow;

use odafs_common::wire::rpc::Auth;
use odafs_fabric::Peer;
use odafs_nic::calls::Caller;

use super::{Access, AccessVerdict, NOBODY, Squashing};
use crate::vfs::{Credential, Status};

/// The rights of a caller by export, for one call. Exports go by their tags (`Exports::tag_of`), and tag 0 is what lies
/// above all of them. The default is for servers without a table: everything may be reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rights<'a> {
    judged: Option<Judged<'a>>,
    /// The user that the caller says it is.
    user: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Judged<'a> {
    access: &'a Access,
    caller: &'a Caller,
    auth: &'a Auth<'a>,
}

impl<'a> Rights<'a> {
    pub(super) fn new(access: &'a Access, caller: &'a Caller, auth: &'a Auth<'a>) -> Self {
        let judged = Judged {
            access,
            caller,
            auth,
        };
        Self {
            judged: access.is_by_export().then_some(judged),
            user: Some(user(&caller.peer, auth)),
        }
    }

    /// The user that the caller says it is, whatever its ids are squashed to. `base` is the credential of the call, for servers
    /// that were told no more.
    pub fn user(&self, base: &Credential) -> u32 {
        self.user.unwrap_or(base.uid)
    }

    /// Whether exports have rules of their own, so that the tag of an object matters.
    pub fn are_by_export(&self) -> bool {
        self.judged.is_some()
    }

    /// Whether the caller may reach an export by a file handle.
    ///
    /// # Errors
    /// As Linux' server: STALE where the caller's address is not admitted, PERM where its port is not.
    pub fn check(&self, tag: u16) -> Result<(), Status> {
        let Some(judged) = self.judged else {
            return Ok(());
        };
        match judged.access.verdict_on(judged.caller, tag) {
            AccessVerdict::Admitted(_) => Ok(()),
            AccessVerdict::WrongPort => Err(Status::Perm),
            AccessVerdict::Stranger => Err(Status::Stale),
        }
    }

    /// Whether the caller may reach every export.
    pub fn reach_all(&self) -> bool {
        self.judged
            .is_none_or(|judged| judged.access.reaches_all(judged.caller))
    }

    /// The credential with which the caller acts in an export. `base` is the one of the call.
    ///
    /// # Errors
    /// As [`Rights::check`].
    pub fn credential<'c>(
        &self,
        tag: u16,
        base: &'c Credential,
    ) -> Result<Cow<'c, Credential>, Status> {
        self.check(tag)?;
        let Some(judged) = self.judged else {
            return Ok(Cow::Borrowed(base));
        };
        let squashing = |tag| judged.access.squashing_on(judged.caller, tag);
        match squashing(tag) {
            same if same == squashing(0) => Ok(Cow::Borrowed(base)),
            Ok(squashing) => judged.credential(squashing).map(Cow::Owned),
            Err(_) => Err(Status::Stale),
        }
    }

    /// The credential with which a call acts in the export of its file handle, if that may be another than `base`. `tag` finds
    /// the export, and is asked only where exports have rules. An export that the caller may not reach is refused where the
    /// handle is resolved.
    pub fn acting(
        &self,
        base: &Credential,
        tag: impl FnOnce() -> Option<u16>,
    ) -> Option<Credential> {
        self.judged?;
        let who = self.credential(tag()?, base).ok()?;
        Some(who.into_owned())
    }

    /// What tells callers of one peer apart in what they hold at the server as a whole: their own ids where exports have
    /// rules, since one of these may keep the ids that the server's own rule squashes.
    pub fn identity(&self, base: &Credential) -> Credential {
        let claimed = self
            .judged
            .map(|judged| judged.credential(Squashing::CLAIMED));
        claimed.and_then(Result::ok).unwrap_or_else(|| base.clone())
    }

    /// Whether `known` is [`Rights::identity`]. Allocates nothing.
    pub fn is_identity(&self, known: &Credential, base: &Credential) -> bool {
        match self.judged {
            None => known == base,
            Some(judged) => judged.access.is_claimed(known, judged.caller, judged.auth),
        }
    }
}

/// The user that a caller says it is; on one host, that the kernel says it is.
fn user(peer: &Peer, auth: &Auth<'_>) -> u32 {
    match (peer, auth) {
        (Peer::Uid { uid, .. }, _) => *uid,
        (_, Auth::Sys(sys)) => sys.uid,
        (_, Auth::None | Auth::Other { .. }) => NOBODY,
    }
}

impl Judged<'_> {
    fn credential(&self, squashing: Squashing) -> Result<Credential, Status> {
        let peer = &self.caller.peer;
        let credential = self.access.credential_as(squashing, peer, self.auth);
        credential.map_err(|_| Status::Access)
    }
}
