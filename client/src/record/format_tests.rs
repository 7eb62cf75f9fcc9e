use super::*;
use proptest::prelude::*;
use std::io;

fn whole(lines: &str) -> Vec<u8> {
    format!("{HEADER}\nname 0 4096 a/b%20c\nname 1 absent d\n{lines}").into_bytes()
}

fn refused(lines: &str) -> String {
    Trace::parse(&whole(lines)).unwrap_err().to_string()
}

#[test]
fn a_trace_is_read() {
    let lines = "# by hand\n\n10 5 0 open 0\n20 - 0 read 0 0 4096 4096\n20 - 0 read+ 0 8192 64 0\n30 7 3 rename 0 1 failed\n";
    let trace = Trace::parse(&whole(lines)).unwrap();
    assert_eq!(trace.names[0].path, b"a/b c");
    assert_eq!(trace.names[1].initial, Initial::Absent);
    assert_eq!(trace.entries.len(), 4);
    assert_eq!(trace.entries[3].thread, 3);
    assert!(trace.entries[3].failed);
    assert_eq!(
        trace.entries[3].operation,
        Operation::Rename { from: 0, to: 1 }
    );
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (lines, what) in [
        ("10 5 0 open 2", "line 4: name 2 was not told before"),
        ("10 5 0 open", "line 4: NAME is missing"),
        ("10 5 256 open 0", "THREAD is \"256\""),
        ("+1 5 0 open 0", "TIME is \"+1\""),
        ("99999999999999999999 5 0 open 0", "TIME"),
        ("10 5 0 openn 0", "\"openn\" is no operation"),
        ("10 5 0 open 0 failed failed", "\"failed\" is too much"),
        ("\n10 5 0 read 0 0 64 65", "line 5: GOT is \"65\""),
        ("10 5 0 read 0 0 1073741825 0", "LENGTH"),
        ("10 5 0 read 0 9223372036854775807 1 0", "OFFSET"),
        ("10 5 0 read+ 0 0 64 64", "read+ does not follow"),
        ("name 3 0 e", "name 3 where name 2 is due"),
        ("name 2 0 ../e", "PATH"),
        ("name 2 0 /e", "PATH"),
        ("name 2 0 e//f", "PATH"),
        ("name 2 0 e%00", "PATH"),
        ("name 2 0 e%2", "without two digits"),
        ("name 2 0 %2e%2e/e", "PATH"),
    ] {
        let told = refused(lines);
        assert!(told.contains(what), "{lines}: {told}");
    }
    assert!(refused(&"x".repeat(20_000)).contains("longer than"));
    assert!(Trace::parse(b"").is_err());
    assert!(Trace::parse(b"odafs-trace 2\n").is_err());
    assert!(Trace::parse(&[&whole("")[..], b"\xff"].concat()).is_err());
}

#[test]
fn a_trace_is_read_line_by_line_as_from_its_text() {
    for text in [
        whole("10 5 0 open 0\n# end"),
        whole("10 5 0 open 9"),
        whole(&"x".repeat(20_000)),
        b"odafs-trace 1".to_vec(),
        Vec::new(),
    ] {
        // A buffer that is shorter than any line.
        let read = Trace::read(io::BufReader::with_capacity(5, &text[..]));
        let told = read.map_err(|error| error.into_inner().unwrap().to_string());
        assert_eq!(told, Trace::parse(&text).map_err(|error| error.to_string()));
    }
}

