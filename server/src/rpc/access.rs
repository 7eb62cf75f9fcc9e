//! Rules for callers: who may call, which exports a caller may reach, and the ids with which it acts.
//!
//! A server has a [`Rule`] of its own, and one for each export of a table ([`Access::with_exports`]). An [`AccessVerdict`] is what
//! a rule says of a peer. The verdicts are kept with the connection, so that a call neither reads a list nor takes a lock.
//! [`Access::replace`] makes all of them void.

mod rights;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use odafs_common::wire::rpc::{Auth, AuthStat};
use odafs_fabric::Peer;
use odafs_fabric::clock;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use odafs_fabric::sync::{Mutex, RwLock};
use odafs_nic::calls::Caller;

use crate::rpc::seen::Seldom;
use crate::vfs::Credential;

pub use rights::Rights;

/// User and group of callers who are trusted with no other ids.
pub const NOBODY: u32 = 65_534;

/// Ports below this one are root's alone, on systems that keep to it.
const PRIVILEGED_BELOW: u16 = 1024;

/// Whose ids a caller acts with. (On the shared-memory fabric they are always those of the socket's peer.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// Everyone acts as the serving user, or as nobody if that is root.
    #[default]
    All,
    /// The server trusts the caller's ids, but root acts as nobody.
    Root,
    /// The server trusts the caller's ids.
    None,
}

/// The ids of callers who are trusted with no others, as `anonuid` and `anongid` of exports(5): of everyone under
/// [`Squash::All`], of root under [`Squash::Root`], and of callers who claim no ids.
///
/// If only one of them is given, the other is [`NOBODY`]. If none is given, everyone acts under [`Squash::All`] as the
/// serving user (as nobody if that is root), and all others act as nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anonymous {
    /// User id.
    pub uid: Option<u32>,
    /// Group id. Such a caller has no supplementary groups.
    pub gid: Option<u32>,
}

impl Anonymous {
    /// These ids; where one is not given, that of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
        }
    }

    /// The ids in a word: the user in the upper half, the group in the lower.
    fn to_word(self) -> u64 {
        match (self.uid, self.gid) {
            (None, None) => NOT_GIVEN,
            (uid, gid) => u64::from(uid.unwrap_or(NOBODY)) << 32 | u64::from(gid.unwrap_or(NOBODY)),
        }
    }
}

/// The word of ids that are not given: no user and no group has the number `u32::MAX`.
const NOT_GIVEN: u64 = u64::MAX;

/// A rule that says who may call over a network, and with whose ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Networks that may call, besides loopback.
    pub allow: Vec<IpNet>,
    /// Whether loopback may call.
    pub loopback: bool,
    /// The ids with which callers act.
    pub squash: Squash,
    /// The ids of those who do not keep their own.
    pub anonymous: Anonymous,
    /// Where callers keep their ids: whether to believe callers on ports of 1024 and above, too. Anyone who can open a
    /// socket on an admitted machine can then be any user.
    pub any_port: bool,
}

impl Rule {
    /// Admits loopback and `allow`, on privileged ports unless all callers are squashed.
    pub fn new(allow: Vec<IpNet>, squash: Squash) -> Self {
        Self {
            allow,
            loopback: true,
            squash,
            anonymous: Anonymous::default(),
            any_port: false,
        }
    }

    fn admits_address(&self, address: IpAddr) -> bool {
        // A dual-stack listener sees IPv4 callers as ::ffff:a.b.c.d.
        let address = address.to_canonical();
        self.loopback && address.is_loopback()
            || self.allow.iter().any(|net| net.contains(&address))
    }

    fn needs_privilege(&self) -> bool {
        self.squash != Squash::All && !self.any_port
    }

    fn verdict(&self, peer: &Peer) -> AccessVerdict {
        match peer {
            // On one host the socket's own permissions have decided already.
            Peer::Uid { .. } | Peer::Simulated(_) => AccessVerdict::Admitted(self.squash),
            Peer::Address(address) if !self.admits_address(address.ip()) => AccessVerdict::Stranger,
            Peer::Address(address)
                if self.needs_privilege() && address.port() >= PRIVILEGED_BELOW =>
            {
                AccessVerdict::WrongPort
            }
            Peer::Address(_) => AccessVerdict::Admitted(self.squash),
        }
    }
}

