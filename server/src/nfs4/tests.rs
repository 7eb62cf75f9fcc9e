//! Compounds against a store in memory.
