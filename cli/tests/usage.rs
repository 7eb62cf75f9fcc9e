//! The command line itself: help, wrong usage, and what needs no server.

mod common;

use common::{odafs, odafs_as, text};
use serde_json::Value;

const COMMANDS: [&str; 17] = [
    "demo",
    "serve",
    "ls",
    "stat",
    "cat",
    "get",
    "put",
    "rm",
    "mkdir",
    "mv",
    "refs",
    "devices",
    "doctor",
    "top",
    "bench",
    "completions",
    "man",
];

#[test]
fn every_command_explains_itself_with_an_example() {
    for command in COMMANDS {
        let output = odafs().args([command, "--help"]).output().unwrap();
        assert!(output.status.success(), "{command}");
        let help = text(&output.stdout);
        assert!(
            help.contains("Example") || command == "bench",
            "{command}: {help}"
        );
        assert!(
            text(&odafs().arg("--help").output().unwrap().stdout).contains(&format!("  {command}")),
            "{command}"
        );
    }
}

#[test]
fn wrong_usage_ends_with_2_and_says_why() {
    let long = &format!("/{}", "s".repeat(107))[..];
    let long_name = &format!("nfs://127.0.0.1:1/{}", "n".repeat(256))[..];
    let cases: [(&[&str], &str); 74] = [
        (&[], "Usage"),
        (&["fly"], "fly"),
        (&["ls"], "URL"),
        (&["ls", "http://example/"], "odafs+shm://"),
        (&["ls", "odafs+shm://relative?/"], "absolute"),
        (&["mkdir", long_name], "255 bytes"),
        (&["serve"], "odafs serve DIR"),
        (&["serve", "/", "--cache", "plenty"], "size"),
        (&["serve", "/", "--page", "5000"], "power of two"),
        (&["serve", "/", "--spin", "fast"], "as in 50us"),
        (&["serve", "/", "--spin", "10"], "as in 50us"),
        (&["serve", "/", "--slow-call", "10"], "as in 50us"),
        (&["serve", "/", "--slow-call", "0"], "--slow-call"),
        (&["serve", "/", "--slow-call=-1s"], "--slow-call"),
        (&["top", "9049"], "127.0.0.1:9049"),
        (&["top", "https://127.0.0.1:9049"], "TLS"),
        (&["top", "--interval", "0"], "0.1 to 3600"),
        (&["top", "--interval", "soon"], "a time is"),
        (&["top", "127.0.0.1:1"], "--once"),
        (&["serve", "/", "--registration-cost", "10"], "as in 50us"),
        (&["serve", "/", "--nfs", "localhost:1"], "127.0.0.1:2049"),
        (
            &["serve", "/", "--one-sided-for", "no-such-user"],
            "/etc/passwd",
        ),
        (&["serve", "/", "--credits", "0"], "adaptive"),
        (&["serve", "/", "--design", "write-write"], "read-write"),
        (&["serve", "/", "--odp"], "add --verbs ADDR:PORT"),
        (&["serve", "/", "--shm", ""], "name a socket"),
        (&["serve", "/", "--read-order", "ordered"], "--verbs"),
        (&["serve", "/", "--insecure"], "--squash"),
        (&["serve", "/", "--shm", "--credits", "9"], "--rdma"),
        (&["serve", "/", "--shm", "--allow", "10.0.0.0/8"], "--nfs"),
        (&["serve", "/", "--shm", "--admit", "keys"], "--rdma"),
        (
            &["serve", "/", "--nfs", "127.0.0.1:0", "--one-sided-for", "0"],
            "--shm",
        ),
        (
            &[
                "serve",
                "/",
                "--rdma",
                "127.0.0.1:0",
                "--shm-connections",
                "9",
            ],
            "--shm too",
        ),
        (
            &["serve", "/", "--shm", "--anonuid", "9", "--anongid", "9"],
            "--anonuid and --anongid: meant for callers",
        ),
        (
            &["ls", "--deadline", "0", "nfs://127.0.0.1:1/"],
            "more than 0",
        ),
        (
            &["mount", "--deadline", "0", "nfs://127.0.0.1:1/", "/"],
            "more than 0",
        ),
        (&["serve", "/", "--trace", "x.pcap"], "tcpdump"),
        (&["serve", "/", "--page", "5KiB"], "--page"),
        (&["serve", "/", "--workers", "0"], "--workers"),
        (&["serve", "/", "--workers", "1000000"], "1 to 1024"),
        (
            &["serve", "/", "--shm-connections", "0"],
            "--shm-connections",
        ),
        (&["serve", "/", "--allow", "10.0.0.0/33"], "no-loopback"),
        (&["serve", "/", "--allow", "no-loopback"], "nobody"),
        (&["serve", "/", "--cache", "1"], "--cache"),
        (&["demo", "--cache", "0"], "--cache"),
        (&["demo", "--address", "1.2.3.4"], "--fabric verbs"),
        (
            &["demo", "--address", "1.2.3.4", "--fabric", "tcp"],
            "--address",
        ),
        (
            &["serve", "/", "--nfs4", "off", "--idmap", "names"],
            "--idmap: ",
        ),
        (&["serve", "/", "--shm", "--nfs2", "on"], "--nfs2: "),
        (&["ls", "--route", "rpc", "nfs://127.0.0.1:1/"], "--route"),
        (
            &["refs", "nfs://127.0.0.1:1/x"],
            "use odafs+shm:// or odafs://",
        ),
        (&["serve", "/", "--export", "data"], "--export data"),
        (&["serve", "/", "--export", "/a/../b"], "--export /a/../b"),
        (&["serve", "/", "--export", "/."], "leave them out"),
        (&["serve", "/", "--shm", long], "--shm"),
        (&["demo", "--seconds", "0"], "--seconds"),
        (&["bench", "latency", "--seconds", "0"], "--seconds"),
        (&["bench", "latency", "--reads", "0"], "--reads"),
        (&["bench", "fairness", "--seconds", "0"], "--seconds"),
        (&["bench", "breakdown", "--seconds", "0"], "--seconds"),
        (&["bench", "throughput", "--seconds", "0"], "--seconds"),
        (
            &["bench", "registration", "--revocation", "--rounds", "0"],
            "--rounds",
        ),
        (&["bench", "credits", "--seconds", "0"], "--seconds"),
        (&["bench", "policy", "--seconds", "0"], "--seconds"),
        (
            &["bench", "report", "x.html", "--seconds", "0"],
            "--seconds",
        ),
        (
            &["bench", "peers", "--file", "x", "--rounds", "0"],
            "--rounds",
        ),
        (
            &["cat", "--why", "--passes", "0", "nfs://127.0.0.1:1/x"],
            "--passes",
        ),
        (&["serve", "/", "--workers", "some"], "give a whole number"),
        (&["bench", "scale", "--most", "some"], "give a whole number"),
        (&["serve", "/", "--lease", "2h"], "10s to 1h"),
        (&["serve", "/", "--idmap-domain", "a@b"], "example.org"),
        (&["serve", "/", "--cache", "100TiB"], "at most"),
        (&["mv", "nfs://a/x", "nfs://b/x"], "same server"),
        (
            &["bench", "latency", "--route", "rpc", "--fabric", "local"],
            "no row is left",
        ),
    ];
    for (arguments, expected) in cases {
        let output = odafs().args(arguments).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(expected),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_server_that_cannot_start_ends_with_1_and_names_the_thing_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let path = |p: &std::path::Path| p.display().to_string();
    let cases: [(Vec<String>, &str); 6] = [
        (
            vec![path(dir.path()), "--cache".into(), "4TiB".into()],
            "does not fit in memory",
        ),
        (
            vec![path(dir.path()), "--shm".into(), path(dir.path())],
            "name a socket in it",
        ),
        (vec![path(&dir.path().join("missing"))], "missing"),
        (vec![path(&file)], "neither a directory nor a tar archive"),
        (
            vec![path(dir.path()), "--shm".into(), path(&file)],
            "no socket",
        ),
        (
            vec![
                path(dir.path()),
                "--shm".into(),
                path(&dir.path().join("no/sock")),
            ],
            "there is no directory",
        ),
    ];
    for (arguments, expected) in cases {
        let output = odafs().arg("serve").args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

/// Without the fabric, every option and command that needs it says how to build a program that has it.
#[test]
#[cfg(not(feature = "verbs"))]
fn what_needs_rdma_devices_says_how_to_build_it() {
    let cases: [&[&str]; 7] = [
        &["serve", "/", "--verbs", "127.0.0.1:20049"],
        &["demo", "--fabric", "verbs"],
        &["devices"],
        &["ls", "odafs+verbs://127.0.0.1/"],
        &["bench", "latency", "--fabric", "verbs"],
        &["bench", "latency", "--url", "odafs+verbs://127.0.0.1/x"],
        &["bench", "registration", "--fabric", "verbs"],
    ];
    for arguments in cases {
        let output = odafs().args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        for expected in ["--features verbs", "libibverbs-dev", "libibverbs.so.1"] {
            assert!(said.contains(expected), "{arguments:?}: {said}");
        }
    }
}

/// A machine without devices, or without the right to use them, gets a remedy and no panic.
#[test]
#[cfg(feature = "verbs")]
fn devices_are_listed_or_there_is_a_remedy() {
    let output = odafs().args(["devices", "--json"]).output().unwrap();
    if output.status.success() {
        let devices: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!devices.as_array().unwrap().is_empty());
    } else {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("modprobe") || said.contains("/dev/infiniband"),
            "{said}"
        );
    }
}

#[test]
fn wrong_names_in_a_configuration_are_usage_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("odafs.toml");
    // The second is a switch of ours for measuring, and no option.
    for name in ["cash", "hand-over"] {
        std::fs::write(&file, format!("dir = '/'\n{name} = true\n")).unwrap();
        let output = odafs()
            .args(["serve", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("unknown field `{name}`")), "{said}");
        assert!(
            said.contains("`cache`") && said.contains("`pinning-cost`"),
            "{said}"
        );
    }
}

