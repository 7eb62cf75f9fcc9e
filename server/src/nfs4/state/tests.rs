//! The state machine by itself.
