//! What a program owes to the transports: it classifies its calls and serves them.

use std::fmt;
use std::ops::Range;

use odafs_common::wire::xdr::{Encode, Reader, Writer, XdrError};
use odafs_fabric::clock::Nanos;
use odafs_nic::calls::{Caller, ChunkWrite, Placed};

use super::access::Rights;
use super::arguments::{ApartPayloads, Lengths};
use super::drc::Repeats;
use crate::vfs::Credential;
use crate::vfs::read::Effort;

/// A call, as the procedures of a program see it.
#[derive(Debug)]
pub struct Call<'a> {
    /// Who calls, and over what.
    pub caller: &'a Caller,
    /// On whose behalf.
    pub who: Credential,
    /// Which exports the caller may reach, and on whose behalf there.
    pub rights: Rights<'a>,
    /// Procedure number.
    pub procedure: u32,
    /// Its arguments. Of payloads that came apart they have the lengths alone.
    pub arguments: Reader<'a>,
    /// Those payloads.
    pub apart: ApartPayloads<'a>,
    /// Whether it may block.
    pub effort: Effort,
}

/// A call that goes on. What it was called with is lent to its procedure again.
#[derive(Debug)]
pub struct Resumed<'a> {
    /// As in [`Call`].
    pub caller: &'a Caller,
    /// As in [`Call`], by the rules of now.
    pub who: Credential,
    /// As in [`Call`], by the rules of now.
    pub rights: Rights<'a>,
    /// As in [`Call`]: from their beginning.
    pub arguments: Reader<'a>,
    /// As in [`Call`]: all of them, whether they were used or not.
    pub apart: ApartPayloads<'a>,
}

/// What a procedure did. On `Blocks`, `NoProcedure` and `Garbage` what it wrote is thrown away.
#[derive(Debug)]
pub enum Answer {
    /// The results have been written.
    Replied,
    /// The results have been written, and this goes ahead of them into the caller's memory.
    Write(Vec<ChunkWrite>),
    /// The results have been written but for these, which go to the call's placements.
    Placed(Placed),
    /// It takes [`Effort::MayBlock`], and nothing has been done: the procedure runs from its start with that effort. With
    /// that effort already, the call gets no reply.
    Blocks,
    /// It takes [`Effort::MayBlock`] to go on. What has been done and written so far stays.
    Suspended(Box<dyn Suspended>),
    /// There is no such procedure.
    NoProcedure,
    /// The arguments do not decode.
    Garbage(XdrError),
}

impl From<XdrError> for Answer {
    fn from(error: XdrError) -> Self {
        Self::Garbage(error)
    }
}

/// A procedure that has been served in part: what its program needs to go on. If it is dropped, nobody goes on: the program
/// gives back what it holds.
pub trait Suspended: Send {
    /// Number of frames of the page cache that it keeps pinned until it goes on, for results that are placed.
    fn pins(&self) -> usize {
        0
    }

    /// Goes on, with [`Effort::MayBlock`]. `results` holds what was written before. The answer is anything but
    /// [`Answer::Blocks`]. A call that is suspended again goes on at once, on the same thread.
    fn resume(self: Box<Self>, call: Resumed<'_>, results: &mut Writer<'_>) -> Answer;
}

impl fmt::Debug for dyn Suspended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Suspended")
    }
}

/// An RPC program in one version.
pub trait Program: Send + Sync {
    /// Its number.
    fn number(&self) -> u32;

    /// Its version.
    fn version(&self) -> u32;

    /// Its name in metrics and logs.
    fn name(&self) -> &'static str {
        "other"
    }

    /// The names of its procedures there, by number.
    fn procedures(&self) -> &'static [&'static str] {
        &[]
    }

    /// The names there of the statuses with which a procedure's results begin. Empty if they begin with no status. Code 0
    /// is success.
    fn statuses(&self, procedure: u32) -> Vec<(u32, String)> {
        let _ = procedure;
        Vec::new()
    }

    /// Which file a call is about, in words, for the report of slow calls.
    fn about(&self, procedure: u32, arguments: Reader<'_>) -> Option<String> {
        let _ = (procedure, arguments);
        None
    }

    /// Who may call a procedure. Anyone may call procedure 0 of every program.
    fn admission(&self, procedure: u32) -> Admission;

    /// What a repetition of a call would do, and so who remembers the reply.
    fn repeats<'a>(&self, procedure: u32, arguments: Reader<'a>) -> Repeats<'a> {
        let _ = (procedure, arguments);
        Repeats::Harmless
    }

    /// Whether a call that blocks may wait for stable storage.
    fn may_sync(&self, procedure: u32, arguments: Reader<'_>) -> bool {
        let _ = (procedure, arguments);
        false
    }

    /// Where in the message the bytes of the DDP-eligible argument belong, without padding: what may come apart from the
    /// message, as a whole (RFC 8166, section 6.1). The message may lack them, but not the length before them. `None`:
    /// nothing may come apart. The results that may travel apart are marked where they are written, by
    /// [`Writer::payload`] or [`Answer::Placed`].
    fn payload(&self, procedure: u32, arguments: Reader<'_>) -> Option<Range<usize>> {
        let _ = (procedure, arguments);
        None
    }

    /// The lengths of the DDP-eligible arguments that came apart from the message, as its reader says, in their order. If they
    /// are fewer, something came apart that may not. A program of more than one [payload](Self::payload) says this itself.
    fn payloads(&self, procedure: u32, arguments: Reader<'_>) -> Lengths {
        let place = self.payload(procedure, arguments.clone());
        let length = place.and_then(|place| {
            let mut arguments = arguments.forward_to(place.start.checked_sub(4)?)?;
            arguments.skip_payload("payload").ok()?
        });
        length.map_or(Lengths::default(), Lengths::one)
    }

    /// Serves a call other than of procedure 0.
    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer;

    /// A reply came over the connection with this number, to a call that a program made by [`Caller::back`].
    fn answered(&self, connection: u64, message: &[u8]) {
        let _ = (connection, message);
    }

    /// The [`Caller::back`] of the connection with this number carries no more calls. The connection itself goes on.
    fn back_closed(&self, connection: u64) {
        let _ = connection;
    }

    /// The connection with this number is gone.
    fn closed(&self, connection: u64) {
        let _ = connection;
    }

    /// A second or so has passed. It is `now` by [`awake`](odafs_fabric::clock::awake).
    fn tick(&self, now: Nanos) {
        let _ = now;
    }

    /// The rules of who may reach what have changed. What goes on by itself is to ask them again, or to end.
    fn rules_changed(&self) {}

    /// The server ends: nothing goes on by itself any more.
    fn stop(&self) {}

    /// Appends figures of its own in the text format of Prometheus.
    fn append_text(&self, out: &mut String) {
        let _ = out;
    }
}

/// Who may call a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Anyone, with any credential. Everyone is served as nobody.
    Anyone,
    /// Callers that the access list admits. Others get an authentication error.
    Listed,
    /// Anyone, and the procedure itself asks the access list, so that it can answer in its own words.
    Asks,
}

/// Writes `result`: for procedures that have nothing to write in place.
pub(crate) fn reply(results: &mut Writer<'_>, result: &impl Encode) -> Answer {
    result.encode(results);
    Answer::Replied
}
