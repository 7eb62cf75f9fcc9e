//! `odafs mount`: mounts a server's directory through FUSE.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use odafs::{Client, Options, Route, Url};
use odafs_mount::{Cache, Mounted, Uring};

use crate::connection::{RouteName, url};
use crate::keys::KeyArguments;
use crate::signals::Signals;
use crate::{Usage, units};

/// Mount a server's directory through FUSE, for all programs
#[derive(Args)]
#[command(after_help = "Examples:
  odafs mount odafs+shm:/// /mnt
      all programs can use the files; `umount /mnt` unmounts them
  odafs mount --read-only nfs://192.0.2.1/data /mnt
      mount a directory of any NFS version 3 server
  odafs mount --cache off odafs+shm:/// /mnt
      ask the server for each read

The command returns when the directory is mounted. A process in the background answers the
kernel. SIGTERM, SIGINT and SIGHUP (unless it is ignored, as under nohup) unmount. If a program
has files open there, the directory disappears and the process waits until they are closed; a
second signal, at least a second later, ends it at once. Errors after the mount are shown only
with --foreground.

In /etc/fstab, if mount.odafs is in /sbin:
  odafs://SERVER/  /mnt  odafs  ro,cache=off,_netdev  0  0
On the server's own machine add x-systemd.requires=odafs.service, so that systemd mounts when the
server is ready, and unmounts before it stops.

Options of -o: ro, rw, cache=MODE, allow_other, [no]acl, route=ROUTE, deadline=TIME, threads=N
(1 to 256), uring=auto|off (FUSE over io_uring), identity=FILE, server_key=FILE, [no]suid,
[no]dev, [no]exec. The options of mount(8) itself (_netdev, noauto, nofail, x-*) are accepted and
have no effect.

If the server does not answer, calls wait for the deadline and then fail with EIO. If the
process was killed, `umount -l DIR` clears the directory. bindings/mount/README.md describes what
programs see.")]
pub struct Arguments {
    /// The directory on a server to mount
    #[arg(value_name = "URL", value_parser = source)]
    source: Source,
    /// The local directory where it appears
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Refuse changes
    #[arg(long)]
    read_only: bool,
    /// What the kernel caches
    #[arg(long, value_enum, default_value = "close-to-open", value_name = "MODE")]
    cache: CacheName,
    /// Let other users in, as far as the modes of the files allow; root's mounts always do
    #[arg(long)]
    allow_other: bool,
    /// Judge other users by the access control lists that files have at the server, not by modes alone
    #[arg(long)]
    acl: bool,
    /// Stay in the foreground, and print errors to stderr
    #[arg(long)]
    foreground: bool,
    /// Options as in /etc/fstab, separated by commas; they take precedence over the other options
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Run as the background process, which reports on stdout when the directory is mounted
    #[arg(long, hide = true)]
    in_background: bool,
    /// How to read
    #[arg(long, value_enum, default_value = "policy", value_name = "ROUTE")]
    route: RouteName,
    /// How long to wait for the answer to a call; a bare number is seconds
    #[arg(long, value_parser = units::deadline, default_value = "30s", value_name = "TIME")]
    deadline: Duration,
    #[command(flatten)]
    keys: KeyArguments,
}

/// A URL, and the text that the user wrote. /proc/mounts shows that text, so that `mount -a` recognizes a line of
/// /etc/fstab there.
#[derive(Clone)]
struct Source {
    url: Url,
    text: String,
}

fn source(text: &str) -> Result<Source, String> {
    Ok(Source {
        url: url(text)?,
        text: text.to_owned(),
    })
}

/// What the kernel caches, by name.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum CacheName {
    /// Pages, which are checked when a file is opened and once a second while it is open, and names and attributes for 1 s
    CloseToOpen,
    /// Nothing but pages of mapped files, which are checked once a second
    Off,
}

/// The options of the command line and of `-o` together.
struct Asked {
    mount: odafs_mount::Options,
    route: Route,
    deadline: Duration,
    keys: KeyArguments,
}

