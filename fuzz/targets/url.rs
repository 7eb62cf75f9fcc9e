#![no_main]

// What is taken is written so that it reads back; `client/src/url_tests.rs` replays the corpus.
libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(url) = text.parse::<odafs::Url>() {
        assert_eq!(url.to_string().parse(), Ok(url));
    }
});
