//! Randomness: the kernel's, or under `--cfg shuttle` that of the schedule, so that a seed repeats a run.

/// Fills `bytes` with random bytes fit for keys.
///
/// # Panics
/// If the kernel has no randomness, because nothing may continue without it.
#[cfg(not(shuttle))]
pub fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel gives no random bytes");
}

/// Fills `bytes` from the schedule's seed.
#[cfg(shuttle)]
pub fn fill(bytes: &mut [u8]) {
    use shuttle::rand::RngCore;
    shuttle::rand::thread_rng().fill_bytes(bytes);
}

/// A random `u64`.
pub fn word() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
