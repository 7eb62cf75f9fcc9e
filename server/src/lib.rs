//! The file server: page cache, stores, NFS and the ODAFS program.
