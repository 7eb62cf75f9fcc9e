//! Many small ranges in one call.

use crate::{
    buffer::odafs_buffer,
    error::{Error, at_border, handle},
    file::{memory, odafs_file},
};
use odafs::{FileRequest, IntoRequest, ReadRequest};
use std::ffi::c_void;

/// Number of ranges that are read together: as many as the client handles at once. Their descriptions are allocated
/// once for each call. With more, the first calls take several times as long, because the policy learns from each call
/// once.
const TOGETHER: usize = 512;

/// A part of a file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct odafs_range {
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// A part of one of several files.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct odafs_file_range {
    /// The file.
    pub file: *const odafs_file,
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// The caller's array.
///
/// # Safety
/// NULL with no items, or so many that nobody changes for `'a`.
pub(crate) unsafe fn array<'a, T>(
    items: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    let fits = count
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if items.is_null() || !items.is_aligned() || !fits {
        return Err(Error::invalid(format!("{count} {what} at {items:p}")));
    }
    // SAFETY: not NULL, aligned, and of a length that can be; the rest is the caller's word.
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}

/// Room for `count` numbers, if the caller wants them.
///
/// # Safety
/// NULL, or so many that nobody else uses for `'a`.
unsafe fn counts<'a>(counts: *mut usize, count: usize) -> Result<Option<&'a mut [usize]>, Error> {
    if counts.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's word.
    unsafe { array(counts, count, "counts")? };
    // SAFETY: not NULL, aligned, and of a length that can be; the rest is the caller's word.
    Ok((count > 0).then(|| unsafe { std::slice::from_raw_parts_mut(counts, count) }))
}

/// The total length of all ranges, which must fit in `room` bytes.
fn sum(mut lengths: impl ExactSizeIterator<Item = usize>, room: usize) -> Result<usize, Error> {
    let ranges = lengths.len();
    lengths
        .try_fold(0usize, usize::checked_add)
        .filter(|sum| *sum <= room)
        .ok_or_else(|| {
            Error::invalid(format!(
                "the {ranges} ranges are longer than the {room} bytes of the buffer"
            ))
        })
}

/// Reads many ranges of a file in one call, all in flight together. The buffer gets one range after the other: range i
/// begins where the lengths of those before it end, even if one of them was read short. Ranges may overlap and have any
/// order. `counts` is NULL, or has room for `count` numbers: how many bytes of each range were read, fewer than asked
/// for only at the end of the file. Returns the total, or -1 on failure: the error is that of the first range that
/// failed, and the others may or may not have been read.
///
/// # Safety
/// `file` is NULL or open; `ranges` points to `count` ranges; `buffer` has room for `bytes`, and no other thread uses that
/// room during the call; `counts` is NULL or has room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_read_ranges(
    file: *const odafs_file,
    ranges: *const odafs_range,
    count: usize,
    buffer: *mut c_void,
    bytes: usize,
    counts: *mut usize,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (file, ranges, mut rest, mut counts) = unsafe {
            (
                handle(file, "file")?.to_read()?,
                array(ranges, count, "ranges")?,
                memory(buffer, bytes)?,
                self::counts(counts, count)?,
            )
        };
        sum(ranges.iter().map(|range| range.bytes), bytes)?;
        let mut all = 0;
        let mut requests = Vec::with_capacity(count.min(TOGETHER));
        for (number, ranges) in ranges.chunks(TOGETHER).enumerate() {
            requests.clear();
            for range in ranges {
                let (here, after) = rest.split_at_mut(range.bytes);
                rest = after;
                requests.push(ReadRequest::new(range.offset, here));
            }
            file.read_batch(&mut requests)?;
            for (at, request) in requests.iter().enumerate() {
                all += request.bytes;
                if let Some(counts) = &mut counts {
                    counts[number * TOGETHER + at] = request.bytes;
                }
            }
        }
        Ok(all as libc::ssize_t)
    })
}