/// What a rule says of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    /// Its address is in no network that may call.
    Stranger,
    /// It would have to call from a port below 1024.
    WrongPort,
    /// It may call, and its ids are squashed so.
    Admitted(Squash),
}

impl AccessVerdict {
    /// Bits of a verdict in a word of a connection; all of them 0 is no verdict.
    const BITS: u32 = 3;

    fn number(self) -> u64 {
        match self {
            Self::Stranger => 1,
            Self::WrongPort => 2,
            Self::Admitted(Squash::All) => 3,
            Self::Admitted(Squash::Root) => 4,
            Self::Admitted(Squash::None) => 5,
        }
    }

    fn of_number(number: u64) -> Option<Self> {
        match number & ((1 << Self::BITS) - 1) {
            1 => Some(Self::Stranger),
            2 => Some(Self::WrongPort),
            3 => Some(Self::Admitted(Squash::All)),
            4 => Some(Self::Admitted(Squash::Root)),
            5 => Some(Self::Admitted(Squash::None)),
            _ => None,
        }
    }
}

/// The rules of a server. The first is its own. Each export of a table has one of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rules(Vec<Rule>);

/// The server's own rule.
const SERVER: usize = 0;

impl Rules {
    /// The rules that decide who gets in at all: those of the exports if there are any.
    fn outer(&self) -> &[Rule] {
        match self.0.as_slice() {
            [_, exports @ ..] if !exports.is_empty() => exports,
            all => all,
        }
    }

    /// In a table, a peer may call the server if it may call one of the exports.
    fn verdict(&self, at: usize, peer: &Peer) -> AccessVerdict {
        let Some(rule) = self.0.get(at) else {
            return AccessVerdict::Stranger;
        };
        if at != SERVER {
            return rule.verdict(peer);
        }
        let mut found = AccessVerdict::Stranger;
        for outer in self.outer() {
            match outer.verdict(peer) {
                AccessVerdict::Admitted(_) => return AccessVerdict::Admitted(rule.squash),
                AccessVerdict::WrongPort => found = AccessVerdict::WrongPort,
                AccessVerdict::Stranger => {}
            }
        }
        found
    }

    /// Whether a peer at an address has the same rights by both, on every port.
    fn same_for(&self, other: &Self, address: IpAddr) -> bool {
        let rights = |rule: &Rule| {
            rule.admits_address(address)
                .then(|| (rule.squash, rule.anonymous, rule.needs_privilege()))
        };
        let pairs = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len()
            && pairs
                .into_iter()
                .all(|(one, other)| rights(one) == rights(other))
    }
}

/// Which addresses have other rights than before, after [`Access::replace`].
#[derive(Debug)]
pub struct Replaced {
    before: Rules,
    after: Rules,
}

impl Replaced {
    /// Whether a peer at this address has other rights than before.
    pub fn concerns(&self, address: IpAddr) -> bool {
        !self.before.same_for(&self.after, address)
    }
}

/// The rules of a server, and what they make of callers' ids.
#[derive(Debug)]
pub struct Access {
    rules: RwLock<Rules>,
    /// Moves with each replacement of the rules. Verdicts of another generation are void.
    generation: AtomicU64,
    /// [`Rule::anonymous`] of each rule as a word, so that a call reads it without a lock.
    anonymous: Box<[AtomicU64]>,
    /// Words that a connection needs for its verdicts.
    words: usize,
    /// The tag of each export of a table, in the order of their rules.
    tags: Vec<u16>,
    /// The number of an export's rule by its tag; 0 for tags that no export has.
    by_tag: Box<[u16]>,
    /// What everyone becomes under [`Squash::All`], unless a rule says otherwise.
    everyone: Credential,
    nobody: Credential,
    /// Of refusals, for the log.
    refusals: Mutex<Seldom>,
}

/// What a rule makes of the ids of a caller that it admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Squashing {
    squash: Squash,
    /// [`Anonymous`] as a word.
    anonymous: u64,
}

