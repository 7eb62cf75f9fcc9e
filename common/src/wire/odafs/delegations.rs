//! Delegations: promises that nobody changes a file while they stand.

use super::OdafsStatus;
use crate::wire::nfs3::{Attributes, FileHandle};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The most delegations that one DELEGATE gives back.
pub const MAX_RETURNED: u32 = 256;

/// DELEGATE
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegateArgs<'a> {
    /// The session that the delegations are of.
    pub session: u32,
    /// Numbers of delegations that the client uses no more: at most [`MAX_RETURNED`].
    pub returned: Vec<u64>,
    /// The file of which a delegation is wanted, if one is.
    pub file: Option<FileHandle<'a>>,
}

impl Encode for DelegateArgs<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.session);
        w.array(&self.returned);
        self.file.encode(w);
    }
}

impl<'a> Decode<'a> for DelegateArgs<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            session: r.u32()?,
            returned: r.array("returned", MAX_RETURNED)?,
            file: Decode::decode(r)?,
        })
    }
}

/// DELEGATE. `None`: none was wanted.
pub type DelegateResult = Result<Option<Delegated>, OdafsStatus>;

record! {
    /// A delegation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Delegated {
        /// Its number, which no other has had in this life of the server. Never 0.
        pub number: u64,
        /// How long it stands, in milliseconds from when the client sent the call.
        pub lease_ms: u32,
        /// The file's change counter.
        pub change: u64,
        /// The file's attributes.
        pub attributes: Attributes,
    }
}
