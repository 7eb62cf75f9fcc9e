//! Step 4 of a read: RPC. ODAFS READ also brings references; NFS READ is for servers that have nothing better.

use crate::{
    cache::Put,
    calls::misbehaved,
    error::{CallError, Status},
    nfs::{
        self,
        pipeline::{self, Next, WINDOW, Work},
        procedure::{Asks, Number, Procedure},
    },
    options::Transfer,
    part::{Failed, Part, ReadStep, Reading},
    session::Session,
    shared::Shared,
    state::FileState,
    trace::RouteTaken,
    transport::{Broken, PlacedData},
    types::Attributes,
};
use odafs_common::wire::{
    nfs3,
    odafs::{self, Chunk, MAX_READ_REFERENCES, ReadFront},
    xdr::{Decode, Encode, Reader},
};
use odafs_fabric::{
    Region, clock,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// READ of the ODAFS program.
pub const READ: Procedure = Procedure {
    name: "ODAFS READ",
    number: Number::Odafs(odafs::Procedure::Read),
    idempotent: true,
    asks: Asks::NOTHING,
};

/// Number of pages in one call that asks for references, because the server has room for so many in its reply.
const REFERENCED_PAGES: u32 = 32;
/// Number of references of other pages for which the client makes room in a reply, where it must.
const NEIGHBOURS: u32 = 16;

/// One call: neighbouring parts of one file.
#[derive(Debug, Clone, Copy)]
struct ReadCall {
    /// The number of the file in the batch.
    of: usize,
    /// Whether the call asks for references.
    learns: bool,
    first: usize,
    last: usize,
    offset: u64,
    count: u32,
}

/// All calls of one read.
struct Fetch<'r, 'p, 'b> {
    reading: &'r Reading<'r>,
    parts: &'p mut [Part<'b>],
    session: Option<Arc<Session>>,
    plain: bool,
    slot_bytes: u32,
    failed: Option<Status>,
    /// The number of the part that the server refused.
    failed_at: usize,
}

/// Reads by RPC whatever no other route has read.
pub fn read(reading: &Reading<'_>, parts: &mut [Part<'_>]) -> Result<(), Failed> {
    if parts.iter().all(|part| part.step == ReadStep::Done) {
        return Ok(());
    }
    odafs_or_plain(reading.shared, |plain| fetch(reading, parts, plain))
}

/// By ODAFS READ, or by NFS READ (`true`) if the server has no such program.
pub fn odafs_or_plain(
    shared: &Shared,
    mut fetch: impl FnMut(bool) -> Result<(), Failed>,
) -> Result<(), Failed> {
    if shared.odafs.load(Relaxed) {
        match fetch(false) {
            Err(Failed::Call(CallError::Unavailable { .. })) => shared.odafs.store(false, Relaxed),
            done => return done,
        }
    }
    fetch(true)
}

/// The error of a failed READ.
type Failure = nfs3::Failed<Option<nfs3::Attributes>>;

/// Reads by one ODAFS READ on an idle connection, into memory that is not kept. Returns `None` if it takes more than
/// that.
pub fn alone(
    shared: &Shared,
    file: &FileState,
    session: Option<&Session>,
    offset: u64,
    buf: &mut [u8],
) -> Result<Option<usize>, Failed> {
    let piece_max = shared.read_max.min(shared.calls.link().piece_max());
    if shared.options.transfer == Transfer::Direct
        || !shared.odafs.load(Relaxed)
        || buf.len() > piece_max as usize
    {
        return Ok(None);
    }
    let arguments = odafs::ReadArgs {
        file: file.handle.wire(),
        offset,
        count: buf.len() as u32,
        session: session.map_or(0, |session| session.id),
        want_references: session.is_some(),
        chunk: None,
    };
    // References follow the data, so with them the whole reply is needed.
    let front = match session {
        None => ReadFront::BYTES_MAX,
        Some(_) => usize::MAX,
    };
    let done = shared
        .calls
        .alone(&READ, &arguments, front, |r, transport| {
            let mut whole = r.clone();
            let front: Result<ReadFront, Failure> = decode(&READ, Decode::decode(r))?;
            let front = match front {
                Ok(front) => front,
                Err(failed) if failed.status == nfs3::Status::Jukebox => return Ok(Ok(None)),
                Err(failed) => return Ok(Err(failed.status.into())),
            };
            let got = front.bytes as usize;
            let into = buf.get_mut(..got).filter(|_| front.count == front.bytes);
            if !into.is_some_and(|into| transport.load(r.position(), into)) {
                return Err(misbehaved(&READ, &"data of another length than it says"));
            }
            file.observe(
                Some(front.change),
                front.attributes.map(Attributes::from).as_ref(),
            );
            if let Some(session) = session
                && let Ok(ok) = decode(&READ, odafs::ReadResult::decode(&mut whole))?
            {
                learn(shared, file, session, &ok);
            }
            Ok(Ok((front.eof || got == buf.len()).then_some(got)))
        });
    match done {
        Ok(done) => done.map_or(Ok(None), |read| {
            read.map_err(|status| Failed::Status(status, 0))
        }),
        // The long path finds out by itself.
        Err(CallError::Unavailable { .. }) => Ok(None),
        Err(error) => Err(Failed::Call(error)),
    }
}

