//! `odafs mount`: mounts a server's directory through FUSE.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use odafs::{Client, Options, Route, Url};
use odafs_mount::{Cache, Mounted};

use crate::connection::{RouteName, url};
use crate::signals::Signals;
use crate::{Usage, units};

/// Mount a server's directory
#[derive(Args)]
#[command(after_help = "Examples:
  odafs mount odafs+shm:///run/odafs.sock?/ /mnt
      all programs use the files; `umount /mnt` ends it
  odafs mount --read-only nfs://192.0.2.1/data /mnt
      those of any server of NFS version 3
  odafs mount --cache off odafs+shm:/// /mnt
      each read asks the server

It returns when it is mounted, and a process in the background answers the kernel. SIGTERM, SIGINT
and SIGHUP (unless it is ignored, as under nohup) unmount. If a program has files open there, they
hide the directory and wait until those are closed; one more, a second or later, ends at once.
What goes wrong once it is mounted is said nowhere; with --foreground, on stderr.

In /etc/fstab, where mount.odafs is in /sbin:
  odafs+shm:///run/odafs.sock?/  /mnt  odafs  ro,cache=off,_netdev  0  0

Options of -o: ro, rw, cache=MODE, allow_other, route=ROUTE, deadline=TIME, threads=N, [no]suid,
[no]dev, [no]exec. Those that are mount(8)'s own (_netdev, noauto, nofail, x-*) have no effect
here.

If the server does not answer, calls wait for the deadline and then fail with EIO. After the
process was killed, `umount -l DIR` clears the directory. bindings/mount/README.md says what
programs see.")]
pub struct Arguments {
    /// What to mount: a directory on a server
    #[arg(value_name = "URL", value_parser = source)]
    source: Source,
    /// The directory here that it appears on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Refuse changes
    #[arg(long)]
    read_only: bool,
    /// What the kernel keeps of files
    #[arg(long, value_enum, default_value = "close-to-open", value_name = "MODE")]
    cache: CacheName,
    /// Let other users in, as far as modes allow; always so if root mounts
    #[arg(long)]
    allow_other: bool,
    /// Stay in the foreground, and say there what goes wrong
    #[arg(long)]
    foreground: bool,
    /// Options as in /etc/fstab, with commas in between; they go before the others
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// The background process, which says on stdout when it is mounted
    #[arg(long, hide = true)]
    in_background: bool,
    /// How reads travel
    #[arg(long, value_enum, default_value = "policy", value_name = "ROUTE")]
    route: RouteName,
    /// Give a call up after this long
    #[arg(long, value_parser = units::duration, default_value = "30s", value_name = "TIME")]
    deadline: Duration,
}

/// A URL, and how it was written. /proc/mounts has that: `mount -a` finds there what /etc/fstab says.
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

/// What the kernel keeps, by name.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum CacheName {
    /// Pages, checked when a file is opened; names and attributes for 1 s
    CloseToOpen,
    /// Nothing
    Off,
}

/// All that the command line and `-o` ask for.
struct Asked {
    mount: odafs_mount::Options,
    route: Route,
    deadline: Duration,
}

/// What the background process writes when it is mounted.
const MOUNTED: &[u8] = b"mounted\n";

/// Mounts.
pub fn run(arguments: Arguments) -> Result<()> {
    let asked = asked(&arguments)?;
    if arguments.foreground || arguments.in_background {
        answer(&arguments, asked)
    } else {
        in_background()
    }
}

/// Starts this program anew in the background, and waits until it has mounted or failed.
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
    // It has said why on stderr.
    let status = child.wait()?;
    std::process::exit(status.code().unwrap_or(1));
}

/// Mounts, and answers the kernel until it is unmounted.
fn answer(arguments: &Arguments, asked: Asked) -> Result<()> {
    // Signals are taken over before anything is mounted: none is lost in between.
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
    let client = Client::connect_with(&arguments.source.url, options)?;
    let mounted = odafs_mount::mount(&client, &arguments.dir, &asked.mount)?;
    if arguments.in_background {
        leave().context("cannot leave the terminal")?;
    }
    let unmounter = mounted.unmounter();
    std::thread::spawn(move || {
        runtime.block_on(signals.next());
        if let Err(error) = unmounter.unmount() {
            eprintln!("odafs: {error}; hidden, and gone when the last file there is closed");
            if let Err(error) = unmounter.detach() {
                eprintln!("odafs: cannot unmount: {error}");
            }
        }
        runtime.block_on(signals.again());
        eprintln!("odafs: told twice, ending at once");
        std::process::exit(1);
    });
    Mounted::wait(mounted).context("the kernel's device failed")
}

/// Tells the process that waits that it is mounted, and leaves its terminal and directory alone from then on.
fn leave() -> Result<()> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    // It fails for who leads a group of processes. What `in_background` started leads none, so that is a program that asked for
    // --in-background itself: it stays in its session.
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
            source: arguments.source.text.clone(),
            ..default
        },
        route: arguments.route.into(),
        deadline: arguments.deadline,
    };
    let options = arguments.options.iter().flat_map(|some| some.split(','));
    for option in options.filter(|option| !option.is_empty()) {
        take(&mut asked, option).map_err(|why| Usage(format!("-o {option}: {why}")))?;
    }
    if asked.deadline.is_zero() {
        bail!(Usage("deadline: more than none is needed".to_owned()));
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
        ("suid", None) => mount.set_id = true,
        ("nosuid", None) => mount.set_id = false,
        ("dev", None) => mount.devices = true,
        ("nodev", None) => mount.devices = false,
        ("exec", None) => mount.execute = true,
        ("noexec", None) => mount.execute = false,
        ("cache", Some(value)) => mount.cache = cache(CacheName::from_str(value, false)?),
        ("route", Some(value)) => asked.route = RouteName::from_str(value, false)?.into(),
        ("deadline", Some(value)) => asked.deadline = units::duration(value)?,
        ("threads", Some(value)) => {
            mount.threads = match value.parse() {
                Ok(threads @ 1..=256) => threads,
                _ => return Err("a number from 1 to 256".to_owned()),
            }
        }
        // What mount(8) and systemd keep for themselves, and what is so anyway.
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
            return Err("a mount does not change; unmount and mount again".to_owned());
        }
        _ => return Err("no such option (`odafs mount --help` has them)".to_owned()),
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
            foreground: false,
            options: vec![options.to_owned()],
            in_background: false,
            route: RouteName::Policy,
            deadline: Duration::from_secs(30),
        })
    }

    #[test]
    fn options_of_fstab() {
        let asked = with("rw,ro,,cache=off,deadline=5s,route=rpc,threads=3,suid,noexec").unwrap();
        assert!(asked.mount.read_only && asked.mount.set_id && !asked.mount.execute);
        assert_eq!((asked.mount.cache, asked.mount.threads), (Cache::Off, 3));
        assert_eq!(asked.deadline, Duration::from_secs(5));
        assert_eq!(asked.route, Route::Rpc);
        with("defaults,_netdev,x-systemd.automount,comment=a,nofail,noauto").unwrap();
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
            "deadline=0s",
            "vers=3",
            "remount",
        ] {
            let error = with(wrong).err().expect(wrong);
            assert!(error.is::<Usage>(), "{wrong}: {error}");
        }
    }
}
