//! Memory of Python's objects: bytes, bytearray, memoryview, NumPy arrays.
//!
//! An object whose buffer is held can neither be moved nor freed, but other threads use it as soon as the interpreter's
//! lock is released; Python has no way to keep them out. So no Rust slice is ever made of it, and the client never sees
//! it. It is copied from and to private memory while the lock is held. The lock is released only for work in private
//! memory.

use pyo3::{
    exceptions::{PyBufferError, PyTypeError},
    ffi,
    prelude::*,
};
use std::{cell::Cell, ffi::CStr, ffi::c_int, mem::MaybeUninit};

/// Length of the private memory that a thread keeps, in bytes. Larger transfers are cut into such pieces.
pub const PIECE: usize = 1 << 20;

thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends `length` bytes of private memory, of any content. Memory longer than [`PIECE`] is not kept.
pub fn private<T>(length: usize, what: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut kept = KEPT.take();
    if kept.len() < length {
        kept.resize(length, 0);
    }
    let done = what(&mut kept[..length]);
    if kept.len() <= PIECE {
        KEPT.set(kept);
    }
    done
}

/// The contiguous bytes of an object. Neither `Send` nor `Sync`, because it is used only while the lock is held.
pub struct Bytes {
    view: ffi::Py_buffer,
}

impl Bytes {
    /// To be read from.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::get(object, ffi::PyBUF_SIMPLE)
    }

    /// For writing. An array of references to objects is refused, because bytes are not references.
    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let told = ffi::PyBUF_WRITABLE | ffi::PyBUF_ND | ffi::PyBUF_FORMAT;
        let (bytes, has_objects) = match Self::get(object, told) {
            Ok(bytes) => {
                let has_objects = bytes.has_objects();
                (bytes, has_objects)
            }
            // Types without a format, such as NumPy's dates, have bytes nevertheless.
            Err(_) => {
                let has_objects = object
                    .getattr("dtype")
                    .and_then(|it| it.getattr("hasobject"));
                let has_objects = has_objects.and_then(|it| it.is_truthy()).unwrap_or(false);
                (Self::get(object, ffi::PyBUF_WRITABLE)?, has_objects)
            }
        };
        if has_objects {
            return Err(PyTypeError::new_err(
                "an array of Python objects: only plain data can be read into",
            ));
        }
        Ok(bytes)
    }

    fn get(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = MaybeUninit::<ffi::Py_buffer>::zeroed();
        // SAFETY: an object, room for a view, and the lock is held.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: it was filled.
        let view = unsafe { view.assume_init() };
        let bytes = Self { view };
        if bytes.len() > 0 && bytes.view.buf.is_null() {
            return Err(PyBufferError::new_err("a buffer without memory"));
        }
        Ok(bytes)
    }

    /// Whether the format contains an `O`, outside of the names of fields (`:name:`).
    fn has_objects(&self) -> bool {
        if self.view.format.is_null() {
            return false;
        }
        // SAFETY: the exporter's format ends with a NUL and stays as long as the view.
        let format = unsafe { CStr::from_ptr(self.view.format) };
        let outside = format.to_bytes().split(|byte| *byte == b':').step_by(2);
        outside.flatten().any(|byte| *byte == b'O')
    }

    pub fn len(&self) -> usize {
        self.view.len.try_into().unwrap_or(0)
    }

    /// Stores bytes at `at`. Panics if they do not fit.
    pub fn put(&mut self, _: Python<'_>, at: usize, bytes: &[u8]) {
        assert!(at <= self.len() && bytes.len() <= self.len() - at && self.view.readonly == 0);
        if !bytes.is_empty() {
            // SAFETY: within memory of the view, which the exporter has agreed to be written to; `bytes` is private, so the two
            // do not overlap; the lock keeps Python's threads out.
            unsafe {
                let to = self.view.buf.cast::<u8>().add(at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
    }

    /// Copies bytes at `at` to private memory. Panics if there are not as many.
    pub fn copy_to(&self, _: Python<'_>, at: usize, to: &mut [u8]) {
        assert!(at <= self.len() && to.len() <= self.len() - at);
        if !to.is_empty() {
            // SAFETY: as above, the other way.
            unsafe {
                let from = self.view.buf.cast::<u8>().add(at);
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
            }
        }
    }

    /// The 64-bit numbers in an array of them, in the machine's byte order.
    pub fn numbers(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        if !self.len().is_multiple_of(8) {
            return Err(PyBufferError::new_err("no array of 64-bit numbers"));
        }
        let mut bytes = vec![0; self.len()];
        self.copy_to(py, 0, &mut bytes);
        let (numbers, _) = bytes.as_chunks();
        Ok(numbers.iter().copied().map(u64::from_ne_bytes).collect())
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // The lock is held: a view is dropped on the thread that made it.
        Python::attach(|_| {
            // SAFETY: a view that was filled and is released once.
            unsafe { ffi::PyBuffer_Release(&mut self.view) }
        });
    }
}
