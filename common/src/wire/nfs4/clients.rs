//! Clients of minor version 0, which have no sessions (RFC 7530, sections 16.28, 16.33, 16.34 and 16.37). RENEW,
//! DELEGPURGE and DESTROY_CLIENTID take a client id alone, RELEASE_LOCKOWNER a [`super::StateOwner`].

use super::Status;
use super::types::{ClientOwner, NetAddress, Verifier};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

record! {
    /// `cb_client4`: the address of callbacks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CallbackClient<'a> {
        /// The RPC program.
        pub program: u32,
        /// The address.
        pub address: NetAddress<'a>,
    }
}

record! {
    /// SETCLIENTID
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetClientIdArgs<'a> {
        /// The client's name and verifier.
        pub client: ClientOwner<'a>,
        /// The address of callbacks.
        pub callback: CallbackClient<'a>,
        /// The `callback_ident` of the client's callbacks.
        pub callback_ident: u32,
    }
}

record! {
    /// A client id that SETCLIENTID_CONFIRM has to confirm. Also the argument of SETCLIENTID_CONFIRM.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ClientIdConfirm {
        /// The client id.
        pub client_id: u64,
        /// Shows that the client has received the reply.
        pub verifier: Verifier,
    }
}

failure! {
    /// Why SETCLIENTID failed.
    pub enum SetClientIdFailed<'a> {
        /// [`Status::ClidInUse`], with the address of the client that uses the name.
        InUse(NetAddress<'a>) = ClidInUse,
    }
}

/// SETCLIENTID
pub type SetClientIdResult<'a> = Result<ClientIdConfirm, SetClientIdFailed<'a>>;
