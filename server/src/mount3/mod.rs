//! MOUNT version 3 (RFC 1813, appendix I): resolves a path to the file handle of an export's root, or of a directory below
//! it. Versions 1 and 2, for NFS version 2, differ in the handle and the statuses alone; version 2 has PATHCONF besides.

mod outside;
mod path_conf;

use std::num::NonZeroUsize;

use lru::LruCache;
use odafs_common::wire::mount3::{
    self, DirPath, Mount, MountOk, Mounts, Name, PROGRAM, Procedure, Status, VERSION,
};
use odafs_common::wire::nfs3::FileHandle;
use odafs_common::wire::rpc::{FLAVOR_NONE, FLAVOR_SYS};
use odafs_common::wire::xdr::{Decode as _, Encode as _, Reader, Writer, XdrError};
use odafs_common::wire::{mount1, nfs2};
use odafs_fabric::Peer;
use odafs_fabric::sync::{Arc, Mutex};

use self::outside::{Next, Outside};
use crate::rpc::access::{Access, AccessVerdict, Squash};
use crate::rpc::{Admission, Answer, Call, Program, reply};
use crate::vfs::export::Exports;
use crate::vfs::namespace;
use crate::vfs::read::Effort;
use crate::vfs::{self, Credential, FileType, ObjectId};

/// The most mounts that DUMP remembers. Nothing depends on them.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// The most symbolic links in the resolution of a path, as on Linux.
const LINKS_MAX: u32 = 40;

/// Which host has mounted which path, and the tag of its export.
type Mounted = LruCache<(String, Vec<u8>), u16>;

/// The MOUNT program of one export.
pub struct MountProgram {
    version: u32,
    export: Arc<Exports>,
    access: Arc<Access>,
    /// What all versions remember.
    mounted: Arc<Mutex<Mounted>>,
}

impl MountProgram {
    /// Serves `export` to those whom `access` admits.
    pub fn new(export: Arc<Exports>, access: Arc<Access>) -> Self {
        Self {
            version: VERSION,
            export,
            access,
            mounted: Arc::new(Mutex::new(LruCache::new(REMEMBERED))),
        }
    }

    /// The same in the versions for NFS version 2.
    pub fn for_version_2(&self) -> [Self; 2] {
        mount1::VERSIONS.map(|version| Self {
            version,
            export: Arc::clone(&self.export),
            access: Arc::clone(&self.access),
            mounted: Arc::clone(&self.mounted),
        })
    }

    /// The directory of a path, for callers that may reach its export.
    fn find(&self, call: &Call<'_>, path: &[u8]) -> Result<ObjectId, Status> {
        let tag = self.judge(call, path)?;
        let who = call.rights.credential(tag, &call.who);
        let who = who.map_err(|_| Status::Access)?;
        let directory = self.walk(&who, tag, path)?;
        if self.export.tag_of(directory) != tag {
            return Err(Status::NoEnt);
        }
        let root = self.export.root();
        let shown =
            namespace::check_found(&self.export, root, directory, &|tag| call.rights.check(tag));
        shown.map_err(mount_status)?;
        Ok(directory)
    }

    fn mount(&self, call: &Call<'_>, path: &[u8]) -> Result<ObjectId, Status> {
        let directory = self.find(call, path)?;
        let entry = (host(&call.caller.peer), path.to_vec());
        let tag = self.export.tag_of(directory);
        self.mounted.lock().put(entry, tag);
        tracing::info!(peer = %call.caller.peer, path = %path.escape_ascii(), "mounted");
        Ok(directory)
    }

    /// Refuses callers that may not reach the server, or the export in which a path begins. Returns the tag of that. This does
    /// not block, so no thread of the pool is needed to refuse somebody.
    fn judge(&self, call: &Call<'_>, path: &[u8]) -> Result<u16, Status> {
        self.check(call, 0, path)?;
        let tag = self.tag_of(path);
        if tag != 0 {
            self.check(call, tag, path)?;
        }
        Ok(tag)
    }

