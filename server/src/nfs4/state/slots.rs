//! How many slots sessions should use (RFC 8881, sections 2.10.6.1 and 20.8). A session begins with what its client asked for.
//! It gets more while it uses all that it has, and has to do with fewer when they lie idle, or when little memory is left.

use odafs_common::wire::nfs4::SessionId;
use odafs_fabric::clock::Nanos;

use super::State;
use super::sessions::{Session, SlotState, cached_bytes};

/// The least number of slots with which sessions are asked to do.
const SLOTS_MIN: u32 = 8;
/// The shortest time between two requests to use fewer slots.
const INTERVAL: Nanos = Nanos::from_secs(10);
/// A session that has grown is to use fewer slots if it has used less than half of them for this long.
const IDLE: Nanos = Nanos::from_secs(60);
/// Bytes that a slot takes besides the reply that it keeps. Slots that a session got later count for good: its client may use
/// them again at any time.
const SLOT_BYTES: usize = size_of::<SlotState>();

impl Session {
    /// How many of the first slots its client should use.
    fn wanted(&self) -> u32 {
        self.target + 1
    }

    /// Bytes of replies that its slots may keep, and of the slots that it got later.
    pub(super) fn cached_bytes(&self) -> usize {
        let later = self.slots.len() - self.fore.max_requests as usize;
        cached_bytes(&self.fore, self.keeping) + later * SLOT_BYTES
    }

    /// Its client should use so many slots, which are there and keep replies.
    fn grow(&mut self, slots: u32) {
        let there = self.slots.len().max(slots as usize);
        self.slots.resize_with(there, SlotState::default);
        self.keeping = self.keeping.max(slots);
        self.target = slots - 1;
    }

    /// What [`Session::cached_bytes`] says after it has grown so.
    fn grown_bytes(&self, slots: u32) -> usize {
        let later = self.slots.len().max(slots as usize) - self.fore.max_requests as usize;
        cached_bytes(&self.fore, self.keeping.max(slots)) + later * SLOT_BYTES
    }

    /// The client knows how many slots it should use, and uses no more. The others need not keep replies, unless one is busy.
    pub(super) fn give_up_slots(&mut self) {
        let (keeping, rest) = (self.wanted(), self.wanted() as usize);
        if keeping >= self.keeping || self.slots[rest..].iter().any(|slot| slot.busy) {
            return;
        }
        self.keeping = keeping;
        for slot in &mut self.slots[rest..] {
            slot.kept = false;
            slot.reply = Vec::new();
        }
    }
}

impl State {
    /// Notes that a session has used a slot. If its client knows that this is the last that it should use, it may have use for
    /// more: clients take the lowest that is free. Then it gets a quarter more, as long as half of what slots may keep is left
    /// for others.
    pub(super) fn slot_used(&mut self, id: &SessionId, slot: u32, knows: bool) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.used = session.used.max(slot);
        let wanted = session.wanted();
        let is_last = knows && slot == session.target;
        if !is_last || wanted >= self.limits.slots_grown || self.asked_for_slots.is_some() {
            return;
        }
        let slots = (wanted + (wanted / 4).max(1)).min(self.limits.slots_grown);
        let more = session.grown_bytes(slots) - session.cached_bytes();
        if self.cached_bytes + more > self.limits.all_cached_bytes / 2 {
            return;
        }
        session.grow(slots);
        self.cached_bytes += more;
        self.grown.insert(*id);
    }

    /// Asks clients to use half of their slots, because little is left of what slots may keep (RFC 8881, section 20.8). SEQUENCE
    /// says the same. A client that does not follow loses nothing.
    pub(super) fn ask_for_slots(&mut self, now: Nanos) {
        if self
            .asked_for_slots
            .is_some_and(|at| now.since(at) < INTERVAL)
        {
            return;
        }
        self.asked_for_slots = Some(now);
        for session in self.sessions.values_mut() {
            let slots = session.target.div_ceil(2);
            if slots >= SLOTS_MIN {
                session.target = slots - 1;
                if let Some(back) = &mut session.back {
                    back.ask_for_slots(session.target);
                    self.calling.insert(session.client);
                }
            }
        }
    }

    /// To be called every second or so. If there is room again, clients may use all of the slots with which they began. Sessions
    /// that have grown and do not need it get smaller. SEQUENCE tells their clients.
    pub(super) fn tick_slots(&mut self, now: Nanos) {
        if self.asked_for_slots.is_some() && self.cached_bytes <= self.limits.all_cached_bytes / 2 {
            self.asked_for_slots = None;
            for session in self.sessions.values_mut() {
                session.target = session.target.max(session.fore.max_requests - 1);
            }
        }
        if now.since(self.looked_for_idle) < IDLE {
            return;
        }
        self.looked_for_idle = now;
        self.grown.retain(|id| {
            let Some(session) = self.sessions.get_mut(id) else {
                return false;
            };
            let (used, wanted) = (session.used + 1, session.wanted());
            session.used = 0;
            if used < wanted / 2 {
                session.target = (wanted / 2).max(session.fore.max_requests).min(wanted) - 1;
            }
            session.wanted() > session.fore.max_requests
        });
    }
}
