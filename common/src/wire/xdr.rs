//! XDR, RFC 4506: big-endian words, everything padded to four bytes.

use std::ops::Range;

/// Why bytes are not the XDR value that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The bytes end within the value (or within its padding).
    #[error("message ends within a value")]
    Short,
    /// A length is above what its type allows.
    #[error("{what} of {len} bytes or items, at most {max} allowed")]
    TooLong {
        /// The value that is too long.
        what: &'static str,
        /// The length that the peer sent.
        len: u32,
        /// The greatest length allowed.
        max: u32,
    },
    /// An enumeration, discriminant or boolean has a value that its type does not know.
    #[error("{value} is no {what}")]
    BadValue {
        /// The type that does not know the value.
        what: &'static str,
        /// What the peer sent.
        value: u32,
    },
    /// So many bytes follow the end of the value.
    #[error("{0} bytes follow the end of the message")]
    Trailing(usize),
}

/// A value that can be written as XDR.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, w: &mut Writer<'_>);

    /// The value alone, as bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut Writer::new(&mut bytes));
        bytes
    }
}

/// A value that can be read from XDR; it may borrow from the message.
pub trait Decode<'a>: Sized {
    /// Reads the value and moves `r` behind it.
    ///
    /// # Errors
    /// The bytes are not such a value.
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError>;

    /// Reads a value that fills `bytes` entirely.
    ///
    /// # Errors
    /// The bytes are not such a value, or others follow it.
    fn from_bytes(bytes: &'a [u8]) -> Result<Self, XdrError> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

/// Reads XDR from the front of a message.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
    apart: Apart<'a>,
    /// How many bytes were missing so far, with their padding.
    missing: usize,
}

/// Payload without its length word and padding, apart from a message or to be sent apart from it (RFC 8166, section 3.4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Its first byte in the whole message; 0: it is the next payload, wherever that is.
    pub at: u32,
    /// Length in bytes.
    pub bytes: u32,
}

impl Gap {
    /// The first byte behind it in the whole message, which has its padding.
    pub const fn end(&self) -> u64 {
        self.at as u64 + (self.bytes as u64).next_multiple_of(4)
    }

    /// What it leaves out of a message.
    pub const fn padded(&self) -> usize {
        self.bytes as usize + padding(self.bytes as usize)
    }

    /// The bytes in the whole message.
    pub const fn range(&self) -> Range<usize> {
        self.at as usize..self.at as usize + self.bytes as usize
    }
}

/// What of a message's payload a transport brought apart from it.
#[derive(Clone, Copy, Debug)]
pub enum Apart<'a> {
    /// The next payload.
    Next {
        /// Bytes of it.
        bytes: u32,
        /// They themselves, or nothing where the reader knows where they are.
        data: &'a [u8],
    },
    /// These payloads, in their order. Whoever reads them knows where they are, and gets nothing instead.
    Gaps(&'a [Gap]),
}

impl Apart<'_> {
    const NONE: Self = Self::Gaps(&[]);

    /// How many payloads.
    const fn count(&self) -> usize {
        match self {
            Self::Next { .. } => 1,
            Self::Gaps(gaps) => gaps.len(),
        }
    }
}

