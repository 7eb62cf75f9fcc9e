//! Queue pairs and memory, soft or real.
