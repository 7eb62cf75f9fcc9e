//! Replies that slots keep for repetitions: whole, as TCP would carry them. A client that asks for it (`sa_cachethis`) gets a reply
//! that is kept, or an error that says that it cannot be (RFC 8881, section 2.10.6.4), so data that go to the caller's memory are
//! kept, too. A repetition has chunks of its own, or comes over another transport.

use std::borrow::Cow;

use odafs_common::wire::nfs4::{OperationResult, Results};
use odafs_common::wire::xdr::{Reader, Writer};
use odafs_fabric::memory::Arena;
use odafs_nic::calls::{ChunkSource, Placed, PlacedResult, Placements};

use super::compound::Compound;
use super::state::Slot;
use crate::rpc::Answer;

impl Compound<'_> {
    /// What the slot keeps of the reply, which begins at `start` of its message. `None`: it is too long for that.
    pub(super) fn kept<'r>(
        &self,
        reply: &'r [u8],
        start: usize,
        slot: &Slot,
    ) -> Option<Cow<'r, [u8]>> {
        if reply.len() + self.placing.bytes() > slot.keeps() {
            return None;
        }
        Some(match self.placing.placed() {
            None => Cow::Borrowed(reply),
            Some(placed) => Cow::Owned(whole(reply, start, placed, self.export.arena())),
        })
    }
}

/// The reply with the data that were placed, and their padding.
fn whole(reply: &[u8], start: usize, placed: &Placed, arena: &Arena) -> Vec<u8> {
    let mut data = Vec::new();
    for piece in &placed.pieces {
        piece.append_to(&mut data, arena);
    }
    let (mut whole, mut data, mut done) = (Vec::new(), &data[..], 0);
    for result in placed.results.iter() {
        let (one, rest) = data.split_at(result.bytes as usize);
        let at = result.at as usize - start;
        whole.extend_from_slice(&reply[done..at]);
        whole.extend_from_slice(one);
        whole.resize(whole.len().next_multiple_of(4), 0);
        (done, data) = (at, rest);
    }
    whole.extend_from_slice(&reply[done..]);
    whole
}

/// Answers a repetition with the reply that was kept. The n-th DDP-eligible result goes to the n-th chunk, as the first time. If it
/// is longer than that, the transport refuses the reply.
pub(super) fn replay(kept: &[u8], placements: &Placements, w: &mut Writer<'_>) -> Answer {
    let (mut placed, mut data) = (Placed::default(), Vec::new());
    let (mut number, mut done) = (0, 0);
    let mut results = Results::begin(Reader::new(kept)).ok();
    while let Some(results) = &mut results
        && let Some(Ok(result)) = results.next()
    {
        // The data are the last of their results.
        let end = kept.len() - results.rest().len();
        let payload = match &result {
            OperationResult::Read(Ok(read)) => read.data.0,
            OperationResult::ReadLink(Ok(link)) => link.target.0,
            _ => continue,
        };
        let (result, bytes) = (number, payload.len() as u32);
        number += 1;
        if placements.get(result as usize).is_none() {
            continue;
        }
        w.opaque_fixed(&kept[done..end - payload.len().next_multiple_of(4)]);
        let at = w.position() as u32;
        // There are no more placements than room for results.
        let _ = placed.results.push(PlacedResult { result, at, bytes });
        data.extend_from_slice(payload);
        done = end;
    }
    w.opaque_fixed(&kept[done..]);
    if placed.results.is_empty() {
        return Answer::Replied;
    }
    if !data.is_empty() {
        placed.pieces.push(ChunkSource::Bytes(data));
    }
    Answer::Placed(placed)
}
