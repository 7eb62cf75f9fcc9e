//! Open files.

use crate::{
    buffer::{Bytes, PIECE, private},
    client::Attributes,
    error::Error,
    reader::Reader,
};
use odafs::FileRequest;
use pyo3::{
    exceptions::{PyOverflowError, PyValueError},
    prelude::*,
    types::PyBytes,
};

/// Number of ranges that are read together: as many as the client handles at once. Their descriptions are allocated
/// once for each call. With more, the first calls take several times as long, because the policy learns from each call
/// once.
const TOGETHER: usize = 512;

#[pyclass(frozen, module = "odafs", name = "File")]
pub struct File {
    file: odafs::File,
}

impl File {
    pub fn new(file: odafs::File) -> Self {
        Self { file }
    }

    pub fn inner(&self) -> &odafs::File {
        &self.file
    }
}

/// Ranges of files, in the order in which they are read: arrays of 64-bit numbers, copied.
pub struct Ranges {
    offsets: Vec<u64>,
    /// One for each offset, or one for all.
    lengths: Vec<u64>,
}

impl Ranges {
    pub fn of(offsets: &Bound<'_, PyAny>, lengths: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = offsets.py();
        let offsets = Bytes::of(offsets)?.numbers(py)?;
        let lengths = Bytes::of(lengths)?.numbers(py)?;
        if lengths.len() != 1 && lengths.len() != offsets.len() {
            return wrong("there are as many lengths as offsets, or one");
        }
        Ok(Self { offsets, lengths })
    }

    pub fn count(&self) -> usize {
        self.offsets.len()
    }

    fn length(&self, at: usize) -> u64 {
        match self.lengths[..] {
            [one] => one,
            _ => self.lengths[at],
        }
    }

    /// The end of the ranges from `first` on that are read together, and their length in bytes. A range that is longer than
    /// [`PIECE`] is read by itself.
    fn together(&self, first: usize) -> (usize, u64) {
        let (mut end, mut length) = (first, 0u64);
        while end < self.count() && end - first < TOGETHER {
            let more = length.saturating_add(self.length(end));
            if end > first && more > PIECE as u64 {
                break;
            }
            length = more;
            end += 1;
        }
        (end, length)
    }

    /// Reads the ranges from `first` to `end`, which are `length` bytes together, and hands them to `take`, each with its number.
    fn read<'f>(
        &self,
        py: Python<'_>,
        client: &odafs::Client,
        file_of: impl Fn(usize) -> &'f odafs::File,
        (first, end, length): (usize, usize, usize),
        mut take: impl FnMut(usize, &FileRequest<'_>),
    ) -> Result<(), Error> {
        private(length, |mut rest| {
            let mut requests = Vec::with_capacity(end - first);
            for at in first..end {
                let (here, after) = rest.split_at_mut(self.length(at) as usize);
                rest = after;
                requests.push(FileRequest::new(file_of(at), self.offsets[at], here));
            }
            py.detach(|| client.read_batch(&mut requests))?;
            (first..end)
                .zip(&requests)
                .for_each(|(at, request)| take(at, request));
            Ok(())
        })
    }
}

fn wrong<T>(what: &str) -> PyResult<T> {
    Err(PyValueError::new_err(what.to_owned()))
}

/// Reads many ranges, one after the other, into a buffer. `file_of` says which file each is of; all are of `client`. The
/// number of bytes of each goes to `counts`, if that is given.
pub fn gather_from<'f>(
    client: &odafs::Client,
    file_of: impl Fn(usize) -> &'f odafs::File,
    ranges: &Ranges,
    buffer: &Bound<'_, PyAny>,
    counts: Option<&Bound<'_, PyAny>>,
) -> PyResult<usize> {
    let py = buffer.py();
    let mut buffer = Bytes::writable(buffer)?;
    let mut counts = counts.map(Bytes::writable).transpose()?;
    let sum = (0..ranges.count()).try_fold(0u64, |sum, at| sum.checked_add(ranges.length(at)));
    if sum.is_none_or(|sum| sum > buffer.len() as u64) {
        return wrong("the ranges are longer than the buffer");
    }
    if counts
        .as_ref()
        .is_some_and(|counts| counts.len() != ranges.count() * 8)
    {
        return wrong("there is one count of 64 bits for each range");
    }
    let (mut first, mut placed, mut all) = (0, 0, 0);
    while first < ranges.count() {
        let (end, length) = ranges.together(first);
        let span = (first, end, length as usize);
        ranges.read(py, client, &file_of, span, |at, request| {
            buffer.put(py, placed, &request.buf[..request.bytes]);
            placed += request.buf.len();
            all += request.bytes;
            if let Some(counts) = &mut counts {
                let count = (request.bytes as u64).to_ne_bytes();
                counts.put(py, at * 8, &count);
            }
        })?;
        first = end;
    }
    Ok(all)
}