    /// Refuses callers that may not reach an export, or the server where the tag is 0.
    fn check(&self, call: &Call<'_>, tag: u16, path: &[u8]) -> Result<(), Status> {
        let verdict = self.access.verdict_on(call.caller, tag);
        if let AccessVerdict::Admitted(_) = verdict {
            return Ok(());
        }
        if let Some(untold) = self.access.untold_refusals() {
            let (peer, path) = (&call.caller.peer, path.escape_ascii());
            match verdict {
                AccessVerdict::WrongPort => {
                    tracing::warn!(%peer, %path, untold, "mount refused: the port is not below 1024 (--insecure lets it in, --squash all needs no such port)");
                }
                _ => {
                    tracing::warn!(%peer, %path, untold, "mount refused: not in the access list (--allow)");
                }
            }
        }
        Err(Status::Access)
    }

    /// Whether the caller's address is in no access list. Such callers hear nothing of clients and networks.
    fn is_stranger(&self, call: &Call<'_>) -> bool {
        self.access.verdict(call.caller) == AccessVerdict::Stranger
    }

    /// The tag of the export of a table in which a path begins, or 0.
    fn tag_of(&self, path: &[u8]) -> u16 {
        let tags = self.export.store().tags().into_iter();
        let mut of_path = tags.filter(|(name, _)| below_export(name.as_bytes(), path).is_some());
        of_path.next().map_or(0, |(_, tag)| tag)
    }

    /// Resolves a path, which begins with the export's name, to a directory. It follows symbolic links that stay in the
    /// export, or that lead back into it by the path of its directory on the host. `who` is the credential in the export with this tag: by
    /// way of `..` no other export is entered.
    fn walk(&self, who: &Credential, tag: u16, path: &[u8]) -> Result<ObjectId, Status> {
        let below =
            below_export(self.export.config().name.as_bytes(), path).ok_or(Status::NoEnt)?;
        let places = &self.export.config().places;
        let place = places.iter().find(|place| place.tag == tag);
        let mut directory = self.export.root();
        // Of the export with the tag.
        let mut root = directory;
        // Where links have led, if that is outside.
        let mut outside: Option<Outside<'_>> = None;
        // Each export is a file system of its own.
        let mut file_system = None;
        let mut links = 0;
        // The names that are left, the next one last.
        let mut rest = Vec::new();
        push(&mut rest, below, false);
        while let Some(step) = rest.pop() {
            let up = step.of_link && step.name == b"..";
            let next = match outside.take() {
                Some(outside) => outside.step(&step.name),
                // The store's root is its own parent, so `..` of a link must not reach it.
                None if up && directory == root => place.and_then(Outside::above),
                None => {
                    let (object, attributes) =
                        namespace::lookup(&self.export, who, directory, &step.name)
                            .map_err(|error| mount_status(error.status))?;
                    let here = self.export.tag_of(object);
                    if here != 0 && here != tag {
                        return Err(Status::NoEnt);
                    }
                    let leaves = file_system.is_some_and(|known| known != attributes.fsid);
                    match attributes.kind {
                        FileType::Directory if up && leaves => return Err(Status::Access),
                        FileType::Directory => {
                            if here != self.export.tag_of(directory) {
                                root = object;
                            }
                            directory = object;
                            file_system = Some(attributes.fsid);
                            continue;
                        }
                        FileType::Symlink if links < LINKS_MAX => {}
                        FileType::Symlink => return Err(Status::Inval),
                        _ => return Err(Status::NotDir),
                    }
                    links += 1;
                    let target = namespace::readlink(&self.export, object)
                        .map_err(|error| mount_status(error.status))?;
                    push(&mut rest, &target, true);
                    if !target.starts_with(b"/") {
                        continue;
                    }
                    // It is a path in the server's own file system.
                    place.and_then(Outside::root)
                }
            };
            match next.ok_or(Status::Access)? {
                Next::OnTheWay(there) => outside = Some(there),
                Next::Root => (directory, file_system) = (root, None),
            }
        }
        match outside {
            Some(_) => Err(Status::Access),
            None => Ok(directory),
        }
    }