impl Squashing {
    /// The ids that the caller claims.
    const CLAIMED: Self = Self {
        squash: Squash::None,
        anonymous: NOT_GIVEN,
    };
}

/// Verdicts in a word of a connection. The generation is above them.
const VERDICTS_IN_WORD: usize = 8;
const GENERATION_SHIFT: u32 = VERDICTS_IN_WORD as u32 * AccessVerdict::BITS;
/// Generations of a word wrap around after 2^40 replacements.
const GENERATIONS: u64 = 1 << (u64::BITS - GENERATION_SHIFT);

impl Access {
    /// Admits loopback and `allow`, on privileged ports unless all callers are squashed. Under [`Squash::All`] callers act
    /// as `serving`, unless that is root.
    pub fn new(allow: Vec<IpNet>, squash: Squash, serving: Credential) -> Self {
        Self::of(Rule::new(allow, squash), serving)
    }

    /// A server with this rule. Under [`Squash::All`] callers act as `serving`, unless that is root.
    pub fn of(rule: Rule, serving: Credential) -> Self {
        let nobody = Credential::of(NOBODY, NOBODY, &[]);
        let everyone = if serving.uid == 0 {
            nobody.clone()
        } else {
            serving
        };
        Self {
            anonymous: [AtomicU64::new(rule.anonymous.to_word())].into(),
            rules: RwLock::new(Rules(vec![rule])),
            generation: AtomicU64::new(0),
            words: 1,
            tags: Vec::new(),
            by_tag: Box::default(),
            everyone,
            nobody,
            refusals: Mutex::default(),
        }
    }

    /// Gives each export of a table a rule of its own, by the tag of the export. A peer may then call if it may call one
    /// of them, and the server's own rule says only how ids are squashed above the exports.
    #[must_use]
    pub fn with_exports(mut self, exports: Vec<(u16, Rule)>) -> Self {
        let size = exports.iter().map(|(tag, _)| usize::from(*tag) + 1).max();
        let mut by_tag = vec![0; size.unwrap_or(0)];
        for (number, (tag, _)) in (1..).zip(&exports) {
            by_tag[usize::from(*tag)] = number;
        }
        self.by_tag = by_tag.into();
        self.words = (exports.len() + 1).div_ceil(VERDICTS_IN_WORD);
        let (tags, rules): (Vec<_>, Vec<_>) = exports.into_iter().unzip();
        self.tags = tags;
        let mut all = self.rules.write();
        all.0.extend(rules);
        let words = all.0.iter().map(|rule| rule.anonymous.to_word());
        self.anonymous = words.map(AtomicU64::new).collect();
        drop(all);
        self
    }

    /// Replaces the rules: the server's own, and one for each export in their order. It says whom that concerns.
    ///
    /// # Errors
    /// There are not as many rules as exports.
    pub fn replace(&self, server: Rule, exports: Vec<Rule>) -> Result<Replaced, String> {
        if exports.len() != self.tags.len() {
            return Err("the exports are not those of the start".to_owned());
        }
        let after = Rules(std::iter::once(server).chain(exports).collect());
        let mut rules = self.rules.write();
        // While the rules are locked, so that no verdict of the old rules gets the new generation. Before the ids change,
        // so that `squashing_at` notices new ids beside an old verdict.
        self.generation.fetch_add(1, Ordering::AcqRel);
        let before = std::mem::replace(&mut *rules, after.clone());
        for (word, rule) in self.anonymous.iter().zip(&after.0) {
            word.store(rule.anonymous.to_word(), Ordering::Release);
        }
        drop(rules);
        Ok(Replaced { before, after })
    }

    /// Whether a peer may call at all.
    pub fn admits(&self, peer: &Peer) -> bool {
        matches!(
            self.rules.read().verdict(SERVER, peer),
            AccessVerdict::Admitted(_)
        )
    }

    /// Whether peers at an address may connect.
    pub fn admits_address(&self, address: IpAddr) -> bool {
        let rules = self.rules.read();
        rules
            .outer()
            .iter()
            .any(|rule| rule.admits_address(address))
    }