/// What the background process writes to stdout when the directory is mounted.
const MOUNTED: &[u8] = b"mounted\n";

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let asked = asked(&arguments)?;
    if arguments.foreground || arguments.in_background {
        answer(&arguments, asked)
    } else {
        in_background()
    }
}

/// Starts this program again in the background, and waits until that has mounted or failed.
fn in_background() -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    command
        .arg0(arguments.next().unwrap_or_default())
        .args(arguments.next())
        .arg("--in-background")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start a process")?;
    let mut told = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(64).read_to_end(&mut told)?;
    }
    if told == MOUNTED {
        return Ok(());
    }
    // The child has printed the reason to stderr.
    let status = child.wait()?;
    std::process::exit(status.code().unwrap_or(1));
}

/// Mounts the directory, and answers the kernel until it is unmounted.
fn answer(arguments: &Arguments, asked: Asked) -> Result<()> {
    // Take over the signals before mounting, so that none is lost in between.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = runtime.block_on(async { Signals::take_over() })?;
    let options = Options {
        route: asked.route,
        deadline: asked.deadline,
        // The kernel keeps the pages.
        cache: odafs::Cache::Off,
        ..Options::default()
    };
    let options = asked.keys.give(options)?;
    let client = Client::connect_with(&arguments.source.url, options)?;
    let mounted = odafs_mount::mount(&client, &arguments.dir, &asked.mount)?;
    if arguments.in_background {
        leave().context("cannot leave the terminal")?;
    }
    let unmounter = mounted.unmounter();
    std::thread::spawn(move || {
        runtime.block_on(signals.next());
        if let Err(error) = unmounter.unmount() {
            eprintln!(
                "odafs: {error}; the directory is hidden now, and unmounted when the last file in it is closed"
            );
            if let Err(error) = unmounter.detach() {
                eprintln!("odafs: cannot unmount: {error}");
            }
        }
        runtime.block_on(signals.again());
        eprintln!("odafs: second signal: ending at once");
        std::process::exit(1);
    });
    Mounted::wait(mounted).context("the kernel's device failed")
}

/// Tells the waiting process that the directory is mounted, and leaves its terminal and working directory.
fn leave() -> Result<()> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    // This fails for the leader of a process group. A process that `in_background` started leads none. So the caller
    // asked for --in-background itself, and stays in its session.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    rustix::stdio::dup2_stderr(&null)?;
    let mut stdout = std::io::stdout();
    stdout.write_all(MOUNTED)?;
    stdout.flush()?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

fn asked(arguments: &Arguments) -> Result<Asked> {
    let default = odafs_mount::Options::default();
    let mut asked = Asked {
        mount: odafs_mount::Options {
            read_only: arguments.read_only,
            cache: cache(arguments.cache),
            allow_other: arguments.allow_other || default.allow_other,
            acls: arguments.acl,
            source: arguments.source.text.clone(),
            ..default
        },
        route: arguments.route.into(),
        deadline: arguments.deadline,
        keys: arguments.keys.clone(),
    };
    let options = arguments.options.iter().flat_map(|some| some.split(','));
    for option in options.filter(|option| !option.is_empty()) {
        take(&mut asked, option).map_err(|why| Usage(format!("-o {option}: {why}")))?;
    }
    Ok(asked)
}

fn cache(name: CacheName) -> Cache {
    match name {
        CacheName::CloseToOpen => Cache::CloseToOpen,
        CacheName::Off => Cache::Off,
    }
}

