//! A server of versions 2 and 3 without transports or threads, and calls to it.

use std::ops::Deref;
use std::sync::Arc;

use odafs_common::page::{Layout, PageSize};
use odafs_common::wire::nfs2::{
    self, Attributes, AttributesResult, CreateArgs, DirectoryName, FileHandle, MAX_DATA, ObjectOk,
    ObjectResult, Payload, Procedure, ReadArgs, ReadResult, SetAttributes, Status, WriteArgs,
};
use odafs_common::wire::rpc::Auth;
use odafs_common::wire::xdr::{Decode, Encode};
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_server::access::Access;
use odafs_server::config::Squash;
use odafs_server::export::{Exports, ExportsConfig};
use odafs_server::mount3::MountProgram;
use odafs_server::nfs2::Nfs2;
use odafs_server::nfs3::Nfs3;
use odafs_server::rpc::Program;
use odafs_server::store::{Credential, MemoryStore, Store};
use odafs_server::vfs::ShortHandle;

pub use crate::bare::{Bare, caller, user};

pub const NFS: (u32, u32) = (nfs2::PROGRAM, nfs2::VERSION);

pub struct Server {
    bare: Bare,
    pub export: Arc<Exports>,
    pub root: ShortHandle,
}

impl Deref for Server {
    type Target = Bare;

    fn deref(&self) -> &Bare {
        &self.bare
    }
}

impl Server {
    /// The export is called `/export`; root's ids are trusted.
    pub fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new(1)), Squash::None)
    }

    pub fn over(store: Arc<dyn Store>, squash: Squash) -> Self {
        let config = ExportsConfig {
            name: "/export".to_owned(),
            ..ExportsConfig::default()
        };
        let listed = vec!["10.1.0.0/16".parse().expect("a network")];
        let serving = Credential::of_this_process();
        Self::of(config, store, Access::new(listed, squash, serving))
    }

    pub fn of(config: ExportsConfig, store: Arc<dyn Store>, access: Access) -> Self {
        let arena = ArenaConfig {
            frames: 1024,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&arena).expect("memory"));
        let export = Arc::new(Exports::new(config, store.clone(), arena));
        let access = Arc::new(access);
        let mount = MountProgram::new(export.clone(), access.clone());
        let [one, two] = mount.for_version_2();
        let programs: Vec<Box<dyn Program>> = vec![
            Box::new(Nfs3::new(export.clone())),
            Box::new(Nfs2::new(export.clone())),
            Box::new(mount),
            Box::new(one),
            Box::new(two),
        ];
        let root = export.short_handle(store.root());
        Self {
            bare: Bare::new(programs, access),
            export,
            root,
        }
    }

    /// The handle of the root.
    pub fn root(&self) -> FileHandle<'_> {
        FileHandle(&self.root)
    }

    /// Calls an NFS procedure as a user.
    pub fn nfs_as<R: Decode<'static>>(
        &self,
        who: &Auth<'_>,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> R {
        let results = self
            .call(NFS, procedure.code(), who, &arguments.to_bytes())
            .expect("served");
        R::from_bytes(results).expect("the procedure's results")
    }

    /// Calls an NFS procedure as root.
    pub fn nfs<R: Decode<'static>>(&self, procedure: Procedure, arguments: &impl Encode) -> R {
        self.nfs_as(&user(0, 0), procedure, arguments)
    }

    pub fn attributes(&self, file: FileHandle<'_>) -> Attributes {
        let result: AttributesResult = self.nfs(Procedure::GetAttributes, &file);
        result.expect("attributes")
    }

    pub fn make(
        &self,
        procedure: Procedure,
        place: DirectoryName<'_>,
        attributes: SetAttributes,
    ) -> Result<ObjectOk<'static>, Status> {
        let made: ObjectResult<'static> = self.nfs(procedure, &CreateArgs { place, attributes });
        made
    }

    /// Makes a file of mode 644.
    pub fn create(&self, directory: FileHandle<'_>, name: &str) -> FileHandle<'static> {
        let made = self.make(Procedure::Create, at(directory, name), mode(0o644));
        made.expect("created").file
    }

    /// Makes a directory of mode 755.
    pub fn mkdir(&self, directory: FileHandle<'_>, name: &str) -> FileHandle<'static> {
        let made = self.make(Procedure::MakeDirectory, at(directory, name), mode(0o755));
        made.expect("made").file
    }

    pub fn lookup(&self, directory: FileHandle<'_>, name: &str) -> ObjectResult<'static> {
        self.nfs(Procedure::Lookup, &at(directory, name))
    }

    pub fn write(&self, file: FileHandle<'_>, offset: u32, data: &[u8]) -> AttributesResult {
        let arguments = WriteArgs {
            file,
            begin_offset: u32::MAX,
            offset,
            total_count: u32::MAX,
            data: Payload(data),
        };
        self.nfs(Procedure::Write, &arguments)
    }

    pub fn read(&self, file: FileHandle<'_>, offset: u32, count: u32) -> ReadResult<'static> {
        self.nfs(Procedure::Read, &range(file, offset, count))
    }

    /// All that is in a file.
    pub fn content(&self, file: FileHandle<'_>) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let read = self.read(file, content.len() as u32, MAX_DATA);
            let read = read.expect("read");
            content.extend_from_slice(read.data.0);
            if content.len() as u32 >= read.attributes.size {
                return content;
            }
            assert!(!read.data.0.is_empty(), "no progress");
        }
    }
}

pub fn range(file: FileHandle<'_>, offset: u32, count: u32) -> ReadArgs<'_> {
    ReadArgs {
        file,
        offset,
        count,
        total_count: 0,
    }
}

pub fn at<'a>(directory: FileHandle<'a>, name: &'a str) -> DirectoryName<'a> {
    DirectoryName {
        directory,
        name: name.as_bytes(),
    }
}

pub fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}
