//! `odafs completions`: prints a shell's completion script for this command line.

use anyhow::Result;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{Cli, output};

/// Print a shell's completion script for this command
#[derive(Args)]
#[command(after_help = "Examples:
  odafs completions bash > ~/.local/share/bash-completion/completions/odafs
  odafs completions zsh > /usr/local/share/zsh/site-functions/_odafs
  odafs completions fish > ~/.config/fish/completions/odafs.fish")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "odafs", &mut script);
    output::text(&String::from_utf8(script)?)
}
