//! `odafs top`: a live view of a server.

mod fetch;
mod figures;
mod report;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::signals::Signals;
use crate::{Usage, output, units};

use fetch::Source;
use figures::Sample;
use report::Report;
use screen::Screen;
use view::Look;

/// Watch a server: calls, routes, hit rates, queues, clients and slow calls
#[derive(Args)]
#[command(after_help = "Examples:
  odafs serve /srv/data --metrics 127.0.0.1:9049     start a server that can be watched
  odafs top                                          watch it; q or Ctrl-C quits
  odafs top 10.0.0.1:9049 --interval 5               watch another one, every five seconds
  odafs top --once                                   print one interval as text
  odafs top --json | jq .calls_per_second            print one interval for a script

The command asks the server for /metrics and /top.json over HTTP. docs/OPERATIONS.md explains the
figures. If NO_COLOR is set, headings are not bold.")]
pub struct Arguments {
    /// Address of the server's metrics (its option --metrics), or the URL of the metrics
    #[arg(value_name = "HOST:PORT|URL", default_value = "127.0.0.1:9049", value_parser = Source::parse)]
    server: Source,
    /// Print one interval as text, and exit
    #[arg(long)]
    once: bool,
    /// Print one interval as JSON, and exit
    #[arg(long)]
    json: bool,
    /// Time between samples, 0.1 to 3600 seconds; a bare number is seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = units::duration(text)?;
    match (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time) {
        true => Ok(time),
        false => Err("give an interval of 0.1 to 3600 seconds".to_owned()),
    }
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let Arguments {
        server,
        once,
        json,
        interval,
    } = arguments;
    if once || json {
        return print_one(&server, interval, json);
    }
    if !std::io::stdout().is_terminal() {
        bail!(Usage(
            "top: stdout is not a terminal; use --once for text, or --json".to_owned()
        ));
    }
    if std::env::var_os("TERM").is_some_and(|kind| kind == "dumb") {
        bail!(Usage(
            "top: this terminal cannot move its cursor (TERM=dumb); use --once for text, or --json"
                .to_owned()
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(watch(server, interval))
}

/// Prints what happens in one interval from now on.
fn print_one(server: &Source, interval: Duration, json: bool) -> Result<()> {
    let take = || Sample::take(server).map_err(|why| anyhow!("cannot watch {server}: {why}"));
    let before = take()?;
    std::thread::sleep(interval);
    let report = Report::between(Some(&before), &take()?, &server.to_string());
    if json {
        return output::json(&report);
    }
    let lines = view::lines(&report, Look::plain());
    output::text(&(lines.join("\n") + "\n"))
}

/// Draws until the user quits.
async fn watch(server: Source, interval: Duration) -> Result<()> {
    let mut signals = Signals::take_over()?;
    let mut resized = signal(SignalKind::window_change())?;
    let screen = Screen::open()?;
    let mut keys = screen::keys();
    let mut samples = samples(server.clone(), interval);
    let mut last: Option<Sample> = None;
    let mut shown = Shown::Waiting("connecting".to_owned());
    loop {
        screen.draw(|look| shown.lines(&server, look))?;
        tokio::select! {
            _ = signals.next() => return Ok(()),
            _ = resized.recv() => {}
            key = keys.recv() => match key {
                Some(b'q' | b'Q' | 3 | 4) => return Ok(()),
                Some(_) => {}
                None => keys = screen::no_keys(),
            },
            sample = samples.recv() => match sample {
                Some(Ok(sample)) => {
                    let report = Report::between(last.as_ref(), &sample, &server.to_string());
                    shown = Shown::Report(Box::new(report));
                    last = Some(sample);
                }
                Some(Err(why)) => {
                    shown = Shown::Waiting(why);
                    last = None;
                }
                None => return Err(anyhow!("the thread that asks the server has panicked")),
            },
        }
    }
}

/// The contents of the screen.
enum Shown {
    Report(Box<Report>),
    /// The server does not answer, for this reason.
    Waiting(String),
}

impl Shown {
    fn lines(&self, server: &Source, look: Look) -> Vec<String> {
        match self {
            Shown::Report(report) => view::lines(report, look),
            Shown::Waiting(why) => view::waiting(&server.to_string(), why, look),
        }
    }
}

/// Takes one sample for each interval on a thread of its own, so that a server that does not answer blocks nothing here.
/// While the terminal is stopped (Ctrl-S), one sample waits and no more are taken.
fn samples(
    server: Source,
    interval: Duration,
) -> mpsc::Receiver<std::result::Result<Sample, String>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        loop {
            let began = Instant::now();
            if sender.blocking_send(Sample::take(&server)).is_err() {
                return;
            }
            std::thread::sleep(interval.saturating_sub(began.elapsed()));
        }
    });
    receiver
}
