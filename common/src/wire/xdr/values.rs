//! The values that XDR itself has: numbers, booleans, fixed-length opaque data, optional data.

use super::{Decode, Encode, Reader, Writer, XdrError};

impl Encode for () {
    fn encode(&self, _: &mut Writer<'_>) {}
}

impl Decode<'_> for () {
    fn decode(_: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl Encode for u32 {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(*self);
    }
}

impl Decode<'_> for u32 {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.u32()
    }
}

impl Encode for u64 {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(*self);
    }
}

impl Decode<'_> for u64 {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.u64()
    }
}

impl Encode for bool {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bool(*self);
    }
}

impl Decode<'_> for bool {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.bool()
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque_fixed(self);
    }
}

impl<const N: usize> Decode<'_> for [u8; N] {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.opaque_fixed().copied()
    }
}

/// Optional data (RFC 4506, section 4.19): TRUE and the value, or FALSE.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bool(self.is_some());
        if let Some(value) = self {
            value.encode(w);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(if r.bool()? { Some(T::decode(r)?) } else { None })
    }
}

impl<T: Encode> Encode for &T {
    fn encode(&self, w: &mut Writer<'_>) {
        (*self).encode(w);
    }
}
