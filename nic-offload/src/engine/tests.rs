//! The engine over a queue pair whose room and completions the test decides, and over the simulator's.

mod calls;
mod direct;
mod lives;
#[cfg(not(any(shuttle, loom)))]
mod pressure;
mod rdma;
mod wire;
mod world;
