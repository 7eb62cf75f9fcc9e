//! A line of the log that must not fill it.

use odafs_fabric::clock::Nanos;

/// The log gets at most one line in this time.
const LOGGED: Nanos = Nanos::from_secs(1);

/// When a line was logged, and how many were not since.
#[derive(Debug, Default)]
pub struct Seldom {
    logged: Option<Nanos>,
    untold: u64,
}

impl Seldom {
    /// If this line is to be logged, how many before it were not.
    pub fn untold(&mut self, now: Nanos) -> Option<u64> {
        if self.logged.is_some_and(|last| now.since(last) < LOGGED) {
            self.untold += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_one_a_second_and_says_how_many_more_there_were() {
        let mut seldom = Seldom::default();
        let at = |millis| Nanos::from_secs(9) + Nanos::from_millis(millis);
        assert_eq!(seldom.untold(at(0)), Some(0));
        assert_eq!(seldom.untold(at(1)), None);
        assert_eq!(seldom.untold(at(999)), None);
        assert_eq!(seldom.untold(at(1000)), Some(2));
    }
}
