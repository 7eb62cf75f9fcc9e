//! `odafs bench report`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::report::{Page, draw, load_plot, readme_plot, reports_in};
use serde_json::Value;

use crate::{Usage, output, units};

/// A bench of the page.
struct Bench {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Further arguments with `--quick`, which leave out what takes long and says little.
    quick: &'static [&'static str],
}

/// The benches in the order of the page. With `--quick`, they take 268 s together.
const BENCHES: [Bench; 17] = [
    Bench {
        name: "latency",
        arguments: &["latency"],
        quick: &["--size=4096", "--file-size=256MiB", "--seconds=38"],
    },
    Bench {
        name: "breakdown",
        arguments: &["breakdown"],
        quick: &["--seconds=10"],
    },
    Bench {
        name: "policy",
        arguments: &["policy"],
        quick: &["--case=patterns", "--case=no options", "--seconds=40"],
    },
    Bench {
        name: "throughput",
        arguments: &["throughput"],
        quick: &["--read-ahead=0", "--read-ahead=4", "--seconds=26"],
    },
    Bench {
        name: "designs",
        arguments: &["designs"],
        quick: &["--size=128KiB", "--size=1MiB", "--seconds=18"],
    },
    Bench {
        name: "registration",
        arguments: &["registration"],
        quick: &["--size=128KiB", "--size=1MiB", "--seconds=22"],
    },
    Bench {
        name: "revocation",
        arguments: &["registration", "--revocation"],
        quick: &["--rounds=3", "--seconds=5"],
    },
    Bench {
        name: "credits",
        arguments: &["credits"],
        quick: &["--seconds=15"],
    },
    Bench {
        name: "fairness",
        arguments: &["fairness"],
        quick: &["--seconds=20"],
    },
    Bench {
        name: "load",
        arguments: &["load"],
        quick: &["--seconds=10"],
    },
    Bench {
        name: "distribution",
        arguments: &["distribution"],
        quick: &["--seconds=12"],
    },
    Bench {
        name: "scale",
        arguments: &["scale"],
        quick: &["--most=64", "--seconds=8"],
    },
    Bench {
        name: "mixed",
        arguments: &["mixed"],
        quick: &["--seconds=8"],
    },
    Bench {
        name: "metadata",
        arguments: &["metadata"],
        quick: &["--seconds=10"],
    },
    Bench {
        name: "cold",
        arguments: &["cold"],
        quick: &["--seconds=12"],
    },
    Bench {
        name: "soak",
        arguments: &["soak"],
        quick: &["--seconds=10"],
    },
    Bench {
        name: "simulate",
        arguments: &["simulate"],
        quick: &["--seconds=8"],
    },
];

fn names() -> [&'static str; BENCHES.len()] {
    BENCHES.map(|bench| bench.name)
}

/// Run all benches and draw them into one page
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench report all.html                                 everything: about 55 minutes
  odafs bench report all.html --quick                         less, in under five minutes
  odafs bench report few.html --bench designs --bench credits --seconds 60
  odafs bench report old.html --from latency.json --from peers.json
                                                              draw earlier measurements
  odafs bench report all.html --from all.html --plot latency.svg
                                                              draw the README's plot
  odafs bench report all.html --from all.html --plot load=load.svg

The page is one HTML file that contains its plots and fetches nothing. The benches run one after
the other, each as `odafs bench NAME --json` with its defaults. Each heading is followed by the
machine and the commit of its figures, and by all rows behind the plots. The page also contains
the output of the benches, where --from finds it. A bench that fails is left out, unless it has
printed its rows; the page then says why.