/// Handles the parts of a reply other than its data.
fn learn(shared: &Shared, file: &FileState, session: &Session, ok: &odafs::ReadOk<'_>) {
    let references = ok.references.iter().map(|page| (page.page, page.reference));
    let learned = shared
        .directory
        .learn(&file.tree, session.number, references);
    shared.learned.fetch_add(learned, Relaxed);
    // A reply without references says nothing about the counter either: the server had no time to look.
    if ok.counter.is_some() || learned > 0 {
        file.set_counter(session.number, ok.counter);
    }
    shared.policy.lock().feedback(ok.feedback);
    if !ok.references.is_empty() {
        file.record.lock().referenced();
    }
}

fn fetch(reading: &Reading<'_>, parts: &mut [Part<'_>], plain: bool) -> Result<(), Failed> {
    let shared = reading.shared;
    let on_fabric = shared.calls.link().name() != "nfs";
    note_learns(reading, parts, plain);
    let mut files = reading.files.iter();
    let session = match files.any(|file| file.learns.get()) {
        true => shared.tended_session(),
        false => None,
    };
    if !plain
        && let [part] = parts
        && let [file] = &reading.files[..]
        && !file.keeps
    {
        let (offset, _) = span(part, reading);
        let read = alone(shared, file.state(), session.as_deref(), offset, part.buf)?;
        if let Some(bytes) = read {
            part.done(bytes, RouteTaken::Rpc, part.why);
            return Ok(());
        }
    }
    let page_bytes = reading.size.bytes() as u32;
    let piece_max = shared.read_max.min(shared.calls.link().piece_max());
    let longest = |learns: bool| match learns && session.is_some() {
        true => piece_max.min(REFERENCED_PAGES * page_bytes).max(page_bytes),
        false => piece_max.max(page_bytes),
    };
    let slot_bytes = longest(reading.files.iter().all(|file| file.learns.get()));
    let by_write = on_fabric && !plain && shared.options.transfer == Transfer::Direct;
    let sink_bytes = if by_write {
        WINDOW * slot_bytes as usize
    } else {
        0
    };
    let pieces = cut(parts, reading, longest);
    let mut work = Fetch {
        reading,
        parts,
        session,
        plain,
        slot_bytes,
        failed: None,
        failed_at: 0,
    };
    let procedure = if plain { &nfs::READ } else { &READ };
    pipeline::run(
        &shared.calls,
        Some(reading.deadline),
        procedure,
        &mut work,
        pieces,
        sink_bytes,
    )
    .map_err(Failed::Call)?;
    if let Some(status) = work.failed {
        return Err(Failed::Status(status, work.failed_at));
    }
    let taken = if plain {
        RouteTaken::PlainRpc
    } else {
        RouteTaken::Rpc
    };
    for part in work
        .parts
        .iter_mut()
        .filter(|part| part.step != ReadStep::Done)
    {
        part.done(part.bytes, taken, part.why);
    }
    Ok(())
}

/// Notes whether the calls for each file ask for references. Plain calls ask for none.
fn note_learns(reading: &Reading<'_>, parts: &[Part<'_>], plain: bool) {
    for file in &reading.files {
        file.learns.set(false);
    }
    let calls = parts.iter().filter(|part| part.step != ReadStep::Done);
    for part in calls.filter(|_| !plain) {
        let learns = &reading.files[part.of].learns;
        learns.set(learns.get() || reading.steps(part.of).learns(part.page));
    }
}

