//! The header and the list of versioned names are those of the source.

use std::{collections::BTreeSet, fs, path::Path};

fn here(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// `ODAFS_HEADER=write cargo test -p odafs-c --test header` writes it.
#[test]
fn the_header_is_what_cbindgen_makes() {
    let config = cbindgen::Config::from_file(here("cbindgen.toml")).unwrap();
    let made = cbindgen::generate_with_config(env!("CARGO_MANIFEST_DIR"), config).unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text)
        .unwrap()
        .replace("# Safety", "Safety:");
    let path = here("include/odafs.h");
    if std::env::var("ODAFS_HEADER").as_deref() == Ok("write") {
        fs::write(&path, &text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "include/odafs.h is another: ODAFS_HEADER=write cargo test -p odafs-c --test header"
    );
}

#[test]
fn each_function_has_a_version_and_a_place_in_the_manual() {
    let words = |text: &str| -> BTreeSet<String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_name(c));
        words
            .filter(|word| word.starts_with("odafs_"))
            .map(str::to_owned)
            .collect()
    };
    let versioned = words(&fs::read_to_string(here("odafs.map")).unwrap());
    let header = fs::read_to_string(here("include/odafs.h")).unwrap();
    let functions: BTreeSet<_> = header
        .split('(')
        .filter_map(|before| {
            before
                .split(|c: char| c.is_whitespace() || c == '*')
                .next_back()
        })
        .filter(|word| word.starts_with("odafs_"))
        .map(str::to_owned)
        .collect();
    // The comments name functions too, none that there is not.
    assert_eq!(functions, versioned);
    let manual = words(&fs::read_to_string(here("man/odafs.3")).unwrap());
    let missing: Vec<_> = versioned.difference(&manual).collect();
    assert!(missing.is_empty(), "man/odafs.3 leaves out {missing:?}");
}
