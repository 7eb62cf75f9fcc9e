#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| odafs_common::fuzz::run("nfs2_args", bytes));