/// Makes the calls for the parts that need one. Neighbours share a call. If pages are kept, the calls fetch whole
/// pages. `longest` says how long a call is, by whether it asks for references.
fn cut(parts: &[Part<'_>], reading: &Reading<'_>, longest: impl Fn(bool) -> u32) -> Vec<ReadCall> {
    let mut pieces: Vec<ReadCall> = Vec::new();
    for (at, part) in parts
        .iter()
        .enumerate()
        .filter(|(_, part)| part.step != ReadStep::Done)
    {
        let (offset, count) = span(part, reading);
        match pieces.last_mut() {
            Some(piece)
                if piece.last + 1 == at
                    && piece.of == part.of
                    && piece.offset.checked_add(piece.count.into()) == Some(offset)
                    && piece.count + count <= longest(piece.learns) =>
            {
                piece.last = at;
                piece.count += count;
            }
            _ => pieces.push(ReadCall {
                of: part.of,
                learns: reading.files[part.of].learns.get(),
                first: at,
                last: at,
                offset,
                count,
            }),
        }
    }
    pieces
}

fn span(part: &Part<'_>, reading: &Reading<'_>) -> (u64, u32) {
    let start = reading.size.start(part.page);
    if reading.files[part.of].keeps {
        return (start, reading.size.bytes() as u32);
    }
    (start + part.within as u64, part.buf.len() as u32)
}

/// Data that was read.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// In the reply.
    Here(&'a [u8]),
    /// In registered memory.
    Landed {
        /// The memory.
        region: &'a Region,
        /// First byte, as an offset in the memory.
        offset: usize,
        /// Length in bytes.
        bytes: usize,
    },
}

impl<'a> Data<'a> {
    /// `here`, unless the data came apart.
    pub fn of(here: &'a [u8], placed: Option<PlacedData<'a>>) -> Self {
        match placed {
            None => Self::Here(here),
            Some(placed) => Self::Landed {
                region: placed.region,
                offset: placed.offset,
                bytes: placed.bytes as usize,
            },
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Here(data) => data.len(),
            Self::Landed { bytes, .. } => *bytes,
        }
    }

    /// Copies the data to `at` in a region, unless it is there already. Returns false if the region is too small.
    pub fn bring(&self, region: &Region, at: usize) -> bool {
        match *self {
            Self::Here(data) => region.store(at, data),
            Self::Landed {
                region: from,
                offset,
                ..
            } if std::ptr::eq(from, region) => offset == at,
            Self::Landed { .. } => {
                let mut step = [0; 4096];
                (0..self.len()).step_by(step.len()).all(|skip| {
                    let bytes = self.copy(skip, &mut step);
                    region.store(at + skip, &step[..bytes])
                })
            }
        }
    }

    /// Copies data from `skip` on, as much as fits. Returns the number of bytes.
    fn copy(&self, skip: usize, into: &mut [u8]) -> usize {
        let bytes = self.len().saturating_sub(skip).min(into.len());
        let copied = match self {
            _ if bytes == 0 => false,
            Self::Here(data) => {
                into[..bytes].copy_from_slice(&data[skip..][..bytes]);
                true
            }
            Self::Landed { region, offset, .. } => region.load(offset + skip, &mut into[..bytes]),
        };
        if copied { bytes } else { 0 }
    }
}

/// The common parts of both programs' results.
pub struct ReadResults<'a> {
    /// The data.
    pub data: Data<'a>,
    /// Whether the file ends after it.
    pub eof: bool,
    /// The file's change counter, if the server says.
    pub change: Option<u64>,
    /// The file's attributes.
    pub attributes: Option<Attributes>,
}

impl<'a> ReadResults<'a> {
    /// By NFS READ.
    pub fn plain(ok: &nfs3::ReadOk<'a>, placed: Option<PlacedData<'a>>) -> Self {
        Self {
            data: Data::of(ok.data.0, placed),
            eof: ok.eof,
            change: None,
            attributes: ok.attributes.map(Attributes::from),
        }
    }

    /// By ODAFS READ, with its data.
    ///
    /// # Errors
    /// The length in the result differs from that of the data.
    pub fn odafs(ok: &odafs::ReadOk<'_>, data: Data<'a>) -> Result<Self, CallError> {
        if data.len() != ok.count as usize {
            return Err(misbehaved(&READ, &"data of another length than it says"));
        }
        Ok(Self {
            data,
            eof: ok.eof,
            change: Some(ok.change),
            attributes: ok.attributes.map(Attributes::from),
        })
    }
}

