//! Requester against responder over memory that is only a model, and each of them against what no peer should send.

mod credits;
mod dissector;
mod flight;
mod golden;
mod hostile;

mod model;
mod properties;
mod read_read;
mod reverse;
