//! The caller of the operations: a client of the server, or system calls on the directory that it serves.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use odafs::{Changes, Client, Options, Rdma, RdmaDesign};

use super::nfs4::SmallFiles;
use super::plan::{Design, Route};
use crate::served::{Served, Way};

/// One caller. Paths are relative to the served directory.
pub enum Caller {
    /// System calls below this directory.
    Local(PathBuf),
    /// Calls to the server.
    Client(Client),
    /// Calls of NFS version 4.2, for some of the operations.
    Nfs4(Box<SmallFiles>),
}

impl Caller {
    /// A new caller, with default options.
    ///
    /// # Errors
    /// The server refused it.
    pub fn new(route: Route, served: &Served) -> Result<Self> {
        let bare = |delegations| {
            let url = served.url(Way::NfsTcp)?;
            SmallFiles::connect(&url, delegations).map(Box::new)
        };
        Ok(match route {
            Route::Local => {
                let file = served.path();
                let directory = file.parent().context("the file is in no directory")?;
                Self::Local(directory.to_owned())
            }
            Route::Client(way) => {
                let url = served.url(way)?;
                Self::Client(Client::connect_with(&url, Options::default())?)
            }
            Route::Rdma(design) => {
                let rdma = Rdma {
                    design: match design {
                        Design::ReadRead => RdmaDesign::ReadRead,
                        Design::ReadWrite => RdmaDesign::ReadWrite,
                    },
                    ..Rdma::default()
                };
                let options = Options {
                    rdma,
                    ..Options::default()
                };
                Self::Client(Client::connect_with(&served.url(Way::Iwarp)?, options)?)
            }
            Route::Nfs4 => Self::Nfs4(bare(false)?),
            Route::Delegations => Self::Nfs4(bare(true)?),
        })
    }

    pub fn mkdir(&self, path: &Path) -> Result<()> {
        match self {
            Self::Local(root) => Ok(fs::create_dir(root.join(path))?),
            Self::Client(client) => Ok(client.mkdir(path)?),
            Self::Nfs4(files) => files.mkdir(path),
        }
    }

    /// Makes a file that holds `data`.
    pub fn create(&self, path: &Path, data: &[u8]) -> Result<()> {
        match self {
            Self::Local(root) => {
                let file = fs::File::create(root.join(path))?;
                if !data.is_empty() {
                    file.write_all_at(data, 0)?;
                }
            }
            Self::Client(client) => {
                let file = client.create(path)?;
                if !data.is_empty() {
                    file.write_at(data, 0)?;
                }
            }
            Self::Nfs4(files) => files.create(path, data)?,
        }
        Ok(())
    }

    pub fn open(&self, path: &Path) -> Result<()> {
        match self {
            Self::Local(root) => drop(fs::File::open(root.join(path))?),
            Self::Client(client) => drop(client.open(path)?),
            Self::Nfs4(_) => not_for_all()?,
        }
        Ok(())
    }

    /// The length of a file in bytes, from its attributes.
    pub fn stat(&self, path: &Path) -> Result<u64> {
        match self {
            Self::Local(root) => Ok(fs::metadata(root.join(path))?.len()),
            Self::Client(client) => Ok(client.stat(path)?.size),
            Self::Nfs4(_) => not_for_all(),
        }
    }

    /// How many names a directory has.
    pub fn read_dir(&self, path: &Path) -> Result<usize> {
        let mut names = 0;
        match self {
            Self::Local(root) => {
                for entry in fs::read_dir(root.join(path))? {
                    entry?;
                    names += 1;
                }
            }
            Self::Client(client) => {
                for entry in client.read_dir(path)? {
                    entry?;
                    names += 1;
                }
            }
            Self::Nfs4(_) => not_for_all()?,
        }
        Ok(names)
    }

    pub fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        match self {
            Self::Local(root) => {
                fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode))?;
            }
            Self::Client(client) => {
                let changes = Changes {
                    mode: Some(mode),
                    ..Changes::default()
                };
                client.set_attributes(path, &changes)?;
            }
            Self::Nfs4(_) => not_for_all()?,
        }
        Ok(())
    }

    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        match self {
            Self::Local(root) => Ok(fs::rename(root.join(from), root.join(to))?),
            Self::Client(client) => Ok(client.rename(from, to)?),
            Self::Nfs4(_) => not_for_all(),
        }
    }

    pub fn link(&self, existing: &Path, new: &Path) -> Result<()> {
        match self {
            Self::Local(root) => Ok(fs::hard_link(root.join(existing), root.join(new))?),
            Self::Client(client) => Ok(client.hard_link(existing, new)?),
            Self::Nfs4(_) => not_for_all(),
        }
    }

    pub fn unlink(&self, path: &Path) -> Result<()> {
        match self {
            Self::Local(root) => Ok(fs::remove_file(root.join(path))?),
            Self::Client(client) => Ok(client.remove(path)?),
            Self::Nfs4(_) => not_for_all(),
        }
    }

    pub fn rmdir(&self, path: &Path) -> Result<()> {
        match self {
            Self::Local(root) => Ok(fs::remove_dir(root.join(path))?),
            Self::Client(client) => Ok(client.rmdir(path)?),
            Self::Nfs4(_) => not_for_all(),
        }
    }

    /// Opens a file and reads all of it, which fills `into`.
    pub fn read(&self, path: &Path, into: &mut [u8]) -> Result<()> {
        match self {
            Self::Local(root) => fs::File::open(root.join(path))?.read_exact_at(into, 0)?,
            Self::Client(client) => client.open(path)?.read_exact_at(into, 0)?,
            Self::Nfs4(files) => files.read(path, into)?,
        }
        Ok(())
    }

    /// Opens a file that ends at `length`, and writes behind it.
    pub fn append(&self, path: &Path, length: u64, data: &[u8]) -> Result<()> {
        match self {
            Self::Local(root) => {
                let file = fs::OpenOptions::new().write(true).open(root.join(path))?;
                ensure!(
                    file.metadata()?.len() == length,
                    "the file's length is wrong"
                );
                file.write_all_at(data, length)?;
            }
            Self::Client(client) => client.open(path)?.write_at(data, length)?,
            Self::Nfs4(_) => not_for_all()?,
        }
        Ok(())
    }
}

/// A plan has no such row.
fn not_for_all<T>() -> Result<T> {
    bail!("the bare client of NFS version 4 does not do that")
}