    /// Whether peers at an address may reach the export with this tag. Tag 0 stands for what lies above all exports.
    pub fn admits_address_on(&self, address: IpAddr, tag: u16) -> bool {
        match self.number_of(tag) {
            Some(SERVER) => self.admits_address(address),
            Some(at) => {
                let rules = self.rules.read();
                rules
                    .0
                    .get(at)
                    .is_some_and(|rule| rule.admits_address(address))
            }
            None => false,
        }
    }

    /// The verdict on a caller at the server, as it is kept with the connection.
    pub fn verdict(&self, caller: &Caller) -> AccessVerdict {
        self.verdict_at(caller, SERVER)
    }

    /// The verdict on a caller at the export with this tag. Tag 0 stands for what lies above all exports.
    pub fn verdict_on(&self, caller: &Caller, tag: u16) -> AccessVerdict {
        let number = self.number_of(tag);
        number.map_or(AccessVerdict::Stranger, |at| self.verdict_at(caller, at))
    }

    /// If a refusal is to be logged, how many before it were not.
    pub fn untold_refusals(&self) -> Option<u64> {
        self.refusals.lock().untold(clock::now())
    }

    /// The number of the rule for this tag.
    fn number_of(&self, tag: u16) -> Option<usize> {
        if tag == 0 {
            return Some(SERVER);
        }
        let number = self.by_tag.get(usize::from(tag)).copied();
        number.filter(|number| *number != 0).map(usize::from)
    }

    fn verdict_at(&self, caller: &Caller, at: usize) -> AccessVerdict {
        let judge = || self.rules.read().verdict(at, &caller.peer);
        let Some(word) = caller.notes.word(at / VERDICTS_IN_WORD, self.words) else {
            return judge();
        };
        let shift = (at % VERDICTS_IN_WORD) as u32 * AccessVerdict::BITS;
        let generation = self.generation.load(Ordering::Acquire) % GENERATIONS;
        let noted = word.load(Ordering::Acquire);
        let fresh = noted >> GENERATION_SHIFT == generation;
        if let Some(verdict) = AccessVerdict::of_number(noted >> shift).filter(|_| fresh) {
            return verdict;
        }
        let verdict = judge();
        let others = if fresh {
            noted
        } else {
            generation << GENERATION_SHIFT
        };
        // Another thread may note at the same time. What is lost is judged again.
        word.store(others | verdict.number() << shift, Ordering::Release);
        verdict
    }

    /// What the rule for this tag makes of a caller's ids, or the verdict that refuses the caller.
    fn squashing_on(&self, caller: &Caller, tag: u16) -> Result<Squashing, AccessVerdict> {
        let at = self.number_of(tag).ok_or(AccessVerdict::Stranger)?;
        self.squashing_at(caller, at)
    }

    fn squashing_at(&self, caller: &Caller, at: usize) -> Result<Squashing, AccessVerdict> {
        loop {
            let before = self.generation.load(Ordering::Acquire);
            let verdict = self.verdict_at(caller, at);
            let anonymous = self.anonymous.get(at);
            let anonymous = anonymous.map_or(NOT_GIVEN, |word| word.load(Ordering::Acquire));
            // A verdict of the old rules and ids of the new ones would be what neither say.
            if self.generation.load(Ordering::Acquire) == before {
                return match verdict {
                    AccessVerdict::Admitted(squash) => Ok(Squashing { squash, anonymous }),
                    refused => Err(refused),
                };
            }
        }
    }

    /// Whether the exports of a table have rules of their own.
    pub fn is_by_export(&self) -> bool {
        !self.tags.is_empty()
    }

    /// Whether a caller may reach every export.
    pub fn reaches_all(&self, caller: &Caller) -> bool {
        let on = |tag: &u16| self.verdict_on(caller, *tag);
        self.tags
            .iter()
            .all(|tag| matches!(on(tag), AccessVerdict::Admitted(_)))
    }

