//! Copies between private memory and memory that others write at the same time.
//!
//! The shared side is only touched by assembly or by relaxed atomics. So a race gives unspecified bytes, which the
//! stamps then refuse, and not undefined behaviour.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Number of bytes to copy between two possible task switches under `--cfg shuttle`.
#[cfg(shuttle)]
const CHUNK: usize = 512;

/// Copies `into.len()` bytes out of shared memory.
///
/// # Safety
/// `from` must be valid for reads of `into.len()` bytes, by assembly and atomics, while others write there.
#[inline]
pub unsafe fn load(from: *const u8, into: &mut [u8]) {
    #[cfg(shuttle)]
    for (index, chunk) in into.chunks_mut(CHUNK).enumerate() {
        super::schedule_point();
        // SAFETY: the chunk lies within the range that the caller vouches for.
        unsafe { load_words(from.add(index * CHUNK), chunk) };
    }
    #[cfg(not(shuttle))]
    {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if into.len() >= 16 {
            // SAFETY: the caller vouches for `from`, `into` is a slice; both have at least 16 bytes.
            return unsafe { assembly::copy(into.as_mut_ptr(), from, into.len()) };
        }
        // SAFETY: the caller vouches for `from`.
        unsafe { load_words(from, into) };
    }
}

/// Copies all of `from` into shared memory.
///
/// # Safety
/// `into` must be valid for writes of `from.len()` bytes, by assembly and atomics, while others read and write there.
#[inline]
pub unsafe fn store(into: *mut u8, from: &[u8]) {
    #[cfg(shuttle)]
    for (index, chunk) in from.chunks(CHUNK).enumerate() {
        super::schedule_point();
        // SAFETY: the chunk lies within the range that the caller vouches for.
        unsafe { store_words(into.add(index * CHUNK), chunk) };
    }
    #[cfg(not(shuttle))]
    {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if from.len() >= 16 {
            // SAFETY: the caller vouches for `into`, `from` is a slice; both have at least 16 bytes.
            return unsafe { assembly::copy(into, from.as_ptr(), from.len()) };
        }
        // SAFETY: the caller vouches for `into`.
        unsafe { store_words(into, from) };
    }
}

/// Copies from shared memory to shared memory.
///
/// # Safety
/// `from` must be valid for reads and `into` for writes of `length` bytes, while others read and write there.
pub unsafe fn across(into: *mut u8, from: *const u8, length: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(shuttle)))]
    if length >= 16 {
        // SAFETY: the caller vouches for both; they have at least 16 bytes.
        return unsafe { assembly::copy(into, from, length) };
    }
    let mut chunk = [0; 512];
    for start in (0..length).step_by(chunk.len()) {
        let part = &mut chunk[..(length - start).min(512)];
        // SAFETY: the part lies within the range that the caller vouches for.
        unsafe { load(from.add(start), part) };
        // SAFETY: as above.
        unsafe { store(into.add(start), part) };
    }
}

/// A copy without anything before it, to be measured.
///
/// # Safety
/// `from` must be valid for reads and `into` for writes of `length` bytes, `length` >= 16, and they must not overlap.
#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle, loom))))]
pub unsafe fn plain(into: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { assembly::copy(into, from, length) }
}

/// Zeroes shared memory.
///
/// # Safety
/// `into` must be valid for writes of `length` bytes while others read and write there.
pub unsafe fn zero(into: *mut u8, length: usize) {
    let zeros = [0; 512];
    for start in (0..length).step_by(zeros.len()) {
        // SAFETY: the part lies within the range that the caller vouches for.
        unsafe { store(into.add(start), &zeros[..(length - start).min(512)]) };
    }
}

/// # Safety
/// As [`load`].
unsafe fn load_words(from: *const u8, into: &mut [u8]) {
    let head = from.align_offset(8).min(into.len());
    let (head_bytes, rest) = into.split_at_mut(head);
    for (index, byte) in head_bytes.iter_mut().enumerate() {
        // SAFETY: within the caller's range; bytes are always aligned.
        *byte = unsafe { AtomicU8::from_ptr(from.add(index).cast_mut()) }.load(Relaxed);
    }
    let words = rest.len() / 8;
    let (word_bytes, tail_bytes) = rest.split_at_mut(words * 8);
    for (index, word) in word_bytes.chunks_exact_mut(8).enumerate() {
        // SAFETY: within the caller's range; aligned because the head ends on a multiple of 8.
        let shared = unsafe { AtomicU64::from_ptr(from.add(head + index * 8).cast_mut().cast()) };
        word.copy_from_slice(&shared.load(Relaxed).to_ne_bytes());
    }
    for (index, byte) in tail_bytes.iter_mut().enumerate() {
        // SAFETY: within the caller's range; bytes are always aligned.
        *byte = unsafe { AtomicU8::from_ptr(from.add(head + words * 8 + index).cast_mut()) }
            .load(Relaxed);
    }
}

/// # Safety
/// As [`store`].
unsafe fn store_words(into: *mut u8, from: &[u8]) {
    let head = into.align_offset(8).min(from.len());
    let (head_bytes, rest) = from.split_at(head);
    for (index, byte) in head_bytes.iter().enumerate() {
        // SAFETY: within the caller's range; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(into.add(index)) }.store(*byte, Relaxed);
    }
    let (words, tail_bytes) = rest.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // SAFETY: within the caller's range; aligned because the head ends on a multiple of 8.
        let shared = unsafe { AtomicU64::from_ptr(into.add(head + index * 8).cast()) };
        shared.store(u64::from_ne_bytes(*word), Relaxed);
    }
    for (index, byte) in tail_bytes.iter().enumerate() {
        // SAFETY: within the caller's range; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(into.add(head + words.len() * 8 + index)) }
            .store(*byte, Relaxed);
    }
}

