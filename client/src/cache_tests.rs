use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn key(page: u64) -> PageKey {
    PageKey { file: 1, page }
}

#[test]
fn a_page_of_another_generation_is_gone() {
    let mut cache = DataCache::new(1 << 20);
    cache.put(key(1), 5, b"five");
    assert_eq!(cache.get(key(1), 5), Cached::Hit(b"five"));
    assert_eq!(cache.get(key(1), 6), Cached::Miss);
    assert_eq!(cache.get(key(1), 5), Cached::Miss);
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn the_least_recently_used_goes_first_and_leaves_a_ghost() {
    let mut cache = DataCache::new(3 * (4096 + OVERHEAD));
    (0..3).for_each(|page| cache.put(key(page), 1, &[page as u8; 4096]));
    assert_eq!(cache.get(key(0), 1), Cached::Hit(&[0; 4096]));
    cache.put(key(3), 1, &[3; 4096]);
    assert_eq!(cache.get(key(1), 1), Cached::Ghost);
    assert_eq!(cache.get(key(1), 1), Cached::Miss, "a ghost is seen once");
    assert_eq!(cache.get(key(0), 1), Cached::Hit(&[0; 4096]));
    cache.set_limit(0);
    assert_eq!(cache.bytes(), 0);
    cache.put(key(0), 1, b"x");
    assert_eq!(cache.bytes(), 0, "nothing fits");
}

proptest! {
    /// Against a plain map: a hit is always the last thing put, and the limit holds.
    #[test]
    fn behaves_as_a_map_that_may_lose_pages(
        limit in prop_oneof![Just(1u64 << 20), 0u64..2000],
        ops in proptest::collection::vec((0u64..20, 0u64..3, 0usize..300, 0u8..8), 1..200),
    ) {
        let mut cache = DataCache::new(limit);
        let mut model: HashMap<u64, (u64, Vec<u8>)> = HashMap::new();
        for (step, (page, generation, length, what)) in ops.into_iter().enumerate() {
            match what {
                0 => {
                    cache.remove(key(page));
                    model.remove(&page);
                }
                1..4 => {
                    let data = vec![step as u8; length];
                    cache.put(key(page), generation, &data);
                    model.insert(page, (generation, data));
                }
                _ => {
                    let expected = model.get(&page).filter(|(kept, _)| *kept == generation).cloned();
                    if expected.is_none() {
                        model.remove(&page);
                    }
                    match cache.get(key(page), generation) {
                        Cached::Hit(data) => prop_assert_eq!(Some(data), expected.as_ref().map(|(_, d)| &d[..])),
                        Cached::Miss | Cached::Ghost => prop_assert!(limit < 2000 || expected.is_none()),
                    }
                }
            }
            prop_assert!(cache.bytes() <= limit);
        }
    }
}
