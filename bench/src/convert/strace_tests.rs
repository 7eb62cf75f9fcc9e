use super::*;

fn converted(lines: &str) -> String {
    converted_with(lines, None, usize::MAX)
}

fn converted_with(lines: &str, fold: Option<u64>, limit: usize) -> String {
    let kept = Kept {
        under: b"/d".to_vec(),
        fold,
        limit,
        one_thread: true,
    };
    let converted = convert(Format::Strace, lines.as_bytes(), &kept).unwrap();
    let text = converted.trace.to_string();
    assert_eq!(Trace::parse(text.as_bytes()), Ok(converted.trace));
    text
}

#[test]
fn offsets_are_those_of_descriptors_which_copies_share() {
    let lines = r#"7 10.000000 openat(AT_FDCWD</d>, "a,\"b", O_RDONLY|O_CLOEXEC) = 3</d/a,"b> <0.000010>
7 10.000100 newfstatat(3</d/a,"b>, "", {st_mode=S_IFREG|0644, st_size=9000, ...}, AT_EMPTY_PATH) = 0 <0.000001>
7 10.000200 read(3</d/a,"b>, ""..., 4096) = 4096 <0.000002>
7 10.000300 dup(3</d/a,"b>) = 4</d/a,"b> <0.000002>
7 10.000400 read(4</d/a,"b>, ""..., 4096) = 4096 <0.000002>
7 10.000500 vfork( <unfinished ...>
8 10.000600 read(3</d/a,"b>, ""..., 4096) = 808 <0.000002>
7 10.000700 <... vfork resumed>) = 8 <0.000200>
7 10.000800 pread64(3</d/a,"b>, ""..., 100, 50) = 100 <0.000002>
7 10.000900 read(0</dev/null>, "", 4096) = 0 <0.000002>
7 10.001000 +++ exited with 0 +++
"#;
    assert_eq!(
        converted(lines),
        "odafs-trace 1\nname 0 9000 a,\"b\n0 10000 0 open 0\n100000 1000 0 stat 0\n\
         200000 2000 0 read 0 0 4096 4096\n400000 2000 0 read 0 4096 4096 4096\n\
         600000 2000 0 read 0 8192 4096 808\n800000 2000 0 read 0 50 100 100\n"
    );
}

#[test]
fn what_was_there_before_is_found_out() {
    let lines = r#"7 10.000000 stat("/d/none", 0x7ffe) = -1 ENOENT (No such file or directory) <0.000001>
7 10.000100 openat(AT_FDCWD</d>, "db", O_RDWR|O_CREAT, 0644) = 3</d/db> <0.000001>
7 10.000200 pread64(3</d/db>, ""..., 100, 0) = 100 <0.000001>
7 10.000300 openat(AT_FDCWD</d>, "journal", O_RDWR|O_CREAT, 0644) = 4</d/journal> <0.000001>
7 10.000400 write(4</d/journal>, ""..., 512) = 512 <0.000001>
7 10.000500 mkdir("/d/new", 0755) = 0 <0.000001>
7 10.000600 rename("journal", "new/j") = 0 <0.000001>
7 10.000700 unlinkat(AT_FDCWD</d>, "old", 0) = 0 <0.000001>
7 10.000800 openat(AT_FDCWD</d>, ".", O_RDONLY|O_DIRECTORY) = 5</d> <0.000001>
7 10.000900 getdents64(5</d>, 0x55 /* 5 entries */, 32768) = 120 <0.000001>
7 10.001000 getdents64(5</d>, 0x55 /* 0 entries */, 32768) = 0 <0.000001>
7 10.001100 openat(AT_FDCWD</d>, "/elsewhere", O_RDONLY) = 6</elsewhere> <0.000001>
7 10.001200 read(3</d/db>, 0x55, 100) = -1 EINTR (Interrupted) <0.000001>
"#;
    assert_eq!(
        converted(lines),
        "odafs-trace 1\nname 0 absent none\nname 1 100 db\nname 2 absent journal\nname 3 absent new\n\
         name 4 absent new/j\nname 5 0 old\nname 6 directory .\n\
         0 1000 0 stat 0 failed\n100000 1000 0 open 1\n200000 1000 0 read 1 0 100 100\n\
         300000 1000 0 create 2\n400000 1000 0 write 2 0 512\n500000 1000 0 mkdir 3\n\
         600000 1000 0 rename 2 4\n700000 1000 0 remove 5\n900000 1000 0 list 6\n"
    );
}

#[test]
fn no_line_is_too_bad() {
    let lines = "7 10.0 read(3</d/a>, \"\nx\n7 1.1 ) = (\n7 1.2 read( = 1\n7 9999999999999999.5 read(3</d/a>, \"\", 1) = 1\n\
        7 1.3 <... read resumed>) = 1\n7 1.4 read(3</d/a>, \"\\\n7 1.5 lseek(3</d/a>, -1, SEEK_SET) = 18446744073709551615\n\
        7 1.6 read(3</d/a>, \"\", 1) = 1\n";
    assert!(converted(lines).starts_with("odafs-trace 1\n"));
}

#[test]
fn one_line_becomes_no_more_than_a_gibibyte_or_the_limit() {
    for call in ["read", "write", "pread64", "pwrite64"] {
        let most = u64::MAX;
        let lines = format!("7 1.0 {call}(3</d/a>, \"\", {most}, {most}) = {most} <{most}.9>\n");
        let count = |fold, limit| converted_with(&lines, fold, limit).lines().count() - 2;
        assert_eq!(count(None, usize::MAX), 128);
        assert_eq!(count(Some(20 << 20), usize::MAX), 3);
        assert_eq!(count(None, 5), 5);
    }
}

#[test]
fn lengths_that_are_told_are_folded_as_offsets_are() {
    let lines = r#"7 10.000000 stat("/d/a", {st_mode=S_IFREG|0644, st_size=9000, ...}) = 0 <0.000001>
7 10.000100 truncate("/d/a", 18446744073709551615) = 0 <0.000001>
"#;
    let text = |fold| converted_with(lines, fold, usize::MAX);
    assert_eq!(
        text(Some(4096)),
        "odafs-trace 1\nname 0 4096 a\n0 1000 0 stat 0\n100000 1000 0 truncate 0 4096\n"
    );
    assert!(text(None).ends_with(
        "name 0 9000 a\n0 1000 0 stat 0\n100000 1000 0 truncate 0 9223372036854775807\n"
    ));
}
