//! Zipf's law: few places are wanted often, many seldom.

use crate::random::Random;

/// The skew.
const SKEW: f64 = 0.99;

/// The numbers below `places`, each once, in random order: where the ranks lie.
pub(crate) fn shuffled(places: u64, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..places as u32).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// Ranks from 0 up, the n-th with a chance of n to the power of -0.99.
pub(crate) struct Zipf {
    /// The chance of this rank or a lower one.
    up_to: Vec<f64>,
}

impl Zipf {
    /// Of so many ranks.
    pub fn new(ranks: usize) -> Self {
        let mut sum = 0.0;
        let up_to = (1..=ranks).map(|rank| {
            sum += (rank as f64).powf(-SKEW);
            sum
        });
        let up_to: Vec<f64> = up_to.collect();
        Self {
            up_to: up_to.iter().map(|chance| chance / sum).collect(),
        }
    }

    /// Draws one.
    pub fn rank(&self, random: &mut Random) -> usize {
        let drawn = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = self.up_to.partition_point(|&chance| chance <= drawn);
        rank.min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ranks_are_drawn_often_and_all_are_there() {
        let (law, mut random) = (Zipf::new(100), Random::new(1));
        let mut counts = [0u32; 100];
        (0..100_000).for_each(|_| counts[law.rank(&mut random)] += 1);
        assert!(counts.iter().all(|count| *count > 0));
        // A chance of one in 5.2 for the first, and half of that for the second.
        assert!((18_000..21_000).contains(&counts[0]), "{}", counts[0]);
        assert!((8_500..11_000).contains(&counts[1]), "{}", counts[1]);
        let mut order = shuffled(100, &mut random);
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<u32>>());
    }
}
