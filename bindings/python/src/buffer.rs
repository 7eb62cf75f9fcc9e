//! Memory of Python's objects: bytes, bytearray, memoryview, NumPy arrays.
//!
//! An object whose buffer is held can neither be moved nor freed. It can be *used* by other threads, as soon as the
//! interpreter's lock is released: Python has no word to keep them out, and its own `readinto` has the same fault. Nothing here
//! or in the client depends on what the bytes are while a read is under way: it only stores to them, and a byte may have any
//! value. So a program that writes to a buffer while it is read into gets a mix of both there, and harms nothing else.

use pyo3::{exceptions::PyBufferError, ffi, prelude::*};
use std::{ffi::c_int, mem::MaybeUninit};

/// The bytes of an object, in one piece.
pub struct Bytes {
    view: ffi::Py_buffer,
}

// SAFETY: an exporter's memory stays where it is until `PyBuffer_Release`, whichever thread looks at it.
unsafe impl Send for Bytes {}

impl Bytes {
    /// To be read from.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::get(object, ffi::PyBUF_SIMPLE)
    }

    /// To be written to.
    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::get(object, ffi::PyBUF_WRITABLE)
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

    pub fn len(&self) -> usize {
        self.view.len.try_into().unwrap_or(0)
    }

    pub fn as_slice(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: so many bytes in one piece, which are there as long as the view; see above for who else uses them.
        unsafe { std::slice::from_raw_parts(self.view.buf.cast(), self.len()) }
    }

    /// Of one that is writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        debug_assert_eq!(self.view.readonly, 0);
        // SAFETY: as above, and the exporter has agreed to be written to.
        unsafe { std::slice::from_raw_parts_mut(self.view.buf.cast(), self.len()) }
    }

    /// Of an array of 64-bit numbers in the machine's order.
    pub fn as_numbers(&self) -> PyResult<&[u64]> {
        if !self.len().is_multiple_of(8) || !self.view.buf.cast::<u64>().is_aligned() {
            return Err(PyBufferError::new_err("no array of 64-bit numbers"));
        }
        if self.len() == 0 {
            return Ok(&[]);
        }
        // SAFETY: aligned, so many in one piece; a number may have any value.
        Ok(unsafe { std::slice::from_raw_parts(self.view.buf.cast(), self.len() / 8) })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // The lock is held, or is taken again: a view is dropped where it was made.
        Python::attach(|_| {
            // SAFETY: a view that was filled and is released once.
            unsafe { ffi::PyBuffer_Release(&mut self.view) }
        });
    }
}