    fn reply_mount(&self, call: &Call<'_>, path: &[u8], results: &mut Writer<'_>) -> Answer {
        let mounted = match (call.effort, self.judge(call, path)) {
            (_, Err(status)) => Err(status),
            (Effort::ResidentOnly, Ok(_)) => return Answer::Blocks,
            _ => self.mount(call, path),
        };
        if self.version != VERSION {
            let handle = mounted.map(|directory| self.export.short_handle(directory));
            let result: mount1::MountResult<'_> = match &handle {
                Ok(handle) => Ok(nfs2::FileHandle(handle)),
                Err(status) => Err(older_status(*status)),
            };
            return reply(results, &result);
        }
        // Where all are squashed, what a caller says of itself does not matter.
        let verdict = self.access.verdict_on(call.caller, self.tag_of(path));
        let flavors: &[u32] = match verdict {
            AccessVerdict::Admitted(Squash::All) => &[FLAVOR_SYS, FLAVOR_NONE],
            _ => &[FLAVOR_SYS],
        };
        let handle = mounted.map(|directory| self.export.handle(directory));
        let result = handle
            .as_ref()
            .map_err(|status| *status)
            .map(|handle| MountOk {
                file: FileHandle(handle),
                flavors: flavors.to_vec(),
            });
        reply(results, &result)
    }

    /// DUMP, of what lies where the caller may reach it.
    fn dump(&self, call: &Call<'_>, results: &mut Writer<'_>) {
        let mounted = self.mounted.lock();
        let shown = mounted
            .iter()
            .filter(|(_, tag)| !self.is_stranger(call) && call.rights.check(**tag).is_ok());
        let mounts = shown.map(|((host, directory), _)| Mount {
            host: Name(host.as_bytes()),
            directory: DirPath(directory),
        });
        Mounts(mounts.collect()).encode(results);
    }

    fn forget(&self, peer: &Peer, path: Option<&[u8]>) {
        let host = host(peer);
        let mut mounted = self.mounted.lock();
        let gone: Vec<_> = mounted
            .iter()
            .map(|(entry, _)| entry)
            .filter(|(from, directory)| *from == host && path.is_none_or(|path| path == directory))
            .cloned()
            .collect();
        for entry in gone {
            mounted.pop(&entry);
        }
    }

    /// EXPORT: the exports that the caller may reach, and the networks that may reach each. (Loopback is not listed.) Callers
    /// outside the access list get names alone: by one of these they ask to mount, and hear why they may not.
    fn exports(&self, call: &Call<'_>, results: &mut Writer<'_>) {
        let tags = self.export.store().tags();
        let tag_of = |name: &str| {
            let mut named = tags.iter().filter(|(known, _)| known == name);
            named.next().map_or(0, |(_, tag)| *tag)
        };
        let names = self.export.config().names();
        let listed: Vec<(&str, Vec<String>)> = names
            .map(|name| (name, tag_of(name)))
            .filter(|(_, tag)| call.rights.check(*tag).is_ok())
            .map(|(name, tag)| match self.is_stranger(call) {
                true => (name, Vec::new()),
                false => (name, self.access.networks(tag)),
            })
            .collect();
        let exports = listed.iter().map(|(name, networks)| mount3::Export {
            directory: DirPath(name.as_bytes()),
            groups: networks
                .iter()
                .map(|network| Name(network.as_bytes()))
                .collect(),
        });
        mount3::Exports(exports.collect()).encode(results);
    }

    fn dispatch(
        &self,
        procedure: Procedure,
        mut call: Call<'_>,
        results: &mut Writer<'_>,
    ) -> Result<Answer, XdrError> {
        match procedure {
            Procedure::Null => return Ok(Answer::NoProcedure),
            Procedure::Mount => {
                let path = path(&mut call.arguments)?;
                return Ok(self.reply_mount(&call, path, results));
            }
            Procedure::Dump => self.dump(&call, results),
            Procedure::Unmount => {
                let path = path(&mut call.arguments)?;
                self.forget(&call.caller.peer, Some(path));
            }
            Procedure::UnmountAll => self.forget(&call.caller.peer, None),
            Procedure::Export => self.exports(&call, results),
        }
        Ok(Answer::Replied)
    }
}

