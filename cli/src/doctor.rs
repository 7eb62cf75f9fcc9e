//! `odafs doctor`: checks what this machine offers to a server and to mounts, and names a remedy for each lack.

use std::fs;
use std::net::TcpListener;

use anyhow::{Result, bail};
use clap::Args;
use odafs_bench::scratch::Scratch;
use odafs_bench::table::{Table, bytes, count};
use odafs_fabric::verbs;
use odafs_server::memory;
use odafs_server::store::local::sandbox::check_openat2;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::{listeners, output};

/// Check what this machine offers to a server and to mounts, and name a remedy for each lack
#[derive(Args)]
#[command(after_help = "Examples:
  odafs doctor
  odafs doctor --json | jq '.[] | select(.state != \"ok\")'

States: ok; limited (it works, but more slowly or not for everyone); absent (optional); FAILED (no
server can run). The exit status is 1 if a check failed.")]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// As it should be.
    Ok,
    /// It works, but more slowly or not for everyone.
    Limited,
    /// Missing, and not needed.
    Absent,
    /// Missing, and no server can run without it.
    Failed,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    found: String,
    remedy: String,
}

impl Finding {
    fn new(check: &'static str, state: State, found: impl Into<String>, remedy: &str) -> Self {
        let remedy = if state == State::Ok { "" } else { remedy };
        Self {
            check,
            state,
            found: output::without_error_numbers(&found.into()),
            remedy: output::without_error_numbers(remedy),
        }
    }
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let findings = [
        processors(),
        memory(),
        memfd(),
        names(),
        locked_memory(),
        large_pages(),
        descriptors(),
        watches("inotify watches", "max_user_watches", 65_536),
        watches("inotify instances", "max_user_instances", 64),
        open_by_handle(),
        port("NFS port", listeners::DEFAULT_NFS.port()),
        port("RDMA port", 20_049),
        portmap(),
        socket(),
        fuse(),
        kernel_client(),
        rdma_devices(),
    ];
    let printed = match arguments.json {
        true => output::json(&findings),
        false => print(&findings),
    };
    output::with_result(printed, verdict(&findings))
}

fn verdict(findings: &[Finding]) -> Result<()> {
    if findings.iter().any(|f| f.state == State::Failed) {
        bail!("no server can run here until the FAILED checks are fixed");
    }
    Ok(())
}

fn print(findings: &[Finding]) -> Result<()> {
    let mut table = Table::new(["<check", "<state", "<found"]);
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Absent => "absent (optional)",
            State::Failed => "FAILED",
        };
        table.row(vec![
            finding.check.to_owned(),
            state.to_owned(),
            finding.found.clone(),
        ]);
    }
    output::table(&table)?;
    for finding in findings.iter().filter(|f| !f.remedy.is_empty()) {
        output::text(&format!("\n{}: {}\n", finding.check, finding.remedy))?;
    }
    Ok(())
}

fn processors() -> Finding {
    let n = odafs_bench::cpu::allowed().len();
    let state = if n > 1 { State::Ok } else { State::Limited };
    let remedy = "with one processor, a client that polls (Wait::Spin) keeps the server from running; let clients block";
    Finding::new("processors", state, format!("{n}"), remedy)
}

fn memory() -> Finding {
    let available = memory::available().map_or(0, |available| available.bytes);
    // By default the page cache takes half of it.
    let state = if available >= 2 << 30 {
        State::Ok
    } else {
        State::Limited
    };
    let remedy = "by default the page cache takes 1 GiB, or half of the available memory if that is less; --cache sets its size";
    Finding::new(
        "memory",
        state,
        format!("{} available", bytes(available)),
        remedy,
    )
}

fn memfd() -> Finding {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let sealed = memfd_create(
        "odafs-doctor",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )
    .and_then(|fd| {
        fcntl_add_seals(
            &fd,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE,
        )
    });
    match sealed {
        Ok(()) => Finding::new("sealed memory", State::Ok, "memfd with seals", ""),
        Err(error) => Finding::new(
            "sealed memory",
            State::Failed,
            error.to_string(),
            "the page cache is a sealed memfd, which needs Linux 5.1 or later and a sandbox that allows memfd_create",
        ),
    }
}

/// How the server looks up names.
fn names() -> Finding {
    const CHECK: &str = "lookup of names";
    match check_openat2() {
        Ok(()) => Finding::new(CHECK, State::Ok, "openat2", ""),
        Err(error) => Finding::new(
            CHECK,
            State::Failed,
            "no openat2",
            &format!("only archives can be served. {error}"),
        ),
    }
}

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let found = limit.map_or("unlimited".to_owned(), bytes);
    let enough = limit.is_none_or(|l| l >= 1 << 30) || capable(CapabilitySet::IPC_LOCK);
    let state = if enough { State::Ok } else { State::Limited };
    let remedy = "only RDMA devices (--verbs) need locked memory, for the page cache and more; raise the limit with ulimit \
                  -l unlimited, LimitMEMLOCK=infinity in a systemd unit, or memlock in /etc/security/limits.conf";
    Finding::new("locked memory", state, found, remedy)
}

