//! Reads into a caller's registered memory. The server writes the data there by RDMA, and nobody copies it.

use crate::{
    buffer::Buffer,
    calls::misbehaved,
    error::{CallError, ReadError, Status},
    link::RpcOver,
    nfs::{
        self,
        pipeline::{self, Next, Work},
        procedure::Asks,
        read::{Data, READ, ReadResults, decode, odafs_or_plain},
    },
    open_file::OpenFile,
    part::Failed,
    request::IntoRequest,
    shard::Shard,
    shared::Shared,
    state::FileState,
    transport::{Broken, PlacedData, ReplyBuffer},
};
use odafs_common::wire::{
    nfs3, odafs,
    xdr::{Decode as _, Encode, Reader},
};
use odafs_fabric::{Region, sync::Arc};

/// Shorter reads take the routes of any read: a direct read may be faster, and a copy is cheap.
const BYTES_MIN: usize = 64 << 10;
/// The most data of one call, in bytes.
const PIECE_MAX: u32 = 1 << 20;

/// Whether the server shall write the data of this request.
pub fn pays(shared: &Shared, request: &IntoRequest) -> bool {
    request.range.len() >= BYTES_MIN && shared.calls.link().rpc_over() == Some(RpcOver::Rdma)
}

/// Reads all requests into `buffer` together, by RPC. The buffer is lent meanwhile.
pub fn read(
    file: &OpenFile,
    buffer: &mut Buffer,
    requests: &mut [IntoRequest],
) -> Result<(), ReadError> {
    let shared = file.shared();
    let done = buffer.lend(|region| {
        odafs_or_plain(shared, |plain| {
            fetch(shared, file.state(), region, requests, plain)
        })
    });
    let done = done.unwrap_or_else(|error| Err(no_memory(&error)));
    done.map_err(|failed| {
        let request = requests.get(failed.at().unwrap_or(0));
        failed.of(file, request.map_or(0, |request| request.offset))
    })?;
    let shard = Shard::mine();
    let counts = shared.shards.counts(shard);
    let bytes = requests.iter().map(|request| request.bytes as u64);
    counts.rpc_reads.add(shard, requests.len() as u64);
    counts.bytes_read.add(shard, bytes.sum());
    Ok(())
}

/// Makes sure that the buffer has its memory, which an earlier read may have left to others.
pub fn recover(
    file: &OpenFile,
    buffer: &mut Buffer,
    requests: &[IntoRequest],
) -> Result<(), ReadError> {
    let first = requests.first().map_or(0, |request| request.offset);
    let recovered = buffer.recover();
    recovered.map_err(|error| no_memory(&error).of(file, first))
}

fn no_memory(error: &std::io::Error) -> Failed {
    Failed::Call(CallError::NoMemory {
        call: READ.name,
        what: error.to_string(),
    })
}

fn fetch(
    shared: &Shared,
    file: &FileState,
    region: &Arc<Region>,
    requests: &mut [IntoRequest],
    plain: bool,
) -> Result<(), Failed> {
    let most = shared.read_max.clamp(1, PIECE_MAX) as usize;
    let mut pieces = Vec::new();
    for (number, request) in requests.iter_mut().enumerate() {
        // No file has bytes beyond the largest offset.
        let there = usize::try_from(u64::MAX - request.offset).unwrap_or(usize::MAX);
        request.bytes = request.range.len().min(there);
        pieces.extend((0..request.bytes).step_by(most).map(|from| ReadIntoCall {
            request: number,
            from,
            count: (request.bytes - from).min(most) as u32,
        }));
    }
    let mut work = Fetch {
        file,
        region,
        requests,
        plain,
        failed: None,
        failed_of: 0,
    };
    let procedure = if plain { &nfs::READ } else { &READ };
    pipeline::run(&shared.calls, None, procedure, &mut work, pieces, 0).map_err(Failed::Call)?;
    work.failed
        .map_or(Ok(()), |status| Err(Failed::Status(status, work.failed_of)))
}

/// One call: a part of a request.
#[derive(Clone, Copy)]
struct ReadIntoCall {
    request: usize,
    from: usize,
    count: u32,
}

/// All calls of a batch.
struct Fetch<'r> {
    file: &'r FileState,
    region: &'r Arc<Region>,
    /// Each request has as many bytes as possible, until the end of the file has been seen.
    requests: &'r mut [IntoRequest],
    plain: bool,
    failed: Option<Status>,
    /// The number of the request that the server refused.
    failed_of: usize,
}

impl Fetch<'_> {
    /// The place of a part.
    fn at(&self, piece: ReadIntoCall) -> usize {
        self.requests[piece.request].range.start + piece.from
    }

    fn told(
        &mut self,
        piece: ReadIntoCall,
        told: &ReadResults<'_>,
    ) -> Result<Next<ReadIntoCall>, CallError> {
        let got = told.data.len() as u32;
        if got > piece.count {
            return Err(misbehaved(&READ, &"more data than was asked for"));
        }
        self.file.observe(told.change, told.attributes.as_ref());
        if !told.data.bring(self.region, self.at(piece)) {
            return Err(misbehaved(&READ, &"data beside the place that it has"));
        }
        if got == piece.count {
            return Ok(Next::Done);
        }
        let behind = piece.from + got as usize;
        if told.eof || got == 0 {
            let request = &mut self.requests[piece.request];
            request.bytes = request.bytes.min(behind);
            return Ok(Next::Done);
        }
        Ok(Next::More(ReadIntoCall {
            from: behind,
            count: piece.count - got,
            ..piece
        }))
    }
}

impl Work for Fetch<'_> {
    type Item = ReadIntoCall;

    fn send(
        &mut self,
        piece: ReadIntoCall,
        _: usize,
        _: Option<&Arc<Region>>,
        put: &mut dyn FnMut(&dyn Encode) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let (file, count) = (self.file.handle.wire(), piece.count);
        let offset = self.requests[piece.request].offset + piece.from as u64;
        if self.plain {
            return put(&nfs3::ReadArgs {
                file,
                offset,
                count,
            });
        }
        put(&odafs::ReadArgs {
            file,
            offset,
            count,
            session: 0,
            want_references: false,
            chunk: None,
        })
    }

    fn asks(&self, piece: ReadIntoCall, _: bool) -> Asks {
        Asks::count(piece.count)
    }

    fn place(&self, piece: ReadIntoCall) -> Option<ReplyBuffer> {
        Some(ReplyBuffer {
            region: Arc::clone(self.region),
            offset: self.at(piece),
        })
    }

    fn take(
        &mut self,
        piece: ReadIntoCall,
        _: usize,
        _: Option<&Arc<Region>>,
        placed: Option<PlacedData<'_>>,
        result: &mut Reader<'_>,
    ) -> Result<Next<ReadIntoCall>, CallError> {
        let failed = if self.plain {
            match decode(&nfs::READ, nfs3::ReadResult::decode(result))? {
                Ok(ok) => return self.told(piece, &ReadResults::plain(&ok, placed)),
                Err(failed) => failed.status,
            }
        } else {
            match decode(&READ, odafs::ReadResult::decode(result))? {
                Ok(ok) => {
                    return self.told(
                        piece,
                        &ReadResults::odafs(&ok, Data::of(ok.data.0, placed))?,
                    );
                }
                Err(failed) => failed.status,
            }
        };
        self.failed_of = piece.request;
        Ok(Next::refused(failed, piece, &mut self.failed))
    }
}
