//! A file of rows of one length.

use crate::{
    client::Client,
    error::{PathError, ReadError},
    file::File,
    request::ReadRequest,
    reuse,
};
use std::{cell::Cell, path::Path};

/// Number of rows that are read together. With more, the first calls take several times as long, because the policy
/// learns from each batch once.
const TOGETHER: usize = 512;

thread_local! {
    static REQUESTS: Cell<Vec<ReadRequest<'static>>> = const { Cell::new(Vec::new()) };
}

/// A file of rows that are all of one length and lie one behind the other, numbered from 0: embeddings, fixed records, the
/// offsets of an index. [`Client::table`] opens one. It is cheap to clone, and many threads may
/// read at once.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = odafs::Client::connect("odafs+shm:///")?;
/// let embeddings = client.table("embeddings.f32", 64 * 4)?;
///
/// let mut row = [0; 256];
/// embeddings.get(42, &mut row)?;
///
/// let wanted = [7, 1_000_000, 42];
/// let mut rows = vec![0; wanted.len() * 256];
/// embeddings.get_many(&wanted, &mut rows)?;
/// # Ok(())
/// # }
/// ```
///
/// Once the client has references of the rows' pages and takes them from shared memory, neither call allocates memory
/// or makes a system call. A row within one page is of one version. A row over two pages may mix two while others
/// write it.
#[derive(Debug, Clone)]
pub struct Table {
    file: File,
    row_bytes: usize,
}

impl Client {
    /// Opens a file of rows that are all `row_bytes` long, for reading by row number.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// If `row_bytes` is 0.
    pub fn table(&self, path: impl AsRef<Path>, row_bytes: usize) -> Result<Table, PathError> {
        Ok(Table::new(self.open(path)?, row_bytes))
    }
}

impl Table {
    /// The rows of `file`.
    ///
    /// # Panics
    /// If `row_bytes` is 0.
    pub fn new(file: File, row_bytes: usize) -> Self {
        assert!(row_bytes > 0, "rows of no bytes");
        Self { file, row_bytes }
    }

    /// The file that holds the rows.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Length of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// How many whole rows the file has now (GETATTR).
    ///
    /// # Errors
    /// The file is gone, or the call failed.
    pub fn rows(&self) -> Result<u64, PathError> {
        Ok(self.file.metadata()?.size / self.row_bytes as u64)
    }

    /// Reads one row into `out`.
    ///
    /// # Errors
    /// As [`File::read_at`], and [`ReadError::EndOfFile`] if the file has no such row.
    ///
    /// # Panics
    /// If `out` is not as long as a row.
    #[inline]
    pub fn get(&self, row: u64, out: &mut [u8]) -> Result<(), ReadError> {
        assert_eq!(out.len(), self.row_bytes, "room for one row");
        let bytes = match self.offset(row) {
            Some(offset) => self.file.read_at(out, offset)?,
            None => 0,
        };
        self.whole(row, bytes)
    }

    /// Reads many rows into `out`, in the order of `rows` and one behind the other. Numbers may repeat. The reads of
    /// up to 512 rows are in flight together.
    ///
    /// # Errors
    /// As [`get`](Self::get), of the first row that failed. The other rows may or may not have been read.
    ///
    /// # Panics
    /// If `out` is not as long as that many rows.
    pub fn get_many(&self, rows: &[u64], out: &mut [u8]) -> Result<(), ReadError> {
        let room = rows.len().checked_mul(self.row_bytes);
        assert_eq!(Some(out.len()), room, "room for {} rows", rows.len());
        let together = rows.chunks(TOGETHER);
        for (rows, out) in together.zip(out.chunks_mut(TOGETHER * self.row_bytes)) {
            // The requests borrow `out` for as long as the batch takes.
            let mut requests: Vec<ReadRequest<'_>> =
                REQUESTS.try_with(Cell::take).unwrap_or_default();
            let read = self.read(rows, out, &mut requests);
            let _ = REQUESTS.try_with(|kept| kept.set(reuse::emptied(requests)));
            read?;
        }
        Ok(())
    }

    /// Reads rows together. `requests` must be empty.
    fn read<'b>(
        &self,
        rows: &[u64],
        out: &'b mut [u8],
        requests: &mut Vec<ReadRequest<'b>>,
    ) -> Result<(), ReadError> {
        for (row, into) in rows.iter().zip(out.chunks_mut(self.row_bytes)) {
            let Some(offset) = self.offset(*row) else {
                return self.whole(*row, 0);
            };
            requests.push(ReadRequest::new(offset, into));
        }
        self.file.read_batch(requests)?;
        for (row, request) in rows.iter().zip(requests.iter()) {
            self.whole(*row, request.bytes)?;
        }
        Ok(())
    }

    /// The offset of a row in bytes, or `None` if no file can be that long.
    fn offset(&self, row: u64) -> Option<u64> {
        row.checked_mul(self.row_bytes as u64)
    }

    fn whole(&self, row: u64, bytes: usize) -> Result<(), ReadError> {
        if bytes == self.row_bytes {
            return Ok(());
        }
        Err(ReadError::EndOfFile {
            path: self.file.path().to_owned(),
            offset: self.offset(row).unwrap_or(u64::MAX),
            bytes,
            wanted: self.row_bytes,
        })
    }
}
