//! This host's users and groups, as its name services know them (nsswitch.conf(5)): files, directories of the network, and
//! whatever else is configured.

use std::io;

use nix::unistd::{Gid, Group, Uid, User};

use crate::nfs4::{Kind, NameService};

/// The name services of this host.
pub(super) struct NameServices;

impl NameService for NameServices {
    fn id(&self, kind: Kind, name: &str) -> io::Result<Option<u32>> {
        Ok(match kind {
            Kind::User => User::from_name(name)?.map(|user| user.uid.as_raw()),
            Kind::Group => Group::from_name(name)?.map(|group| group.gid.as_raw()),
        })
    }

    fn name(&self, kind: Kind, id: u32) -> io::Result<Option<String>> {
        Ok(match kind {
            Kind::User => User::from_uid(Uid::from_raw(id))?.map(|user| user.name),
            Kind::Group => Group::from_gid(Gid::from_raw(id))?.map(|group| group.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_number() {
        for kind in [Kind::User, Kind::Group] {
            assert_eq!(NameServices.id(kind, "root").unwrap(), Some(0));
            assert_eq!(NameServices.name(kind, 0).unwrap().as_deref(), Some("root"));
            assert_eq!(NameServices.id(kind, "nobody by this name").unwrap(), None);
            assert_eq!(NameServices.name(kind, 3_999_999_999).unwrap(), None);
        }
    }
}