    /// The networks that a rule admits beyond this host, as EXPORT lists them. Tag 0 stands for the server itself: in a
    /// table, all networks that may reach an export.
    pub fn networks(&self, tag: u16) -> Vec<String> {
        let rules = self.rules.read();
        let number = self.by_tag.get(usize::from(tag)).copied().unwrap_or(0);
        let listed: &[Rule] = match rules.0.get(usize::from(number)) {
            Some(rule) if tag != 0 => std::slice::from_ref(rule),
            _ => rules.outer(),
        };
        let mut networks: Vec<String> = Vec::new();
        for network in listed.iter().flat_map(|rule| &rule.allow) {
            let network = network.to_string();
            if !networks.contains(&network) {
                networks.push(network);
            }
        }
        networks
    }

    /// The caller's rights by export.
    pub fn rights<'a>(&'a self, caller: &'a Caller, auth: &'a Auth<'a>) -> Rights<'a> {
        Rights::new(self, caller, auth)
    }

    /// On whose behalf the server serves a call.
    ///
    /// # Errors
    /// The server does not serve this flavour of authentication.
    pub fn credential(&self, caller: &Caller, auth: &Auth<'_>) -> Result<Credential, AuthStat> {
        match (self.squashing_at(caller, SERVER), auth) {
            (Ok(squashing), _) => self.credential_as(squashing, &caller.peer, auth),
            (_, Auth::Other { .. }) => Err(AuthStat::BadCred),
            _ => Ok(self.nobody.clone()),
        }
    }

    /// As [`Access::credential`], for a call that is for callers alone that the access list admits.
    ///
    /// # Errors
    /// As [`Access::credential`], and [`AuthStat::TooWeak`] for others.
    pub fn credential_of_listed(
        &self,
        caller: &Caller,
        auth: &Auth<'_>,
    ) -> Result<Credential, AuthStat> {
        let squashing = self.squashing_at(caller, SERVER);
        let squashing = squashing.map_err(|_| AuthStat::TooWeak)?;
        self.credential_as(squashing, &caller.peer, auth)
    }

    /// Whether `known` is what a caller says of itself, whatever is made of that.
    fn is_claimed(&self, known: &Credential, caller: &Caller, auth: &Auth<'_>) -> bool {
        match (&caller.peer, auth) {
            (
                Peer::Uid {
                    uid, gid, groups, ..
                },
                _,
            ) => (known.uid, known.gid, &known.groups) == (*uid, *gid, groups),
            (_, Auth::Sys(sys)) => {
                (known.uid, known.gid, &*known.groups) == (sys.uid, sys.gid, sys.gids.as_slice())
            }
            (_, Auth::None | Auth::Other { .. }) => *known == self.nobody,
        }
    }

    fn credential_as(
        &self,
        squashing: Squashing,
        peer: &Peer,
        auth: &Auth<'_>,
    ) -> Result<Credential, AuthStat> {
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
            Auth::None | Auth::Sys(_) if squashing.squash == Squash::All => {
                Ok(self.anonymous(squashing, &self.everyone))
            }
            Auth::None => Ok(self.anonymous(squashing, &self.nobody)),
            Auth::Sys(sys) if squashing.squash == Squash::None => {
                Ok(Credential::of(sys.uid, sys.gid, sys.gids.as_slice()))
            }
            Auth::Sys(sys) if sys.uid == 0 => Ok(self.anonymous(squashing, &self.nobody)),
            Auth::Sys(sys) => {
                let instead = self.anonymous(squashing, &self.nobody).gid;
                let not_root = |id: u32| if id == 0 { instead } else { id };
                let groups = sys.gids.as_slice().iter();
                Ok(Credential {
                    uid: sys.uid,
                    gid: not_root(sys.gid),
                    groups: groups.map(|group| not_root(*group)).collect(),
                    own: false,
                })
            }
        }
    }

    /// A caller without ids of its own: the ids that the rule gives, or else `otherwise`. Allocates nothing.
    fn anonymous(&self, squashing: Squashing, otherwise: &Credential) -> Credential {
        match squashing.anonymous {
            NOT_GIVEN => otherwise.clone(),
            ids => Credential {
                uid: (ids >> 32) as u32,
                gid: ids as u32,
                ..self.nobody.clone()
            },
        }
    }
}
