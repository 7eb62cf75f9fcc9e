//! Open files.

use crate::{buffer::Bytes, client::Attributes, error::Error, reader::Reader};
use odafs::ReadRequest;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

/// Ranges that are handed over together: as many as the client works on at once. What describes them is allocated once for
/// each call. With more at a time the first calls take several times as long, because the policy learns from each call once.
const TOGETHER: usize = 512;

#[pyclass(frozen, module = "odafs", name = "File")]
pub struct File {
    file: odafs::File,
}

impl File {
    pub fn new(file: odafs::File) -> Self {
        Self { file }
    }
}

#[pymethods]
impl File {
    fn __repr__(&self) -> String {
        format!("<odafs.File {}>", self.file.path())
    }

    #[getter]
    fn path(&self) -> &str {
        self.file.path()
    }

    /// Fills a buffer, as far as the file goes; how many bytes came.
    #[pyo3(signature = (buffer, offset=0))]
    fn read_into(&self, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut bytes = Bytes::writable(buffer)?;
        let room = bytes.as_mut_slice();
        let read = || self.file.read_at(room, offset);
        Ok(buffer.py().detach(read).map_err(Error::from)?)
    }

    /// The same where it needs no waiting, else None.
    #[pyo3(signature = (buffer, offset=0))]
    fn try_read_into(&self, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<Option<usize>> {
        let mut bytes = Bytes::writable(buffer)?;
        let room = bytes.as_mut_slice();
        let read = || self.file.try_read_at(room, offset);
        Ok(buffer.py().detach(read))
    }

    /// Up to so many bytes.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let known = py.detach(|| self.file.metadata()).map_err(Error::from)?;
        let there = known.size.saturating_sub(offset);
        let length = length.min(usize::try_from(there).unwrap_or(usize::MAX));
        let mut got = 0;
        let bytes = PyBytes::new_with(py, length, |room| {
            let read = py.detach(|| self.file.read_at(room, offset));
            got = read.map_err(Error::from)?;
            Ok(())
        })?;
        match got == length {
            true => Ok(bytes),
            false => Ok(PyBytes::new(py, &bytes.as_bytes()[..got])),
        }
    }

    /// Many ranges, one behind the other in a buffer; how many bytes of each came goes to `counts`, if that is given.
    /// Offsets and lengths are arrays of 64-bit numbers; one length is for all.
    #[pyo3(signature = (offsets, lengths, buffer, counts=None))]
    fn gather(
        &self,
        py: Python<'_>,
        offsets: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let offsets = Bytes::of(offsets)?;
        let offsets = offsets.as_numbers()?;
        let lengths = Bytes::of(lengths)?;
        let lengths = lengths.as_numbers()?;
        let mut buffer = Bytes::writable(buffer)?;
        let mut counts = counts.map(Bytes::writable).transpose()?;
        let length_of = |at: usize| match lengths {
            [one] => *one,
            many => many[at],
        };
        let wrong = |what: &str| Err(PyValueError::new_err(what.to_owned()));
        if lengths.len() != 1 && lengths.len() != offsets.len() {
            return wrong("there are as many lengths as offsets, or one");
        }
        let sum = (0..offsets.len()).try_fold(0u64, |sum, at| sum.checked_add(length_of(at)));
        if sum.is_none_or(|sum| sum > buffer.len() as u64) {
            return wrong("the ranges are longer than the buffer");
        }
        if counts
            .as_ref()
            .is_some_and(|counts| counts.len() != offsets.len() * 8)
        {
            return wrong("there is one count of 64 bits for each range");
        }
        let room = buffer.as_mut_slice();
        let mut told = counts.as_mut().map(|counts| counts.as_mut_slice());
        let read = move || -> Result<usize, Error> {
            let mut rest = room;
            let mut all = 0;
            let mut requests = Vec::with_capacity(offsets.len().min(TOGETHER));
            for (number, offsets) in offsets.chunks(TOGETHER).enumerate() {
                requests.clear();
                for (at, offset) in offsets.iter().enumerate() {
                    let length = length_of(number * TOGETHER + at) as usize;
                    let (here, after) = rest.split_at_mut(length);
                    rest = after;
                    requests.push(ReadRequest::new(*offset, here));
                }
                self.file.read_batch(&mut requests)?;
                for (at, request) in requests.iter().enumerate() {
                    all += request.bytes;
                    if let Some(told) = &mut told {
                        let at = (number * TOGETHER + at) * 8;
                        told[at..at + 8].copy_from_slice(&(request.bytes as u64).to_ne_bytes());
                    }
                }
            }
            Ok(all)
        };
        Ok(py.detach(read)?)
    }

    /// Writes all of a buffer.
    #[pyo3(signature = (data, offset=0))]
    fn write_at(&self, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let bytes = Bytes::of(data)?;
        let held = bytes.as_slice();
        let write = || self.file.write_at(held, offset);
        data.py().detach(write).map_err(Error::from)?;
        Ok(bytes.len())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.file.sync()).map_err(Error::from)?)
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Attributes> {
        let known = py.detach(|| self.file.metadata()).map_err(Error::from)?;
        Ok(known.into())
    }

    /// The same file at a position of its own, as long as it is now.
    fn reader(&self, py: Python<'_>, block_bytes: usize) -> PyResult<Reader> {
        let known = py.detach(|| self.file.metadata()).map_err(Error::from)?;
        Ok(Reader::new(self.file.clone(), known.size, block_bytes))
    }

    fn revalidate(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.file.revalidate()).map_err(Error::from)?)
    }
}