/// Reads many ranges as `bytes`, each shorter only at the end of its file. As with [`gather_from`], `file_of` says which file
/// each is of. Memory is taken for what the files hold, however long the ranges are.
pub fn pieces_from<'f, 'py>(
    py: Python<'py>,
    client: &odafs::Client,
    file_of: impl Fn(usize) -> &'f odafs::File,
    ranges: &Ranges,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let mut pieces = Vec::with_capacity(ranges.count());
    while pieces.len() < ranges.count() {
        let first = pieces.len();
        let (end, length) = ranges.together(first);
        if length > PIECE as u64 {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            pieces.push(read_bytes(
                py,
                file_of(first),
                length,
                ranges.offsets[first],
            )?);
            continue;
        }
        let span = (first, end, length as usize);
        ranges.read(py, client, &file_of, span, |_, request| {
            pieces.push(PyBytes::new(py, &request.buf[..request.bytes]));
        })?;
    }
    Ok(pieces)
}

/// Reads up to this many bytes, into the object itself.
fn read_bytes<'py>(
    py: Python<'py>,
    file: &odafs::File,
    length: usize,
    offset: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let known = py.detach(|| file.metadata()).map_err(Error::from)?;
    let there = known.size.saturating_sub(offset);
    let length = length.min(usize::try_from(there).unwrap_or(usize::MAX));
    let mut got = 0;
    let bytes = PyBytes::new_with(py, length, |room| {
        let read = py.detach(|| file.read_at(room, offset));
        got = read.map_err(Error::from)?;
        Ok(())
    })?;
    match got == length {
        true => Ok(bytes),
        false => Ok(PyBytes::new(py, &bytes.as_bytes()[..got])),
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

    /// Fills a buffer, up to the end of the file. Returns the number of bytes. After a failure, the first of them may
    /// be there.
    #[pyo3(signature = (buffer, offset=0))]
    fn read_into(&self, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let py = buffer.py();
        let mut bytes = Bytes::writable(buffer)?;
        let (all, mut at) = (bytes.len(), 0);
        while at < all {
            let Some(from) = offset.checked_add(at as u64) else {
                break;
            };
            let length = PIECE.min(all - at);
            let got = private(length, |room| -> Result<usize, Error> {
                let got = py.detach(|| self.file.read_at(room, from))?;
                bytes.put(py, at, &room[..got]);
                Ok(got)
            })?;
            at += got;
            if got < length {
                break;
            }
        }
        Ok(at)
    }

    /// The same if it needs no waiting, else None.
    #[pyo3(signature = (buffer, offset=0))]
    fn try_read_into(&self, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<Option<usize>> {
        let py = buffer.py();
        let mut bytes = Bytes::writable(buffer)?;
        // Only a read within one page needs no waiting.
        if bytes.len() > PIECE {
            return Ok(None);
        }
        Ok(private(bytes.len(), |room| {
            let got = py.detach(|| self.file.try_read_at(room, offset))?;
            bytes.put(py, 0, &room[..got]);
            Some(got)
        }))
    }

    /// Reads up to this many bytes.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        read_bytes(py, &self.file, length, offset)
    }

    /// As [`gather_from`], of this file. Offsets and lengths are arrays of 64-bit numbers; a single length is for all.
    #[pyo3(signature = (offsets, lengths, buffer, counts=None))]
    fn gather(
        &self,
        offsets: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let ranges = Ranges::of(offsets, lengths)?;
        let client = self.file.client();
        gather_from(client, |_| &self.file, &ranges, buffer, counts)
    }

    /// As [`pieces_from`], of this file.
    fn pieces<'py>(
        &self,
        py: Python<'py>,
        offsets: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let ranges = Ranges::of(offsets, lengths)?;
        pieces_from(py, self.file.client(), |_| &self.file, &ranges)
    }

    /// Writes all of a buffer.
    #[pyo3(signature = (data, offset=0))]
    fn write_at(&self, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let py = data.py();
        // These never change.
        if let Ok(data) = data.cast::<PyBytes>() {
            let bytes = data.as_bytes();
            py.detach(|| self.file.write_at(bytes, offset))
                .map_err(Error::from)?;
            return Ok(bytes.len());
        }
        let bytes = Bytes::of(data)?;
        let mut at = 0;
        while at < bytes.len() {
            let too_far = || PyOverflowError::new_err("beyond the last byte that a file can have");
            let to = offset.checked_add(at as u64).ok_or_else(too_far)?;
            let length = PIECE.min(bytes.len() - at);
            private(length, |piece| -> Result<(), Error> {
                bytes.copy_to(py, at, piece);
                Ok(py.detach(|| self.file.write_at(piece, to))?)
            })?;
            at += length;
        }
        Ok(at)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.file.sync()).map_err(Error::from)?)
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Attributes> {
        let known = py.detach(|| self.file.metadata()).map_err(Error::from)?;
        Ok(known.into())
    }

    /// The same file at its own position, with the present length.
    fn reader(&self, py: Python<'_>, block_bytes: usize) -> PyResult<Reader> {
        let known = py.detach(|| self.file.metadata()).map_err(Error::from)?;
        Ok(Reader::new(self.file.clone(), known.size, block_bytes))
    }

    fn revalidate(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.file.revalidate()).map_err(Error::from)?)
    }
}
