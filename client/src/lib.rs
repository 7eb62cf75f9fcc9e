//! The client of ODAFS, a file server whose page cache its clients read directly.
//!
//! ```no_run
//! use odafs::Client;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("odafs+shm:///")?;
//!
//! let file = client.open("/data/table")?;
//! let mut footer = [0; 64];
//! file.read_exact_at(&mut footer, 1 << 20)?;
//!
//! let copy = client.create("/data/copy")?;
//! copy.write_at(&footer, 0)?;
//! copy.sync()?;
//! # Ok(())
//! # }
//! ```
//!
//! A first read goes by RPC. Its reply also says where in the server's memory the pages lie. Later reads take those
//! pages from there, without an RPC and, where the fabric and the server allow it, without the server's processor. Such
//! a reference may be stale at any time. That is not an error: the server refuses the read with an [`Exception`], and
//! the read goes on by RPC, in the same call. [`File::read_traced`] reports which route a read took, and why:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let file = odafs::Client::connect("odafs+shm:///")?.open("/data/table")?;
//! let mut page = vec![0; 4096];
//! for step in file.read_traced(&mut page, 0)?.steps {
//!     println!("{step}"); // 0..4096 rpc in 15.1µs: the directory holds no reference
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A batch has many reads in flight at once, of one file ([`File::read_batch`]) or of several:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let client = odafs::Client::connect("odafs+shm:///")?;
//! use odafs::{FileRequest, ReadRequest};
//!
//! let (table, index) = (client.open("/data/table")?, client.open("/data/index")?);
//! let (mut head, mut tail) = ([0; 512], [0; 512]);
//! table.read_batch(&mut [ReadRequest::new(0, &mut head), ReadRequest::new(1 << 30, &mut tail)])?;
//! client.read_batch(&mut [
//!     FileRequest::new(&table, 0, &mut head),
//!     FileRequest::new(&index, 4096, &mut tail),
//! ])?;
//! # Ok(())
//! # }
//! ```
//!
//! The module [`record`] records what a program does, and `odafs bench replay` replays it.
//!
//! [`Client`] and [`File`] are cheap to clone, and many threads may use them at once. Async programs use
//! `odafs::tokio`. A layer between a program and its files (a mount, another language) uses [`fs`], which knows files
//! by handle. [`Options`] choose routes, caching, deadlines and how a thread waits. If the server has no ODAFS
//! program, the same calls speak plain NFS version 3.
//!
//! # Examples
//! Each example in `client/examples` fits on a screen: `read` (the program in the README), `write` (unstable writes and
//! one sync), `batch` (many reads in flight), `rows` (rows of one length by number), `asynchronous` (tokio),
//! `will_need` (references ahead of direct reads), `trace` (the route of a read, and why), `statistics` (how reads were
//! served), `watch` (waiting for a change) and `by_handle` (files by handle, without paths). They read a file `data.bin` at the
//! URL, which `head -c 1M /dev/urandom > data.bin` makes; `write`, `batch` and `by_handle` also write files beside it.
//!
//! # Features
//! | feature | default | what |
//! |---|---|---|
//! | `tokio` | yes | the module [`tokio`], for async programs |
//! | `verbs` | no | RDMA devices (`odafs+verbs://`): the program then needs libibverbs and librdmacm to start |
//!
//! # What a read sees
//! With [`Cache::Off`], each read returns what the server held at some instant during the call, whichever route it
//! took. With [`Cache::CloseToOpen`], the default, a page that was read before may date from the last time that the
//! file was opened, as NFS users know it. With [`Cache::Delegated`], pages are kept and reads are
//! as current as with [`Cache::Off`]. A read over several pages is not atomic.
//!
//! # Inside
//! | module | what lives there |
//! |---|---|
//! | `read`, `read_page`, `read_pair`, `steps`, `part` | the path of a read: all its branching, top to bottom |
//! | `client`, `file`, `table`, `batch`, `buffer`, `request`, `read_dir`, `listing`, `metadata`, `types`, `facts` | what callers hold, give and get |
//! | `open_file`, `path`, `changing` | an open file as reads and writes see it; from a path to a file; changes of what is cached |
//! | `shared`, `shard`, `reuse`, `state` | what handles share, what a thread reads with and uses again, what is kept of a file |
//! | `directory`, `cache`, `budget`, `route`, `ahead` | cores without IO, clock or chance of their own |
//! | `session`, `direct` | sessions, and connections for direct reads |
//! | `delegation` | files that nobody changes without waiting for this client |
//! | `nfs` | the protocols: NFS version 3, MOUNT, the reads, references and delegations of the ODAFS program, writes. Alone in knowing `wire::nfs3` |
//! | `calls`, `pool`, `silence` | RPC: connections, calls, servers that do not answer |
//! | `link`, `transport`, `tcp`, `rdma` | connections that carry calls: messages of a fabric, TCP, RPC-over-RDMA |
//! | [`fs`], `handle` | the file system by handle |
//! | `record` | traces of what a client does, and their text |
//! | `url`, `default_socket`, `error`, `errno` | addresses, and what goes wrong |
#![forbid(unsafe_code)]

/// The programs of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod acl;
mod ahead;
mod batch;
mod budget;
mod buffer;
mod cache;
mod calls;
mod changing;
mod client;
mod counter;
#[cfg(not(shuttle))]
mod default_socket;
mod delegation;
mod direct;
mod directory;
mod errno;
mod error;
mod facts;
mod file;
pub mod fs;
mod handle;
#[cfg(test)]
mod judge;
mod link;
mod listing;
mod metadata;
mod nfs;
mod open_file;
mod options;
mod part;
mod path;
mod patience;
mod pool;
mod rdma;
mod read;
mod read_dir;
mod read_page;
mod read_pair;
pub mod record;
mod request;
mod reuse;
mod route;
mod session;
mod shard;
mod shared;
mod silence;
mod state;
mod statistics;
mod steps;
mod table;
mod tcp;
#[cfg(all(feature = "tokio", not(shuttle)))]
pub mod tokio;
mod trace;
mod transport;
mod types;
mod url;
mod waiting;

pub use batch::FileRequest;
pub use buffer::Buffer;
pub use client::Client;
pub use error::{CallError, ConnectError, PathError, ReadError, Status, UrlError, WriteError};
pub use facts::{FileReferences, Granted, PageReference, ServerFacts};
pub use file::{File, Snapshot};
pub use link::{Dial, RpcOver};
pub use metadata::{CreateOptions, DirEntry, Metadata};
pub use odafs_common::exception::Exception;
pub use options::{
    Cache, Credential, Eager, MacPreference, Options, Rdma, RdmaCredits, RdmaDesign, Registration,
    Route, Transfer, Wait, public_key,
};
pub use read_dir::ReadDir;
pub use request::{IntoRequest, ReadRequest};
pub use statistics::{RdmaTerms, Statistics};
pub use table::Table;
pub use trace::{ReadTrace, RouteReason, RouteTaken, TracedPart};
pub use types::{Changes, FileKind, Space, When};
pub use url::{Host, ServerAddress, Url};
