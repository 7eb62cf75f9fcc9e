//! `odafs refs`: prints the references that a server hands out.

use anyhow::{Result, bail};
use clap::Args;
use odafs::{FileReferences, ServerAddress, Url};
use odafs_bench::table::{Table, count, counted};
use serde::Serialize;

use crate::connection::{Clients, ConnectionArguments, url};
use crate::each::each;
use crate::{Usage, output};

/// Show the references to a file's pages that a server hands out
#[derive(Args)]
#[command(after_help = "Examples:
  odafs refs odafs+shm:///data.bin
  odafs refs --json odafs+shm:///data.bin

A reference says where in the server's memory a page of a file lies. Only pages in the server's
page cache have one. If there are none, read the file first (`odafs cat`). `address` and `length`
are in bytes. The keys that grant access are not shown.")]
pub struct Arguments {
    /// Files whose references to show
    #[arg(required = true, value_name = "URL", value_parser = url)]
    urls: Vec<Url>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Serialize)]
struct Row {
    url: String,
    size: u64,
    change: u64,
    page_bytes: u32,
    counter: bool,
    references: Vec<Reference>,
}

#[derive(Serialize)]
struct Reference {
    page: u64,
    address: u64,
    length: u32,
    handle: u32,
    epoch: u64,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut clients = Clients::new(arguments.connection.options()?);
    let mut rows = Vec::new();
    let all = each(&arguments.urls, |url| {
        if matches!(url.server, ServerAddress::NfsTcp(_)) {
            bail!(Usage(format!(
                "{url}: nfs:// carries calls only, and no references; use odafs+shm:// or odafs://"
            )));
        }
        let (client, path) = clients.at(url)?;
        rows.extend(client.refs(&[path])?.into_iter().map(|file| row(url, file)));
        Ok(())
    });
    output::found(&rows, arguments.json, print, all)
}

fn print(rows: &[Row]) -> Result<()> {
    for row in rows {
        let pages = row.size.div_ceil(u64::from(row.page_bytes.max(1)));
        output::text(&format!(
            "{}: {} of {}, change {}{}\n",
            row.url,
            count(row.references.len() as u64),
            counted(pages, "page"),
            row.change,
            if row.counter {
                ", change counter readable"
            } else {
                ""
            },
        ))?;
        let mut table = Table::new(["page", "address", "length", "handle", "epoch"]);
        for r in &row.references {
            let hex = format!("{:#x}", r.address);
            table.row(vec![
                r.page.to_string(),
                hex,
                r.length.to_string(),
                r.handle.to_string(),
                r.epoch.to_string(),
            ]);
        }
        if !row.references.is_empty() {
            output::table(&table)?;
        }
    }
    Ok(())
}

fn row(url: &Url, file: FileReferences) -> Row {
    Row {
        url: url.to_string(),
        size: file.size,
        change: file.change,
        page_bytes: file.page_bytes,
        counter: file.counter,
        references: file
            .pages
            .iter()
            .map(|p| Reference {
                page: p.page,
                address: p.address,
                length: p.length,
                handle: p.handle,
                epoch: p.epoch,
            })
            .collect(),
    }
}
