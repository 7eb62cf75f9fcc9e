//! A server without transports or threads, and calls to it.

use std::ops::Deref;
use std::sync::Arc;

use odafs_common::page::{Layout, PageSize};
use odafs_common::wire::nfs3::{
    self, Attributes, CreateArgs, CreateHow, CreateResult, DirectoryName, Failed, FileHandle,
    GetAttributesResult, Payload, Procedure, SetAttributes, Stable, Status, WriteArgs, WriteOk,
    WriteResult,
};
use odafs_common::wire::rpc::Auth;
use odafs_common::wire::xdr::{Decode, Encode};
use odafs_fabric::memory::{Arena, ArenaConfig};
use odafs_server::access::Access;
use odafs_server::config::Squash;
use odafs_server::export::{Exports, ExportsConfig, Place};
use odafs_server::mount3::MountProgram;
use odafs_server::nfs3::Nfs3;
use odafs_server::portmap::{Port, Portmap};
use odafs_server::rpc::Program;
use odafs_server::store::{Credential, MemoryStore, Store};
use odafs_server::vfs::read::Effort;
use odafs_server::vfs::{HandleBytes, ObjectId};

pub use crate::bare::{Bare, caller, user};

/// The port that the portmapper tells.
pub const PORT: u16 = 12_345;
/// That of what is served by datagrams.
pub const UDP_PORT: u16 = 111;

pub struct Server {
    bare: Bare,
    pub store: Arc<MemoryStore>,
    pub export: Arc<Exports>,
    pub root: HandleBytes,
}

impl Deref for Server {
    type Target = Bare;

    fn deref(&self) -> &Bare {
        &self.bare
    }
}

impl Server {
    /// The export is called `/export`. It was named `/srv/link/shared`, where `link` leads to `/data/disk`. Root's ids are trusted.
    pub fn new() -> Self {
        Self::with(Squash::None)
    }

    pub fn with(squash: Squash) -> Self {
        let store = Arc::new(MemoryStore::new(1));
        let arena = ArenaConfig {
            frames: 1024,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&arena).expect("memory"));
        let config = ExportsConfig {
            name: "/export".to_owned(),
            places: vec![Place {
                tag: 0,
                named: "/srv/link/shared".into(),
                real: "/data/disk/shared".into(),
            }],
            ..ExportsConfig::default()
        };
        let export = Arc::new(Exports::new(config, store.clone(), arena));
        let listed = vec!["10.1.0.0/16".parse().expect("a network")];
        let serving = Credential {
            own: true,
            ..Credential::of(1000, 1000, &[])
        };
        let access = Arc::new(Access::new(listed, squash, serving));
        let port = Port::default();
        port.set(PORT);
        let udp = Port::default();
        udp.set(UDP_PORT);
        let portmap = Portmap::new([(100_003, 3), (100_005, 3)], port);
        let portmap = portmap.with_datagrams([(100_024, 1)], udp);
        let [three, four] = portmap.rpcbind();
        let programs: Vec<Box<dyn Program>> = vec![
            Box::new(three),
            Box::new(four),
            Box::new(Nfs3::new(export.clone())),
            Box::new(MountProgram::new(export.clone(), access.clone())),
            Box::new(portmap),
        ];
        let root = export.handle(store.root());
        Self {
            bare: Bare::new(programs, access),
            store,
            export,
            root,
        }
    }

    /// What a handle stands for.
    pub fn object(&self, file: FileHandle<'_>) -> ObjectId {
        let found = self.export.resolve(file.0, Effort::MayBlock);
        found.expect("a handle of the server's")
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
        let program = (nfs3::PROGRAM, nfs3::VERSION);
        let results = self
            .call(program, procedure.code(), who, &arguments.to_bytes())
            .expect("served");
        R::from_bytes(results).expect("the procedure's results")
    }

    /// Calls an NFS procedure as root.
    pub fn nfs<R: Decode<'static>>(&self, procedure: Procedure, arguments: &impl Encode) -> R {
        self.nfs_as(&user(0, 0), procedure, arguments)
    }

    pub fn attributes(&self, file: FileHandle<'_>) -> Attributes {
        let result: GetAttributesResult = self.nfs(Procedure::GetAttributes, &file);
        result.expect("attributes")
    }

    /// Makes a file of mode 644.
    pub fn create(&self, directory: FileHandle<'_>, name: &'static str) -> FileHandle<'static> {
        let how = CreateHow::Guarded(mode(0o644));
        let created: CreateResult<'static> = self.nfs(
            Procedure::Create,
            &CreateArgs {
                place: at(directory, name),
                how,
            },
        );
        created.expect("created").file.expect("a handle")
    }

    /// Makes a directory of mode 755.
    pub fn mkdir(&self, directory: FileHandle<'_>, name: &'static str) -> FileHandle<'static> {
        let arguments = nfs3::MakeDirectoryArgs {
            place: at(directory, name),
            attributes: mode(0o755),
        };
        let made: CreateResult<'static> = self.nfs(Procedure::MakeDirectory, &arguments);
        made.expect("made").file.expect("a handle")
    }

    pub fn write(&self, file: FileHandle<'_>, offset: u64, data: &[u8]) -> WriteOk {
        let arguments = WriteArgs {
            file,
            offset,
            count: data.len() as u32,
            stable: Stable::Unstable,
            data: Payload(data),
        };
        let written: WriteResult = self.nfs(Procedure::Write, &arguments);
        written.expect("written")
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

/// The status of a result that must be a refusal.
pub fn refused<T: std::fmt::Debug, F>(result: Result<T, Failed<F>>) -> Status {
    match result {
        Ok(done) => panic!("not refused: {done:?}"),
        Err(failed) => failed.status,
    }
}
