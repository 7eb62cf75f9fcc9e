//! What a client of version 4 may do with one compound.

use super::client::{Client, Open};
use crate::world::{below, page_of};
use odafs_common::wire::nfs4::*;
use odafs_tests::page::PAGE;

/// A range of units of a file.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    pub first: u8,
    pub count: u8,
}

impl Units {
    pub fn each(self) -> std::ops::Range<u8> {
        self.first..self.first + self.count
    }

    /// A unit is so many bytes.
    const BYTES: u64 = 100;

    /// First byte, and bytes.
    pub fn range(self) -> (u64, u64) {
        let offset = u64::from(self.first) * Self::BYTES;
        (offset, u64::from(self.count) * Self::BYTES)
    }
}

/// Something that one compound does. `file` is the place of a file in the model's.
#[derive(Clone, Debug)]
pub enum Op {
    /// By the delegation of the file, or as anybody.
    Open {
        file: usize,
        access: u32,
        deny: u32,
        delegated: bool,
    },
    /// What is left is what some of the opens were for.
    Downgrade {
        file: usize,
        access: u32,
        deny: u32,
    },
    Read {
        file: usize,
        page: u8,
    },
    /// At the change attribute and the size.
    Look {
        file: usize,
    },
    /// Under the delegation: what was written before and not sent.
    Write {
        file: usize,
        page: u8,
        value: u64,
        data: Vec<u8>,
        stable: Stable,
        delegated: bool,
    },
    Commit {
        file: usize,
    },
    Lock {
        file: usize,
        owner: usize,
        units: Units,
        write: bool,
    },
    Unlock {
        file: usize,
        owner: usize,
        units: Units,
    },
    Test {
        file: usize,
        owner: usize,
        units: Units,
        write: bool,
    },
    Close {
        file: usize,
    },
    Return {
        file: usize,
    },
    Make {
        name: String,
    },
    Remove {
        name: String,
    },
    /// What minor version 0 asks for behind the first OPEN of an owner.
    Confirm {
        file: usize,
    },
    /// Nothing: the lease is renewed.
    Renew,
}

const OWNER_NAMES: [&[u8]; 2] = [b"one", b"two"];
/// By minor version 0, which counts what owners do: for each file.
const LEGACY_NAMES: [[&[u8]; 2]; 4] = [
    [b"one-a", b"two-a"],
    [b"one-b", b"two-b"],
    [b"one-c", b"two-c"],
    [b"one-d", b"two-d"],
];

pub fn kind(write: bool) -> LockType {
    // Some want to be told when the lock is free.
    match (write, below(2)) {
        (true, 0) => LockType::Write,
        (true, _) => LockType::WriteWait,
        (false, 0) => LockType::Read,
        (false, _) => LockType::ReadWait,
    }
}

