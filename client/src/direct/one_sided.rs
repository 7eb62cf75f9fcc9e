//! One-sided reads by RDMA Reads: what each posts, and when it ends.

use super::{
    Alone, DEPTH, DirectPair, FinishedRead, LINE, Landing, NotPosted, READS, SinkSlot, UNIT,
};
use crate::transport::Broken;
use odafs_common::{
    direct::{self, ReadOrder},
    exception::Exception,
    page::Layout,
    reference::Reference,
};
use odafs_fabric::{
    Local, MARKS_BYTES, PostError, Posted, Remote, Sink, SteeringTag, clock::Nanos,
};

/// The most unwanted bytes to read for the sake of the stamp behind them: if the stamp alone would take a round trip,
/// and if it would take an RDMA Read.
const SPARES_ROUND_TRIP: u32 = 16 << 10;
const SPARES_READ: u32 = 1 << 10;

impl DirectPair {
    /// Reads the page from `within` on into `into`, one-sided, with nothing else in flight.
    pub fn read_one_sided_alone(
        &mut self,
        reference: &Reference,
        within: u32,
        into: &mut [u8],
        deadline: impl FnOnce() -> Nanos,
    ) -> Result<Alone, Broken> {
        match self.post_one_sided(reference, within, into.len() as u32, 0) {
            Ok(()) => {}
            Err(NotPosted::Full) => return Ok(Alone::Full),
            Err(NotPosted::Broken(broken)) => return Err(broken),
        }
        self.flush();
        let Some(answer) = self.next(deadline())? else {
            return Ok(Alone::TimedOut);
        };
        match answer.result {
            Ok(_) if self.take(&answer, into) => Ok(Alone::Read),
            Ok(_) => Ok(Alone::Refused(Exception::OutOfBounds)),
            Err(exception) => Ok(Alone::Refused(exception)),
        }
    }