/// Takes one option of `-o`.
fn take(asked: &mut Asked, option: &str) -> Result<(), String> {
    let mount = &mut asked.mount;
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    match (name, value) {
        ("ro", None) => mount.read_only = true,
        ("rw", None) => mount.read_only = false,
        ("allow_other", None) => mount.allow_other = true,
        ("acl", None) => mount.acls = true,
        ("noacl", None) => mount.acls = false,
        ("suid", None) => mount.set_id = true,
        ("nosuid", None) => mount.set_id = false,
        ("dev", None) => mount.devices = true,
        ("nodev", None) => mount.devices = false,
        ("exec", None) => mount.execute = true,
        ("noexec", None) => mount.execute = false,
        ("cache", Some(value)) => mount.cache = cache(CacheName::from_str(value, false)?),
        ("route", Some(value)) => asked.route = RouteName::from_str(value, false)?.into(),
        ("deadline", Some(value)) => asked.deadline = units::deadline(value)?,
        ("identity", Some(file)) => asked.keys.identity = Some(file.into()),
        ("server_key", Some(file)) => asked.keys.server_key = Some(file.into()),
        ("threads", Some(value)) => {
            mount.threads = match value.parse() {
                Ok(threads @ 1..=256) => threads,
                _ => return Err("give a number from 1 to 256".to_owned()),
            }
        }
        ("uring", Some(value)) => {
            mount.uring = match value {
                "auto" => Uring::Auto,
                "off" => Uring::Off,
                _ => return Err("give auto or off".to_owned()),
            }
        }
        // Options for mount(8) and systemd, and options that describe what is so anyway.
        (
            "defaults"
            | "_netdev"
            | "auto"
            | "noauto"
            | "nofail"
            | "user"
            | "users"
            | "nouser"
            | "owner"
            | "group"
            | "async"
            | "atime"
            | "noatime"
            | "relatime"
            | "diratime"
            | "nodiratime"
            | "default_permissions",
            None,
        ) => {}
        ("comment", Some(_)) => {}
        _ if name.starts_with("x-") => {}
        ("remount", None) => {
            return Err(
                "a mounted directory cannot change its options; unmount it and mount it again"
                    .to_owned(),
            );
        }
        _ => return Err("no such option (`odafs mount --help` lists them)".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(options: &str) -> Result<Asked> {
        asked(&Arguments {
            source: source("nfs://192.0.2.1").unwrap(),
            dir: "/mnt".into(),
            read_only: false,
            cache: CacheName::CloseToOpen,
            allow_other: false,
            acl: false,
            foreground: false,
            options: vec![options.to_owned()],
            in_background: false,
            route: RouteName::Policy,
            deadline: Duration::from_secs(30),
            keys: KeyArguments::default(),
        })
    }

    #[test]
    fn options_of_fstab() {
        let asked =
            with("rw,ro,,cache=off,deadline=5s,route=rpc,threads=3,suid,noexec,acl").unwrap();
        assert!(asked.mount.read_only && asked.mount.set_id && !asked.mount.execute);
        assert!(asked.mount.acls && !with("acl,noacl").unwrap().mount.acls);
        assert_eq!((asked.mount.cache, asked.mount.threads), (Cache::Off, 3));
        assert_eq!(asked.deadline, Duration::from_secs(5));
        assert_eq!(asked.route, Route::Rpc);
        assert_eq!(asked.mount.uring, Uring::Auto);
        let keys = with("identity=/k,server_key=s").unwrap().keys;
        assert_eq!(keys.identity, Some("/k".into()));
        assert_eq!(keys.server_key, Some("s".into()));
        assert_eq!(with("uring=off").unwrap().mount.uring, Uring::Off);
        with("defaults,_netdev,x-systemd.automount,comment=a,nofail,noauto").unwrap();
        with("ro,_netdev,nofail,x-systemd.requires=odafs.service").unwrap();
    }

    #[test]
    fn the_source_is_what_was_written() {
        let text = "nfs://192.0.2.1";
        assert_ne!(url(text).unwrap().to_string(), text);
        assert_eq!(with("").unwrap().mount.source, text);
    }

    #[test]
    fn options_that_are_none_are_refused() {
        for wrong in [
            "cache",
            "cache=on",
            "ro=1",
            "threads=0",
            "threads=257",
            "uring=on",
            "deadline=0s",
            "vers=3",
            "remount",
        ] {
            let error = with(wrong).err().expect(wrong);
            assert!(error.is::<Usage>(), "{wrong}: {error}");
        }
    }
}
