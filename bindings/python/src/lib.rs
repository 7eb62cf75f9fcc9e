//! The native half of the Python package `odafs`: clients, files and buffers. The Python half is in `python/odafs`.
//!
//! The interpreter's lock is released while anything may wait or copy. [`buffer`] explains how memory of Python's
//! objects is used.

mod buffer;
mod client;
mod error;
mod file;
mod reader;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client::Client>()?;
    module.add_class::<client::Attributes>()?;
    module.add_class::<file::File>()?;
    module.add_class::<reader::Reader>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
