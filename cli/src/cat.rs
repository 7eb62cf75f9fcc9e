//! `odafs cat`: prints files, or the route by which their bytes came.

mod lines;

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use clap::Args;
use odafs::{Cache, File, Options, Url};
use serde::ser::{SerializeSeq, Serializer};

use crate::connection::{Clients, ReadArguments, url};
use crate::copy::copy;
use crate::each::each;
use crate::{Usage, output};
use lines::Lines;

/// Bytes of one read of `--why`.
const READ_BYTES: usize = 1 << 20;

/// Print files, or the route of each read and the reason for it
#[derive(Args)]
#[command(after_help = "Examples:
  odafs cat nfs://127.0.0.1/notes.txt
  odafs cat --why odafs+shm:///run/odafs.sock?/notes.txt
  odafs cat --why odafs://server/notes.txt
      read the file twice, and print how each part came instead of its bytes: by RPC
      in the first pass, when there is no reference yet, and directly in the second

With --why, the file is read 1 MiB at a time. A row is a part of such a read: neighbouring pages
that took the same route for the same reason. `time` is from the start of the read until the part
was there. After more than 20 rows, a summary by route and reason follows. With --json, each
page has an object of its own.

Several files are printed one after the other. If one fails, the others are still printed, and
the exit status is 1.")]
pub struct Arguments {
    /// Files to print
    #[arg(required = true, value_name = "URL", value_parser = url)]
    urls: Vec<Url>,
    /// Instead of the bytes, print the route of each read and the reason for it
    #[arg(long)]
    why: bool,
    /// With --why: how many times to read the file
    #[arg(long, value_name = "N", default_value_t = 2, requires = "why")]
    passes: u32,
    /// With --why: keep pages in the client's data cache between passes
    #[arg(long, requires = "why")]
    cached: bool,
    /// With --why: print JSON instead of a table
    #[arg(long, requires = "why")]
    json: bool,
    #[command(flatten)]
    reading: ReadArguments,
}

#[derive(serde::Serialize)]
struct Row {
    url: String,
    pass: u32,
    offset: u64,
    length: u32,
    route: String,
    ns: u64,
    why: String,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    Usage::unless_none("--passes", arguments.passes == 0)?;
    let mut options = arguments.reading.options()?;
    if arguments.why && !arguments.cached {
        options.cache = Cache::Off;
    }
    match arguments.why {
        true => why(&arguments, options),
        false => bytes(&arguments, options),
    }
}

fn bytes(arguments: &Arguments, options: Options) -> Result<()> {
    let mut clients = Clients::new(options);
    let mut out = output::Stdout::lock();
    let keep = arguments.reading.is_direct();
    let all = each(&arguments.urls, |url| {
        let (client, path) = clients.at(url)?;
        copy(&client.open(path)?, keep, &mut out, |_| {})
    });
    let printed = out.flush().map_err(anyhow::Error::from);
    output::with_result(printed, all)
}

/// Prints rows as they come, because those of a long file may not fit in memory.
fn why(arguments: &Arguments, options: Options) -> Result<()> {
    if arguments.json {
        return why_in_json(arguments, options);
    }
    let mut lines = Lines::new();
    let all = trace_all(arguments, options, &mut |row| lines.add(row));
    let printed = match all.is_ok() || !lines.is_empty() {
        true => lines.finish(),
        false => Ok(()),
    };
    output::with_result(printed, all)
}

/// Prints a list of rows. If there are none because of a failure, it prints nothing, as the other commands do.
fn why_in_json(arguments: &Arguments, options: Options) -> Result<()> {
    let mut out = BufWriter::new(output::Stdout::lock());
    let mut json = serde_json::Serializer::pretty(&mut out);
    let mut unopened = Some(&mut json);
    let mut list = None;
    let all = trace_all(arguments, options, &mut |row| {
        if let Some(json) = unopened.take() {
            list = Some(json.serialize_seq(None).map_err(io::Error::from)?);
        }
        if let Some(list) = &mut list {
            list.serialize_element(&row).map_err(io::Error::from)?;
        }
        Ok(())
    });
    if let (Some(json), true) = (unopened.take(), all.is_ok()) {
        list = Some(json.serialize_seq(None).map_err(io::Error::from)?);
    }
    let Some(list) = list else {
        return all;
    };
    let ended = list.end().map_err(io::Error::from);
    let printed = ended.and_then(|()| {
        writeln!(out)?;
        out.flush()
    });
    output::with_result(printed.map_err(anyhow::Error::from), all)
}

/// Reads all files, and passes a row for each part of each read to `tell`.
fn trace_all(
    arguments: &Arguments,
    options: Options,
    tell: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<()> {
    let mut clients = Clients::new(options);
    each(&arguments.urls, |url| {
        let (client, path) = clients.at(url)?;
        let file = client.open(path)?;
        (1..=arguments.passes).try_for_each(|pass| trace(&file, url, pass, tell))
    })
}

fn trace(file: &File, url: &Url, pass: u32, tell: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    loop {
        let traced = file.read_traced(&mut buffer, offset)?;
        // Leave out the part behind the end of the file.
        for step in traced.steps.iter().filter(|step| step.length > 0) {
            tell(Row {
                url: url.to_string(),
                pass,
                offset: step.offset,
                length: step.length,
                route: step.taken.to_string(),
                ns: step.took.as_nanos() as u64,
                why: step.why.to_string(),
            })?;
        }
        if traced.bytes == 0 {
            return Ok(());
        }
        offset += traced.bytes as u64;
    }
}