/// glibc's memcpy gains nothing over a plain AVX2 loop for a page (docs/FIGURES.md), and a plain
/// `ptr::copy` would be a data race.
#[cfg(all(target_arch = "x86_64", not(miri), not(shuttle)))]
mod assembly {
    use std::arch::asm;

    /// # Safety
    /// `into` must be valid for writes and `from` for reads of `length` bytes, `length` >= 16, and
    /// they must not overlap.
    #[inline]
    pub unsafe fn copy(into: *mut u8, from: *const u8, length: usize) {
        debug_assert!(length >= 16);
        if length >= 32 && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the caller's promise, and AVX2 is there.
            unsafe { copy_avx2(into, from, length) }
        } else {
            // SAFETY: the caller's promise; SSE2 is part of x86_64.
            unsafe { copy_sse2(into, from, length) }
        }
    }

    /// 128 bytes a turn, then 32, then the last 32 once more wherever they begin.
    ///
    /// # Safety
    /// As [`copy`], with `length` >= 32 and a processor that has AVX2.
    #[inline]
    unsafe fn copy_avx2(into: *mut u8, from: *const u8, length: usize) {
        // SAFETY: every access is at an offset of at most `length - 32`; flags and all registers of AVX2 are declared.
        unsafe {
            asm!(
                "cmp {end}, 96",
                "jb 3f",
                "2:",
                "vmovdqu ymm0, [{from} + {at}]",
                "vmovdqu ymm1, [{from} + {at} + 32]",
                "vmovdqu ymm2, [{from} + {at} + 64]",
                "vmovdqu ymm3, [{from} + {at} + 96]",
                "vmovdqu [{into} + {at}], ymm0",
                "vmovdqu [{into} + {at} + 32], ymm1",
                "vmovdqu [{into} + {at} + 64], ymm2",
                "vmovdqu [{into} + {at} + 96], ymm3",
                "add {at}, 128",
                "lea {next}, [{at} + 96]",
                "cmp {next}, {end}",
                "jbe 2b",
                "3:",
                "cmp {at}, {end}",
                "jae 4f",
                "vmovdqu ymm0, [{from} + {at}]",
                "vmovdqu [{into} + {at}], ymm0",
                "add {at}, 32",
                "jmp 3b",
                "4:",
                "vmovdqu ymm0, [{from} + {end}]",
                "vmovdqu [{into} + {end}], ymm0",
                "vzeroupper",
                from = in(reg) from,
                into = in(reg) into,
                end = in(reg) length - 32,
                at = inout(reg) 0usize => _,
                next = out(reg) _,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                // `vzeroupper` takes the upper halves of all sixteen.
                out("xmm4") _,
                out("xmm5") _,
                out("xmm6") _,
                out("xmm7") _,
                out("xmm8") _,
                out("xmm9") _,
                out("xmm10") _,
                out("xmm11") _,
                out("xmm12") _,
                out("xmm13") _,
                out("xmm14") _,
                out("xmm15") _,
                options(nostack),
            );
        }
    }

    /// 16 bytes a turn, then the last 16 once more wherever they begin.
    ///
    /// # Safety
    /// As [`copy`].
    #[inline]
    unsafe fn copy_sse2(into: *mut u8, from: *const u8, length: usize) {
        // SAFETY: every access is at an offset of at most `length - 16`; flags and the register are declared.
        unsafe {
            asm!(
                "2:",
                "cmp {at}, {end}",
                "jae 3f",
                "movdqu {a}, [{from} + {at}]",
                "movdqu [{into} + {at}], {a}",
                "add {at}, 16",
                "jmp 2b",
                "3:",
                "movdqu {a}, [{from} + {end}]",
                "movdqu [{into} + {end}], {a}",
                from = in(reg) from,
                into = in(reg) into,
                end = in(reg) length - 16,
                at = inout(reg) 0usize => _,
                a = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length up to some loops, at every alignment of both sides; nothing beyond is touched.
    #[test]
    fn copies_exactly() {
        let source: Vec<u8> = (0..700u32).map(|i| (i * 7 + 1) as u8).collect();
        for length in (0..300).chain([511, 512, 513, 640]) {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (8, 16), (31, 33)] {
                let wanted = &source[from..from + length];
                let mut loaded = vec![0xaa; 700];
                // SAFETY: `source` has `from + length` bytes.
                unsafe { load(source.as_ptr().add(from), &mut loaded[to..to + length]) };
                let mut stored = vec![0xaa; 700];
                // SAFETY: `stored` has `to + length` bytes.
                unsafe { store(stored.as_mut_ptr().add(to), wanted) };
                let mut moved = vec![0xaa; 700];
                // SAFETY: both have the bytes.
                unsafe {
                    across(
                        moved.as_mut_ptr().add(to),
                        source.as_ptr().add(from),
                        length,
                    )
                };
                for copy in [loaded, stored, moved] {
                    assert_eq!(&copy[to..to + length], wanted);
                    assert!(
                        copy[..to]
                            .iter()
                            .chain(&copy[to + length..])
                            .all(|byte| *byte == 0xaa)
                    );
                }
            }
        }
    }

    #[test]
    fn zeroes_exactly() {
        for length in [0, 1, 15, 16, 513, 1200] {
            let mut bytes = vec![0xaa; 1300];
            // SAFETY: `bytes` has `3 + length` bytes.
            unsafe { zero(bytes.as_mut_ptr().add(3), length) };
            assert!(bytes[3..3 + length].iter().all(|byte| *byte == 0));
            assert!(
                bytes[..3]
                    .iter()
                    .chain(&bytes[3 + length..])
                    .all(|byte| *byte == 0xaa)
            );
        }
    }
}