fn large_pages() -> Finding {
    let read =
        |name: &str| fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let Ok(enabled) = read("enabled") else {
        return Finding::new(
            "2 MiB pages",
            State::Limited,
            "this kernel has no transparent huge pages",
            "direct reads work with 4 KiB pages too; random ones over a large cache are about a third slower",
        );
    };
    let (enabled, collapse) = (chosen(&enabled).to_owned(), collapse_works());
    let shmem = read("shmem_enabled")
        .map(|s| chosen(&s).to_owned())
        .unwrap_or_default();
    let state = if collapse { State::Ok } else { State::Limited };
    let works = if collapse { "works" } else { "does not work" };
    Finding::new(
        "2 MiB pages",
        state,
        format!("MADV_COLLAPSE {works}; transparent huge pages: {enabled}, shmem: {shmem}"),
        "from Linux 6.1 on, with transparent huge pages, the server gets 2 MiB pages for the cache by itself; without \
         them direct reads work, but random ones over a large cache are slower",
    )
}

/// The word in brackets of a line such as `always [madvise] never`.
fn chosen(line: &str) -> &str {
    line.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("?", |(word, _)| word)
}

/// Whether MADV_COLLAPSE works on a file in memory, as the server uses it on its cache.
fn collapse_works() -> bool {
    use odafs_bench::floors::{local, memory::LARGE_PAGE};
    let tried = || -> std::io::Result<bool> {
        let directory = Scratch::for_bytes(2 * LARGE_PAGE)?;
        let path = directory.path().join("page");
        local::write_random(&path, 2 * LARGE_PAGE, |_| {})?;
        Ok(local::LocalFile::open(&path, true)?.backing_bytes() == LARGE_PAGE)
    };
    tried().unwrap_or(false)
}

fn descriptors() -> Finding {
    // The server raises its own limit to the maximum.
    let limit = getrlimit(Resource::Nofile).maximum;
    let found = limit.map_or("unlimited".to_owned(), count);
    let state = if limit.is_none_or(|n| n >= 4096) {
        State::Ok
    } else {
        State::Limited
    };
    let remedy = "every shared-memory client takes four or more; raise the hard limit as root with ulimit -Hn 65536, or \
                  LimitNOFILE=65536 in a systemd unit";
    Finding::new("open files", state, found, remedy)
}

fn watches(check: &'static str, name: &str, wanted: u64) -> Finding {
    let path = format!("/proc/sys/fs/inotify/{name}");
    let limit = fs::read_to_string(&path)
        .ok()
        .and_then(|s| s.trim().parse::<u64>().ok());
    let state = match limit {
        Some(n) if n >= wanted => State::Ok,
        _ => State::Limited,
    };
    let remedy = format!(
        "the server watches cached files for changes that other programs make, and checks unwatched ones again on each \
         use; raise the limit with sysctl fs.inotify.{name}={wanted}"
    );
    Finding::new(
        check,
        state,
        limit.map_or("no inotify".to_owned(), count),
        &remedy,
    )
}

fn capable(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

fn open_by_handle() -> Finding {
    let (state, found) = match capable(CapabilitySet::DAC_READ_SEARCH) {
        true => (State::Ok, "CAP_DAC_READ_SEARCH"),
        false => (State::Limited, "no CAP_DAC_READ_SEARCH"),
    };
    let remedy = "the server finds files through an index in the state directory; after a restart, handles of files \
                  that were moved meanwhile are stale. To let it open files by handle, run it as root, or as a service \
                  with AmbientCapabilities=CAP_DAC_READ_SEARCH (then it may read all files of this machine)";
    Finding::new("open by handle", state, found, remedy)
}

fn port(check: &'static str, port: u16) -> Finding {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Finding::new(check, State::Ok, format!("{port} is free"), ""),
        Err(error) => Finding::new(
            check,
            State::Limited,
            format!("{port}: {error}"),
            "a server already listens there (ODAFS, the kernel's or another); name another port with --nfs or --rdma",
        ),
    }
}

fn portmap() -> Finding {
    const CHECK: &str = "portmapper";
    let free = |address: &str| TcpListener::bind((address, 111)).map(drop);
    match free("0.0.0.0") {
        Ok(()) => Finding::new(CHECK, State::Ok, "111 is free", ""),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Finding::new(
            CHECK,
            State::Limited,
            format!("111: {error}"),
            "rpcbind runs there, most likely. Clients of NFS version 3 need the port to find the lock manager (--portmap \
             0.0.0.0:111): systemctl disable --now rpcbind.socket rpcbind. Otherwise they mount with nolock, or by version 4",
        ),
        Err(error) => Finding::new(
            CHECK,
            State::Limited,
            format!("111: {error}"),
            "clients of NFS version 3 need the port to find the lock manager (--portmap): run the server as root or give it \
             CAP_NET_BIND_SERVICE. Otherwise they mount with nolock, or by version 4",
        ),
    }
}

