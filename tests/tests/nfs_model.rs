//! See [`odafs_tests::nfs_model`].

use odafs_tests::nfs_model::run;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_in_any_order(choices in vec(any::<u8>(), 0..1000)) {
        run(&choices);
    }
}
