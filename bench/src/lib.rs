//! Measurements: workloads, floors, peers, plots.