fn socket() -> Finding {
    let (path, parent) = match listeners::default_place() {
        Ok(place) => place,
        Err(error) => {
            return Finding::new(
                "socket",
                State::Limited,
                format!("{error:#}"),
                "name one with --shm SOCKET",
            );
        }
    };
    let writable = rustix::fs::access(&parent, rustix::fs::Access::WRITE_OK).is_ok();
    let (state, found) = match (writable, path.exists()) {
        (true, false) => (State::Ok, format!("{} can be created", path.display())),
        (true, true) => (State::Ok, format!("{} exists", path.display())),
        (false, _) => (
            State::Limited,
            format!("this user may not write to {}", parent.display()),
        ),
    };
    Finding::new(
        "socket",
        state,
        found,
        "name another place with --shm SOCKET",
    )
}

/// What `odafs mount` needs.
fn fuse() -> Finding {
    const DEVICE: &str = "/dev/fuse";
    let opened = fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    let (state, found) = match opened {
        Ok(_) => (State::Ok, DEVICE.to_owned()),
        Err(error) => (State::Absent, format!("{DEVICE}: {error}")),
    };
    let remedy = "only `odafs mount` needs it. As root: modprobe fuse creates it, and chmod 666 /dev/fuse opens it to users other \
                  than root; a container needs --device /dev/fuse --cap-add SYS_ADMIN";
    Finding::new("FUSE", state, found, remedy)
}

/// What `mount -t nfs` needs.
fn kernel_client() -> Finding {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let mut versions = nfs_versions(&known);
    if versions.is_empty() && has_module("nfs") {
        versions = vec!["a module that mount loads"];
    }
    let program = ["/sbin/mount.nfs", "/usr/sbin/mount.nfs"];
    let has_program = program.iter().any(|path| fs::exists(path).unwrap_or(false));
    let (state, found) = match (versions.is_empty(), has_program) {
        (false, true) => (State::Ok, versions.join(", ")),
        (false, false) => (
            State::Absent,
            format!("{}; no mount.nfs", versions.join(", ")),
        ),
        (true, true) => (State::Absent, "mount.nfs; not in the kernel".to_owned()),
        (true, false) => (State::Absent, "none".to_owned()),
    };
    let remedy = "only mount -t nfs on this machine needs it: a kernel with the modules nfs and nfsv4, and mount.nfs (of the \
                  package nfs-common or nfs-utils). `odafs mount` and all other clients do without";
    Finding::new("kernel's NFS client", state, found, remedy)
}

/// Whether the running kernel has a module of that name at hand.
fn has_module(name: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let list = fs::read_to_string(format!("/lib/modules/{}/modules.dep", release.trim()));
    list.is_ok_and(|list| list.contains(&format!("/{name}.ko")))
}

/// The kinds of NFS that the kernel mounts, of the lines of /proc/filesystems.
fn nfs_versions(known: &str) -> Vec<&str> {
    let kinds = known
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    kinds
        .filter(|kind| matches!(*kind, "nfs" | "nfs4"))
        .collect()
}

fn rdma_devices() -> Finding {
    let names: Vec<String> = fs::read_dir("/sys/class/infiniband")
        .map(|entries| {
            entries
                .flatten()
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    const CHECK: &str = "RDMA devices";
    if names.is_empty() {
        return Finding::new(
            CHECK,
            State::Absent,
            "none",
            "none is needed: --rdma and odafs:// use RDMA over TCP. To try --verbs with a software device, as root: \
             modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0",
        );
    }
    let found = names.join(", ");
    if !verbs::BUILT_IN {
        return Finding::new(CHECK, State::Limited, found, verbs::NOT_BUILT_IN);
    }
    match verbs::devices() {
        Ok(devices) if devices.iter().any(|d| d.reachable_at().next().is_some()) => {
            Finding::new(CHECK, State::Ok, found, "")
        }
        Ok(_) => Finding::new(
            CHECK,
            State::Limited,
            found,
            "no port is active and has an address, so nobody can connect: see `odafs devices`",
        ),
        Err(error) => Finding::new(CHECK, State::Limited, found, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_chosen_word() {
        assert_eq!(super::chosen("always [madvise] never\n"), "madvise");
        assert_eq!(super::chosen("nothing"), "?");
    }

    #[test]
    fn the_kinds_of_nfs() {
        let known = "nodev\tsysfs\n\text4\nnodev\tnfs\nnodev\tnfsd\nnodev\tnfs4\n";
        assert_eq!(super::nfs_versions(known), ["nfs", "nfs4"]);
        assert!(super::nfs_versions("nodev\tnfsd\n").is_empty());
    }
}
