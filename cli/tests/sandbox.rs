//! A server in a sandbox that forbids what it needs.

mod common;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use common::{odafs, text};
use serde_json::Value;

/// Has openat2(2) fail in the program with this error, as the filters of systemd and of container runtimes do.
fn without_openat2(command: &mut Command, errno: i32) -> &mut Command {
    let filter = |code: u32, jt: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    const NUMBER_OF_CALL: u32 = 0;
    let mut rules = [
        filter(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            0,
            NUMBER_OF_CALL,
        ),
        // If it is the call, the next rule is left out.
        filter(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_openat2 as u32,
        ),
        filter(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        filter(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | errno.unsigned_abs(),
        ),
    ];
    let restrict = move || {
        let program = libc::sock_fprog {
            len: rules.len() as u16,
            filter: rules.as_mut_ptr(),
        };
        // SAFETY: both calls take numbers and a pointer to a program that lives on, and are async-signal-safe.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        match done {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(restrict) }
}

#[test]
fn a_server_that_cannot_look_up_names_does_not_start_and_says_why() {
    let (served, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for errno in [libc::ENOSYS, libc::EPERM] {
        let mut server = odafs();
        server
            .args(["serve", "--until-stdin-ends", "--cache", "16MiB"])
            .args(["--small-pages", "--nfs", "127.0.0.1:0", "--state"])
            .args([state.path(), served.path()]);
        let output = without_openat2(&mut server, errno).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(output.stdout, b"", "{said}");
        assert!(
            said.contains("openat2") && said.contains("RestrictSUIDSGID="),
            "{said}"
        );
    }
}

#[test]
fn doctor_says_what_a_sandbox_forbids() {
    let lookup = |doctor: &mut Command| {
        let output = doctor.args(["doctor", "--json"]).output().unwrap();
        let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut findings = findings.as_array().unwrap().iter();
        let found = findings.find(|f| f["check"] == "lookup of names").cloned();
        (found.unwrap(), output.status.code())
    };
    let (found, _) = lookup(&mut odafs());
    assert_eq!(found["state"], "ok", "{found}");
    let (found, status) = lookup(without_openat2(&mut odafs(), libc::ENOSYS));
    assert_eq!((&found["state"], status), (&"failed".into(), Some(1)));
    assert!(
        found["remedy"]
            .as_str()
            .unwrap()
            .contains("RestrictSUIDSGID="),
        "{found}"
    );
}

/// systemd filters what openat2 could make by blocking the call.
#[test]
fn the_unit_of_the_service_leaves_openat2() {
    let unit = include_str!("../../dist/odafs.service");
    let sets = |line: &str| line.starts_with("RestrictSUIDSGID=");
    assert!(!unit.lines().any(sets));
    assert!(unit.lines().any(|line| line == "RuntimeDirectory=odafs"));
}
