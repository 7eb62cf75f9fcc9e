//! Who may call, and with whose ids.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use odafs_common::wire::rpc::{Auth, AuthStat};
use odafs_fabric::Peer;

use crate::vfs::Credential;

/// User and group of callers whose own ids are not trusted.
pub const NOBODY: u32 = 65_534;

/// Only root can bind a port below this, on systems that keep to the rule.
const PRIVILEGED_BELOW: u16 = 1024;

/// Whose ids a caller acts with (on the shared-memory fabric always the socket peer's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// Everyone acts as the serving user (nobody, if that is root).
    #[default]
    All,
    /// The caller's ids are trusted, but root becomes nobody.
    Root,
    /// The caller's ids are trusted.
    None,
}

/// The access list of an export and what it makes of the callers' ids.
#[derive(Debug)]
pub struct Access {
    allow: Vec<IpNet>,
    loopback: bool,
    squash: Squash,
    /// Whether callers must use a port that only root can bind. True where the ids that they send are trusted.
    privileged_ports: bool,
    /// What everyone becomes under [`Squash::All`].
    everyone: Credential,
    nobody: Credential,
}

impl Access {
    /// Admits loopback and `allow`. Callers must use privileged ports, unless all are squashed: then they act as `serving`,
    /// or as nobody if that is root.
    pub fn new(allow: Vec<IpNet>, squash: Squash, serving: Credential) -> Self {
        let nobody = Credential::of(NOBODY, NOBODY, &[]);
        let everyone = if serving.uid == 0 {
            nobody.clone()
        } else {
            serving
        };
        Self {
            allow,
            loopback: true,
            privileged_ports: squash != Squash::All,
            squash,
            everyone,
            nobody,
        }
    }

    /// Admits loopback only if one of the networks contains it.
    #[must_use]
    pub fn without_loopback(self) -> Self {
        Self {
            loopback: false,
            ..self
        }
    }

    /// Trusts callers on any port. Then anyone who can open a socket on an admitted machine can be any user.
    #[must_use]
    pub fn on_any_port(self) -> Self {
        Self {
            privileged_ports: false,
            ..self
        }
    }

