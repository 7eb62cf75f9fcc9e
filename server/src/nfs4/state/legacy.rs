//! Client ids of minor version 0 (RFC 7530, sections 9.1.1, 16.30, 16.33 and 16.34).

use odafs_common::wire::nfs4::{ClientIdConfirm, NetAddress, Opaque, SetClientIdArgs, Status};
use odafs_fabric::clock::Nanos;

use super::clients::{Kind, LEGACY, identity};
use super::{Principal, State};

/// Where a client of minor version 0 wants to be called. Nobody calls it there, but whoever takes its name is told.
#[derive(Debug, Default)]
pub(super) struct CallbackAddress {
    network: Box<[u8]>,
    address: Box<[u8]>,
}

impl CallbackAddress {
    /// Bytes that suffice for the address of any network (RFC 5665).
    const BYTES_MAX: usize = 64;

    /// Nothing if it is too long to be one.
    fn of(given: &NetAddress<'_>) -> Self {
        let (network, address) = (given.network.0, given.address.0);
        match network.len() + address.len() <= Self::BYTES_MAX {
            true => Self {
                network: network.into(),
                address: address.into(),
            },
            false => Self::default(),
        }
    }
}

impl State {
    /// SETCLIENTID: the cases of RFC 7530, section 16.33.5.
    pub fn set_client_id(
        &mut self,
        now: Nanos,
        who: Principal,
        args: &SetClientIdArgs<'_>,
    ) -> Result<ClientIdConfirm, Status> {
        let identity = identity(LEGACY, args.client.id.0);
        let verifier = args.client.verifier;
        let new_address = CallbackAddress::of(&args.callback.address);
        let confirm = self.serial().to_be_bytes();
        let known = self.identities.get(&identity).and_then(|of| of.confirmed);
        if let Some((number, client)) = known.and_then(|n| Some((n, self.clients.get(&n)?))) {
            let holds = client.states > 0 && !self.is_over(number, now);
            match (client.who == who, client.verifier == verifier) {
                _ if client.expelled => self.remove_client(number),
                (false, _) if holds => return Err(Status::ClidInUse),
                (false, _) if !self.remove_silent(number) => return Err(Self::HELD_UP),
                (false, _) => {}
                (true, false) => {}
                (true, true) => {
                    self.remove_unconfirmed(&identity);
                    let client_id = self.id(number);
                    if let Some(client) = self.clients.get_mut(&number)
                        && let Kind::Legacy {
                            update, address, ..
                        } = &mut client.kind
                    {
                        *update = Some(confirm);
                        *address = new_address;
                    }
                    return Ok(ClientIdConfirm {
                        client_id,
                        verifier: confirm,
                    });
                }
            }
        }
        let kind = Kind::Legacy {
            confirm,
            update: None,
            address: new_address,
        };
        let number = self.add_client(now, who, identity, verifier, kind)?;
        Ok(ClientIdConfirm {
            client_id: self.id(number),
            verifier: confirm,
        })
    }

    /// The callback address of the confirmed client of minor version 0 with this name, or an empty one.
    pub fn callback_address(&self, name: &[u8]) -> NetAddress<'_> {
        let known = self.identities.get(&identity(LEGACY, name));
        let client = known.and_then(|of| self.clients.get(&of.confirmed?));
        let (network, address): (&[u8], &[u8]) = match client.map(|client| &client.kind) {
            Some(Kind::Legacy { address, .. }) => (&address.network, &address.address),
            _ => (&[], &[]),
        };
        NetAddress {
            network: Opaque(network),
            address: Opaque(address),
        }
    }

    /// SETCLIENTID_CONFIRM
    pub fn confirm_client_id(
        &mut self,
        now: Nanos,
        who: Principal,
        given: &ClientIdConfirm,
    ) -> Result<(), Status> {
        let number = self.number(given.client_id).ok_or(Status::StaleClientId)?;
        let client = self.clients.get_mut(&number).ok_or(Status::StaleClientId)?;
        let Kind::Legacy {
            confirm, update, ..
        } = &mut client.kind
        else {
            return Err(Status::StaleClientId);
        };
        if *confirm != given.verifier && *update != Some(given.verifier) {
            return Err(Status::StaleClientId);
        }
        if client.who != who {
            return Err(Status::ClidInUse);
        }
        if *update == Some(given.verifier) {
            *confirm = given.verifier;
            *update = None;
        }
        client.renewed = now;
        if !client.confirmed {
            self.confirm_client(number);
        }
        Ok(())
    }

    /// RENEW
    pub fn renew(&mut self, now: Nanos, client: u64) -> Result<(), Status> {
        self.legacy_client(now, client).map(|_| ())
    }

    /// The client of minor version 0 with this id. Renews its lease.
    pub(super) fn legacy_client(&mut self, now: Nanos, id: u64) -> Result<u32, Status> {
        let number = self.number(id).ok_or(Status::StaleClientId)?;
        match self.clients.get_mut(&number) {
            Some(client) if client.expelled => Err(Status::Expired),
            Some(client) if client.confirmed && client.legacy() => {
                client.renewed = now;
                Ok(number)
            }
            _ => Err(Status::StaleClientId),
        }
    }
}
