//! Which of the client's files name which. The compiler allows every direction.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Files that hold tests alone.
const TESTS: [&str; 8] = [
    "tests", "_tests", "_contest", "contest", "speed", "growing", "judge", "shadow",
];

/// The sources by module path (`nfs::read`), without comments and without what is for tests.
fn sources() -> BTreeMap<String, String> {
    fn add(place: &Path, module: &str, all: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(place).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let name = name.expect("a name in UTF-8");
            if TESTS.iter().any(|ending| name.ends_with(ending)) || name == "lib" {
                continue;
            }
            let inner = match (module, name) {
                (_, "mod") => module.to_owned(),
                ("", _) => name.to_owned(),
                _ => format!("{module}::{name}"),
            };
            if path.is_dir() {
                add(&path, &inner, all);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source");
            let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            all.insert(inner, code.collect::<Vec<_>>().join("\n"));
        }
    }
    let mut all = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    add(&root, "", &mut all);
    all
}

/// The paths that a text names behind `crate::`, with groups (`crate::{a::b, c::{d, e}}`) taken apart.
fn named(text: &str) -> Vec<String> {
    fn tree(text: &str, prefix: &str, all: &mut Vec<String>) -> usize {
        let path = |c: char| c == ':' || c == '_' || c.is_ascii_alphanumeric();
        let end = text.find(|c| !path(c)).unwrap_or(text.len());
        let whole = format!("{prefix}{}", &text[..end]);
        if !text[end..].starts_with('{') {
            all.push(whole);
            return end;
        }
        let mut at = end + 1;
        while let Some(next) = text[at..].chars().next() {
            match next {
                '}' => return at + 1,
                c if path(c) => at += tree(&text[at..], &whole, all),
                c => at += c.len_utf8(),
            }
        }
        at
    }
    let mut all = Vec::new();
    for (at, found) in text.match_indices("crate::") {
        tree(&text[at + found.len()..], "", &mut all);
    }
    all
}

/// Which files each file names: the longest part of a path that is a file.
fn arrows(sources: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let file = |path: &str| {
        let mut path = path.trim_end_matches(':');
        loop {
            if let Some((name, _)) = sources.get_key_value(path) {
                return Some(name.as_str());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let to = |(from, text): (&'_ String, &String)| -> BTreeSet<&str> {
        named(text)
            .iter()
            .filter_map(|path| file(path))
            .filter(|to| *to != from.as_str())
            .collect()
    };
    sources
        .iter()
        .map(|(from, text)| (from.as_str(), to((from, text))))
        .collect()
}

/// All that can be reached from a file.
fn reached<'a>(from: &str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(file) = todo.pop() {
        for next in arrows.get(file).into_iter().flatten() {
            if found.insert(*next) {
                todo.push(*next);
            }
        }
    }
    found
}

/// The circles of more than two files.
fn circles(sources: &BTreeMap<String, String>) -> BTreeSet<BTreeSet<&str>> {
    let arrows = arrows(sources);
    let all: BTreeMap<_, _> = arrows
        .keys()
        .map(|file| (*file, reached(file, &arrows)))
        .collect();
    let circle = |file: &str| -> BTreeSet<&str> {
        let back = |other: &&&str| all[**other].contains(file);
        all[file].iter().filter(back).copied().collect()
    };
    let circles = all.keys().map(|file| circle(file));
    circles.filter(|circle| circle.len() > 2).collect()
}

#[test]
fn no_circle_has_more_than_two_files() {
    let sources = sources();
    assert!(
        sources.len() > 40,
        "only {} files were found",
        sources.len()
    );
    let found = circles(&sources);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nfs_version_3_is_known_in_one_room() {
    let knows = |(file, text): &(String, String)| {
        let room = file == "nfs" || file.starts_with("nfs::");
        !room && text.contains("nfs3")
    };
    let found: Vec<_> = sources().into_iter().filter(knows).collect();
    let found: Vec<_> = found.iter().map(|(file, _)| file).collect();
    assert!(found.is_empty(), "these name it too: {found:?}");
}

#[test]
fn what_is_forbidden_is_found() {
    let sources = |texts: [(&str, &str); 3]| -> BTreeMap<String, String> {
        let owned = |(file, text): (&str, &str)| (file.to_owned(), text.to_owned());
        texts.into_iter().map(owned).collect()
    };
    let round = sources([
        ("a", "use crate::b::B;"),
        ("b", "use crate::{x, c::{self, d::D}};"),
        ("c::d", "fn f() -> crate::a::A"),
    ]);
    assert_eq!(circles(&round), [["a", "b", "c::d"].into()].into());
    let pair = sources([
        ("a", "use crate::b::B;"),
        ("b", "use crate::a::A;"),
        ("c::d", "use crate::{a, b};"),
    ]);
    assert!(circles(&pair).is_empty());
}
