//! Completions and manual pages come from the command line itself, and have all of it.

mod common;

use common::{odafs, text};

/// The commands that a help text lists.
fn commands(of: &[&str]) -> Vec<String> {
    let output = odafs().args(of).arg("--help").output().unwrap();
    assert!(output.status.success(), "{of:?}");
    let help = text(&output.stdout);
    let list = help.split("Commands:\n").nth(1).unwrap();
    let list = list.split("\n\n").next().unwrap();
    // Names begin two columns in; what a long line is wrapped to lies further right.
    let lines = list.lines().filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|&name| name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    let output = odafs().arg("man").arg(&pages).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty());

    let commands = commands(&[]);
    assert!(commands.len() >= 16, "{commands:?}");
    let mut names = vec!["odafs".to_owned()];
    names.extend(commands.iter().map(|name| format!("odafs-{name}")));
    let benches = self::commands(&["bench"]);
    assert!(benches.len() >= 10, "{benches:?}");
    names.extend(benches.iter().map(|name| format!("odafs-bench-{name}")));
    for name in &names {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).expect(name);
        let title = name.replace('-', "\\-");
        assert!(
            page.contains(".SH NAME") && (page.contains(&title) || page.contains(name)),
            "{name}: {page}"
        );
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
        let source = format!("\"odafs {}\"", env!("CARGO_PKG_VERSION"));
        let head = page.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(head.contains(&source), "{name}: {head}");
    }
    let serve = std::fs::read_to_string(pages.join("odafs-serve.1")).unwrap();
    assert!(serve.contains("squash") && !serve.contains(".SH EXTRA"));
    let notes = serve.split(".SH NOTES\n").nth(1).unwrap();
    let (kept, behind) = notes.split_once("\n.fi\n").unwrap();
    assert!(kept.starts_with(".nf\nExamples:\n  odafs serve /srv/data\n"));
    assert!(!kept.contains(".SH") && behind.contains(".SH VERSION"));
}

#[test]
fn manual_pages_that_cannot_be_written_are_a_failure_that_names_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = odafs().arg("man").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("file"), "{output:?}");
}

#[test]
fn completions_of_each_shell_know_each_command() {
    let commands = commands(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = odafs().args(["completions", shell]).output().unwrap();
        assert!(output.status.success(), "{shell}");
        let script = text(&output.stdout);
        for name in commands.iter().map(String::as_str) {
            assert!(script.contains(name), "{shell}: {name}");
        }
        assert!(
            script.contains("throughput") && script.contains("squash"),
            "{shell}"
        );
    }
    let output = odafs().args(["completions", "cobol"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("bash"), "{output:?}");
}

/// Bash itself takes the script, and completes by it.
#[test]
fn bash_completes_commands() {
    let script = odafs()
        .args(["completions", "bash"])
        .output()
        .unwrap()
        .stdout;
    let complete = "\nCOMP_WORDS=(odafs comp); COMP_CWORD=1
_odafs odafs comp odafs; echo \"${COMPREPLY[*]}\"";
    let program = text(&script) + complete;
    let output = std::process::Command::new("bash")
        .args(["--norc", "-c", &program])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout).trim(), "completions", "{output:?}");
}

/// A service manager hears of a server that accepts, and of its drain.
#[test]
fn a_service_manager_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let patience = Some(std::time::Duration::from_secs(60));
    manager.set_read_timeout(patience).unwrap();
    let heard = || {
        let mut told = [0; 64];
        let length = manager.recv(&mut told).unwrap();
        text(&told[..length])
    };
    let mut server = odafs()
        .args([
            "serve",
            "--until-stdin-ends",
            "--small-pages",
            "--cache",
            "1MiB",
        ])
        .args(["--nfs", "127.0.0.1:0", "--state"])
        .arg(directory.path().join("state"))
        .arg(directory.path())
        .env("NOTIFY_SOCKET", &socket)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(heard(), "READY=1\n");
    drop(server.stdin.take());
    assert_eq!(heard(), "STOPPING=1\n");
    assert!(server.wait().unwrap().success());
}

/// OPERATIONS has a table of what the options of a server are for.
#[test]
fn the_table_of_options_has_each() {
    let output = odafs().args(["serve", "--help"]).output().unwrap();
    let help = text(&output.stdout);
    let (options, _) = help.split_once("Examples:").unwrap();
    let options = options.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line
            .strip_prefix("-h, ")
            .or(line.strip_prefix("-V, "))
            .unwrap_or(line);
        line.strip_prefix("--")?.split([' ', '[']).next()
    });
    let manual = include_str!("../../docs/OPERATIONS.md");
    let mut seen = 0;
    for option in options.filter(|option| !["help", "version"].contains(option)) {
        seen += 1;
        let row = |line: &str| {
            let named = line
                .strip_prefix('|')
                .and_then(|row| row.split(" | ").next());
            named.is_some_and(|named| {
                named
                    .split(['`', ' '])
                    .any(|word| word.strip_prefix("--") == Some(option))
            })
        };
        assert!(manual.lines().any(row), "--{option}");
    }
    assert!(seen > 30, "{seen} options");
}