impl Work for Fetch<'_, '_, '_> {
    type Item = ReadCall;

    fn send(
        &mut self,
        piece: ReadCall,
        slot: usize,
        sink: Option<&Arc<Region>>,
        put: &mut dyn FnMut(&dyn Encode) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let file = self.reading.files[piece.of].state().handle.wire();
        if self.plain {
            return put(&nfs3::ReadArgs {
                file,
                offset: piece.offset,
                count: piece.count,
            });
        }
        let session = self.session.as_ref().filter(|_| piece.learns);
        let session = session.map_or(0, |session| session.id);
        put(&odafs::ReadArgs {
            file,
            offset: piece.offset,
            count: piece.count,
            session,
            want_references: session != 0,
            chunk: sink.map(|sink| {
                let at = sink.remote(slot * self.slot_bytes as usize);
                Chunk {
                    tag: at.tag.0,
                    offset: at.offset,
                    length: piece.count,
                }
            }),
        })
    }

    fn asks(&self, piece: ReadCall, sink: bool) -> Asks {
        let pages = piece.count / self.reading.size.bytes() as u32 + 2;
        let references = match self.session {
            Some(_) if piece.learns => (pages + NEIGHBOURS).min(MAX_READ_REFERENCES),
            _ => 0,
        };
        // Data that the server writes into the sink is not in the reply.
        let count = if sink { 0 } else { piece.count };
        Asks { count, references }
    }

    fn take(
        &mut self,
        piece: ReadCall,
        slot: usize,
        sink: Option<&Arc<Region>>,
        placed: Option<PlacedData<'_>>,
        result: &mut Reader<'_>,
    ) -> Result<Next<ReadCall>, CallError> {
        let failed = if self.plain {
            match decode(&nfs::READ, nfs3::ReadResult::decode(result))? {
                Ok(ok) => return self.told(piece, &ReadResults::plain(&ok, placed)),
                Err(failed) => failed.status,
            }
        } else {
            match decode(&READ, odafs::ReadResult::decode(result))? {
                Ok(ok) => {
                    let data = match sink {
                        Some(region) if ok.data.0.is_empty() => Data::Landed {
                            region,
                            offset: slot * self.slot_bytes as usize,
                            bytes: ok.count.min(piece.count) as usize,
                        },
                        _ => Data::of(ok.data.0, placed),
                    };
                    return self.odafs(piece, data, &ok);
                }
                Err(failed) => failed.status,
            }
        };
        let open = |at: &usize| self.parts[*at].is_open();
        self.failed_at = (piece.first..=piece.last).find(open).unwrap_or(piece.first);
        Ok(Next::refused(failed, piece, &mut self.failed))
    }
}

/// Checks a result.
pub fn decode<T>(
    procedure: &Procedure,
    result: Result<T, odafs_common::wire::xdr::XdrError>,
) -> Result<T, CallError> {
    result.map_err(|error| misbehaved(procedure, &error))
}

impl Fetch<'_, '_, '_> {
    fn odafs(
        &mut self,
        piece: ReadCall,
        data: Data<'_>,
        ok: &odafs::ReadOk<'_>,
    ) -> Result<Next<ReadCall>, CallError> {
        let next = self.told(piece, &ReadResults::odafs(ok, data)?)?;
        if let Some(session) = &self.session {
            let file = self.reading.files[piece.of].state();
            learn(self.reading.shared, file, session, ok);
        }
        Ok(next)
    }

    fn told(
        &mut self,
        piece: ReadCall,
        told: &ReadResults<'_>,
    ) -> Result<Next<ReadCall>, CallError> {
        let got = told.data.len() as u32;
        if got > piece.count {
            return Err(misbehaved(&READ, &"more data than was asked for"));
        }
        let file = self.reading.files[piece.of].state();
        file.observe(told.change, told.attributes.as_ref());
        let over = told.eof || got == 0;
        for part in &mut self.parts[piece.first..=piece.last] {
            deliver(part, self.reading, piece.offset, told.data);
        }
        self.keep(piece, told.data, over);
        if over || got == piece.count {
            return Ok(Next::Done);
        }
        Ok(Next::More(ReadCall {
            offset: piece.offset + u64::from(got),
            count: piece.count - got,
            ..piece
        }))
    }

    /// Keeps the pages that the data contains in full, or up to the end of the file.
    fn keep(&self, piece: ReadCall, data: Data<'_>, eof: bool) {
        let (size, file) = (self.reading.size, &self.reading.files[piece.of]);
        if !file.keeps || size.within(piece.offset) != 0 {
            return;
        }
        let (shared, moment) = (self.reading.shared, self.parts[piece.first].moment);
        let began = file.asked.is_timed().then(clock::now);
        let mut in_place = 0;
        let mut whole = vec![0; size.bytes()];
        let starts = (0..data.len()).step_by(size.bytes());
        let pages = starts.len() as u64;
        for (page, start) in (size.index(piece.offset)..).zip(starts) {
            let bytes = data.copy(start, &mut whole);
            if bytes == size.bytes() || eof && bytes > 0 {
                let put = shared.keep(file.state(), moment, page, size, &whole[..bytes]);
                in_place += u64::from(matches!(put, Put::InPlace { .. }));
            }
        }
        // New memory is paid for apart, so the time counts only if none was taken.
        if let Some(began) = began.filter(|_| in_place == pages && pages > 0) {
            let ns = clock::now().since(began).0;
            shared.policy.lock().put(ns / pages);
        }
    }
}

/// Copies to a part what `data`, which begins at `offset` in the file, has for it.
fn deliver(part: &mut Part<'_>, reading: &Reading<'_>, offset: u64, data: Data<'_>) {
    let want = reading.size.start(part.page) + (part.within + part.bytes) as u64;
    let Some(skip) = want.checked_sub(offset) else {
        return;
    };
    let Ok(skip) = usize::try_from(skip) else {
        return;
    };
    part.bytes += data.copy(skip, &mut part.buf[part.bytes..]);
}