impl Client<'_> {
    /// The owner of opens.
    pub fn opener<'a>(&self) -> StateOwner<'a> {
        StateOwner {
            client_id: self.id,
            owner: Opaque(OWNER_NAMES[0]),
        }
    }

    /// An owner of locks of a file.
    pub fn owned<'a>(&self, file: usize, owner: usize) -> StateOwner<'a> {
        StateOwner {
            client_id: self.id,
            owner: Opaque(match self.legacy {
                true => LEGACY_NAMES[file][owner],
                false => OWNER_NAMES[owner],
            }),
        }
    }

    /// Whose lock it is: of an owner that has locked something of the file already, or of a new one.
    pub fn locker<'a>(&self, file: usize, owner: usize) -> Locker<'a> {
        let open = self.open_of(file);
        let lock_sequence = self.held[file].turns[owner] + 1;
        match open.locks[owner].state {
            Some(lock) => Locker::Existing(ExistingLockOwner {
                lock,
                lock_sequence,
            }),
            None => Locker::New(OpenToLockOwner {
                open_sequence: self.turn + 1,
                open: open.state,
                lock_sequence,
                owner: self.owned(file, owner),
            }),
        }
    }

    pub fn open_of(&self, file: usize) -> &Open {
        match &self.held[file].open {
            Some(open) => open,
            None => self.fail("a file that is not open"),
        }
    }

    fn delegated(&self, file: usize) -> StateId {
        match &self.held[file].delegation {
            Some(delegation) => delegation.state,
            None => self.fail("a file that is not delegated"),
        }
    }

    /// The operations that do it.
    pub fn operations<'a>(&'a self, op: &'a Op) -> Vec<Operation<'a>> {
        let put = |file: usize| Operation::PutFileHandle(FileHandle(&self.handles[file]));
        match op {
            Op::Open {
                file,
                access,
                deny,
                delegated,
            } => {
                let name = Name(self.names[*file].as_bytes());
                let (put, claim) = match (delegated, below(2) * u64::from(!self.legacy)) {
                    (true, _) => {
                        let state = self.delegated(*file);
                        (put(*file), Claim::DelegateCurrentFile(state))
                    }
                    (false, 1) => (put(*file), Claim::File),
                    (false, _) => (Operation::PutRootFileHandle, Claim::Null(name)),
                };
                let wish = [
                    share_access::WANT_NO_PREFERENCE,
                    share_access::WANT_ANY,
                    share_access::WANT_NONE,
                ];
                let wish = wish[below(3) as usize] * u32::from(!self.legacy);
                let open = Operation::Open(OpenArgs {
                    sequence: self.turn + 1,
                    share_access: access | wish,
                    share_deny: *deny,
                    owner: self.opener(),
                    create: None,
                    claim,
                });
                vec![put, open]
            }
            Op::Downgrade { file, access, deny } => {
                let downgrade = Operation::OpenDowngrade(OpenDowngradeArgs {
                    state: self.open_of(*file).state,
                    sequence: self.turn + 1,
                    share_access: *access,
                    share_deny: *deny,
                });
                vec![put(*file), downgrade]
            }
            Op::Read { file, page } => vec![
                put(*file),
                Operation::Read(ReadArgs {
                    state: self.open_of(*file).state,
                    offset: u64::from(*page) * PAGE as u64,
                    count: PAGE as u32,
                }),
            ],
            Op::Look { file } => vec![
                put(*file),
                Operation::GetAttributes(GetAttributesArgs {
                    asked: Bitmap::of(&[Attribute::Change, Attribute::Size]),
                }),
            ],
            Op::Write {
                file,
                page,
                data,
                stable,
                delegated,
                ..
            } => vec![
                put(*file),
                Operation::Write(WriteArgs {
                    state: match delegated {
                        true => self.delegated(*file),
                        false => self.open_of(*file).state,
                    },
                    offset: u64::from(*page) * PAGE as u64,
                    stable: *stable,
                    data: Payload(data),
                }),
            ],
            Op::Commit { file } => vec![
                put(*file),
                Operation::Commit(CommitArgs {
                    offset: 0,
                    count: 0,
                }),
            ],
            Op::Lock {
                file,
                owner,
                units,
                write,
            } => {
                let (offset, length) = units.range();
                let lock = Operation::Lock(LockArgs {
                    kind: kind(*write),
                    reclaim: false,
                    offset,
                    length,
                    locker: self.locker(*file, *owner),
                });
                vec![put(*file), lock]
            }
            Op::Unlock { file, owner, units } => {
                let (offset, length) = units.range();
                let open = self.open_of(*file);
                let unlock = Operation::Unlock(UnlockArgs {
                    kind: LockType::Write,
                    sequence: self.held[*file].turns[*owner] + 1,
                    lock: open.locks[*owner].state.expect("something was locked"),
                    offset,
                    length,
                });
                vec![put(*file), unlock]
            }
            Op::Test {
                file,
                owner,
                units,
                write,
            } => {
                let (offset, length) = units.range();
                let test = Operation::LockTest(LockTestArgs {
                    kind: match write {
                        true => LockType::Write,
                        false => LockType::Read,
                    },
                    offset,
                    length,
                    owner: self.owned(*file, *owner),
                });
                vec![put(*file), test]
            }
            Op::Close { file } => {
                let close = Operation::Close(CloseArgs {
                    sequence: self.turn + 1,
                    state: self.open_of(*file).state,
                });
                vec![put(*file), close]
            }
            Op::Return { file } => {
                let state = self.delegated(*file);
                vec![put(*file), Operation::DelegationReturn(state)]
            }
            Op::Make { name } => vec![
                Operation::PutRootFileHandle,
                Operation::Create(CreateArgs {
                    kind: CreateType::Directory,
                    name: Name(name.as_bytes()),
                    attributes: RawAttributes::default(),
                }),
            ],
            Op::Remove { name } => vec![
                Operation::PutRootFileHandle,
                Operation::Remove(Name(name.as_bytes())),
            ],
            Op::Confirm { file } => {
                let confirm = Operation::OpenConfirm(OpenConfirmArgs {
                    state: self.open_of(*file).state,
                    sequence: self.turn + 1,
                });
                vec![put(*file), confirm]
            }
            Op::Renew if self.legacy => vec![Operation::Renew(self.id)],
            Op::Renew => Vec::new(),
        }
    }
}

/// Data of a page.
pub fn write(file: usize, page: u8, value: u64, stable: Stable, delegated: bool) -> Op {
    Op::Write {
        file,
        page,
        value,
        data: page_of(value),
        stable,
        delegated,
    }
}