/// How far a message has been read, for a reader that goes on when the message is at hand again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMark {
    position: usize,
    /// How many payloads that came apart are still to come.
    apart: usize,
    missing: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            total: bytes.len(),
            apart: Apart::NONE,
            missing: 0,
        }
    }

    /// The same, for a message without these payloads: of each only the length is in it.
    #[must_use]
    pub fn reduced(self, apart: Apart<'a>) -> Self {
        Self { apart, ..self }
    }

    /// How many payloads that came apart are still to be read.
    pub fn apart_left(&self) -> usize {
        self.apart.count()
    }

    /// How many bytes have been read: the XDR position of the next item.
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The place before the next item, for [`Reader::resume`].
    pub fn mark(&self) -> ReadMark {
        ReadMark {
            position: self.position(),
            apart: self.apart.count(),
            missing: self.missing,
        }
    }

    /// Goes on at `mark`, which was taken in the same message, at or behind this reader's place.
    ///
    /// # Errors
    /// [`XdrError::Short`]: `mark` is not in this message, or lies before this reader's place.
    pub fn resume(mut self, mark: ReadMark) -> Result<Self, XdrError> {
        self = self.forward_to(mark.position).ok_or(XdrError::Short)?;
        self.missing = mark.missing;
        let used = self.apart.count().checked_sub(mark.apart);
        for _ in 0..used.ok_or(XdrError::Short)? {
            self.apart = self.behind_next();
        }
        Ok(self)
    }

    /// Goes on at the byte at `position`, if it is not before this reader's place.
    pub fn forward_to(mut self, position: usize) -> Option<Self> {
        let read = position.checked_sub(self.position())?;
        self.rest = self.rest.get(read..)?;
        Some(self)
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Checks that everything has been read, including what came apart.
    ///
    /// # Errors
    /// [`XdrError::Trailing`] otherwise.
    pub fn finish(&self) -> Result<(), XdrError> {
        let apart = match self.apart {
            Apart::Next { bytes, .. } => bytes as usize,
            Apart::Gaps(gaps) => gaps.iter().map(|gap| gap.bytes as usize).sum(),
        };
        match self.rest.len().saturating_add(apart) {
            0 => Ok(()),
            left => Err(XdrError::Trailing(left)),
        }
    }

    /// An unsigned integer.
    ///
    /// # Errors
    /// [`XdrError::Short`]
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(XdrError::Short)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    /// An integer.
    ///
    /// # Errors
    /// [`XdrError::Short`]
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.u32().map(u32::cast_signed)
    }

    /// An unsigned hyper integer.
    ///
    /// # Errors
    /// [`XdrError::Short`]
    #[inline]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(XdrError::Short)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*word))
    }

    /// Unsigned integers, one after the other.
    ///
    /// # Errors
    /// [`XdrError::Short`]
    #[inline]
    pub fn words<const N: usize>(&mut self) -> Result<[u32; N], XdrError> {
        let (bytes, rest) = self.rest.split_at_checked(4 * N).ok_or(XdrError::Short)?;
        let (words, _) = bytes.as_chunks::<4>();
        self.rest = rest;
        Ok(std::array::from_fn(|at| u32::from_be_bytes(words[at])))
    }

    /// A boolean: 0 or 1, nothing else.
    ///
    /// # Errors
    /// [`XdrError::Short`], [`XdrError::BadValue`]
    #[inline]
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(XdrError::BadValue {
                what: "boolean",
                value,
            }),
        }
    }

    /// Fixed-length opaque data; its padding must be there and may hold anything.
    ///
    /// # Errors
    /// [`XdrError::Short`]
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<&'a [u8; N], XdrError> {
        let (data, rest) = self.rest.split_first_chunk::<N>().ok_or(XdrError::Short)?;
        self.rest = rest.get(padding(N)..).ok_or(XdrError::Short)?;
        Ok(data)
    }

    /// Variable-length opaque data (or a string) of at most `max` bytes; its padding must be there and
    /// may hold anything.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] before anything else is looked at, [`XdrError::Short`]
    #[inline]
    pub fn opaque(&mut self, what: &'static str, max: u32) -> Result<&'a [u8], XdrError> {
        let len = self.length(what, max)? as usize;
        let (data, rest) = self.rest.split_at_checked(len).ok_or(XdrError::Short)?;
        self.rest = rest.get(padding(len)..).ok_or(XdrError::Short)?;
        Ok(data)
    }

    /// As [`Reader::opaque`], for what may have been brought apart from the message.
    ///
    /// # Errors
    /// As [`Reader::opaque`], and [`XdrError::BadValue`] where as many bytes were not brought.
    #[inline]
    pub fn payload(&mut self, what: &'static str, max: u32) -> Result<&'a [u8], XdrError> {
        let Some((bytes, data)) = self.is_next_apart() else {
            return self.opaque(what, max);
        };
        let value = self.length(what, max)?;
        if value != bytes {
            return Err(XdrError::BadValue { what, value });
        }
        self.passes_gap(value);
        Ok(data)
    }

    /// Passes over a payload. Returns its length if it came apart; the padding may have come with it.
    ///
    /// # Errors
    /// [`XdrError::Short`], [`XdrError::BadValue`] where as many bytes were not brought.
    pub fn skip_payload(&mut self, what: &'static str) -> Result<Option<u32>, XdrError> {
        let Some((bytes, _)) = self.is_next_apart() else {
            self.opaque(what, u32::MAX)?;
            return Ok(None);
        };
        let value = self.u32()?;
        if value != bytes && value.checked_next_multiple_of(4) != Some(bytes) {
            return Err(XdrError::BadValue { what, value });
        }
        self.passes_gap(value);
        Ok(Some(value))
    }

    /// The next payload that came apart, if it is the one whose length word comes now: its bytes, and they themselves.
    fn is_next_apart(&self) -> Option<(u32, &'a [u8])> {
        match self.apart {
            Apart::Next { bytes, data } => Some((bytes, data)),
            Apart::Gaps(gaps) => {
                let gap = gaps.first()?;
                // Behind the length word.
                let here = self.position() + self.missing + 4;
                (gap.at == 0 || gap.at as usize == here).then_some((gap.bytes, &[]))
            }
        }
    }

    /// What came apart behind the next payload that did.
    fn behind_next(&self) -> Apart<'a> {
        match self.apart {
            Apart::Gaps([_, rest @ ..]) => Apart::Gaps(rest),
            _ => Apart::NONE,
        }
    }

    fn passes_gap(&mut self, bytes: u32) {
        self.apart = self.behind_next();
        self.missing += Gap { at: 0, bytes }.padded();
    }

    /// The length that stands before variable-length data or an array.
    ///
    /// # Errors
    /// [`XdrError::TooLong`], [`XdrError::Short`]
    #[inline]
    pub fn length(&mut self, what: &'static str, max: u32) -> Result<u32, XdrError> {
        let len = self.u32()?;
        if len > max {
            Err(XdrError::TooLong { what, len, max })
        } else {
            Ok(len)
        }
    }

    /// A variable-length array of at most `max` items. Memory grows with the items that are really
    /// there, not with the length that the peer claims.
    ///
    /// # Errors
    /// [`XdrError::TooLong`] before anything is allocated, or the error of the items' decoder.
    pub fn array<T: Decode<'a>>(
        &mut self,
        what: &'static str,
        max: u32,
    ) -> Result<Vec<T>, XdrError> {
        let len = self.length(what, max)?;
        let mut items = Vec::with_capacity(len.min(ALLOCATED_UNSEEN) as usize);
        for _ in 0..len {
            items.push(T::decode(self)?);
        }
        Ok(items)
    }

    /// A linked list: each item behind a TRUE, and FALSE at the end (RFC 4506, section 4.19).
    ///
    /// # Errors
    /// [`XdrError::TooLong`] at the first item above `max`, or the error of the items' decoder.
    pub fn chain<T: Decode<'a>>(
        &mut self,
        what: &'static str,
        max: u32,
    ) -> Result<Vec<T>, XdrError> {
        let mut items = Vec::new();
        while self.bool()? {
            if items.len() >= max as usize {
                return Err(XdrError::TooLong {
                    what,
                    len: max.saturating_add(1),
                    max,
                });
            }
            items.push(T::decode(self)?);
        }
        Ok(items)
    }
}