    /// Whether a peer may call at all. On one host the permissions of the socket have decided that already.
    pub fn admits(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Address(address) => {
                self.admits_address(address.ip()) && !self.lacks_privilege(peer)
            }
            Peer::Uid { .. } | Peer::Simulated(_) => true,
        }
    }

    /// Whether a peer must call from a privileged port and does not.
    pub fn lacks_privilege(&self, peer: &Peer) -> bool {
        let privileged = |port: u16| port < PRIVILEGED_BELOW;
        matches!(peer, Peer::Address(address) if self.privileged_ports && !privileged(address.port()))
    }

    /// Whether peers at an address may connect.
    pub fn admits_address(&self, address: IpAddr) -> bool {
        // A dual-stack listener sees IPv4 callers as ::ffff:a.b.c.d.
        let address = address.to_canonical();
        self.loopback && address.is_loopback()
            || self.allow.iter().any(|net| net.contains(&address))
    }

    /// The networks that are admitted beside this host, as EXPORT lists them.
    pub fn networks(&self) -> impl Iterator<Item = String> {
        self.allow.iter().map(ToString::to_string)
    }

    /// Whether all callers act as the same user, so that the ids that they send do not matter.
    pub fn ignores_ids(&self) -> bool {
        self.squash == Squash::All
    }

    /// On whose behalf a call is served.
    ///
    /// # Errors
    /// The server does not know the flavour of authentication.
    pub fn credential(&self, peer: &Peer, auth: &Auth<'_>) -> Result<Credential, AuthStat> {
        if let Peer::Uid {
            uid, gid, groups, ..
        } = peer
        {
            return Ok(Credential {
                uid: *uid,
                gid: *gid,
                groups: Arc::clone(groups),
                own: false,
            });
        }
        match auth {
            Auth::Other { .. } => Err(AuthStat::BadCred),
            Auth::None | Auth::Sys(_) if self.squash == Squash::All => Ok(self.everyone.clone()),
            Auth::None => Ok(self.nobody.clone()),
            Auth::Sys(sys) => Ok(self.trusted(sys.uid, sys.gid, sys.gids.as_slice())),
        }
    }

    fn trusted(&self, uid: u32, gid: u32, groups: &[u32]) -> Credential {
        if self.squash == Squash::None {
            return Credential::of(uid, gid, groups);
        }
        if uid == 0 {
            return self.nobody.clone();
        }
        let not_root = |id: u32| if id == 0 { NOBODY } else { id };
        let groups: Arc<[u32]> = groups.iter().map(|group| not_root(*group)).collect();
        Credential {
            uid,
            gid: not_root(gid),
            groups,
            own: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use odafs_common::wire::rpc::{AuthSys, Groups};

    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::Address(address.parse().expect("an address"))
    }

    fn sys(uid: u32, gid: u32, groups: &[u32]) -> Auth<'static> {
        Auth::Sys(AuthSys {
            stamp: 7,
            machine: b"m",
            uid,
            gid,
            gids: Groups::new(groups),
        })
    }

    fn serving(uid: u32) -> Credential {
        Credential {
            own: true,
            ..Credential::of(uid, uid, &[])
        }
    }

    #[test]
    fn loopback_alone_is_let_in_unless_more_is_said() {
        let access = Access::new(Vec::new(), Squash::All, serving(1000));
        assert!(access.admits(&peer("127.0.0.1:700")));
        assert!(access.admits(&peer("[::1]:40000")));
        assert!(access.admits(&peer("[::ffff:127.0.0.1]:40000")));
        assert!(!access.admits(&peer("10.1.2.3:700")));

        let nets = vec!["10.1.0.0/16".parse().expect("a network")];
        let access = Access::new(nets, Squash::All, serving(1000));
        assert!(access.admits(&peer("10.1.2.3:700")));
        assert!(access.admits(&peer("[::ffff:10.1.2.3]:40000")));
        assert!(!access.admits(&peer("10.2.0.1:700")));
        assert_eq!(access.networks().collect::<Vec<_>>(), ["10.1.0.0/16"]);
    }

    #[test]
    fn loopback_can_be_left_out() {
        let nets = || vec!["10.1.0.0/16".parse().expect("a network")];
        let access = Access::new(nets(), Squash::All, serving(1000)).without_loopback();
        for stranger in ["127.0.0.1:700", "[::1]:700", "[::ffff:127.0.0.1]:700"] {
            assert!(!access.admits(&peer(stranger)), "{stranger}");
        }
        assert!(access.admits(&peer("10.1.2.3:700")));
        let v4 = vec!["127.0.0.0/8".parse().expect("a network")];
        let access = Access::new(v4, Squash::All, serving(1000)).without_loopback();
        assert!(access.admits(&peer("127.0.0.1:700")) && !access.admits(&peer("[::1]:700")));
    }

    #[test]
    fn ids_count_from_privileged_ports_alone() {
        for squash in [Squash::None, Squash::Root] {
            let access = || Access::new(Vec::new(), squash, serving(0));
            assert!(access().admits(&peer("127.0.0.1:1023")));
            for anyone in ["127.0.0.1:1024", "[::1]:40000", "[::ffff:127.0.0.1]:1024"] {
                assert!(!access().admits(&peer(anyone)), "{anyone}");
                assert!(access().on_any_port().admits(&peer(anyone)), "{anyone}");
            }
            let process = Peer::Uid {
                uid: 12,
                gid: 13,
                groups: [].into(),
                pid: 1,
            };
            assert!(access().admits(&process));
        }
        let squashed = Access::new(Vec::new(), Squash::All, serving(0));
        assert!(squashed.admits(&peer("127.0.0.1:40000")));
    }

    #[test]
    fn all_are_squashed_to_the_serving_user_but_never_to_root() {
        let from = peer("127.0.0.1:1");
        let access = Access::new(Vec::new(), Squash::All, serving(1000));
        let who = access.credential(&from, &sys(0, 0, &[])).expect("let in");
        assert_eq!((who.uid, who.own), (1000, true));
        let access = Access::new(Vec::new(), Squash::All, serving(0));
        let who = access.credential(&from, &sys(5, 5, &[])).expect("let in");
        assert_eq!((who.uid, who.gid, who.own), (NOBODY, NOBODY, false));
    }

    #[test]
    fn root_becomes_nobody_in_every_place() {
        let from = peer("127.0.0.1:1");
        let access = Access::new(Vec::new(), Squash::Root, serving(0));
        let who = access
            .credential(&from, &sys(5, 0, &[0, 7]))
            .expect("let in");
        assert_eq!(
            (who.uid, who.gid, &*who.groups),
            (5, NOBODY, &[NOBODY, 7][..])
        );
        let who = access.credential(&from, &sys(0, 5, &[5])).expect("let in");
        assert_eq!((who.uid, who.gid, &*who.groups), (NOBODY, NOBODY, &[][..]));
        let who = access.credential(&from, &Auth::None).expect("let in");
        assert_eq!(who.uid, NOBODY);
    }

    #[test]
    fn ids_are_trusted_where_nothing_is_squashed_and_on_one_host() {
        let access = Access::new(Vec::new(), Squash::None, serving(0));
        let who = access
            .credential(&peer("127.0.0.1:1"), &sys(0, 3, &[4]))
            .expect("let in");
        assert_eq!((who.uid, who.gid, &*who.groups), (0, 3, &[4][..]));

        let access = Access::new(Vec::new(), Squash::All, serving(0));
        let process = Peer::Uid {
            uid: 12,
            gid: 13,
            groups: [14].into(),
            pid: 1,
        };
        let who = access
            .credential(&process, &sys(0, 0, &[]))
            .expect("let in");
        assert_eq!((who.uid, who.gid, &*who.groups), (12, 13, &[14][..]));
    }

    #[test]
    fn other_flavours_are_refused() {
        let access = Access::new(Vec::new(), Squash::All, serving(1000));
        let gss = Auth::Other {
            flavor: 6,
            body: &[],
        };
        assert_eq!(
            access.credential(&peer("127.0.0.1:1"), &gss),
            Err(AuthStat::BadCred)
        );
    }
}
