//! The file system by handle: one method for each procedure of NFS version 3, for layers between a program and its
//! files (a mount, another language). [`Client`] offers the same by path.
//!
//! ```no_run
//! use odafs::{Client, fs::FileSystem};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = FileSystem::new(&Client::connect("odafs+shm:///")?);
//!
//! let table = fs.lookup(&fs.root(), "table")?;
//! println!("{} bytes", table.attributes.size);
//! let file = fs.open(&table.handle)?; // reads go the ways that any File's do
//! let mut footer = [0; 64];
//! file.read_exact_at(&mut footer, table.attributes.size - 64)?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`FileHandle`] identifies a file or a directory at the server. Names are looked up in a directory one at a time,
//! symbolic links are not followed, and nothing is resolved or remembered in between. A name is one component of a
//! path: at most 255 bytes, without `/` and NUL.
//!
//! # Errors
//! Every error has the system's number, `errno()`. Besides the errors that a method names, all methods may fail with
//!
//! | errno | when |
//! |---|---|
//! | `ESTALE` | the file behind a handle is gone, or a directory that changed cannot be listed from this cookie on |
//! | `EACCES`, `EPERM` | the caller has no right to it |
//! | `EROFS` | a change of a read-only export |
//! | `EINVAL` | a name is empty, or holds `/` or NUL |
//! | `ENAMETOOLONG` | a name is longer than 255 bytes |
//! | `ENOTDIR` | a name was asked for in what is no directory |
//! | `EIO`, `EREMOTEIO` | the server failed |
//! | `ETIMEDOUT`, `ECONNABORTED` | the server does not answer; the call was not made, or may be repeated |
//! | `ECONNRESET` | the connection was lost, and the call may have taken effect or not |

pub use crate::{
    acl::{AclEntry, AclTag, Acls},
    handle::FileHandle,
    listing::Entries,
    types::{
        Access, Attributes, Cookie, Create, DirEntry, Entry, FsInfo, Node, PathConf, Properties,
    },
};
use crate::{
    batch::FileRequest,
    client::Client,
    error::{PathError, ReadError, Status, WriteError},
    file::File,
    nfs::{Nfs, NfsError, Removed},
    open_file::OpenFile,
    types::{Changes, FileKind, Space},
    url::NAME_MAX,
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
    time::SystemTime,
};

/// The files of an export, by handle. Cheap to clone. All clones share the connection of the [`Client`], and many
/// threads may use them at once. See the [module](self).
#[derive(Clone, Debug)]
pub struct FileSystem {
    client: Client,
}

