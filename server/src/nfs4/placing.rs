//! Which of a compound's data go to the caller's memory instead of into the reply. The n-th DDP-eligible result (READ, READLINK)
//! belongs to the n-th write chunk of the call (RFC 8267, section 6.4.1), whatever it holds: an empty chunk asks for its data in
//! the reply, and results for which there is no chunk are there too. Operations that fail have no such result. As they end the
//! compound, the chunks behind them stay unused.

use odafs_nic::calls::{ChunkSource, Placed, PlacedResult, PlacedResults, Placements};

use super::DATA_BYTES_MAX;

/// The DDP-eligible results of a compound under way.
#[derive(Debug, Default)]
pub(super) struct Placing {
    /// How many there are.
    results: u32,
    /// Those that do not go into the reply.
    placed: Option<Placed>,
}

/// What a compound had before an operation, to go back to it.
#[derive(Clone, Copy)]
pub(super) struct PlacingMark {
    results: u32,
    placed: Option<(usize, usize)>,
}

impl Placing {
    /// How many bytes of the next result can be placed. `None`: it goes into the reply. All together are no more bytes
    /// than the data of one READ. Where a result does not begin or end with a page, it pins a frame more.
    pub fn room(&self, placements: &Placements) -> Option<u32> {
        let room = placements.get(self.results as usize)?;
        let placed = self.placed.as_ref().map_or(0, Placed::bytes);
        let left = u64::from(DATA_BYTES_MAX).saturating_sub(placed);
        Some(room.min(left as u32))
    }

    /// The next result belongs at `at` of the reply. There is room for so many bytes.
    pub fn place(&mut self, at: usize, bytes: u32, pieces: Vec<ChunkSource>) {
        let (result, at) = (self.results, at as u32);
        self.results += 1;
        match &mut self.placed {
            None => {
                let results = PlacedResults::one(PlacedResult { result, at, bytes });
                self.placed = Some(Placed { results, pieces });
            }
            Some(placed) => {
                // There is a chunk for each, and room for as many results.
                let _ = placed.results.push(PlacedResult { result, at, bytes });
                placed.pieces.extend(pieces);
            }
        }
    }

    /// The next result went into the reply.
    pub fn inline(&mut self) {
        self.results += 1;
    }

    /// What the reply lacks so far.
    pub fn placed(&self) -> Option<&Placed> {
        self.placed.as_ref()
    }

    /// Bytes that the placed data and their padding would add to the reply.
    pub fn bytes(&self) -> usize {
        let results = self.placed.iter().flat_map(|placed| placed.results.iter());
        let bytes = results.map(|result| (result.bytes as usize).next_multiple_of(4));
        bytes.sum()
    }

    /// Number of frames that are pinned for it.
    pub fn pins(&self) -> usize {
        let pieces = self.placed.iter().flat_map(|placed| &placed.pieces);
        let pins = pieces.filter(|piece| matches!(piece, ChunkSource::Frame { .. }));
        pins.count()
    }

    /// What the reply lacks.
    pub fn into_placed(self) -> Option<Placed> {
        self.placed
    }

    pub fn mark(&self) -> PlacingMark {
        let lengths = |placed: &Placed| (placed.results.len(), placed.pieces.len());
        PlacingMark {
            results: self.results,
            placed: self.placed.as_ref().map(lengths),
        }
    }

    /// Forgets what an operation has done since `mark`.
    pub fn take_back(&mut self, mark: PlacingMark) {
        self.results = mark.results;
        match (&mut self.placed, mark.placed) {
            (Some(placed), Some((results, pieces))) => {
                placed.results.truncate(results);
                placed.pieces.truncate(pieces);
            }
            (placed, _) => *placed = None,
        }
    }
}
