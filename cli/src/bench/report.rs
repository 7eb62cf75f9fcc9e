//! `odafs bench report`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::report::{Page, draw};
use serde_json::Value;

use crate::{Usage, output, units};

/// The benches that are measured, in the order of the page.
const BENCHES: [&str; 7] = [
    "latency",
    "breakdown",
    "throughput",
    "designs",
    "registration",
    "credits",
    "policy",
];

/// All benches drawn into one page
#[derive(Args)]
#[command(after_help = "Examples:
  odafs bench report all.html                                 measure all, and draw them
  odafs bench report few.html --bench designs --bench credits --seconds 60
  odafs bench report old.html --from latency.json --from throughput.json
                                                              draw what was measured before

The page is one HTML file with its plots in it; it fetches nothing. Each bench runs as
`odafs bench NAME --json` does, one after the other, with its defaults. Under each heading stand
the machine and the commit that its figures come from, and all rows behind the plots.")]
pub struct Arguments {
    /// Where the page is written
    #[arg(value_name = "FILE.html")]
    file: PathBuf,
    /// Draw this, which `odafs bench NAME --json` has printed, and measure nothing [may be repeated]
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["bench", "seconds"])]
    from: Vec<PathBuf>,
    /// Measure only this bench [may be repeated]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(BENCHES))]
    bench: Vec<String>,
    /// Time for all of it, about [default: what each takes by default]
    #[arg(long, value_name = "N", value_parser = units::duration)]
    seconds: Option<Duration>,
}

/// Measures and draws.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_no_time("--seconds", arguments.seconds)?;
    // A page that cannot be written is told before anything is measured.
    let file = output::Whole::begin(&arguments.file)?;
    let mut page = Page::titled("ODAFS: benchmarks");
    for (name, report) in reports(&arguments)? {
        draw(&mut page, &report).with_context(|| format!("{name} is no report of a bench"))?;
    }
    file.finish(&page.html("ODAFS: benchmarks"))
}

fn reports(arguments: &Arguments) -> Result<Vec<(String, Value)>> {
    if !arguments.from.is_empty() {
        return arguments.from.iter().map(|path| read(path)).collect();
    }
    let wanted =
        |name: &&&str| arguments.bench.is_empty() || arguments.bench.iter().any(|b| b == **name);
    let names: Vec<&str> = BENCHES.iter().filter(wanted).copied().collect();
    let each = arguments.seconds.map(|all| all / names.len() as u32);
    let progress = output::step_progress(names.len() as u64, "");
    let mut reports = Vec::new();
    for name in names {
        progress.set_message(name.to_owned());
        reports.push((name.to_owned(), measure(name, each)?));
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(reports)
}

fn read(path: &Path) -> Result<(String, Value)> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let report = serde_json::from_str(&text).with_context(|| format!("{name} is no JSON"))?;
    Ok((name, report))
}

/// In a process of its own: a bench binds the one that it runs in to a processor.
fn measure(name: &str, time: Option<Duration>) -> Result<Value> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(["bench", name, "--json"]);
    command.args(time.map(|time| format!("--seconds={}", time.as_secs_f64())));
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start the bench {name}"))?;
    if !output.status.success() {
        bail!("the bench {name} failed (its reason stands above)");
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the bench {name} printed no JSON"))
}