#[test]
fn doctor_has_a_finding_for_each_check_and_a_remedy_for_each_lack() {
    let output = odafs().args(["doctor", "--json"]).output().unwrap();
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    for check in [
        "locked memory",
        "2 MiB pages",
        "inotify watches",
        "sealed memory",
        "RDMA devices",
        "NFS port",
        "FUSE",
        "kernel's NFS client",
    ] {
        assert!(findings.iter().any(|f| f["check"] == check), "{check}");
    }
    for finding in findings {
        assert_eq!(
            finding["state"] == "ok",
            finding["remedy"] == "",
            "{finding}"
        );
    }
}

/// The server raises its own limit on open files, so that only the maximum counts.
#[test]
fn doctor_judges_the_limit_that_a_server_gets() {
    let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -Sn 256; exec \"$0\" doctor --json"]);
    let output = shell.arg(env!("CARGO_BIN_EXE_odafs")).output().unwrap();
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut findings = findings.as_array().unwrap().iter();
    let found = findings.find(|f| f["check"] == "open files").unwrap();
    let enough = maximum.is_none_or(|most| most >= 4096);
    assert_eq!(found["state"] == "ok", enough, "{found}");
}

/// A check leaves nothing behind, without a runtime directory either.
#[test]
fn doctor_makes_no_directory() {
    // Nobody has this number. Root alone can be that user.
    const UID: u32 = 3_141_592;
    let me = rustix::process::geteuid();
    let program = tempfile::tempdir_in("/tmp").unwrap();
    let mut doctor = match me.is_root() {
        true => odafs_as(UID, program.path()),
        false => odafs(),
    };
    doctor
        .arg("doctor")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("RUNTIME_DIRECTORY");
    let uid = if me.is_root() { UID } else { me.as_raw() };
    let directory = std::path::PathBuf::from(format!("/tmp/odafs-{uid}"));
    let was_there = directory.exists();
    let output = doctor.output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains(&format!("{}", directory.display())), "{said}");
    assert_eq!(directory.exists(), was_there);
}