impl Program for MountProgram {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn name(&self) -> &'static str {
        match self.version {
            1 => "mount1",
            2 => "mount2",
            _ => "mount3",
        }
    }

    fn procedures(&self) -> &'static [&'static str] {
        const NAMES: [&str; 8] = [
            "NULL",
            "MNT",
            "DUMP",
            "UMNT",
            "UMNTALL",
            "EXPORT",
            "EXPORTALL",
            "PATHCONF",
        ];
        match self.version {
            2 => &NAMES,
            _ => &NAMES[..6],
        }
    }

    fn statuses(&self, procedure: u32) -> Vec<(u32, String)> {
        fn named(code: u32, status: impl std::fmt::Debug) -> (u32, String) {
            (code, format!("{status:?}").to_lowercase())
        }
        let all = Status::ALL
            .iter()
            .map(|status| named(status.code(), status));
        let older = nfs2::Status::ALL.iter();
        let older = older.map(|status| named(status.code(), status));
        match (Procedure::from_code(procedure), self.version) {
            (Some(Procedure::Mount), VERSION) => all.collect(),
            (Some(Procedure::Mount), _) => older.collect(),
            _ => Vec::new(),
        }
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Asks
    }

    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match Procedure::from_code(call.procedure) {
            Some(procedure) => self
                .dispatch(procedure, call, results)
                .unwrap_or_else(Answer::from),
            None if (self.version, call.procedure) == (2, mount1::PATH_CONF) => {
                self.path_conf(call, results).unwrap_or_else(Answer::from)
            }
            None => Answer::NoProcedure,
        }
    }
}

fn path<'a>(arguments: &mut Reader<'a>) -> Result<&'a [u8], XdrError> {
    DirPath::decode(arguments).map(|path| path.0)
}

/// A name of a path.
struct PathComponent {
    name: Vec<u8>,
    /// Whether a symbolic link contains it, and not the caller's path.
    of_link: bool,
}

/// Puts the names of a path before those that are left.
fn push(rest: &mut Vec<PathComponent>, path: &[u8], of_link: bool) {
    let at = rest.len();
    rest.extend(components(path).map(|name| PathComponent {
        name: name.to_vec(),
        of_link,
    }));
    rest[at..].reverse();
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
}

/// What follows the export's name in `path`, by whole components. `None` if the path does not begin with that name.
fn below_export<'p>(export: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let mut rest = path;
    for wanted in components(export) {
        let start = rest.iter().position(|byte| *byte != b'/')?;
        let (name, after) = rest[start..].split_at(
            rest[start..]
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(rest.len() - start),
        );
        if name != wanted {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

fn host(peer: &Peer) -> String {
    match peer {
        Peer::Address(address) => address.ip().to_canonical().to_string(),
        other => other.to_string(),
    }
}

/// As versions 1 and 2 say it: with the statuses of NFS version 2, which are fewer.
fn older_status(status: Status) -> nfs2::Status {
    nfs2::Status::from_code(status.code()).unwrap_or(nfs2::Status::Io)
}

fn mount_status(status: vfs::Status) -> Status {
    match status {
        vfs::Status::Perm => Status::Perm,
        vfs::Status::NoEnt | vfs::Status::Stale => Status::NoEnt,
        vfs::Status::Access => Status::Access,
        vfs::Status::NotDir => Status::NotDir,
        vfs::Status::Inval => Status::Inval,
        vfs::Status::NameTooLong => Status::NameTooLong,
        vfs::Status::Io => Status::Io,
        _ => Status::ServerFault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_with_the_export_by_whole_components() {
        let below = |export: &'static str, path: &'static str| {
            below_export(export.as_bytes(), path.as_bytes())
                .map(|rest| components(rest).map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        assert_eq!(below("/", "/"), Some(vec![]));
        assert_eq!(below("/", ""), Some(vec![]));
        assert_eq!(
            below("/", "/a//b/./"),
            Some(vec![b"a".to_vec(), b"b".to_vec()])
        );
        assert_eq!(below("/x/y", "/x/y"), Some(vec![]));
        assert_eq!(below("/x/y", "//x/y/z"), Some(vec![b"z".to_vec()]));
        assert_eq!(below("/x/y", "/x"), None);
        assert_eq!(below("/x/y", "/x/yy"), None);
        assert_eq!(below("/x", "/"), None);
    }
}
