//! `odafs serve`: the server.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use odafs_bench::table;
use odafs_common::session::PublicKey;
use odafs_fabric::verbs::VerbsError;
use odafs_server::config::ServerConfig;
use odafs_server::server::{Addresses, Server, StartError};
use tokio::signal::unix::SignalKind;

use crate::config::{self, ServeOptions};
use crate::signals::Signals;
use crate::{Usage, listeners, notify, output};

/// Serve a directory or a tar archive
#[derive(Args)]
#[command(after_help = "Examples:
  odafs serve /srv/data
      serve this machine: NFS on 127.0.0.1:2049, RDMA on 127.0.0.1:20049, shared memory
  odafs serve /srv/data --nfs 0.0.0.0:2049 --allow 10.0.0.0/8 --read-only
      serve a network by NFS
  odafs serve /srv/data --shm /run/data.sock --cache 8GiB
      shared memory only; programs of root and of this user read the page cache directly
  odafs serve /srv/release.tar
      serve the files in a tar archive, read-only; the archive must not be compressed
  odafs serve --export /data=/srv/data --export /pub=/srv/release.tar
      several exports that share one page cache; the root / lists their names
  odafs serve --config /etc/odafs.toml
      take options from a TOML file, one on each line, under the same names:
        dir = \"/srv/data\"
        cache = \"8GiB\"
        nfs = \"0.0.0.0:2049\"
        shm = true
        allow = [\"10.0.0.0/8\", \"192.0.2.7\"]
  odafs serve --nfs 0.0.0.0:2049 --allow 10.0.0.0/8 --export /pub=/srv/pub,read-only \\
      --export /home=/srv/home,allow=10.1.0.0/16:10.2.0.7,squash=root
      exports with options of their own; in the file each is a table:
        [[export]]
        name = \"/home\"
        dir = \"/srv/home\"
        allow = [\"10.1.0.0/16\", \"10.2.0.7\"]
        squash = \"root\"

An address is an IP address with a port, such as 0.0.0.0:2049 for all interfaces. A port alone is
one of the loopback interface: 2049 is 127.0.0.1:2049. Port 0 asks for any free port.

When the server accepts connections, it prints one line with the real ports to stdout:
  ready nfs=127.0.0.1:2049 rdma=127.0.0.1:20049 shm=/run/odafs.sock
SIGTERM, SIGINT and SIGHUP drain the server: it finishes the calls under way and exits with
status 0. A second signal, at least a second later, ends it at once. Before `ready` there is
nothing to drain, and the first signal ends it. With --config, SIGHUP instead reads the file again
and takes over allow, squash, anonuid, anongid and insecure, of the server and of each export;
clients that lose a right lose their references too.

Mount it on Linux, by NFS version 4.2 or by version 3:
  mount -t nfs -o port=2049 127.0.0.1:/ /mnt
  mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,nolock 127.0.0.1:/ /mnt
With --portmap ADDR:111 version 3 needs no port, and its locks hold on all machines:
  mount -t nfs -o vers=3 SERVER:/ /mnt

Mount it over RDMA, on a client with an RDMA card or with soft iWARP (modprobe siw; rdma link
add siw0 type siw netdev eth0):
  mount -t nfs -o vers=3,proto=rdma,port=20049,mountport=2049,mountproto=tcp,nolock SERVER:/ /mnt

Serve by an RDMA device of this machine (`odafs devices` lists them; docs/RDMA.md is the guide):
  odafs serve /srv/data --nfs 10.0.0.1:2049 --verbs 10.0.0.1:20049 --allow 10.0.0.0/8")]
pub struct Arguments {
    /// Read more options from this TOML file, where they have the same names; the command line takes precedence
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Exit at the end of stdin, so that a server never outlives the program that started it
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
    /// Hand every call to a worker thread, to measure what that costs
    #[arg(id = "hand_over", long = "hand-over", hide = true)]
    offload: bool,
    /// Refused: this version records no packet traces
    #[arg(long, hide = true, value_name = "FILE.pcap")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    options: ServeOptions,
}

const NO_TRACE: &str = "--trace: this version records no packet traces; leave the option out, and record NFS and iWARP \
    with `tcpdump -i any -w FILE.pcap port 2049 or port 20049`";

/// Serves until a signal ends it.
pub fn run(arguments: Arguments) -> Result<()> {
    if arguments.trace.is_some() {
        bail!(Usage(NO_TRACE.to_owned()));
    }
    let line = arguments.options.shm_before_dir();
    let (options, config) = configured(line.clone(), arguments.config.as_deref())?;
    let config = ServerConfig {
        offload: arguments.offload,
        ..config
    };
    if let Some(warning) = config::without_admission(&config) {
        eprintln!("odafs: {warning}");
    }
    if let Some(socket) = &config.shm {
        listeners::clear_socket(socket)?;
    }
    // Take over the signals before the server exists, so that none is lost in between.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut ends = Ends {
        signals: runtime.block_on(async { Signals::take_over() })?,
        stdin: arguments.until_stdin_ends,
    };
    let file = arguments.config.as_deref();
    let started = start(&config, &runtime, &mut ends.signals, file.is_some());
    let (server, hung_up) = started.map_err(|error| explain(error, &config))?;
    announce(server.addresses())?;
    notify::tell(notify::State::Ready);
    // Without a file there is nothing to read again, and SIGHUP says that the terminal was closed.
    let started = (options, config.admitted);
    let mut reload = file.map(|file| || reload(&server, &started, line.clone(), file));
    if let Some(reload) = reload.as_mut().filter(|_| hung_up) {
        reload();
    }
    let by_signal = runtime.block_on(ends.wait(reload));
    notify::tell(notify::State::Stopping);
    std::thread::spawn(move || {
        if !by_signal {
            runtime.block_on(ends.signals.next());
        }
        runtime.block_on(ends.signals.again());
        eprintln!("odafs: second signal: ending at once, without draining");
        std::process::exit(1);
    });
    server.shutdown();
    Ok(())
}

/// Starts the server, which may take minutes for a large page cache. Meanwhile a signal ends this process: nobody is served
/// yet, or has been for longer than a moment, so there is nothing to drain. Returns whether SIGHUP came, if that asks to read
/// a file again (`reloads`).
fn start(
    config: &ServerConfig,
    runtime: &tokio::runtime::Runtime,
    signals: &mut Signals,
    reloads: bool,
) -> Result<(Server, bool), StartError> {
    let (started, mut is_started) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|scope| {
        let wait = async move {
            let mut hung_up = false;
            loop {
                tokio::select! {
                    biased;
                    _ = &mut is_started => return hung_up,
                    signal = signals.next() => match signal {
                        signal if reloads && signal == SignalKind::hangup() => hung_up = true,
                        _ => break,
                    }
                }
            }
            notify::tell(notify::State::Stopping);
            eprintln!("odafs: ended before the server was ready");
            std::process::exit(0);
        };
        let thread =
            std::thread::Builder::new().spawn_scoped(scope, move || runtime.block_on(wait));
        let thread = thread.map_err(|source| StartError::Io {
            action: "wait for signals".to_owned(),
            option: None,
            source,
        })?;
        let server = Server::start(config.clone());
        drop(started);
        let hung_up = thread.join().unwrap_or_default();
        Ok((server?, hung_up))
    })
}