#[test]
fn local_rows_need_no_server() {
    let arguments =
        "bench latency --fabric local --file-size 4MiB --rounds 2 --reads 500 --size 4096 --json";
    let output = odafs().args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    for route in ["pread", "mmap"] {
        let row = rows
            .iter()
            .find(|r| r["route"] == route && r["backing_bytes"] == 4096)
            .unwrap();
        assert_eq!(
            (&row["fabric"], &row["depth"], &row["size_bytes"]),
            (&"local".into(), &1.into(), &4096.into())
        );
        assert_eq!(row["reads"], 1000);
        assert!(row["p50_ns"].as_u64() <= row["p999_ns"].as_u64());
    }
}

#[test]
fn nobody_there_is_a_failure() {
    let output = odafs()
        .args(["ls", "odafs+shm:///nowhere/sock?/"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("/nowhere/sock"),
        "{}",
        text(&output.stderr)
    );
}

/// A page that cannot be written is an error before anything is measured.
#[test]
fn a_report_that_cannot_be_written_is_told_at_once() {
    for command in ["demo --seconds 600", "bench latency --seconds 600"] {
        let began = std::time::Instant::now();
        let output = odafs()
            .args(command.split(' '))
            .args(["--report", "/nonexist/x.html"])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("cannot write /nonexist/x.html"), "{said}");
        assert!(began.elapsed().as_secs() < 60, "{command}");
    }
}

