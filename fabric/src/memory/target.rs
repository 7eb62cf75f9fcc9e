use super::Region;
use super::mapping::Mapping;
use crate::fabric::{PostError, Sink};
use crate::sync::Arc;

/// Memory to copy from or to, for a steering tag or the sink of an RDMA Read.
#[derive(Clone)]
pub(crate) enum Target {
    /// Memory of a region.
    Region(Arc<Region>),
    /// Memory of an arena.
    Mapping(Arc<Mapping>),
}

impl Target {
    /// The memory.
    pub fn memory(&self) -> &Mapping {
        match self {
            Target::Region(region) => region.memory(),
            Target::Mapping(mapping) => mapping,
        }
    }

    /// The memory of a sink, its first byte and its length.
    ///
    /// # Errors
    /// The sink exceeds its region.
    pub fn of_sink(sink: Sink<'_>) -> Result<(Target, usize, usize), PostError> {
        match sink {
            Sink::Region(into) if into.region.memory().holds(into.offset, into.length) => {
                let target = Target::Region(Arc::clone(into.region));
                Ok((target, into.offset, into.length))
            }
            Sink::Region(_) => Err(PostError::BadRange),
            Sink::Frame {
                arena,
                frame,
                offset,
                length,
            } => {
                let at = arena.place(frame, offset, length as usize);
                let target = Target::Mapping(Arc::clone(arena.data()));
                Ok((target, at, length as usize))
            }
        }
    }
}
