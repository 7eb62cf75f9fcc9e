//! A file at a position, for reading.
//!
//! DuckDB calls `seek` and then `read` of one object from many threads, and relies on nobody coming between the two.
//! That holds for objects whose methods are not written in Python, as long as `seek` and the start of `read` do not
//! release the interpreter's lock. So this type is native, and a read takes its position, and moves it, before it
//! releases the lock.

use crate::{
    buffer::{Bytes, private},
    error::Error,
};
use pyo3::{
    exceptions::{PyOverflowError, PyValueError},
    prelude::*,
    types::PyBytes,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[pyclass(frozen, module = "odafs._native", name = "Reader")]
pub struct Reader {
    file: odafs::File,
    size: u64,
    /// Small consecutive reads come from blocks of this length.
    block_bytes: usize,
    state: Mutex<State>,
}

struct State {
    position: u64,
    /// The end of the last read.
    ended: u64,
    block: Option<Arc<Block>>,
}

struct Block {
    start: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// These bytes of the file, if the block has all of them.
    fn get(&self, from: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(from.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(length)?)
    }
}

/// What one read has to do.
struct Span {
    from: u64,
    length: usize,
    follows: bool,
    block: Option<Arc<Block>>,
}

impl Reader {
    pub fn new(file: odafs::File, size: u64, block_bytes: usize) -> Self {
        let state = Mutex::new(State {
            position: 0,
            ended: u64::MAX,
            block: None,
        });
        Self {
            file,
            size,
            block_bytes,
            state,
        }
    }

    /// Never held while something waits.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the position for a read of at most `wanted` bytes, and moves it behind them.
    fn take(&self, wanted: u64) -> Span {
        let mut state = self.state();
        let from = state.position;
        let length = wanted.min(self.size.saturating_sub(from));
        let follows = state.ended == from;
        state.position = from + length;
        state.ended = from + length;
        Span {
            from,
            length: length as usize,
            follows,
            block: state.block.clone(),
        }
    }

    /// A read has ended. The position moves to where it got, if nobody has moved it meanwhile.
    fn ended(&self, span: &Span, got: usize) {
        let (taken, got) = (span.from + span.length as u64, span.from + got as u64);
        let mut state = self.state();
        if got != taken && state.position == taken {
            state.position = got;
            state.ended = got;
        }
    }

    /// Does a read whose position was taken.
    fn read_span(&self, py: Python<'_>, span: &Span, room: &mut [u8]) -> Result<usize, Error> {
        let read = py.detach(|| self.fill(span, room));
        self.ended(span, *read.as_ref().unwrap_or(&0));
        read
    }

    /// Fills `room`. If fewer bytes come, the file is shorter than when it was opened.
    fn fill(&self, span: &Span, room: &mut [u8]) -> Result<usize, Error> {
        if room.is_empty() {
            return Ok(0);
        }
        let known = span
            .block
            .as_ref()
            .and_then(|block| block.get(span.from, room.len()));
        if let Some(known) = known {
            room.copy_from_slice(known);
            return Ok(room.len());
        }
        if !span.follows || room.len() >= self.block_bytes {
            return Ok(self.file.read_at(room, span.from)?);
        }
        let left = usize::try_from(self.size.saturating_sub(span.from)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; self.block_bytes.min(left)];
        let got = self.file.read_at(&mut bytes, span.from)?;
        bytes.truncate(got);
        let got = got.min(room.len());
        room[..got].copy_from_slice(&bytes[..got]);
        let start = span.from;
        self.state().block = Some(Arc::new(Block { start, bytes }));
        Ok(got)
    }
}

#[pymethods]
impl Reader {
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    fn tell(&self) -> u64 {
        self.state().position
    }

    #[pyo3(signature = (offset, whence=0))]
    fn seek(&self, offset: i64, whence: i64) -> PyResult<u64> {
        let mut state = self.state();
        let base = match whence {
            0 => 0,
            1 => state.position,
            2 => self.size,
            other => {
                return Err(PyValueError::new_err(format!(
                    "whence={other}: it is 0, 1 or 2"
                )));
            }
        };
        let position = base
            .checked_add_signed(offset)
            .ok_or_else(|| PyValueError::new_err("a position before the first byte"))?;
        state.position = position;
        Ok(position)
    }

    #[pyo3(signature = (size=-1))]
    fn read<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let wanted = size
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(u64::MAX);
        let span = self.take(wanted);
        if isize::try_from(span.length).is_err() {
            return Err(PyOverflowError::new_err("more than memory can hold"));
        }
        let mut got = 0;
        let bytes = PyBytes::new_with(py, span.length, |room| {
            got = self.read_span(py, &span, room)?;
            Ok(())
        });
        // Even if there was no memory for it.
        let bytes = bytes.inspect_err(|_| self.ended(&span, 0))?;
        match got == span.length {
            true => Ok(bytes),
            false => Ok(PyBytes::new(py, &bytes.as_bytes()[..got])),
        }
    }

    fn readinto(&self, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = buffer.py();
        let mut bytes = Bytes::writable(buffer)?;
        let span = self.take(bytes.len() as u64);
        Ok(private(span.length, |room| -> Result<usize, Error> {
            let got = self.read_span(py, &span, room)?;
            bytes.put(py, 0, &room[..got]);
            Ok(got)
        })?)
    }

    /// The bytes at the position that need no read, at least one except at the end: for `readline`.
    #[pyo3(signature = (size=0))]
    fn peek<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        const LINE: u64 = 64 << 10;
        let _ = size;
        let (from, block) = {
            let state = self.state();
            (state.position, state.block.clone())
        };
        let length = LINE.min(self.size.saturating_sub(from)) as usize;
        if let Some(block) = &block
            && let Some(at) = from.checked_sub(block.start)
            && let Some(known) = block.bytes.get(at as usize..)
            && !known.is_empty()
        {
            return Ok(PyBytes::new(py, &known[..known.len().min(length)]));
        }
        let span = Span {
            from,
            length,
            follows: true,
            block: None,
        };
        let mut got = 0;
        let bytes = PyBytes::new_with(py, length, |room| {
            got = py.detach(|| self.fill(&span, room))?;
            Ok(())
        })?;
        Ok(PyBytes::new(py, &bytes.as_bytes()[..got]))
    }
}