#[test]
fn what_does_not_fit_is_what_is_refused() {
    let read = |offset, length| Operation::Read {
        file: 0,
        offset,
        length,
        got: length,
        together: false,
    };
    for (operation, fits) in [
        (read(OFFSET_MAX, LENGTH_MAX), true),
        (read(OFFSET_MAX + 1, 0), false),
        (read(0, LENGTH_MAX + 1), false),
        (
            Operation::Truncate {
                file: 0,
                length: BYTES_MAX,
            },
            true,
        ),
        (
            Operation::Truncate {
                file: 0,
                length: BYTES_MAX + 1,
            },
            false,
        ),
    ] {
        let entry = Entry {
            begin_ns: TIME_MAX,
            took_ns: Some(TIME_MAX),
            thread: THREADS_MAX - 1,
            operation,
            failed: false,
        };
        assert_eq!(entry.fits(), fits);
        let text = whole(&entry.to_string());
        assert_eq!(Trace::parse(&text).is_ok(), fits, "{entry}");
        for too_much in [
            Entry {
                thread: THREADS_MAX,
                ..entry
            },
            Entry {
                begin_ns: TIME_MAX + 1,
                ..entry
            },
            Entry {
                took_ns: Some(TIME_MAX + 1),
                ..entry
            },
        ] {
            assert!(!too_much.fits());
            assert!(Trace::parse(&whole(&too_much.to_string())).is_err());
        }
    }
}

#[test]
fn paths_are_brought_to_one_form() {
    let path = |text: &str| path_of(text.as_bytes()).map(|path| String::from_utf8(path).unwrap());
    assert_eq!(path("/a//b/./c"), Some("a/b/c".into()));
    assert_eq!(path("a/../../b"), Some("b".into()));
    assert_eq!(path("/"), Some(".".into()));
    assert_eq!(path("a\0"), None);
    assert_eq!(path(&"a/".repeat(3000)), None);
}

fn operation(names: u32) -> impl Strategy<Value = Operation> {
    let range = (0..1u64 << 40, 0..=LENGTH_MAX);
    (0..14, 0..names, 0..names, range).prop_map(|(kind, file, to, (offset, length))| match kind {
        0 => Operation::Open { file },
        1 => Operation::Create { file },
        2 => Operation::Read {
            file,
            offset,
            length,
            got: length / 2,
            together: false,
        },
        3 => Operation::Write {
            file,
            offset,
            length,
        },
        4 => Operation::Sync { file },
        5 => Operation::Truncate {
            file,
            length: offset,
        },
        6 => Operation::Stat { file },
        7 => Operation::Attributes { file },
        8 => Operation::List { file },
        9 => Operation::Mkdir { file },
        10 => Operation::Rmdir { file },
        11 => Operation::Remove { file },
        12 => Operation::Rename { from: file, to },
        _ => Operation::Link { from: file, to },
    })
}

fn name() -> impl Strategy<Value = Name> {
    let part = prop::collection::vec(1u8.., 1..9);
    let path = prop::collection::vec(part, 1..4);
    (path, 0..3, any::<u32>()).prop_map(|(path, kind, bytes)| Name {
        initial: match kind {
            0 => Initial::Absent,
            1 => Initial::Directory,
            _ => Initial::Bytes(bytes.into()),
        },
        path: path_of(&path.join(&b'/')).unwrap(),
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        names in prop::collection::vec(name(), 3),
        operations in prop::collection::vec((operation(3), any::<u32>(), any::<Option<u32>>(), 0..THREADS_MAX, any::<bool>()), 0..20),
    ) {
        let entries = operations.into_iter().map(|(operation, begin, took, thread, failed)| Entry {
            begin_ns: begin.into(),
            took_ns: took.map(u64::from),
            thread,
            operation,
            failed,
        });
        let trace = Trace { names, entries: entries.collect() };
        prop_assert_eq!(Trace::parse(trace.to_string().as_bytes()), Ok(trace));
    }

    #[test]
    fn no_text_is_too_bad(text in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..80, byte: u8) {
        let _ = Trace::parse(&text);
        let mut good = whole("10 5 0 read 0 0 64 64\n10 5 0 read+ 0 64 64 64\n20 5 0 link 0 1 failed\n");
        if let Some(place) = good.get_mut(at + 14) {
            *place = byte;
        }
        // Everything that is accepted can be written again.
        if let Ok(trace) = Trace::parse(&good) {
            prop_assert_eq!(Trace::parse(trace.to_string().as_bytes()), Ok(trace));
        }
    }
}
