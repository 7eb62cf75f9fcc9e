//! What both ends of ODAFS must agree on: wire formats, references, sessions. No IO, no clock, no unsafe.
#![forbid(unsafe_code)]