The page has other servers only with --from: bench/peers/run in the sources installs and measures
them, and prints a file for --from with --json.")]
pub struct Arguments {
    /// The page to write
    #[arg(value_name = "FILE.html")]
    file: PathBuf,
    /// Measure nothing, and draw this output of `odafs bench NAME --json` or earlier page [may be repeated]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bench", "seconds", "quick"])]
    from: Vec<PathBuf>,
    /// Measure only this bench [may be repeated]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    bench: Vec<String>,
    /// Measure less, in under five minutes
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// Seconds for the whole run, approximately [default: each bench takes as long as by itself]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Also write a plot of the 4 KiB latencies by each route as an SVG file; with `load=`, of those while other programs
    /// hold the server's processor [may be repeated]
    #[arg(long, value_name = "[load=]FILE.svg", value_parser = plot)]
    plot: Vec<Plot>,
    /// Print the output of the benches as a JSON list
    #[arg(long)]
    json: bool,
}

/// Draws a plot from the output of the benches.
type Draw = fn(&[Value]) -> Result<String>;

/// A plot by itself.
#[derive(Clone)]
struct Plot {
    draw: Draw,
    file: PathBuf,
}

fn plot(text: &str) -> Result<Plot, String> {
    let (draw, file): (Draw, _) = match text.strip_prefix("load=") {
        Some(file) => (load_plot, file),
        None => (readme_plot, text),
    };
    match file.is_empty() {
        true => Err("name the file, as in latency.svg or load=load.svg".to_owned()),
        false => Ok(Plot {
            draw,
            file: file.into(),
        }),
    }
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    // Read first: the page to draw from may be the one to write.
    let read = arguments.from.iter().map(|path| read(path));
    let read = read.collect::<Result<Vec<_>>>()?.concat();
    // Fail before the measurement if the page cannot be written.
    let file = output::Whole::begin(&arguments.file)?;
    let plots = (arguments.plot.iter())
        .map(|plot| anyhow::Ok((plot.draw, output::Whole::begin(&plot.file)?)))
        .collect::<Result<Vec<_>>>()?;
    let (reports, failed) = match arguments.from.is_empty() {
        true => measure_all(&arguments),
        false => (read, Vec::new()),
    };
    let mut page = Page::titled("ODAFS: benchmarks");
    page.paragraph(
        "Figures change with the machine and its load: compare only those of one run. Reads follow each other without a \
         pause. Point at a mark to see its exact value.",
    );
    for (name, report) in &reports {
        draw(&mut page, report).with_context(|| format!("{name} is not the report of a bench"))?;
    }
    for Failed {
        name,
        reason,
        has_rows,
    } in &failed
    {
        let left_out = if *has_rows { "" } else { " and is left out" };
        page.warning(&format!("The bench {name} failed{left_out}: {reason}."));
    }
    if arguments.from.is_empty() && arguments.bench.is_empty() {
        page.heading("Peers");
        page.paragraph(&format!(
            "Left out: {}. bench/peers/run in the sources installs, starts and measures them; `--from` draws its output \
             with --json.",
            left_out().join("; ")
        ));
    }
    file.finish(&page.html())?;
    let reports: Vec<Value> = reports.into_iter().map(|(_, report)| report).collect();
    for (draw, file) in plots {
        file.finish(&draw(&reports)?)?;
    }
    let printed = match arguments.json {
        true => output::json(&reports),
        false => Ok(()),
    };
    output::with_result(printed, verdict(&failed))
}

fn verdict(failed: &[Failed]) -> Result<()> {
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|failed| failed.name).collect();
        bail!(
            "these benches failed, for the reasons above: {}",
            names.join(", ")
        );
    }
    Ok(())
}

/// The reports in a file, each with a name.
fn read(path: &Path) -> Result<Vec<(String, Value)>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let found = reports_in(&text)
        .with_context(|| format!("{name} is neither JSON nor a page of `odafs bench report`"))?;
    Ok(found
        .into_iter()
        .map(|report| (name.clone(), report))
        .collect())
}

