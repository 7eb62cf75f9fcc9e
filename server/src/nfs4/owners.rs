//! The names of owners and groups on the wire (RFC 7530, section 5.9; RFC 8881, section 5.9): numbers in digits, or names of this
//! host's users and groups, with or without a domain.

use std::io::{self, Write as _};
use std::num::NonZeroUsize;

use lru::LruCache;
use odafs_common::wire::nfs4::Status;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Mutex};

use super::compound::{Done, Stop};
use crate::vfs::read::Effort;

/// The longest name, with its domain, in bytes.
const NAME_MAX: usize = 255;
/// The most names that are cached, and the most numbers.
const KEPT: usize = 4096;
/// How long a name or a number is cached.
const KEPT_FOR: Nanos = Nanos::from_secs(300);
/// How long it is cached that there is none. It is short because somebody may be about to add one.
const MISSED_FOR: Nanos = Nanos::from_secs(10);
/// The default domain of names.
pub const DOMAIN: &str = "localdomain";

/// Users or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Users.
    User,
    /// Groups.
    Group,
}

/// Looks up the users and groups of this host. It may block.
pub trait NameService: Send + Sync {
    /// The number of a name; `None` if nobody has the name.
    ///
    /// # Errors
    /// The lookup failed, and may succeed later.
    fn id(&self, kind: Kind, name: &str) -> io::Result<Option<u32>>;

    /// The name of a number; `None` if it has none.
    ///
    /// # Errors
    /// The lookup failed, and may succeed later.
    fn name(&self, kind: Kind, id: u32) -> io::Result<Option<String>>;
}

/// How clients are told the owners and groups of files.
#[derive(Clone, Default)]
pub struct OwnersConfig {
    /// Whether clients are told names where there are some. Otherwise they are told numbers.
    pub names: bool,
    /// The domain of names. Empty: [`DOMAIN`].
    pub domain: String,
    /// Looks up names. Without it owners are numbers.
    pub directory: Option<Arc<dyn NameService>>,
}

/// Translates numbers into names and back, and caches both.
pub(super) struct Owners {
    config: OwnersConfig,
    known: Mutex<Tables>,
}

/// What a lookup found, if anything, and when.
type Found<T> = (Option<T>, Nanos);

/// The caches.
struct Tables {
    ids: LruCache<(Kind, Box<str>), Found<u32>>,
    names: LruCache<(Kind, u32), Found<Arc<[u8]>>>,
}

/// An owner as a reply names it.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Digits(Digits),
    Name(Arc<[u8]>),
    Fixed(&'static [u8]),
}

impl Text {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Digits(digits) => digits.bytes(),
            Self::Name(name) => name,
            Self::Fixed(name) => name,
        }
    }
}

/// A number in decimal digits.
#[derive(Clone, Debug)]
pub(super) struct Digits {
    bytes: [u8; 10],
    len: usize,
}

impl Digits {
    fn of(number: u32) -> Self {
        let mut bytes = [0; 10];
        let mut rest = &mut bytes[..];
        // 32 bits have ten digits at most.
        let _ = write!(rest, "{number}");
        let len = 10 - rest.len();
        Self { bytes, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn is_current<T>((found, since): &Found<T>, now: Nanos) -> bool {
    let age = now.since(*since);
    age < if found.is_some() {
        KEPT_FOR
    } else {
        MISSED_FOR
    }
}

impl Owners {
    pub fn new(mut config: OwnersConfig) -> Self {
        if config.domain.is_empty() {
            config.domain = DOMAIN.to_owned();
        }
        let kept = NonZeroUsize::new(KEPT).expect("not zero");
        Self {
            config,
            known: Mutex::new(Tables {
                ids: LruCache::new(kept),
                names: LruCache::new(kept),
            }),
        }
    }

    /// A number as a reply names it.
    pub fn text(&self, kind: Kind, id: u32, effort: Effort) -> Done<Text> {
        let Some(directory) = self.config.directory.as_ref().filter(|_| self.config.names) else {
            return Ok(Text::Digits(Digits::of(id)));
        };
        let now = clock::now();
        let known = self.known.lock().names.get(&(kind, id)).cloned();
        let name = match known.filter(|known| is_current(known, now)) {
            Some((name, _)) => name,
            None if effort == Effort::ResidentOnly => return Err(Stop::Blocks),
            None => {
                // If the lookup fails, the reply has the number.
                let found = directory.name(kind, id).unwrap_or(None);
                let name = found.map(|name| format!("{name}@{}", self.config.domain));
                // A name that no client could send back does not count.
                let name =
                    name.filter(|name| name.len() <= NAME_MAX && name.matches('@').count() == 1);
                let name: Option<Arc<[u8]>> = name.map(|name| name.into_bytes().into());
                let mut known = self.known.lock();
                known.names.put((kind, id), (name.clone(), now));
                name
            }
        };
        Ok(name.map_or_else(|| Text::Digits(Digits::of(id)), Text::Name))
    }

    /// The number that a client names: by digits, or by a name with this server's domain or none. BADOWNER for a name that nobody
    /// has. May block.
    pub fn id(&self, kind: Kind, owner: &[u8]) -> Done<u32> {
        if owner.is_empty() {
            return Err(Status::Inval.into());
        }
        let unknown = Stop::from(Status::BadOwner);
        let text = std::str::from_utf8(owner).map_err(|_| unknown)?;
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map_err(|_| unknown);
        }
        let name = match text.rsplit_once('@') {
            Some((name, domain)) if domain.eq_ignore_ascii_case(&self.config.domain) => name,
            Some(_) => return Err(unknown),
            None => text,
        };
        let directory = self.config.directory.as_ref();
        let directory = directory.filter(|_| text.len() <= NAME_MAX && !name.is_empty());
        let Some(directory) = directory.filter(|_| !name.contains('\0')) else {
            return Err(unknown);
        };
        let now = clock::now();
        let key = (kind, Box::<str>::from(name));
        let known = self.known.lock().ids.get(&key).copied();
        let id = match known.filter(|known| is_current(known, now)) {
            Some((id, _)) => id,
            None => {
                let found = directory.id(kind, name).map_err(|_| Status::Delay)?;
                self.known.lock().ids.put(key, (found, now));
                found
            }
        };
        id.ok_or(unknown)
    }
}

#[cfg(test)]
mod tests {
    use odafs_fabric::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Knows alice, 1001, and her group; counts what it is asked.
    #[derive(Default)]
    struct Few(AtomicUsize);

    impl NameService for Few {
        fn id(&self, kind: Kind, name: &str) -> io::Result<Option<u32>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            match (kind, name) {
                (_, "broken") => Err(io::Error::other("no answer")),
                (Kind::User, "alice") => Ok(Some(1001)),
                (Kind::Group, "alice") => Ok(Some(2001)),
                _ => Ok(None),
            }
        }

        fn name(&self, kind: Kind, id: u32) -> io::Result<Option<String>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(match (kind, id) {
                (Kind::User, 1001) => Some("alice".to_owned()),
                (Kind::User, 7) => Some("odd@name".to_owned()),
                (Kind::User, 8) => Some("n".repeat(300)),
                _ => None,
            })
        }
    }

