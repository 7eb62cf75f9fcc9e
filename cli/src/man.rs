//! `odafs man`: writes the manual pages of this command line.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;

use crate::Cli;

/// Write this program's manual pages to a directory
#[derive(Args)]
#[command(after_help = "Examples:
  odafs man /usr/local/share/man/man1      then: man odafs, man odafs-serve
  odafs man . && man ./odafs-serve.1       to look at one

Each command has a page: odafs.1, odafs-serve.1, odafs-bench-latency.1 and so on.")]
pub struct Arguments {
    /// Where to write them; the directory is created if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(&arguments.directory)
        .and_then(|()| write(&command, &arguments.directory))
        .with_context(|| {
            let directory = arguments.directory.display();
            format!("cannot write manual pages to {directory}")
        })
}

/// The program and its version, in the head of every page.
const SOURCE: &str = concat!("odafs ", env!("CARGO_PKG_VERSION"));

/// Writes the page of a command and those of its subcommands.
fn write(command: &Command, directory: &Path) -> io::Result<()> {
    let page = Man::new(command.clone()).source(SOURCE);
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = with_lines_kept(&String::from_utf8_lossy(&text));
    std::fs::write(directory.join(page.get_filename()), text)?;
    let mut below = command.get_subcommands();
    below.try_for_each(|command| write(command, directory))
}

/// Keeps the line breaks of the hand-written help below the options, which contains examples.
fn with_lines_kept(page: &str) -> String {
    const EXTRA: &str = ".SH EXTRA\n";
    let Some((before, extra)) = page.split_once(EXTRA) else {
        return page.to_owned();
    };
    let end = extra.find("\n.SH ").map_or(extra.len(), |at| at + 1);
    let (extra, behind) = extra.split_at(end);
    format!("{before}.SH NOTES\n.nf\n{extra}.fi\n{behind}")
}