/// The other servers, and whether they are installed. This command starts none of them.
fn left_out() -> Vec<String> {
    const PEERS: [(&str, &str); 3] = [
        ("Redis", "redis-server"),
        ("memcached", "memcached"),
        ("nfs-ganesha", "ganesha.nfsd"),
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let peer = |(name, program): (&str, &str)| {
        let is_there = places.iter().any(|place| place.join(program).is_file());
        let why = match is_there {
            true => "installed, but not started by this command",
            false => "not installed",
        };
        format!("{name} ({why})")
    };
    PEERS.into_iter().map(peer).collect()
}

/// A bench that failed.
struct Failed {
    name: &'static str,
    /// The last line on its stderr, without a full stop at its end.
    reason: String,
    /// Whether it printed its rows nevertheless.
    has_rows: bool,
}

/// What a bench that ran to its end printed, and whether it failed.
struct Outcome {
    report: Option<Value>,
    error: Option<anyhow::Error>,
}

impl Outcome {
    /// A bench that fails may have printed its rows: `mixed` does when a read is incoherent.
    fn of(is_success: bool, stdout: &[u8]) -> Self {
        let parsed = serde_json::from_slice(stdout).context("the bench printed no JSON");
        let (report, error) = match (parsed, is_success) {
            (Ok(report), true) => (Some(report), None),
            (Ok(report), false) => (Some(report), Some(anyhow!("the bench failed"))),
            (Err(error), true) => (None, Some(error)),
            (Err(_), false) => (None, Some(anyhow!("the bench failed"))),
        };
        Self { report, error }
    }
}

/// What the benches print, and which failed.
fn measure_all(arguments: &Arguments) -> (Vec<(String, Value)>, Vec<Failed>) {
    let wanted = |bench: &&Bench| {
        arguments.bench.is_empty() || arguments.bench.iter().any(|b| b == bench.name)
    };
    let benches: Vec<&Bench> = BENCHES.iter().filter(wanted).collect();
    let each = arguments.seconds.map(|all| all / benches.len() as u32);
    let progress = output::step_progress(benches.len() as u64, "");
    progress.enable_steady_tick(Duration::from_millis(250));
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    for bench in benches {
        progress.set_message(bench.name);
        let (report, said) = measure(bench, arguments.quick, each);
        let lines = said.lines().map(|line| format!("{}: {line}", bench.name));
        progress.suspend(|| lines.for_each(|line| eprintln!("{line}")));
        let (report, error) = match report {
            Ok(Outcome { report, error }) => (report, error),
            Err(error) => (None, Some(error)),
        };
        if let Some(error) = error {
            progress.suspend(|| eprintln!("{}: {error:#}", bench.name));
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            let reason = last.map_or_else(|| format!("{error:#}"), str::to_owned);
            failed.push(Failed {
                name: bench.name,
                reason: reason.trim_end_matches('.').to_owned(),
                has_rows: report.is_some(),
            });
        }
        reports.extend(report.map(|report| (bench.name.to_owned(), report)));
        progress.inc(1);
    }
    progress.finish_and_clear();
    (reports, failed)
}

/// Runs a bench in its own process, because it binds the process to a processor. Its stderr is kept, so that it does not
/// write into the progress bar.
fn measure(bench: &Bench, quick: bool, time: Option<Duration>) -> (Result<Outcome>, String) {
    let mut said = String::new();
    let mut run = || -> Result<Outcome> {
        let program = super::this_program()?;
        let mut command = Command::new(program);
        command.arg("bench").args(bench.arguments).arg("--json");
        command.args(quick.then_some(bench.quick).into_iter().flatten());
        command.args(time.map(|time| format!("--seconds={}", time.as_secs_f64())));
        let output = command
            .stdin(Stdio::null())
            .output()
            .context("cannot start the bench")?;
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Outcome::of(output.status.success(), &output.stdout))
    };
    (run(), said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_that_fails_keeps_the_rows_that_it_printed() {
        let printed = Outcome::of(false, b"{\"rows\": [1]}");
        assert_eq!(printed.report.unwrap()["rows"][0], 1);
        assert!(printed.error.is_some());
        let nothing = Outcome::of(false, b"");
        assert!(nothing.report.is_none() && nothing.error.is_some());
        let good = Outcome::of(true, b"{}");
        assert!(good.report.is_some() && good.error.is_none());
        let no_json = Outcome::of(true, b"x");
        assert!(no_json.report.is_none() && no_json.error.is_some());
    }
}