    fn owners(names: bool) -> (Owners, Arc<Few>) {
        let few = Arc::new(Few::default());
        let config = OwnersConfig {
            names,
            domain: "example.org".to_owned(),
            directory: Some(Arc::clone(&few) as Arc<dyn NameService>),
        };
        (Owners::new(config), few)
    }

    #[test]
    fn numbers_and_names_are_taken() {
        let (owners, few) = owners(false);
        let user = |owner: &[u8]| owners.id(Kind::User, owner);
        let refused = |status| Err(Stop::Status(status));
        assert_eq!(user(b"0"), Ok(0));
        assert_eq!(user(b"4294967295"), Ok(u32::MAX));
        assert_eq!(user(b"4294967296"), refused(Status::BadOwner));
        assert_eq!(few.0.load(Ordering::Relaxed), 0, "numbers need nobody");
        assert_eq!(user(b"alice"), Ok(1001));
        assert_eq!(user(b"alice@Example.ORG"), Ok(1001));
        assert_eq!(owners.id(Kind::Group, b"alice"), Ok(2001));
        for unknown in [
            &b"alice@elsewhere"[..],
            b"alice@",
            b"@example.org",
            b"bob",
            b"1001@example.org",
            b"-1",
            b"al\0ice",
            b"\xff",
            &[b'n'; 1000],
        ] {
            assert_eq!(user(unknown), refused(Status::BadOwner), "{unknown:?}");
        }
        assert_eq!(user(b""), refused(Status::Inval));
        assert_eq!(user(b"broken"), refused(Status::Delay));
    }

    #[test]
    fn what_was_found_or_not_is_kept_in_mind() {
        let (owners, few) = owners(false);
        let asked = || few.0.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(owners.id(Kind::User, b"alice"), Ok(1001));
            assert!(owners.id(Kind::User, b"bob").is_err());
        }
        assert_eq!(asked(), 2);
        // However many there are.
        for number in 0..2 * KEPT {
            let name = format!("nobody{number}");
            assert!(owners.id(Kind::User, name.as_bytes()).is_err());
        }
        assert_eq!(owners.known.lock().ids.len(), KEPT);
        let current = |found, age| is_current(&(found, Nanos(0)), Nanos::from_secs(age));
        assert!(current(Some(1), 299) && !current(Some(1), 300));
        assert!(current(None, 9) && !current(None, 10));
    }

    #[test]
    fn names_are_told_where_they_are_asked_for() {
        let (quiet, few) = owners(false);
        let told = |owners: &Owners, id, effort| -> Done<String> {
            let text = owners.text(Kind::User, id, effort)?;
            Ok(String::from_utf8(text.bytes().to_vec()).unwrap())
        };
        let resident = Effort::ResidentOnly;
        assert_eq!(told(&quiet, 1001, resident), Ok("1001".to_owned()));
        assert_eq!(few.0.load(Ordering::Relaxed), 0);
        let (owners, few) = owners(true);
        assert_eq!(told(&owners, 1001, resident), Err(Stop::Blocks));
        assert_eq!(few.0.load(Ordering::Relaxed), 0, "nobody waits here");
        for effort in [Effort::MayBlock, resident] {
            for (id, name) in [
                (1001, "alice@example.org"),
                (5, "5"),
                (7, "7"),
                (8, "8"),
                (u32::MAX, "4294967295"),
            ] {
                assert_eq!(told(&owners, id, effort), Ok(name.to_owned()));
            }
        }
        assert_eq!(few.0.load(Ordering::Relaxed), 5);
    }
}
