//! Positions in a directory, which have 63 bits in the stores and 32 on the wire.
//!
//! | cookies of a store | cookies of a client |
//! |---|---|
//! | below 2^29 | the same |
//! | the last 2^29 below 2^63 | the last 2^29 below 2^31 |
//! | those between | 2^29 + the cookie / 2^33: one for a whole *group* |
//!
//! The server remembers no cookies. Where a store's cookies are small numbers (most file systems, and our own stores), each
//! stays as it is. Where they are hashes (ext4, in their upper half), names whose hashes begin alike are in one group. A reply
//! never ends within a group, and the next one skips the rest of it. So each name is listed once. Linux' server takes the same
//! part of the hash for this version. A cookie has no bit 31, because some clients take it for a number with a sign.

/// The number of cookies at either end that stay as they are.
const EXACT: u64 = 1 << 29;
/// Where those at the upper end begin.
const UPPER: u64 = (1 << 63) - EXACT;
/// Bits of a cookie that its group leaves out.
const GROUP_SHIFT: u32 = 33;
/// What stands for the first group, and for the first cookie at the upper end.
const GROUPS: u32 = EXACT as u32;
const UPPERS: u32 = GROUPS + (1 << (63 - GROUP_SHIFT));

/// The cookie of a client for one of a store: greater for a greater one, or the same.
pub(super) fn short(cookie: u64) -> u32 {
    match cookie.min(i64::MAX as u64) {
        lower if lower < EXACT => lower as u32,
        upper if upper >= UPPER => UPPERS + (upper - UPPER) as u32,
        between => GROUPS + (between >> GROUP_SHIFT) as u32,
    }
}

/// The store's cookie from which to go on for a client's cookie: the same, or the one before its group. `None` if the server
/// gave no such cookie.
pub(super) fn start(short: u32) -> Option<u64> {
    match short {
        lower if lower < GROUPS => Some(lower.into()),
        group if group < UPPERS => Some(u64::from(group - GROUPS) << GROUP_SHIFT),
        upper if upper < 1 << 31 => Some(UPPER + u64::from(upper - UPPERS)),
        _ => None,
    }
}

/// Whether it stands for a group.
pub(super) fn is_group(short: u32) -> bool {
    (GROUPS..UPPERS).contains(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_end_stays_what_it_is() {
        for cookie in [
            0,
            1,
            2,
            EXACT - 1,
            UPPER,
            i64::MAX as u64 - 8,
            i64::MAX as u64,
        ] {
            let short = short(cookie);
            assert!(!is_group(short));
            assert_eq!(start(short), Some(cookie));
        }
        assert_eq!(short(i64::MAX as u64), i32::MAX as u32);
        for other in [1 << 31, u32::MAX] {
            assert_eq!(start(other), None);
        }
    }

    #[test]
    fn a_group_begins_before_its_cookies_and_behind_those_before_it() {
        let cookies = [EXACT, EXACT + 1, 1 << 33, (1 << 33) + 1, 1 << 62, UPPER - 1];
        for cookie in cookies {
            let code = short(cookie);
            assert!(is_group(code));
            let start = start(code).unwrap();
            assert!(start <= cookie);
            assert!(start == 0 || short(start - 1) < code);
        }
        assert_eq!(short(EXACT), short((1 << 33) - 1));
        assert_ne!(short(1 << 33), short((1 << 33) - 1));
    }

    proptest::proptest! {
        #[test]
        fn the_order_stays(one in 0..=i64::MAX as u64, other in 0..=i64::MAX as u64) {
            let (less, more) = (one.min(other), one.max(other));
            assert!(short(less) <= short(more));
            assert!(short(more) < 1 << 31);
        }
    }
}
