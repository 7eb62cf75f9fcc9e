//! `odafs bench convert`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use odafs_bench::convert::{self, Format, Kept};
use odafs_bench::table::counted;

use crate::{output, units};

/// Convert a trace of another format to one of ours, on stdout
#[derive(Args)]
#[command(after_help = "Examples:
  strace -f -y -ttt -T -s 0 -e trace=file,desc,process -o out.strace program
  odafs bench convert --from strace --under /data out.strace >program.trace
  zcat web_0.csv.gz | odafs bench convert --from msr --fold 256MiB --limit 100000 - >web.trace

Formats: `strace` (with the options above), `msr` (block traces of Microsoft Research Cambridge)
and `ibm-cos` (object store traces of IBM). docs/TRACES.md in the sources describes how each is
converted.")]
pub struct Arguments {
    /// The file to convert, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its format
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(["strace", "msr", "ibm-cos"]))]
    from: String,
    /// For strace: keep only names below this directory, which becomes the root of the trace
    #[arg(long, value_name = "DIR", default_value = "/")]
    under: PathBuf,
    /// The largest file; offsets beyond it wrap around to 0 [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    fold: Option<u64>,
    /// Stop after this many operations
    #[arg(long, value_name = "N", default_value_t = 1 << 24)]
    limit: usize,
    /// Put all operations into one thread, in the order of time (for programs that wait for each other)
    #[arg(long)]
    one_thread: bool,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let name = arguments.file.display().to_string();
    ensure!(arguments.fold != Some(0), "--fold: must be 1 or more");
    let format = match &*arguments.from {
        "strace" => Format::Strace,
        "msr" => Format::Msr,
        _ => Format::IbmCos,
    };
    let input: Box<dyn BufRead> = match &*name {
        "-" => Box::new(std::io::stdin().lock()),
        _ => {
            let file =
                File::open(&arguments.file).with_context(|| format!("cannot read {name}"))?;
            Box::new(BufReader::new(file))
        }
    };
    let kept = Kept {
        under: arguments.under.as_os_str().as_bytes().to_vec(),
        fold: arguments.fold,
        limit: arguments.limit,
        one_thread: arguments.one_thread,
    };
    let converted = convert::convert(format, input, &kept).with_context(|| name.clone())?;
    ensure!(
        !converted.trace.entries.is_empty(),
        "{name}: no operation could be converted (skipped: {}); check --from and --under",
        counted(converted.skipped, "line")
    );
    output::text(&converted.trace.to_string())
}