/// Items for which [`Reader::array`] makes room before it has seen them.
const ALLOCATED_UNSEEN: u32 = 16;

/// Appends XDR to a message.
#[derive(Debug)]
pub struct Writer<'v> {
    bytes: &'v mut Vec<u8>,
    payload: Option<Range<usize>>,
}

impl<'v> Writer<'v> {
    /// Appends to `bytes`, whose present contents stay.
    pub fn new(bytes: &'v mut Vec<u8>) -> Self {
        Self {
            bytes,
            payload: None,
        }
    }

    /// Appends to what another writer has written to `bytes`: the first payload of that lies at `payload`.
    pub fn resume(bytes: &'v mut Vec<u8>, payload: Option<Range<usize>>) -> Self {
        Self { bytes, payload }
    }

    /// Where the first payload lies that was written, without its padding.
    pub fn payload_range(&self) -> Option<Range<usize>> {
        self.payload.clone()
    }

    /// Where the next item goes: an index into the whole vector.
    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back everything from `position` on, a payload that ends behind it too.
    pub fn truncate(&mut self, position: usize) {
        self.bytes.truncate(position);
        self.payload.take_if(|payload| payload.end > position);
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Unsigned integers, one after the other.
    #[inline]
    pub fn words<const N: usize>(&mut self, values: [u32; N]) {
        let bytes = values.map(u32::to_be_bytes);
        self.bytes.extend_from_slice(bytes.as_flattened());
    }

    /// An integer.
    pub fn i32(&mut self, value: i32) {
        self.u32(value.cast_unsigned());
    }

    /// An unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Fixed-length opaque data and its padding.
    #[inline]
    pub fn opaque_fixed(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.pad(data.len());
    }

    /// Variable-length opaque data (or a string): length, data, padding.
    ///
    /// # Panics
    /// At 4 GiB and above, which no message holds.
    #[inline]
    pub fn opaque(&mut self, data: &[u8]) {
        self.length(data.len());
        self.opaque_fixed(data);
    }

    /// As [`Writer::opaque`], for data that a transport may place apart from the message.
    pub fn payload(&mut self, data: &[u8]) {
        let start = self.position() + 4;
        self.payload.get_or_insert(start..start + data.len());
        self.opaque(data);
    }

    /// The length before variable-length data or an array.
    ///
    /// # Panics
    /// Above `u32::MAX`, which no message holds.
    pub fn length(&mut self, len: usize) {
        self.u32(u32::try_from(len).expect("no message holds 4 GiB"));
    }

    /// A variable-length array.
    pub fn array<T: Encode>(&mut self, items: &[T]) {
        self.length(items.len());
        for item in items {
            item.encode(self);
        }
    }

    /// A linked list: each item behind a TRUE, and FALSE at the end.
    pub fn chain<T: Encode>(&mut self, items: &[T]) {
        for item in items {
            self.bool(true);
            item.encode(self);
        }
        self.bool(false);
    }

    /// Overwrites the bytes at `at` with an unsigned integer.
    ///
    /// # Panics
    /// Where fewer than four bytes have been written from there on.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Overwrites the bytes at `at` with a value, which must be as long.
    ///
    /// # Panics
    /// Where fewer bytes have been written from there on.
    pub fn overwrite(&mut self, at: usize, value: &impl Encode) {
        let end = self.position();
        value.encode(self);
        assert!(
            self.position() - end <= end - at,
            "value is longer than what it replaces"
        );
        self.bytes.copy_within(end.., at);
        self.bytes.truncate(end);
    }

    /// Zeros, to be filled in place.
    pub fn zeros(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len() + len, 0);
    }

    /// What has been written from `at` on, to be filled in place.
    ///
    /// # Panics
    /// Where `at` is above [`Writer::position`].
    pub fn written(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[at..]
    }

    fn pad(&mut self, len: usize) {
        self.bytes.extend_from_slice(&[0; 3][..padding(len)]);
    }
}

/// Bytes that follow `len` bytes of opaque data up to the next word.
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

#[macro_use]
mod macros;
#[cfg(test)]
mod tests;
mod values;
