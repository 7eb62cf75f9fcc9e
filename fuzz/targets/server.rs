#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    odafs_tests::server_model::run(bytes);
});
