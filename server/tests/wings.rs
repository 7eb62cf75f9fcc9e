//! The wings of the server (the table in `src/lib.rs`): which may name which. The compiler allows every direction.

use std::fs;
use std::path::{Path, PathBuf};

/// A wing, the wings that it may name beside itself, and whether it knows the types of NFS version 3.
const WINGS: [(&str, &[&str], bool); 11] = [
    ("store", &[], false),
    ("vfs", &["store"], false),
    ("rpc", &["vfs"], false),
    ("portmap.rs", &["rpc"], false),
    ("nfs2", &["rpc", "vfs"], false),
    ("nfs3", &["rpc", "vfs"], true),
    ("nfs4", &["rpc", "vfs"], false),
    ("nfsacl3", &["rpc", "vfs"], true),
    ("nlm4", &["rpc", "vfs"], true),
    ("mount3", &["rpc", "vfs"], true),
    ("odafs", &["rpc", "vfs"], true),
];
/// What is above all of them.
const ABOVE: [&str; 2] = ["lib.rs", "process"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The Rust files of a file or directory.
fn files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let entries = fs::read_dir(place).expect("a directory");
    let mut found: Vec<PathBuf> = entries
        .flat_map(|entry| files(&entry.expect("an entry").path()))
        .filter(|file| file.extension().is_some_and(|name| name == "rs"))
        .collect();
    found.sort();
    found
}

/// What a text names of the crate: the word behind each `crate::`, empty where there is none (a group or a glob).
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("crate::").map(|(at, path)| {
        let rest = &text[at + path.len()..];
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// What of a text is forbidden to `wing`.
fn faults(text: &str, wing: &str, below: &[&str], knows_nfs3: bool) -> Vec<String> {
    let own = wing.trim_end_matches(".rs");
    let mut faults: Vec<String> = named(text)
        .filter(|name| *name != own && !below.contains(name))
        .map(|name| format!("crate::{name}"))
        .collect();
    if !knows_nfs3 && text.contains("wire::nfs3") {
        faults.push("wire::nfs3".to_owned());
    }
    faults
}

#[test]
fn every_wing_names_only_those_below_it() {
    let mut found = Vec::new();
    for (wing, below, knows_nfs3) in WINGS {
        let files = files(&sources().join(wing));
        assert!(!files.is_empty(), "{wing} has no files");
        for file in files {
            let text = fs::read_to_string(&file).expect("a source");
            for fault in faults(&text, wing, below, knows_nfs3) {
                found.push(format!("{} names {fault}", file.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_source_is_in_a_wing() {
    for entry in fs::read_dir(sources()).expect("a directory") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("a name in UTF-8");
        let known = ABOVE.contains(&name) || WINGS.iter().any(|(wing, ..)| *wing == name);
        assert!(known, "src/{name} is in no wing");
    }
}

#[test]
fn what_is_forbidden_is_found() {
    let store = |text| faults(text, "store", &[], false);
    assert_eq!(
        store("use crate::store::ObjectId;\nuse super::Store;"),
        [""; 0]
    );
    assert_eq!(store("use crate::vfs::read;"), ["crate::vfs"]);
    assert_eq!(store("use crate::{store, vfs};"), ["crate::"]);
    assert_eq!(store("use odafs_common::wire::nfs3::Time;"), ["wire::nfs3"]);
}
