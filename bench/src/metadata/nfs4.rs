//! A bare client of NFS version 4.2 for small files. It opens, reads and closes a file by a call each, as clients do whose
//! programs do so. With delegations it does that once for each file: from then on it opens and closes by itself, and reads what
//! it has kept, for as long as it has the delegation. Nobody else changes the files here, so none is recalled.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use odafs_common::wire::nfs4::{
    Claim, CloseArgs, CreateArgs, CreateHow, CreateType, Delegation, FileHandle, Name, Opaque,
    OpenArgs, Operation, OperationResult, Payload, RawAttributes, ReadArgs, SetAttributes, Stable,
    StateId, StateOwner, WriteArgs, share_access,
};
use odafs_common::wire::xdr::{Decode as _, Encode as _};

use crate::peers::nfs4::{Session, names};

/// One client. Paths are relative to the URL's directory.
pub struct SmallFiles {
    session: RefCell<Session>,
    root: Vec<u8>,
    /// Those of what it makes.
    attributes: Vec<u8>,
    /// What files hold of which it has a delegation; none if it wants none.
    kept: Option<RefCell<HashMap<PathBuf, Vec<u8>>>>,
}

impl SmallFiles {
    /// Connects, in a session of its own.
    pub fn connect(url: &odafs::Url, delegations: bool) -> Result<Self> {
        let session = Session::connect(url, false, delegations)?;
        Ok(Self {
            session: RefCell::new(session),
            root: url.path.to_vec(),
            attributes: SetAttributes {
                mode: Some(0o777),
                ..SetAttributes::default()
            }
            .to_bytes(),
            kept: delegations.then(RefCell::default),
        })
    }

    /// Runs operations in the directory of this path, with its last name.
    fn within<'p, T>(
        &'p self,
        path: &'p Path,
        operations: impl FnOnce(&Session, Name<'p>) -> Vec<Operation<'p>>,
        take: impl FnOnce(&[OperationResult<'_>]) -> Option<T>,
    ) -> Result<T> {
        let mut session = self.session.borrow_mut();
        let mut all = names(&self.root);
        all.extend(names(path.as_os_str().as_bytes()));
        let last = all.pop().context("a path without a name")?;
        let mut compound = vec![session.sequence(0), Operation::PutRootFileHandle];
        compound.extend(all.into_iter().map(|name| Operation::Lookup(Name(name))));
        compound.extend(operations(&session, Name(last)));
        session.call(&compound, take)
    }

    fn attributes(&self) -> Result<RawAttributes<'_>> {
        Ok(RawAttributes::from_bytes(&self.attributes)?)
    }

    pub fn mkdir(&self, path: &Path) -> Result<()> {
        let attributes = self.attributes()?;
        let create = |_: &Session, name| {
            vec![Operation::Create(CreateArgs {
                kind: CreateType::Directory,
                name,
                attributes,
            })]
        };
        self.within(path, create, |all| match all.last() {
            Some(OperationResult::Create(Ok(_))) => Some(()),
            _ => None,
        })
    }

    /// Makes a file that holds `data`.
    pub fn create(&self, path: &Path, data: &[u8]) -> Result<()> {
        let opened = self.open(path, share_access::BOTH | share_access::WANT_NONE, true)?;
        let write = Operation::Write(WriteArgs {
            state: opened.state,
            offset: 0,
            stable: Stable::Unstable,
            data: Payload(data),
        });
        let written = self.on(&opened.handle, write, |last| match last {
            OperationResult::Write(Ok(written)) => Some(written.count),
            _ => None,
        })?;
        ensure!(written as usize == data.len(), "a part was written");
        self.close(&opened)
    }

    /// Opens a file, reads all of it, which fills `into`, and closes it.
    pub fn read(&self, path: &Path, into: &mut [u8]) -> Result<()> {
        if let Some(kept) = &self.kept
            && let Some(data) = kept.borrow().get(path)
        {
            into.copy_from_slice(data);
            return Ok(());
        }
        let wish = match self.kept {
            Some(_) => share_access::WANT_READ,
            None => share_access::WANT_NONE,
        };
        let opened = self.open(path, share_access::READ | wish, false)?;
        let read = Operation::Read(ReadArgs {
            state: opened.state,
            offset: 0,
            count: into.len() as u32,
        });
        let length = self.on(&opened.handle, read, |last| match last {
            OperationResult::Read(Ok(read)) => {
                let data = read.data.0;
                into.get_mut(..data.len())?.copy_from_slice(data);
                Some(data.len())
            }
            _ => None,
        })?;
        ensure!(length == into.len(), "{length} bytes were read");
        self.close(&opened)?;
        match &self.kept {
            Some(_) if !opened.delegated => bail!("the server gives no delegation"),
            Some(kept) => drop(kept.borrow_mut().insert(path.to_owned(), into.to_vec())),
            None => {}
        }
        Ok(())
    }

    fn open(&self, path: &Path, share_access: u32, creates: bool) -> Result<Opened> {
        let attributes = self.attributes()?;
        let open = |session: &Session, name| {
            vec![
                Operation::Open(OpenArgs {
                    sequence: 0,
                    share_access,
                    share_deny: 0,
                    owner: StateOwner {
                        client_id: session.client,
                        owner: Opaque(b"bench"),
                    },
                    create: creates.then_some(CreateHow::Unchecked(attributes)),
                    claim: Claim::Null(name),
                }),
                Operation::GetFileHandle,
            ]
        };
        self.within(path, open, |all| match all {
            [
                ..,
                OperationResult::Open(Ok(opened)),
                OperationResult::GetFileHandle(Ok(handle)),
            ] => Some(Opened {
                state: opened.state,
                handle: handle.0.to_vec(),
                delegated: matches!(opened.delegation, Delegation::Read(_)),
            }),
            _ => None,
        })
    }

    fn close(&self, opened: &Opened) -> Result<()> {
        let close = Operation::Close(CloseArgs {
            sequence: 0,
            state: opened.state,
        });
        self.on(&opened.handle, close, |last| match last {
            OperationResult::Close(Ok(_)) => Some(()),
            _ => None,
        })
    }

    fn on<T>(
        &self,
        handle: &[u8],
        operation: Operation<'_>,
        take: impl FnOnce(&OperationResult<'_>) -> Option<T>,
    ) -> Result<T> {
        let mut session = self.session.borrow_mut();
        let put = Operation::PutFileHandle(FileHandle(handle));
        let compound = [session.sequence(0), put, operation];
        session.call(&compound, |all| take(all.last()?))
    }
}

/// A file that is open.
struct Opened {
    state: StateId,
    handle: Vec<u8>,
    delegated: bool,
}
