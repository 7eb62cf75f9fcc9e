//! `odafs stat`: prints the attributes of files.

use anyhow::Result;
use clap::Args;
use odafs::Url;
use odafs_bench::table::{count, counted};
use serde::Serialize;

use crate::connection::{Clients, ConnectionArguments, url};
use crate::each::each;
use crate::ls::Facts;
use crate::output;

/// Show the attributes of files
#[derive(Args)]
#[command(after_help = "Examples:
  odafs stat nfs://127.0.0.1/notes.txt
  odafs stat --json odafs+shm:///run/odafs.sock?/data/table.parquet

Sizes are in bytes, modes in octal, times in UTC.")]
pub struct Arguments {
    /// Files or directories
    #[arg(required = true, value_name = "URL", value_parser = url)]
    urls: Vec<Url>,
    /// Show a symbolic link itself, not the file to which it points
    #[arg(long)]
    link: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Serialize)]
struct Row {
    url: String,
    file_id: u64,
    filesystem_id: u64,
    #[serde(flatten)]
    facts: Facts,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut clients = Clients::new(arguments.connection.options()?);
    let mut rows = Vec::new();
    let all = each(&arguments.urls, |url| {
        let (client, path) = clients.at(url)?;
        let metadata = if arguments.link {
            client.stat_link(path)?
        } else {
            client.stat(path)?
        };
        rows.push(Row {
            url: url.to_string(),
            file_id: metadata.file_id,
            filesystem_id: metadata.filesystem_id,
            facts: Facts::from(&metadata),
        });
        Ok(())
    });
    output::found(&rows, arguments.json, print, all)
}

fn print(rows: &[Row]) -> Result<()> {
    for row in rows {
        let f = &row.facts;
        output::text(&format!(
            "{}\n  {} {}, {} ({} on disk), {}\n  owner {}:{}, file {} of file system {:x}\n  \
             modified {}, changed {}, accessed {}\n",
            row.url,
            f.kind,
            f.mode,
            counted(f.size, "byte"),
            count(f.used),
            counted(f.links, "link"),
            f.uid,
            f.gid,
            row.file_id,
            row.filesystem_id,
            f.modified,
            f.changed,
            f.accessed,
        ))?;
    }
    Ok(())
}
