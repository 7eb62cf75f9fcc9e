//! `odafs top`: one interval as text and JSON, and the screen on a terminal.

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use common::{Server, odafs, run, text};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

fn served() -> (tempfile::TempDir, Server, String) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), vec![7; 300_000]).unwrap();
    let server = Server::start(directory.path(), &["--metrics", "127.0.0.1:0"]);
    let metrics = server.word("metrics=");
    (directory, server, metrics)
}

#[test]
fn one_interval_as_json_has_what_happened_in_it() {
    let (_directory, server, metrics) = served();
    let top = odafs()
        .args(["top", "--json", "--interval", "2", &metrics])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Some of it falls into the interval, however slow the machine is: it goes on until the end.
    let url = server.nfs_url("/f");
    let mut top = Running(Some(top));
    while top.child().try_wait().unwrap().is_none() {
        run(&["cat", &url]);
    }
    let output = top.0.take().unwrap().wait_with_output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| {
        report[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {report}"))
    };
    assert_eq!(report["server"], *metrics);
    assert!(number("interval_seconds") >= 2.0, "{report}");
    assert!(number("calls_per_second") > 0.0 && number("bytes_per_second") > 0.0);
    assert!(number("cache_used_bytes") > 0.0 && number("up_seconds") > 0.0);
    let procedures = report["procedures"].as_array().unwrap();
    let read = procedures
        .iter()
        .find(|row| row["procedure"] == "READ")
        .unwrap();
    assert!(read["calls_per_second"].as_f64().unwrap() > 0.0, "{read}");
    assert!(report["connections"]["tcp"].is_number(), "{report}");
}

/// A child that ends with the test.
struct Running(Option<Child>);

impl Running {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn one_interval_as_text_fits_80_columns() {
    let (_directory, _server, metrics) = served();
    let url = format!("http://{metrics}/metrics");
    let output = run(&["top", "--once", "--interval", "0.1", &url]);
    let shown = text(&output.stdout);
    for word in [
        "odafs ",
        "calls ",
        "direct ",
        "connections iwarp 0, shm 0, tcp 0, verbs 0",
        "queues   io 0/8",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(
        shown.lines().all(|line| line.len() <= 80) && !shown.contains('\x1b'),
        "{shown}"
    );
}

/// What is said of a server that cannot be watched.
fn refused(address: &str) -> String {
    let output = odafs().args(["top", "--once", address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{address}");
    text(&output.stderr)
}

#[test]
fn who_cannot_be_watched_is_told_with_the_option() {
    let (_directory, server, _metrics) = served();
    // Nobody is there.
    let vacant = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let told = refused(&vacant.to_string());
    assert!(told.contains(&format!("--metrics {vacant}")), "{told}");
    // The server's NFS closes, or says nothing.
    let told = refused(&server.nfs);
    assert!(
        told.contains("--metrics") || told.contains("in time"),
        "{told}"
    );
    for (answer, expected) in [
        (&b"SSH-2.0-x\r\n"[..], "--metrics"),
        (b"", "--metrics"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "--metrics"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "503"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "cut short",
        ),
        (
            b"HTTP/1.1 200 OK\r\n\r\nnode_load1 1\n",
            "not an ODAFS server",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        });
        let told = refused(&address);
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn an_endless_answer_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        let mut sent = 0;
        let mut part = &head[..];
        while sent < 256 << 20 && stream.write_all(part).is_ok() {
            sent += part.len();
            part = &[b'x'; 65536];
        }
        sent
    });
    let told = refused(&address);
    assert!(told.contains("bytes") || told.contains("in time"), "{told}");
    assert!(sender.join().unwrap() < 256 << 20);
}

/// A terminal with the program on it.
struct Terminal {
    screen: File,
    /// Kept open, to see in what state the program leaves it.
    line: File,
    child: Running,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(arguments: &[&str], colour: bool) -> Self {
        Self::of_kind("xterm", arguments, colour)
    }

    /// `kind` is `$TERM`.
    fn of_kind(kind: &str, arguments: &[&str], colour: bool) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let name = name.to_str().unwrap().to_owned();
        let open = || File::options().read(true).write(true).open(&name).unwrap();
        let line = open();
        let mut command = odafs();
        command.arg("top").args(arguments);
        command.stdin(open()).stdout(open()).stderr(open());
        command.env_remove("NO_COLOR").env("TERM", kind);
        if !colour {
            command.env("NO_COLOR", "1");
        }
        resize(&line, 80, 24);
        let child = Running(Some(command.spawn().unwrap()));
        let screen = File::from(screen);
        let mut reader = screen.try_clone().unwrap();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(bytes @ 1..) = reader.read(&mut part) {
                if sender.send(part[..bytes].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            screen,
            line,
            child,
            output,
            seen: String::new(),
        }
    }

    /// Reads until it has been seen, and forgets what was before.
    fn until(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(wanted) {
                let rest = self.seen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let part = self.output.recv_timeout(Duration::from_secs(60));
            let part = part.unwrap_or_else(|_| panic!("no {wanted:?}: {:?}", self.seen));
            self.seen += &text(&part);
        }
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Its end, by a key or a signal: status 0, and the terminal as it was.
    fn ended(&mut self) {
        self.until("\x1b[?25h\x1b[?1049l");
        assert!(self.child.child().wait().unwrap().success());
        assert!(!self.is_raw());
    }
}

fn resize(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn the_screen_shows_the_server_waits_for_it_and_gives_the_terminal_back() {
    let (_directory, server, metrics) = served();
    let mut terminal = Terminal::start(&["--interval", "0.1", &metrics], true);
    terminal.until("\x1b[?1049h\x1b[?25l");
    terminal.until("\x1b[1modafs ");
    terminal.until("queues   io");
    assert!(terminal.is_raw());
    drop(server);
    terminal.until(&format!("waiting for {metrics}"));
    terminal.until("--metrics");
    // Neither Ctrl-Z nor Ctrl-\ leaves the terminal in the program's state.
    terminal.screen.write_all(b"x\x1a\x1cq").unwrap();
    terminal.ended();
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_is_refused() {
    let mut terminal = Terminal::of_kind("dumb", &["127.0.0.1:1"], true);
    terminal.until("--once");
    assert_eq!(terminal.child.child().wait().unwrap().code(), Some(2));
}

#[test]
fn signals_end_it_and_sizes_and_no_color_are_honoured() {
    let (_directory, _server, metrics) = served();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut terminal = Terminal::start(&["--interval", "0.1", &metrics], false);
        let drawn = terminal.until("queues   io");
        assert!(!drawn.contains("\x1b[1m"), "{drawn:?}");
        resize(&terminal.line, 20, 3);
        // It is told by a signal where the terminal is the program's own; here the next drawing sees it.
        terminal.until("\x1b[J");
        terminal.until("\x1b[H");
        let small = loop {
            let drawn = terminal.until("\x1b[J");
            if drawn.matches("\r\n").count() == 2 {
                break drawn;
            }
        };
        // The terminal's own line discipline puts a return before each new line.
        let plain = ["\x1b[K", "\x1b[H", "\x1b[J", "\r"]
            .iter()
            .fold(small.clone(), |text, code| text.replace(code, ""));
        assert!(plain.lines().all(|line| line.len() <= 20), "{small:?}");
        let process = rustix::process::Pid::from_child(terminal.child.child());
        rustix::process::kill_process(process, signal).unwrap();
        terminal.ended();
    }
}
