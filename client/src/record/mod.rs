//! Traces of what a client does, which `odafs bench replay` replays.
//!
//! ```no_run
//! use odafs::{Client, Options, record::{Names, Recorder}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let recorder = Recorder::create("scan.trace", Names::Hashed)?;
//! let options = Options { record: Some(recorder.clone()), ..Options::default() };
//! let url = "odafs+shm:///".parse()?;
//! let file = Client::connect_with(&url, options)?.open("/data/table")?;
//! file.read_at(&mut [0; 64], 1 << 20)?;
//! println!("{} operations", recorder.finish()?.operations);
//! # Ok(())
//! # }
//! ```

mod calls;
mod format;
#[cfg(test)]
mod format_tests;
mod recorder;

pub(crate) use calls::RecordedRead;
pub use format::*;
pub(crate) use recorder::length_of;
pub use recorder::{Names, Recorded, Recorder};
