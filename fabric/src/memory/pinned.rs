//! A pin as a value: the frame keeps its content until the pin is dropped.

use std::fmt;

use super::FrameNumber;
use super::protocol::State;

/// The states of an arena's frames, by number. Pins refer to them without a reference count, which would be one word
/// that every read of every engine writes.
pub(super) struct States(&'static [State]);

impl States {
    pub(super) fn new(frames: u32) -> States {
        let states: Box<[State]> = (0..frames).map(|_| State::new()).collect();
        States(Box::leak(states))
    }

    pub(super) fn get(&self, frame: FrameNumber) -> &'static State {
        &self.0[frame.0 as usize]
    }

    pub(super) fn count(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Drop for States {
    /// If anybody still holds a pin and uses its state, the states are never freed.
    fn drop(&mut self) {
        if !self.0.iter().any(State::holds_pin) {
            let states = std::ptr::from_ref(self.0).cast_mut();
            // SAFETY: they come from `Box::leak`; besides us only pins refer to them, each of which counts until it is
            // gone, and there is none.
            drop(unsafe { Box::from_raw(states) });
        }
    }
}

/// A frame whose content does not change until this is dropped.
#[must_use = "the frame is pinned only as long as this is kept"]
pub struct Pinned {
    state: &'static State,
    frame: FrameNumber,
}

impl Pinned {
    /// For a caller that has just counted the pin.
    pub(super) fn counted(state: &'static State, frame: FrameNumber) -> Pinned {
        Pinned { state, frame }
    }

    /// The frame.
    pub fn frame(&self) -> FrameNumber {
        self.frame
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.state.unpin();
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&self.frame.0).finish()
    }
}
