//! The memory store is a model of the kernel: random calls get the same answers from both.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{Place, Served, can_act};
use crate::store::{
    Attributes, CreateHow, Credential, FileType, MemoryStore, ObjectId, ReaddirRange, Result,
    SetAttributes, Special, Status, Store, Unlinked,
};

/// One call. Objects are numbered in the order in which they were first seen. There are few names.
#[derive(Clone, Debug)]
enum Call {
    Create {
        directory: usize,
        name: u8,
        guarded: bool,
        mode: u32,
    },
    Exclusive {
        directory: usize,
        name: u8,
        verifier: u8,
    },
    MakeDirectory {
        directory: usize,
        name: u8,
        mode: u32,
    },
    Symlink {
        directory: usize,
        name: u8,
    },
    Fifo {
        directory: usize,
        name: u8,
        mode: u32,
    },
    Link {
        object: usize,
        directory: usize,
        name: u8,
    },
    Rename {
        from: (usize, u8),
        to: (usize, u8),
    },
    Remove {
        directory: usize,
        name: u8,
    },
    RemoveDirectory {
        directory: usize,
        name: u8,
    },
    Lookup {
        directory: usize,
        name: u8,
    },
    Write {
        object: usize,
        offset: u16,
        length: u8,
    },
    Read {
        object: usize,
    },
    Copy {
        from: (usize, u16),
        to: (usize, u16),
        count: u16,
    },
    Set {
        object: usize,
        mode: Option<u32>,
        gid: Option<u32>,
        size: Option<u16>,
    },
    Access {
        object: usize,
    },
    List {
        directory: usize,
    },
    Attributes {
        object: usize,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let object = || 0..24_usize;
    let name = || 0..5_u8;
    let mode = || prop_oneof![3 => Just(0o777), 3 => Just(0o755), 1 => 0..0o10000_u32];
    prop_oneof![
        3 => (object(), name(), any::<bool>(), mode())
            .prop_map(|(directory, name, guarded, mode)| Call::Create { directory, name, guarded, mode }),
        1 => (object(), name(), 0..2_u8)
            .prop_map(|(directory, name, verifier)| Call::Exclusive { directory, name, verifier }),
        4 => (object(), name(), mode())
            .prop_map(|(directory, name, mode)| Call::MakeDirectory { directory, name, mode }),
        1 => (object(), name()).prop_map(|(directory, name)| Call::Symlink { directory, name }),
        1 => (object(), name(), mode())
            .prop_map(|(directory, name, mode)| Call::Fifo { directory, name, mode }),
        2 => (object(), object(), name())
            .prop_map(|(object, directory, name)| Call::Link { object, directory, name }),
        4 => ((object(), name()), (object(), name()))
            .prop_map(|(from, to)| Call::Rename { from, to }),
        2 => (object(), name()).prop_map(|(directory, name)| Call::Remove { directory, name }),
        2 => (object(), name())
            .prop_map(|(directory, name)| Call::RemoveDirectory { directory, name }),
        1 => (object(), name()).prop_map(|(directory, name)| Call::Lookup { directory, name }),
        2 => (object(), any::<u16>(), any::<u8>())
            .prop_map(|(object, offset, length)| Call::Write { object, offset, length }),
        1 => object().prop_map(|object| Call::Read { object }),
        2 => ((object(), any::<u16>()), (object(), any::<u16>()), any::<u16>())
            .prop_map(|(from, to, count)| Call::Copy { from, to, count }),
        2 => (
            object(),
            prop::option::of(mode()),
            prop::option::of(prop_oneof![Just(ALICE), Just(BOB), Just(TEAM)]),
            prop::option::of(any::<u16>())
        )
            .prop_map(|(object, mode, gid, size)| Call::Set { object, mode, gid, size }),
        1 => object().prop_map(|object| Call::Access { object }),
        1 => object().prop_map(|directory| Call::List { directory }),
        1 => object().prop_map(|object| Call::Attributes { object }),
    ]
}

const ALICE: u32 = 4001;
const BOB: u32 = 4002;
const TEAM: u32 = 4100;

/// The calls of three users, or of the only one.
fn callers() -> Vec<Credential> {
    let alice = Credential::of(ALICE, ALICE, &[TEAM]);
    let bob = Credential::of(BOB, BOB, &[]);
    vec![Credential::of(0, 0, &[]), alice, bob]
}

/// The comparable part of a result.
#[derive(Debug, PartialEq)]
enum Observed {
    Status(Status),
    Object(usize, Shown),
    Created(usize, Shown, bool),
    Shown(Shown),
    Unlinked(usize, bool),
    Nothing,
    Count(usize),
    Bytes(Vec<u8>),
    Mask(u32),
    Names(BTreeMap<Vec<u8>, usize>),
}

/// Attributes that do not depend on the file system.
#[derive(Debug, PartialEq)]
struct Shown {
    kind: FileType,
    mode: u32,
    links: u32,
    ids: (u32, u32),
    size: Option<u64>,
}

fn show(attributes: &Attributes) -> Shown {
    let sized = attributes.kind != FileType::Directory;
    Shown {
        kind: attributes.kind,
        mode: attributes.mode,
        links: attributes.links,
        ids: (attributes.uid, attributes.gid),
        size: sized.then_some(attributes.size),
    }
}

/// A store, and the objects that were seen in it.
struct Player<S> {
    store: S,
    objects: Vec<ObjectId>,
}

impl<S: Store> Player<S> {
    fn new(store: S) -> Self {
        let root = store.root();
        let open = SetAttributes {
            mode: Some(0o777),
            ..SetAttributes::default()
        };
        store.setattr(&callers()[0], root, &open).unwrap();
        Self {
            store,
            objects: vec![root],
        }
    }

