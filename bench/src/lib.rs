//! Measurements: workloads, floors, peers, plots.
//!
//! Everything that `odafs demo` and `odafs bench` print comes from here: the
//! command line parses options and prints, this crate measures. A figure has
//! its counterpart in the same run and in turn with it, so that ratios hold on
//! a machine whose speed drifts.
#![deny(unsafe_code)]

pub mod breakdown;
pub mod busy;
pub mod clock;
pub mod cold;
pub mod convert;
pub mod cpu;
pub mod demo;
pub mod distribution;
pub mod fairness;
pub mod floors;
mod gate;
pub mod histogram;
pub mod latency;
pub mod load;
pub mod machine;
pub mod metadata;
pub mod mixed;
mod pages;
pub mod peers;
pub mod policy;
pub mod process;
pub mod progress;
pub mod random;
pub mod rates;
pub mod replay;
pub mod report;
pub mod scale;
pub mod scratch;
pub mod served;
pub mod simulate;
pub mod soak;
pub mod spread;
pub mod table;
pub mod tree;
mod usage;
mod zipf;
