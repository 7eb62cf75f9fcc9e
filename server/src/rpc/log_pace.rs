//! Lines of the log that peers can cause at will.

use odafs_fabric::clock::Nanos;

/// The log gets at most one line in this time.
const PAUSE: Nanos = Nanos::from_secs(1);

/// Lets one line a second through, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct LogPace {
    last: Option<Nanos>,
    untold: u64,
}

impl LogPace {
    /// If there is to be a line now, how many there were not before it.
    pub fn untold(&mut self, now: Nanos) -> Option<u64> {
        if self.last.is_some_and(|last| now.since(last) < PAUSE) {
            self.untold += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_one_a_second_and_says_how_many_more_there_were() {
        let mut pace = LogPace::default();
        let at = |millis| Nanos::from_secs(9) + Nanos::from_millis(millis);
        assert_eq!(pace.untold(at(0)), Some(0));
        assert_eq!(pace.untold(at(1)), None);
        assert_eq!(pace.untold(at(999)), None);
        assert_eq!(pace.untold(at(1000)), Some(2));
    }
}
