//! Objects in the directories that an ODAFS server serves: the [`object_store`] interface over the [`odafs`] client.
//!
//! ```no_run
//! use object_store::{ObjectStoreExt as _, path::Path};
//! use odafs_object_store::OdafsStore;
//!
//! # async fn example() -> object_store::Result<()> {
//! let store = OdafsStore::connect("odafs+shm:///data").await?;
//! let table = Path::from("tables/trips.parquet");
//! store.put(&table, "PAR1...".into()).await?;
//! let footer = store.get_range(&table, 4..7).await?; // the way that `odafs::File` reads
//! assert_eq!(footer, "...");
//! # Ok(())
//! # }
//! ```
//!
//! An object is a regular file, and its location is the path below that of the URL. The following holds beside any
//! other user of the files: a mount, another client, programs on the server.
//!
//! - **A get is of one version.** If a file changes or is replaced while it is read, it is read again. A stream whose
//!   consumer has parts already ends with [`Precondition`](object_store::Error::Precondition). Bytes of two versions
//!   are never mixed.
//! - **A put appears as a whole or not at all.** It is written to a hidden file beside its place (`.odafs-*.tmp`, which
//!   listings leave out), brought to stable storage, and renamed.
//! - Objects and directories have the permissions that the process's umask leaves.
//! - **ETags** consist of the file's number, change attribute and size. Conditional gets compare them, and so does
//!   `PutMode::Update`. Updates by this crate exclude each other, from any machine. An unconditional put at the same
//!   instant may be replaced by one.
//! - A location is looked up again after a second, so the renaming of a directory above an object may be seen that
//!   late. A change of the object itself (put, rename, delete, a write in place) is seen by the next get.
//! - Names are used as they are. Files whose name is not UTF-8 are not listed, nor are symbolic links to directories.
//!   Links to files are.
//!
//! # Features
//! | feature | what |
//! |---|---|
//! | `object_store_0_13` | the module `object_store_0_13`, whose `OdafsStore` has the interface of that version, for DataFusion 55 |
//! | `verbs` | RDMA devices (`odafs+verbs://`) |

mod block;
mod draft;
mod fault;
mod lock;
mod modes;
mod names;
mod objects;
mod open;
mod ranges;
mod slabs;
#[cfg(test)]
mod tests;
mod upload;

#[cfg(test)]
extern crate self as odafs_object_store;

mod latest;
#[cfg(feature = "object_store_0_13")]
#[allow(clippy::duplicate_mod)]
pub mod object_store_0_13;

pub use latest::{OdafsStore, OdafsUpload};