impl FileSystem {
    /// The files of the export that a client is connected to.
    pub fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
        }
    }

    /// The client underneath.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The root of the export. The path of the client's URL does not matter here.
    pub fn root(&self) -> FileHandle {
        self.client.shared().mounted.root
    }

    fn nfs(&self) -> Nfs<'_> {
        self.client.nfs()
    }

    /// The file at a path: one LOOKUP for each of its names. As with [`Client::open`], an absolute path begins with the
    /// export's name, and a relative one (including `.`) starts at the URL's path. Symbolic links on the way are
    /// followed. One at the end is followed if `follow` is set.
    ///
    /// # Errors
    /// `ENOENT`: there is no such file. `ELOOP`: more than 40 symbolic links. See the [module](self#errors) for the others.
    pub fn resolve(&self, path: impl AsRef<Path>, follow: bool) -> Result<Entry, PathError> {
        self.client.walk("lookup").find(path.as_ref(), follow)
    }

    /// The file with a name in a directory (LOOKUP). `..` is the directory above.
    ///
    /// # Errors
    /// `ENOENT`: there is no such name. See the [module](self#errors) for the others.
    pub fn lookup(&self, dir: &FileHandle, name: impl AsRef<OsStr>) -> Result<Entry, PathError> {
        self.make("lookup", name.as_ref(), |nfs, name| nfs.lookup(dir, name))
    }

    /// The present attributes of a file at the server (GETATTR). If the file has changed, the client drops what it has
    /// cached of it.
    ///
    /// # Errors
    /// See the [module](self#errors).
    pub fn getattr(&self, file: &FileHandle) -> Result<Attributes, PathError> {
        let attributes = self.nfs().attributes(file).map_err(of("stat", file))?;
        if let Some(known) = self.client.shared().known_file(file) {
            known.revalidate(&attributes);
        }
        Ok(attributes)
    }

    /// Changes attributes, and returns all of them (SETATTR). With a `guard`, it does so only if that is still the
    /// file's [`ctime`](Attributes::ctime), so that a caller that read the attributes before overwrites no later
    /// change.
    ///
    /// # Errors
    /// `EAGAIN`: the file has changed since `guard`. `EISDIR`, `EINVAL`: only regular files have a size to set. See the
    /// [module](self#errors) for the others.
    pub fn setattr(
        &self,
        file: &FileHandle,
        changes: &Changes,
        guard: Option<SystemTime>,
    ) -> Result<Attributes, PathError> {
        let shared = self.client.shared();
        let set = shared.set_attributes(file, changes, guard);
        set.map_err(of("set attributes", file))
    }

    /// Which of the rights `wanted` the caller has (ACCESS). The server decides, and may know more than the mode shows.
    ///
    /// # Errors
    /// See the [module](self#errors). A right that is not granted is not an error.
    pub fn access(&self, file: &FileHandle, wanted: Access) -> Result<Access, PathError> {
        let granted = self.nfs().access(file, wanted);
        Ok(granted.map_err(of("ask for access to", file))? & wanted)
    }

    /// The access control lists of a file (GETACL of NFSACL version 3).
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the server has no lists. See the [module](self#errors) for the others.
    pub fn acls(&self, file: &FileHandle) -> Result<Acls, PathError> {
        let lists = self.nfs().acls(file);
        lists.map_err(of("read the access control lists of", file))
    }

    /// Opens a file for reading and writing, and checks what is cached of it against the server (GETATTR). Reads of an
    /// open [`File`] are as fast as after [`Client::open`]. The file has no path; [`File::path`] shows the handle.
    ///
    /// # Errors
    /// `EISDIR`: a directory. See the [module](self#errors) for the others.
    pub fn open(&self, file: &FileHandle) -> Result<File, PathError> {
        let verb = "open";
        let attributes = self.nfs().attributes(file).map_err(of(verb, file))?;
        if attributes.kind == FileKind::Directory {
            return Err(of(verb, file)(Status::IS_DIR.into()));
        }
        let found = Entry {
            handle: *file,
            attributes,
        };
        Ok(self.client.file(file.shown(), &found))
    }

    /// Opens the file without a call. It checks neither that the file exists nor what is cached of it.
    /// [`File::snapshot`] does both.
    pub fn file(&self, file: &FileHandle) -> File {
        let shared = self.client.shared();
        let inner = OpenFile::new(shared.clone(), shared.file(*file), file.shown().into());
        File::new(self.client.clone(), inner)
    }

    /// Reads into `buf` from `offset` on, in bytes. It reads less than asked for only at the end of the file. Cached
    /// data is used without a check. A program that reads several times, or that must see what others write, should
    /// [open](Self::open) the file, which is also faster.
    ///
    /// # Errors
    /// `EINVAL`, `EISDIR`: not a regular file. See the [module](self#errors) for the others.
    pub fn read(&self, file: &FileHandle, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        self.file(file).read_at(buf, offset)
    }

    /// Makes many reads of any [open](Self::open) files, all in flight together, as [`Client::read_batch`].
    ///
    /// # Errors
    /// As [`read`](Self::read), of the first read that failed. The other reads may or may not have been served.
    ///
    /// # Panics
    /// If a file is of another client.
    pub fn read_batch(&self, requests: &mut [FileRequest<'_>]) -> Result<(), ReadError> {
        self.client.read_batch(requests)
    }

    /// Writes all of `data` at `offset`, in bytes (WRITE, unstable). A crash of the server may lose the data until
    /// [`commit`](Self::commit), which then sends it again.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, `EDQUOT`: there is no room. `EINVAL`, `EISDIR`: not a regular file. See the
    /// [module](self#errors) for the others, and [`File::write_at`] for the possible effects of a failed call.
    pub fn write(&self, file: &FileHandle, data: &[u8], offset: u64) -> Result<(), WriteError> {
        self.file(file).write_at(data, offset)
    }

    /// As [`write`](Self::write), but the data is on stable storage when this returns (WRITE, `FILE_SYNC`).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_stable(
        &self,
        file: &FileHandle,
        data: &[u8],
        offset: u64,
    ) -> Result<(), WriteError> {
        self.file(file).write_stable_at(data, offset)
    }

    /// Brings everything that was written to a file through this client to stable storage (COMMIT).
    ///
    /// # Errors
    /// `EIO`: a restart of the server lost unstable writes, and they could not be sent again. See the
    /// [module](self#errors) for the others.
    pub fn commit(&self, file: &FileHandle) -> Result<(), WriteError> {
        self.file(file).sync()
    }

    /// Creates a regular file (CREATE). If it opens one whose size is to be set, that takes a second call (SETATTR).
    ///
    /// # Errors
    /// `EEXIST`: the name exists, and `how` does not allow that. `EISDIR`: the name is that of a directory. `ENOSPC`,
    /// `EDQUOT`: there is no room. See the [module](self#errors) for the others.
    pub fn create(
        &self,
        dir: &FileHandle,
        name: impl AsRef<OsStr>,
        how: &Create,
    ) -> Result<Entry, PathError> {
        self.make("create", name.as_ref(), |_, name| {
            self.client.shared().create(dir, name, how)
        })
    }

    /// Creates a directory (MKDIR).
    ///
    /// # Errors
    /// `EEXIST`: the name exists. See the [module](self#errors) for the others.
    pub fn mkdir(
        &self,
        dir: &FileHandle,
        name: impl AsRef<OsStr>,
        attributes: &Changes,
    ) -> Result<Entry, PathError> {
        self.make("mkdir", name.as_ref(), |nfs, name| {
            nfs.make_directory(dir, name, attributes)
        })
    }

    /// Creates a device, a socket or a named pipe (MKNOD).
    ///
    /// # Errors
    /// `EEXIST`: the name exists. `EPERM`, `EACCES`: only root may create devices. `EOPNOTSUPP`: the server does not
    /// create this kind. See the [module](self#errors) for the others.
    pub fn mknod(
        &self,
        dir: &FileHandle,
        name: impl AsRef<OsStr>,
        node: Node,
        attributes: &Changes,
    ) -> Result<Entry, PathError> {
        self.make("mknod", name.as_ref(), |nfs, name| {
            nfs.make_node(dir, name, node, attributes)
        })
    }

    /// Creates a symbolic link that points to `target` (SYMLINK).
    ///
    /// # Errors
    /// `EEXIST`: the name exists. `ENAMETOOLONG`: the target is too long for the server. See the [module](self#errors) for
    /// the others.
    pub fn symlink(
        &self,
        dir: &FileHandle,
        name: impl AsRef<OsStr>,
        target: impl AsRef<OsStr>,
    ) -> Result<Entry, PathError> {
        let target = target.as_ref().as_bytes();
        self.make("symlink", name.as_ref(), |nfs, name| {
            nfs.symlink(dir, name, target)
        })
    }

    /// The target of a symbolic link (READLINK).
    ///
    /// # Errors
    /// `EINVAL`: it is not a symbolic link. See the [module](self#errors) for the others.
    pub fn readlink(&self, link: &FileHandle) -> Result<OsString, PathError> {
        let target = self.nfs().read_link(link).map_err(of("readlink", link))?;
        Ok(OsString::from_vec(target))
    }

    /// Gives a file another name, `name` in `dir` (LINK).
    ///
    /// # Errors
    /// `EEXIST`: the name exists. `EMLINK`: the file has too many names. `EPERM`, `EISDIR`, `EINVAL`: it is a
    /// directory. `EXDEV`: `dir` is on another file system. See the [module](self#errors) for the others.
    pub fn link(
        &self,
        file: &FileHandle,
        dir: &FileHandle,
        name: impl AsRef<OsStr>,
    ) -> Result<(), PathError> {
        self.on_name("link", name.as_ref(), |_, name| {
            self.client.shared().link(file, dir, name)
        })
    }

    /// Removes a name that is not a directory's (REMOVE). When its last name is removed, the file is gone, even for
    /// those who have it open.
    ///
    /// # Errors
    /// `ENOENT`: there is no such name. `EISDIR`, `EPERM`: it is a directory. See the [module](self#errors) for the
    /// others.
    pub fn unlink(&self, dir: &FileHandle, name: impl AsRef<OsStr>) -> Result<(), PathError> {
        self.on_name("remove", name.as_ref(), |_, name| {
            self.client.shared().remove(dir, name, Removed::File)
        })
    }

    /// Removes an empty directory (RMDIR).
    ///
    /// # Errors
    /// `ENOENT`: there is no such name. `ENOTEMPTY`, `EEXIST`: it is not empty. See the [module](self#errors) for the others.
    pub fn rmdir(&self, dir: &FileHandle, name: impl AsRef<OsStr>) -> Result<(), PathError> {
        self.on_name("rmdir", name.as_ref(), |_, name| {
            self.client.shared().remove(dir, name, Removed::Directory)
        })
    }

    /// Renames a file or directory (RENAME). Whatever has the new name is replaced, in one step.
    ///
    /// # Errors
    /// `ENOENT`: there is no such name. `EXDEV`: the two names are on different file systems. `EINVAL`: a directory
    /// cannot move into itself. `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EEXIST`: whatever has the new name cannot be
    /// replaced. See the [module](self#errors) for the others.
    pub fn rename(
        &self,
        dir: &FileHandle,
        name: impl AsRef<OsStr>,
        new_dir: &FileHandle,
        new_name: impl AsRef<OsStr>,
    ) -> Result<(), PathError> {
        let verb = "rename";
        let (name, new_name) = (name.as_ref(), new_name.as_ref());
        let new_name = checked(verb, new_name)?;
        self.on_name(verb, name, |_, name| {
            self.client
                .shared()
                .rename((dir, name), (new_dir, new_name))
        })
    }

    /// The entries of a directory after a cookie, with names and numbers only (READDIR). They are fetched as the caller
    /// asks for them, about 32 KiB at a time. `.` and `..` are included if the server lists them.
    ///
    /// # Errors
    /// The iterator's items are results, and the last one may be an error. `ESTALE`: the server no longer accepts the
    /// cookie. `ENOTDIR`: not a directory. See the [module](self#errors) for the others.
    pub fn readdir(&self, dir: &FileHandle, from: Cookie) -> Entries {
        Entries::new(self.client.shared().clone(), *dir, from, false)
    }

    /// As [`readdir`](Self::readdir), but each entry has its handle and attributes (READDIRPLUS).
    ///
    /// # Errors
    /// As [`readdir`](Self::readdir). `EOPNOTSUPP`: the server lists only names.
    pub fn readdirplus(&self, dir: &FileHandle, from: Cookie) -> Entries {
        Entries::new(self.client.shared().clone(), *dir, from, true)
    }

    /// The space on the file system of a file (FSSTAT), in bytes and in files.
    ///
    /// # Errors
    /// See the [module](self#errors).
    pub fn statfs(&self, file: &FileHandle) -> Result<Space, PathError> {
        let space = self.nfs().space(file);
        space.map_err(of("ask for space on", file))
    }

    /// The server's capabilities and preferences (FSINFO).
    ///
    /// # Errors
    /// See the [module](self#errors).
    pub fn fsinfo(&self, file: &FileHandle) -> Result<FsInfo, PathError> {
        let info = self.nfs().limits(file);
        info.map_err(of("ask for limits of", file))
    }

    /// The limits of names and links (PATHCONF).
    ///
    /// # Errors
    /// See the [module](self#errors).
    pub fn pathconf(&self, file: &FileHandle) -> Result<PathConf, PathError> {
        let limits = self.nfs().path_configuration(file);
        limits.map_err(of("ask for limits of", file))
    }

    fn on_name<T>(
        &self,
        verb: &'static str,
        name: &OsStr,
        what: impl FnOnce(Nfs<'_>, &[u8]) -> Result<T, NfsError>,
    ) -> Result<T, PathError> {
        let bytes = checked(verb, name)?;
        what(self.nfs(), bytes).map_err(|error| error.at(verb, &name.to_string_lossy()))
    }

    fn make(
        &self,
        verb: &'static str,
        name: &OsStr,
        what: impl FnOnce(Nfs<'_>, &[u8]) -> Result<Entry, NfsError>,
    ) -> Result<Entry, PathError> {
        self.on_name(verb, name, what)
    }
}

impl From<Client> for FileSystem {
    fn from(client: Client) -> Self {
        Self { client }
    }
}

/// Checks that a name can be sent.
fn checked<'n>(verb: &'static str, name: &'n OsStr) -> Result<&'n [u8], PathError> {
    let bytes = name.as_bytes();
    let path = || name.to_string_lossy().into_owned();
    let bad = |why| PathError::BadPath {
        verb,
        path: path(),
        why,
    };
    if bytes.is_empty() {
        return Err(bad("the name is empty"));
    }
    if bytes.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(bad("the name holds a slash or a NUL"));
    }
    if bytes.len() > NAME_MAX {
        return Err(NfsError::from(Status::NAME_TOO_LONG).at(verb, &path()));
    }
    Ok(bytes)
}

fn of(verb: &'static str, file: &FileHandle) -> impl Fn(NfsError) -> PathError + use<> {
    let file = *file;
    move |error| error.at(verb, &file.shown())
}