    /// Posts RDMA Reads of `length` bytes of the page, from `within` on, and of the page's stamp, so that the stamp is
    /// read after the data. If the stamp lies behind the page and both ends say that they see memory from front to
    /// back, that is one RDMA Read. Otherwise there is a second one: at once if they see memory in the order of the
    /// posts, or else when the data is there.
    pub fn post_one_sided(
        &mut self,
        reference: &Reference,
        within: u32,
        length: u32,
        part: usize,
    ) -> Result<(), NotPosted> {
        let Some(exposed) = self.exposed else {
            return Err(NotPosted::Broken(Broken::new(
                "the connection was granted no RDMA Reads",
            )));
        };
        let order = exposed.order.min(self.pair.read_order());
        let together = self.read_with_stamp_from(order, within, length);
        let reads = if together.is_some() { 1 } else { READS };
        if self.reading + reads > self.pair.reads_max() {
            return Err(NotPosted::Full);
        }
        let place = |memory: direct::RemoteAddress, offset: u64| Remote {
            tag: SteeringTag(memory.tag),
            offset: memory.address.wrapping_add(offset),
        };
        let layout = self.layout;
        let data = |within: u32| {
            let address = reference.address.wrapping_add(within.into());
            place(exposed.arena, layout.place(address))
        };
        let page = layout.page().bytes();
        let slot = self.next_slot()?;
        let first = slot * self.slot_bytes;
        let (from, into, bytes, stamp) = match together {
            Some(start) => {
                let bytes = page - start as usize + Layout::STAMP;
                (data(start), first + start as usize, bytes, None)
            }
            None => {
                let stamp = place(exposed.stamps, layout.stamp(reference.address));
                (data(within), first, length as usize, Some(stamp))
            }
        };
        let posted = match self.post_read(self.sequence, into, bytes, from) {
            Ok(posted) => posted,
            Err(PostError::Full) => return Err(NotPosted::Full),
            Err(error) => return Err(NotPosted::Broken(Broken::new(error))),
        };
        self.slots[slot] = SinkSlot::Reading {
            id: self.sequence,
            part: Some(part),
            left: u8::from(posted == Posted::Pending),
            stamp,
            at: together.map_or(first, |_| first + within as usize),
            stamp_at: first + page + stamp.map_or(0, |_| LINE + MARKS_BYTES),
            length,
            epoch: reference.epoch,
        };
        self.waiting += 1;
        match (stamp, posted) {
            (None, Posted::Done) => self.over_already.push(slot),
            (None, Posted::Pending) => {}
            (Some(_), posted) if posted == Posted::Done || order == ReadOrder::Ordered => {
                self.due.push_back(slot);
                self.post_stamps().map_err(NotPosted::Broken)?;
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// Where in a page an RDMA Read begins that also brings the stamp, if one can do that and it pays.
    fn read_with_stamp_from(&self, order: ReadOrder, within: u32, length: u32) -> Option<u32> {
        let unwanted_max = match order {
            ReadOrder::Fence => return None,
            ReadOrder::Rising => SPARES_ROUND_TRIP,
            ReadOrder::Ordered => SPARES_READ,
        };
        let start = within / UNIT * UNIT;
        let bytes = (self.layout.page().bytes() as u32).checked_sub(start)?;
        let pays = bytes.checked_sub(length)? <= unwanted_max;
        (self.layout.is_beside() && pays).then_some(start)
    }

    /// Posts the RDMA Reads of stamps, as many as there is room for.
    pub(super) fn post_stamps(&mut self) -> Result<(), Broken> {
        while let Some(&slot) = self.due.front() {
            let SinkSlot::Reading {
                id,
                stamp: Some(from),
                stamp_at,
                ..
            } = self.slots[slot]
            else {
                self.due.pop_front();
                continue;
            };
            let posted = match self.post_read(id, stamp_at, Layout::STAMP, from) {
                Ok(posted) => posted,
                Err(PostError::Full) => return Ok(()),
                Err(error) => return Err(Broken::new(error)),
            };
            self.due.pop_front();
            self.unflushed = true;
            if let SinkSlot::Reading { left, stamp, .. } = &mut self.slots[slot] {
                *stamp = None;
                *left += u8::from(posted == Posted::Pending);
                if *left == 0 {
                    self.over_already.push(slot);
                }
            }
        }
        Ok(())
    }

    fn post_read(
        &mut self,
        id: u64,
        offset: usize,
        length: usize,
        from: Remote,
    ) -> Result<Posted, PostError> {
        let into = Sink::Region(Local {
            region: &self.sink,
            offset,
            length,
        });
        let posted = self.pair.post_read(id, into, from)?;
        self.reading += u32::from(posted == Posted::Pending);
        Ok(posted)
    }

    /// One of the RDMA Reads with this id has ended.
    pub(super) fn read_done(&mut self, id: u64) -> Option<FinishedRead> {
        let slot = id as usize % DEPTH;
        let SinkSlot::Reading {
            id: waiting,
            part,
            left,
            stamp,
            ..
        } = &mut self.slots[slot]
        else {
            return None;
        };
        if *waiting != id {
            return None;
        }
        *left = left.saturating_sub(1);
        match (*left, part, stamp) {
            (0, Some(_), Some(_)) => {
                // The stamp may be due already, if there was no room for it before.
                if !self.due.contains(&slot) {
                    self.due.push_back(slot);
                }
                None
            }
            (0, ..) => self.read_over(slot),
            _ => None,
        }
    }

    /// Data and stamp are there. Checks whether the stamp says that the data is the page's.
    pub(super) fn read_over(&mut self, slot: usize) -> Option<FinishedRead> {
        let SinkSlot::Reading {
            part,
            at,
            stamp_at,
            length,
            epoch,
            ..
        } = self.slots[slot]
        else {
            return None;
        };
        self.slots[slot] = SinkSlot::Free;
        if !self.due.is_empty() {
            // The read belongs to nobody any more.
            self.due.retain(|due| *due != slot);
        }
        let part = part?;
        self.waiting -= 1;
        let mut stamp = [0; Layout::STAMP];
        let loaded = self.sink.load(stamp_at, &mut stamp);
        let holds = loaded && u64::from_le_bytes(stamp) <= epoch.0;
        let result = if holds {
            Ok(length)
        } else {
            Err(Exception::Stale)
        };
        Some(FinishedRead {
            part,
            result,
            place: Landing::Sink(at),
        })
    }
}
