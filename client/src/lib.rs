//! The library that programs import to read files from an ODAFS server.
