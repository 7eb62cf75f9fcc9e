//! What one caller may do at each export of a table.

use std::borrow::Cow;

use odafs_common::wire::rpc::Auth;
use odafs_nic::calls::Caller;

use super::{Access, Squashing, Verdict};
use crate::vfs::{Credential, Status};

/// The rights of a caller by export, for one call. Exports go by their tags (`Export::tag_of`), and tag 0 is what lies
/// above all of them. The default is for servers without a table: everything may be reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rights<'a>(Option<Judged<'a>>);

#[derive(Clone, Copy, Debug)]
struct Judged<'a> {
    access: &'a Access,
    caller: &'a Caller,
    auth: &'a Auth<'a>,
}

impl<'a> Rights<'a> {
    pub(super) fn new(access: &'a Access, caller: &'a Caller, auth: &'a Auth<'a>) -> Self {
        Self(access.is_by_export().then_some(Judged {
            access,
            caller,
            auth,
        }))
    }

    /// Whether exports have rules of their own, so that the tag of an object matters.
    pub fn are_by_export(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the caller may reach an export by a file handle.
    ///
    /// # Errors
    /// As Linux' server: STALE where the caller's address is not admitted, PERM where its port is not.
    pub fn check(&self, tag: u16) -> Result<(), Status> {
        let Some(judged) = self.0 else {
            return Ok(());
        };
        match judged.access.verdict_on(judged.caller, tag) {
            Verdict::Admitted(_) => Ok(()),
            Verdict::WrongPort => Err(Status::Perm),
            Verdict::Stranger => Err(Status::Stale),
        }
    }

    /// Whether the caller may reach every export.
    pub fn reach_all(&self) -> bool {
        self.0
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
        let Some(judged) = self.0 else {
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
        self.0?;
        let who = self.credential(tag()?, base).ok()?;
        Some(who.into_owned())
    }

    /// What tells callers of one peer apart in what they hold at the server as a whole: their own ids where exports have
    /// rules, since one of these may keep the ids that the server's own rule squashes.
    pub fn identity(&self, base: &Credential) -> Credential {
        let claimed = self.0.map(|judged| judged.credential(Squashing::CLAIMED));
        claimed.and_then(Result::ok).unwrap_or_else(|| base.clone())
    }

    /// Whether `known` is [`Rights::identity`]. Allocates nothing.
    pub fn is_identity(&self, known: &Credential, base: &Credential) -> bool {
        match self.0 {
            None => known == base,
            Some(judged) => judged.access.is_claimed(known, judged.caller, judged.auth),
        }
    }
}

impl Judged<'_> {
    fn credential(&self, squashing: Squashing) -> Result<Credential, Status> {
        let peer = &self.caller.peer;
        let credential = self.access.credential_as(squashing, peer, self.auth);
        credential.map_err(|_| Status::Access)
    }
}