/// As odafs_read_ranges(), of several files that one client has opened. The reads of all files are in flight together.
/// Ranges of one file should follow one another, because a route is chosen for each such row of them.
///
/// # Safety
/// `ranges` points to `count` ranges, whose files are NULL or open; `buffer` has room for `bytes`, and no other thread uses
/// that room during the call; `counts` is NULL or has room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_read_files(
    ranges: *const odafs_file_range,
    count: usize,
    buffer: *mut c_void,
    bytes: usize,
    counts: *mut usize,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (ranges, mut rest, mut counts) = unsafe {
            (
                array(ranges, count, "ranges")?,
                memory(buffer, bytes)?,
                self::counts(counts, count)?,
            )
        };
        sum(ranges.iter().map(|range| range.bytes), bytes)?;
        let mut files = Vec::with_capacity(count);
        for range in ranges {
            // SAFETY: the caller's word.
            files.push(unsafe { handle(range.file, "file")? }.to_read()?);
        }
        let Some(client) = files.first().map(|file| file.client()) else {
            return Ok(0);
        };
        if let Some(other) = files.iter().find(|file| !client.has_opened(file)) {
            return Err(Error::invalid(format!(
                "{} and {} were opened by different clients",
                files[0].path(),
                other.path()
            )));
        }
        let mut all = 0;
        let mut requests = Vec::with_capacity(count.min(TOGETHER));
        let groups = ranges.chunks(TOGETHER).zip(files.chunks(TOGETHER));
        for (number, (ranges, files)) in groups.enumerate() {
            requests.clear();
            for (range, file) in ranges.iter().zip(files) {
                let (here, after) = rest.split_at_mut(range.bytes);
                rest = after;
                requests.push(FileRequest::new(file, range.offset, here));
            }
            client.read_batch(&mut requests)?;
            for (at, request) in requests.iter().enumerate() {
                all += request.bytes;
                if let Some(counts) = &mut counts {
                    counts[number * TOGETHER + at] = request.bytes;
                }
            }
        }
        Ok(all as libc::ssize_t)
    })
}

/// As odafs_read_ranges(), into registered memory from its byte `from` on. Over RDMA (odafs://), the server writes
/// ranges of 64 KiB or more there directly, and they are not copied here.
///
/// # Safety
/// `file` is NULL or open; `ranges` points to `count` ranges; `buffer` is NULL or a buffer whose bytes no other thread uses
/// during the call; `counts` is NULL or has room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_read_ranges_buffer(
    file: *const odafs_file,
    ranges: *const odafs_range,
    count: usize,
    buffer: *const odafs_buffer,
    from: usize,
    counts: *mut usize,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (file, ranges, buffer, counts) = unsafe {
            (
                handle(file, "file")?.to_read()?,
                array(ranges, count, "ranges")?,
                handle(buffer, "buffer")?,
                self::counts(counts, count)?,
            )
        };
        let mut memory = buffer.take()?;
        let room = memory.len().checked_sub(from).ok_or_else(|| {
            Error::invalid(format!("byte {from} of a buffer of {} bytes", memory.len()))
        })?;
        sum(ranges.iter().map(|range| range.bytes), room)?;
        let mut at = from;
        let mut requests: Vec<_> = ranges
            .iter()
            .map(|range| {
                let here = at..at + range.bytes;
                at = here.end;
                IntoRequest::new(here, range.offset)
            })
            .collect();
        file.read_batch_into(&mut memory, &mut requests)?;
        if let Some(counts) = counts {
            for (count, request) in counts.iter_mut().zip(&requests) {
                *count = request.bytes;
            }
        }
        let all: usize = requests.iter().map(|request| request.bytes).sum();
        Ok(all as libc::ssize_t)
    })
}

/// Says that these ranges will be read soon. If direct reads are worthwhile, one call fetches the references of their
/// pages. No data is read. Returns how many references came, or -1 on failure, which does not affect later reads.
///
/// # Safety
/// `file` is NULL or open; `ranges` points to `count` ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn odafs_will_need(
    file: *const odafs_file,
    ranges: *const odafs_range,
    count: usize,
) -> libc::ssize_t {
    at_border(|| {
        // SAFETY: the caller's word.
        let (file, ranges) = unsafe {
            (
                handle(file, "file")?.to_read()?,
                array(ranges, count, "ranges")?,
            )
        };
        let ranges: Vec<_> = ranges
            .iter()
            .map(|range| range.offset..range.offset.saturating_add(range.bytes as u64))
            .collect();
        Ok(file.will_need(&ranges)? as libc::ssize_t)
    })
}
