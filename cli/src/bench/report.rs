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
    /// Further ones with `--quick`: they leave out what takes long and says little.
    quick: &'static [&'static str],
}

/// What is measured, in the order of the page. With `--quick` they are asked for 246 s together.
const BENCHES: [Bench; 15] = [
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
        name: "simulate",
        arguments: &["simulate"],
        quick: &["--seconds=8"],
    },
];

fn names() -> [&'static str; BENCHES.len()] {
    BENCHES.map(|bench| bench.name)
}

/// All benches drawn into one page
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench report all.html                                 measure all: half an hour and more
  odafs bench report all.html --quick                         less of it, in under five minutes
  odafs bench report few.html --bench designs --bench credits --seconds 60
  odafs bench report old.html --from latency.json --from peers.json
                                                              draw what was measured before
  odafs bench report all.html --from all.html --plot latency.svg
                                                              the README's plot, of such a page
  odafs bench report all.html --from all.html --plot load=load.svg

The page is one HTML file with its plots in it; it fetches nothing. Each bench runs as `odafs
bench NAME --json` does, one after the other, with its defaults. Under each heading stand the
machine and the commit that its figures come from, and all rows behind the plots. The page keeps
what the benches have printed: --from takes it from there. A bench that fails is left out unless
it has printed its rows, and the page says why. Other servers are measured by bench/peers/run of
the sources, which installs them; --from draws what it prints with --json.")]
pub struct Arguments {
    /// Where the page is written
    #[arg(value_name = "FILE.html")]
    file: PathBuf,
    /// Draw this, which `odafs bench NAME --json` has printed, or a page that was made before, and
    /// measure nothing [may be repeated]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bench", "seconds", "quick"])]
    from: Vec<PathBuf>,
    /// Measure only this bench [may be repeated]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    bench: Vec<String>,
    /// Measure less: all takes under five minutes
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// Time for all of it, about [default: what each takes by default]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
    /// Write the latencies of 4 KiB by each route as an SVG file too; after `load=` those beside
    /// programs that hold the server's processor [may be repeated]
    #[arg(long, value_name = "[load=]FILE.svg", value_parser = plot)]
    plot: Vec<Plot>,
    /// Print what the benches have printed, as a list
    #[arg(long)]
    json: bool,
}

/// Draws one from what the benches have printed.
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
        true => Err("the name of a file is missing".to_owned()),
        false => Ok(Plot {
            draw,
            file: file.into(),
        }),
    }
}

/// Measures and draws.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    // What is drawn from may be the page that is written.
    let read = arguments.from.iter().map(|path| read(path));
    let read = read.collect::<Result<Vec<_>>>()?.concat();
    // A page that cannot be written is told before anything is measured.
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
        "Figures drift with the machine: compare those of one run. Latencies are those of reads that follow each other \
         without a pause. A mark's exact value is shown beside the pointer.",
    );
    for (name, report) in &reports {
        draw(&mut page, report).with_context(|| format!("{name} is no report of a bench"))?;
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
            "Left out: {}. bench/peers/run of the sources installs and starts them; `--from` draws what it prints with \
             --json.",
            left_out().join("; ")
        ));
    }
    file.finish(&page.html())?;
    let reports: Vec<Value> = reports.into_iter().map(|(_, report)| report).collect();
    for (draw, file) in plots {
        file.finish(&draw(&reports)?)?;
    }
    if arguments.json {
        output::json(&reports)?;
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|failed| failed.name).collect();
        bail!("failed (the reasons stand above): {}", names.join(", "));
    }
    Ok(())
}

/// The reports in a file, each with a name.
fn read(path: &Path) -> Result<Vec<(String, Value)>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let json = reports_in(&text).unwrap_or(&text);
    let found = serde_json::from_str(json)
        .with_context(|| format!("{name} is neither JSON nor a page of `odafs bench report`"))?;
    Ok(match found {
        Value::Array(reports) => reports.into_iter().map(|r| (name.clone(), r)).collect(),
        report => vec![(name, report)],
    })
}

/// The other servers, none of which this command starts, and whether they are there.
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
    /// The last that it said, without a stop at its end.
    reason: String,
    /// Whether it printed its rows all the same.
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

/// In a process of its own: a bench binds the one that it runs in to a processor. What it said on stderr is kept, so that
/// nothing is written into the progress bar.
fn measure(bench: &Bench, quick: bool, time: Option<Duration>) -> (Result<Outcome>, String) {
    let mut said = String::new();
    let mut run = || -> Result<Outcome> {
        let program = std::env::current_exe().context("cannot find this program")?;
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