/// The file of a bench is to be in memory.
#[test]
fn a_file_that_does_not_fit_in_memory_is_refused_before_it_is_written() {
    let cases = [
        ("latency --file-size 1024TiB", "--file-size"),
        ("latency --file-size 17179869183GiB", "--file-size"),
        ("latency --file-size 1024TiB --fabric local", "--file-size"),
        ("throughput --file-size 1024TiB", "--file-size"),
        ("designs --file-size 10000000TiB", "--file-size"),
        ("registration --file-size 1024TiB", "--file-size"),
        ("credits --file-size 1024TiB", "--file-size"),
        ("breakdown --set 1TiB", "--set"),
    ];
    for (bench, option) in cases {
        let output = odafs()
            .arg("bench")
            .args(bench.split(' '))
            .args(["--seconds", "1"])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{bench}: {said}");
        assert!(
            said.contains(option) && said.contains("does not fit in memory"),
            "{bench}: {said}"
        );
    }
}

/// Each server of a bench has a file and a cache of its own.
#[test]
fn what_a_bench_needs_is_counted_for_all_its_servers() {
    let needed = [
        ("throughput --wait spin", "3072 TiB are needed"),
        ("throughput --wait spin --wait block", "6144 TiB are needed"),
        (
            "latency --fabric local --route pread",
            "2048 TiB are needed",
        ),
        (
            "latency --fabric tcp --route guarded --wait spin",
            "2048 TiB are needed",
        ),
        (
            "latency --fabric tcp --route guarded",
            "3072 TiB are needed",
        ),
    ];
    for (bench, needed) in needed {
        let mut odafs = odafs();
        odafs.arg("bench").args(bench.split(' '));
        let output = odafs.args(["--file-size", "1024TiB"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(needed), "{bench}: {said}");
    }
}

/// A message names each cause, and each path, once, and a system's error by its words, not by its number.
#[test]
fn no_cause_is_printed_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = |scheme: &str| format!("{scheme}://{}/", silent.local_addr().unwrap());
    let shm = format!("odafs+shm://{}?/", path("nobody"));
    let (nfs, rdma) = (url("nfs"), url("odafs"));
    let missing = path("missing");
    let cases: [(&[&str], &str); 8] = [
        (&["ls", "nfs://127.0.0.1:1/"], "refused"),
        (&["ls", "odafs://127.0.0.1:1/"], "refused"),
        (&["ls", &shm], "nobody"),
        (&["ls", &nfs, "--deadline", "200ms"], "no answer"),
        (&["ls", &rdma, "--deadline", "200ms"], "127.0.0.1"),
        (&["serve", &missing], "no such directory"),
        (
            &[
                "serve",
                "/",
                "--state",
                "/proc/none",
                "--nfs",
                "127.0.0.1:0",
            ],
            "No such file",
        ),
        (&["serve", "/", "--config", &missing], "missing"),
    ];
    for (arguments, once) in cases {
        let output = odafs().args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(said.matches(once).count(), 1, "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(!said.contains("os error"), "{arguments:?}: {said}");
        for cause in ["refused", "no answer", "nobody", "missing", "waits longer"] {
            assert!(said.matches(cause).count() <= 1, "{arguments:?}: {said}");
        }
    }
}