    fn object(&self, number: usize) -> ObjectId {
        self.objects[number % self.objects.len()]
    }

    fn number(&mut self, object: ObjectId) -> usize {
        match self.objects.iter().position(|known| *known == object) {
            Some(number) => number,
            None => {
                self.objects.push(object);
                self.objects.len() - 1
            }
        }
    }

    fn play(&mut self, who: &Credential, call: &Call) -> Observed {
        self.attempt(who, call)
            .unwrap_or_else(|refused| Observed::Status(refused.status))
    }

    fn seen(&mut self, (object, attributes): (ObjectId, Attributes)) -> Observed {
        Observed::Object(self.number(object), show(&attributes))
    }

    fn gone(&mut self, unlinked: Option<Unlinked>) -> Observed {
        match unlinked {
            Some(unlinked) => Observed::Unlinked(self.number(unlinked.object), unlinked.last),
            None => Observed::Nothing,
        }
    }

    fn attempt(&mut self, who: &Credential, call: &Call) -> Result<Observed> {
        let store = &self.store;
        let named = |name: &u8| [b'a' + name];
        let new = |mode: &u32| SetAttributes {
            mode: Some(*mode),
            ..SetAttributes::default()
        };
        Ok(match call {
            Call::Create {
                directory,
                name,
                guarded,
                mode,
            } => {
                let new = new(mode);
                let how = if *guarded {
                    CreateHow::Guarded(&new)
                } else {
                    CreateHow::Unchecked(&new)
                };
                let made = store.create(who, self.object(*directory), &named(name), how)?;
                Observed::Created(
                    self.number(made.object),
                    show(&made.attributes),
                    made.existed,
                )
            }
            Call::Exclusive {
                directory,
                name,
                verifier,
            } => {
                let new = SetAttributes::default();
                let how = CreateHow::Exclusive([*verifier; 8], &new);
                let made = store.create(who, self.object(*directory), &named(name), how)?;
                Observed::Created(
                    self.number(made.object),
                    show(&made.attributes),
                    made.existed,
                )
            }
            Call::MakeDirectory {
                directory,
                name,
                mode,
            } => {
                let made = store.mkdir(who, self.object(*directory), &named(name), &new(mode))?;
                self.seen(made)
            }
            Call::Symlink { directory, name } => {
                let (directory, new) = (self.object(*directory), SetAttributes::default());
                let made = store.symlink(who, directory, &named(name), b"target", &new)?;
                self.seen(made)
            }
            Call::Fifo {
                directory,
                name,
                mode,
            } => {
                let directory = self.object(*directory);
                let made = store.mknod(who, directory, &named(name), Special::Fifo, &new(mode))?;
                self.seen(made)
            }
            Call::Link {
                object,
                directory,
                name,
            } => {
                let (object, directory) = (self.object(*object), self.object(*directory));
                Observed::Shown(show(&store.link(who, object, directory, &named(name))?))
            }
            Call::Rename { from, to } => {
                let (source, target) = (self.object(from.0), self.object(to.0));
                let replaced =
                    store.rename(who, (source, &named(&from.1)), (target, &named(&to.1)))?;
                self.gone(replaced)
            }
            Call::Remove { directory, name } => {
                let gone = store.remove(who, self.object(*directory), &named(name))?;
                self.gone(Some(gone))
            }
            Call::RemoveDirectory { directory, name } => {
                let object = store.rmdir(who, self.object(*directory), &named(name))?;
                self.gone(Some(Unlinked { object, last: true }))
            }
            Call::Lookup { directory, name } => {
                let found = store.lookup(who, self.object(*directory), &named(name))?;
                self.seen(found)
            }
            Call::Write {
                object,
                offset,
                length,
            } => {
                let data = vec![*length; usize::from(*length)];
                let object = self.object(*object);
                Observed::Count(store.write_at(who, object, u64::from(*offset), &data)?)
            }
            Call::Read { object } => {
                let mut data = vec![0; 1 << 17];
                let count = store.read_at(self.object(*object), 0, &mut data)?;
                data.truncate(count);
                Observed::Bytes(data)
            }
            Call::Copy { from, to, count } => {
                let place = |of: &(usize, u16)| (self.object(of.0), u64::from(of.1));
                let copied = store.copy(who, place(from), place(to), u64::from(*count))?;
                Observed::Count(copied as usize)
            }
            Call::Set {
                object,
                mode,
                gid,
                size,
            } => {
                let object = self.object(*object);
                // The mode of a symbolic link means nothing, so it is not compared.
                let link = store.getattr(object)?.kind == FileType::Symlink;
                let mode = mode.filter(|_| !link);
                let new = SetAttributes {
                    mode,
                    gid: *gid,
                    size: size.map(u64::from),
                    ..SetAttributes::default()
                };
                Observed::Shown(show(&store.setattr(who, object, &new)?))
            }
            Call::Access { object } => {
                Observed::Mask(store.access(who, self.object(*object), 0x3f)?)
            }
            Call::List { directory } => {
                let range = ReaddirRange {
                    cookie: 0,
                    verifier: [0; 8],
                    max_entries: 100,
                    plus: true,
                };
                let listing = store.readdir(who, self.object(*directory), range)?;
                let names = listing.entries.into_iter().map(|entry| {
                    let object = entry.object.map(|(object, _)| object);
                    (
                        entry.name,
                        object.map_or(usize::MAX, |object| self.number(object)),
                    )
                });
                Observed::Names(names.collect())
            }
            Call::Attributes { object } => {
                Observed::Shown(show(&store.getattr(self.object(*object))?))
            }
        })
    }
}

fn compare(real: Served, calls: &[(u8, Call)]) -> std::result::Result<(), TestCaseError> {
    let mut real = Player::new(real);
    let mut model = Player::new(MemoryStore::new(0));
    let callers = callers();
    for (step, (who, call)) in calls.iter().enumerate() {
        let who = &callers[usize::from(*who) % callers.len()];
        let (found, expected) = (real.play(who, call), model.play(who, call));
        // The times contain the verifier, which accesses by others may have overwritten.
        let overwritten = matches!(expected, Observed::Created(_, _, true))
            && matches!(call, Call::Exclusive { .. })
            && found == Observed::Status(Status::Exist);
        if overwritten {
            continue;
        }
        prop_assert_eq!(
            found,
            expected,
            "step {}, uid {}: {:?}",
            step,
            who.uid,
            call
        );
    }
    Ok(())
}

/// Set `PROPTEST_CASES` for more cases.
fn config() -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_none() {
        64
    } else {
        ProptestConfig::default().cases
    };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_kernel_and_the_model_agree(
        calls in prop::collection::vec((0..4_u8, call()), 1..150),
        by_handle: bool,
    ) {
        // The model links like a kernel with protected hard links.
        let protected = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks");
        if can_act() && protected.is_ok_and(|value| value.trim() == "1") {
            compare(Place::in_memory().open(by_handle), &calls)?;
        }
    }
}