/// The options of the command line, and of the file where there is one, and what they mean.
fn configured(line: ServeOptions, file: Option<&Path>) -> Result<(ServeOptions, ServerConfig)> {
    let file = match file {
        Some(path) => ServeOptions::from_file(path)?,
        None => ServeOptions::default(),
    };
    let (options, warnings) = line.with_file(file)?;
    for warning in warnings {
        eprintln!("odafs: an option of the configuration file has no effect: {warning}");
    }
    let config = options.clone().server_config()?;
    Ok((options, config))
}

/// Reads the file again, and takes over what it says of access. A mistake changes nothing. The server was `started` with
/// these options, and with these keys of clients.
fn reload(
    server: &Server,
    started: &(ServeOptions, Vec<PublicKey>),
    line: ServeOptions,
    file: &Path,
) {
    let reloaded = configured(line, Some(file)).and_then(|(options, config)| {
        server.reload(&config).map_err(anyhow::Error::msg)?;
        let mut later = started.0.fixed_options_changed(&options);
        later.extend((started.1 != config.admitted).then_some("admit"));
        Ok(later)
    });
    match reloaded {
        Ok(later) => eprintln!(
            "odafs: reloaded allow, squash, anonuid, anongid and insecure from {}{}",
            file.display(),
            match later.as_slice() {
                [] => String::new(),
                later => format!(
                    "; other changes take effect only when the server is restarted: {}",
                    later.join(", ")
                ),
            }
        ),
        Err(error) => eprintln!(
            "odafs: SIGHUP has changed nothing: {}",
            output::causes(&error)
        ),
    }
}

/// What ends a server.
struct Ends {
    signals: Signals,
    stdin: bool,
}

impl Ends {
    /// Waits for the first of them. Returns true if it was a signal. SIGHUP ends nothing if it can `reload`.
    async fn wait(&mut self, mut reload: Option<impl FnMut()>) -> bool {
        let mut stdin = std::pin::pin!(stdin_ends());
        loop {
            let signal = tokio::select! {
                signal = self.signals.next() => signal,
                () = &mut stdin, if self.stdin => return false,
            };
            match &mut reload {
                Some(reload) if signal == SignalKind::hangup() => reload(),
                _ => return true,
            }
        }
    }
}

