//! The arguments of a call, some of which may have come apart from its message (RFC 8166: in read chunks).

use odafs_common::wire::rpc::CallHeader;
use odafs_common::wire::rpcrdma::{Few, Gaps, READ_CHUNKS_MAX};
use odafs_common::wire::xdr::{Apart, Gap, Reader, padding};
use odafs_fabric::memory::Gather;
use odafs_nic::calls::{Caller, ChunkedArguments};

use super::program::Program;

/// The lengths of payloads, in bytes.
pub type Lengths = Few<u32, READ_CHUNKS_MAX>;

/// The payloads that came apart from a message. The caller may be able to change them meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApartPayloads<'a> {
    came: Option<&'a ChunkedArguments>,
    /// The place of each, without padding.
    places: &'a [Gap],
}

impl<'a> ApartPayloads<'a> {
    /// One of them, counted from 0.
    pub fn get(&self, number: usize) -> Option<Gather<'a>> {
        let place = self.places.get(number)?;
        let mut payload = self.came?.bytes(number);
        payload.truncate(place.bytes as usize);
        Some(payload)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Length of all of them in bytes, with their padding.
    pub fn bytes(&self) -> usize {
        self.places.iter().map(Gap::padded).sum()
    }
}

/// Where the payloads belong that came apart from the message of a call, without padding. `None`: something came apart that
/// may not, or only a part of it did.
pub(super) fn places(
    caller: &Caller,
    program: Option<&dyn Program>,
    header: &CallHeader<'_>,
    reader: &Reader<'_>,
) -> Option<Gaps> {
    let Some(apart) = &caller.apart else {
        return Some(Gaps::default());
    };
    let mut places = apart.places();
    let reader = reader.clone().reduced(Apart::Gaps(&places));
    let lengths = program?.payloads(header.procedure, reader);
    if lengths.len() != places.len() {
        return None;
    }
    for (place, bytes) in places.iter_mut().zip(lengths.iter()) {
        place.bytes = *bytes;
    }
    Some(places)
}

/// The arguments of a call.
#[derive(Clone)]
pub(super) struct Arguments<'a> {
    /// Where they are read. Of payloads that came apart they have the lengths alone.
    pub reader: Reader<'a>,
    /// Those payloads.
    pub apart: ApartPayloads<'a>,
}

impl<'a> Arguments<'a> {
    /// `places` are those of the caller's payloads.
    pub fn new(caller: &'a Caller, reader: Reader<'a>, places: &'a [Gap]) -> Self {
        let came = caller.apart.as_ref();
        Self {
            reader: reader.reduced(Apart::Gaps(places)),
            apart: ApartPayloads { came, places },
        }
    }

    /// The bytes of a message that has all the arguments.
    pub fn bytes(&self) -> Gather<'a> {
        const PADDING: &[u8] = &[0; 4];
        let mut bytes = Gather::from(self.reader.rest());
        for number in 0..self.apart.count() {
            let payload = self.apart.get(number).unwrap_or_default();
            bytes.push_part(&payload, 0, payload.len());
            bytes.push_part(&PADDING.into(), 0, padding(payload.len()));
        }
        bytes
    }
}