/// Waits on a thread of its own, because a read of stdin cannot be cancelled.
async fn stdin_ends() {
    let (ended, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // After an error, too, nothing more comes.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = wait.await;
}

fn announce(addresses: &Addresses) -> Result<()> {
    let mut line = "ready".to_owned();
    let tcp = [
        ("nfs", addresses.nfs),
        ("portmap", addresses.portmap),
        ("rdma", addresses.rdma),
        ("verbs", addresses.verbs),
        ("metrics", addresses.metrics),
    ];
    let shm = addresses
        .shm
        .as_ref()
        .map(|path| format!(" shm={}", path.display()));
    for (name, address) in tcp {
        if name == "verbs" {
            line.extend(shm.iter().map(String::as_str));
        }
        line.extend(address.map(|a| format!(" {name}={a}")));
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("cannot print the line `ready` to stdout")
}

/// Adds a remedy where the system's own words do not suggest one.
fn explain(error: StartError, config: &ServerConfig) -> anyhow::Error {
    let (action, option, source) = match &error {
        StartError::Config(what) => return anyhow!(Usage(what.clone())),
        StartError::State(_) => return anyhow!(error),
        StartError::Memory { asked, available } => {
            return anyhow!(
                "a page cache of {} does not fit in memory: this process can use {} ({}); name a smaller one with --cache",
                table::bytes(*asked),
                table::bytes(available.bytes),
                available.bound
            );
        }
        StartError::Io {
            action,
            option,
            source,
        } => (action, option, source),
    };
    if source.get_ref().is_some_and(|told| told.is::<VerbsError>()) {
        // These errors name their remedies themselves.
        return anyhow!(error);
    }
    let remedy = match (source.kind(), *option) {
        (ErrorKind::AddrInUse, Some("--shm")) => {
            "a server already listens there: stop it, or name another socket with --shm".to_owned()
        }
        (
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotFound,
            Some("--shm"),
        ) => {
            "name a socket in a directory that this user may write to with --shm".to_owned()
        }
        (ErrorKind::AddrInUse, Some("--portmap")) => {
            "rpcbind listens there, most likely: stop it (systemctl disable --now rpcbind.socket rpcbind), or leave --portmap out".to_owned()
        }
        (ErrorKind::AddrInUse, Some(option)) => format!(
            "another program already listens there: stop it, or name another address with {option}; port 0 takes any free port"
        ),
        (ErrorKind::PermissionDenied, Some("--portmap")) if low_port("--portmap", config) => {
            "clients look at port 111 alone: serve as root, give the server CAP_NET_BIND_SERVICE, or leave --portmap out and mount with nolock".to_owned()
        }
        (ErrorKind::PermissionDenied, Some(option)) if low_port(option, config) => {
            format!("only root may listen on ports below 1024; name a higher one with {option}")
        }
        (ErrorKind::AddrNotAvailable, Some("--verbs")) => {
            "this machine has no such address, or the address belongs to no RDMA device: see `odafs devices`".to_owned()
        }
        (ErrorKind::AddrNotAvailable, Some(option)) => {
            format!("this machine has no such address; name one of its own with {option} (`ip addr` lists them)")
        }
        (ErrorKind::OutOfMemory, _) => {
            "there is not enough memory; name a smaller cache with --cache".to_owned()
        }
        // The system's error where it creates no more threads.
        (ErrorKind::WouldBlock, _) => {
            "this user may start no more threads: name fewer with --workers, or raise the limit (ulimit -u, TasksMax= of a systemd unit, --pids-limit of a container)".to_owned()
        }
        _ => return anyhow!(error),
    };
    anyhow!("cannot {action}: {source} ({remedy})")
}

fn low_port(option: &str, config: &ServerConfig) -> bool {
    let address = match option {
        "--nfs" => config.nfs,
        "--portmap" => config.portmap,
        "--rdma" => config.rdma,
        "--verbs" => config.verbs,
        _ => config.metrics,
    };
    address.is_some_and(|a| (1..1024).contains(&a.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(action: &str, option: Option<&'static str>, errno: i32) -> String {
        let config = ServerConfig {
            metrics: Some("127.0.0.1:80".parse().unwrap()),
            portmap: Some("0.0.0.0:111".parse().unwrap()),
            ..ServerConfig::new("/")
        };
        let error = StartError::Io {
            action: action.to_owned(),
            option,
            source: std::io::Error::from_raw_os_error(errno),
        };
        explain(error, &config).to_string()
    }

    #[test]
    fn where_no_thread_can_be_made_there_is_a_remedy() {
        let said = said("start the engine", None, libc::EAGAIN);
        assert!(
            said.contains("threads") && said.contains("--workers"),
            "{said}"
        );
    }

    #[test]
    fn who_may_not_listen_is_told_by_which_option() {
        let forbidden = |option| said("listen", Some(option), libc::EACCES);
        assert!(forbidden("--metrics").contains("a higher one with --metrics"));
        let portmap = forbidden("--portmap");
        assert!(portmap.contains("CAP_NET_BIND_SERVICE") && portmap.contains("nolock"));
        assert!(!portmap.contains("higher"), "{portmap}");
        assert!(forbidden("--shm").contains("with --shm"));
        assert!(!forbidden("--nfs").contains("1024"));
    }
}
