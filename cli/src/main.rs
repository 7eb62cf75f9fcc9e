//! The command `odafs`: it serves a directory, reads and writes files on a server, and measures both.
#![forbid(unsafe_code)]

mod bench;
mod cat;
mod completions;
mod config;
mod connection;
mod copy;
mod demo;
mod devices;
mod doctor;
mod each;
mod get;
mod grantee;
mod identity;
mod keys;
mod listeners;
mod logs;
mod ls;
mod man;
mod mkdir;
mod mount;
mod mv;
mod notify;
mod output;
mod put;
mod refs;
mod rm;
mod serve;
mod signals;
mod stat;
mod top;
mod unfinished;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A file server whose page cache its clients read directly.
#[derive(Parser)]
#[command(
    name = "odafs",
    version,
    propagate_version = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  odafs demo                                      compare the routes, on generated files
  odafs serve /srv/data                           serve a directory to this machine
  odafs ls odafs+shm:///                          list it, over shared memory
  odafs cat --why nfs://127.0.0.1/notes.txt       show the route of each read, and the reason
  odafs mount odafs+shm:/// /mnt                  mount it through FUSE, for all programs
  mount -t nfs -o port=2049 127.0.0.1:/ /mnt      mount it with the kernel's NFS client

URLs:
  odafs+shm:///PATH                               shared memory, through the default socket
  odafs+shm:///SOCKET?/PATH                       through another one: /run/data.sock?/
  odafs+shm://%2FSOCKET/PATH                      the same, encoded: %2Frun%2Fdata.sock/
  odafs://HOST[:PORT]/PATH[?mountport=N&crc=1]    RDMA over TCP, no hardware (port 20049)
  odafs+verbs://HOST[:PORT]/PATH[?mountport=N]    an RDMA device (port 20049; docs/RDMA.md)
  nfs://HOST[:PORT]/PATH[?mountport=N]            NFS version 3 over TCP, any server (port 2049)
  PATH begins with the name of the export (`odafs serve --export`), which is / by default.
  mountport=N is the port of MOUNT, on servers other than ours. crc=1 adds checksums.

In the PATH of a URL, write % as %25 and ? as %3F (percent-encoding, RFC 3986).

Sizes take a unit, as in 512MiB (B, KiB, MiB, GiB, TiB); a bare number is bytes. Times take a
unit, as in 50us (ns, us, ms, s, min, h); a bare number is seconds where an option allows one.

Exit status: 0 success, 1 failure, 2 wrong usage. With ODAFS_LOG=info or debug, a server logs
more to stderr (the default is warn). Clients log only failures of their connections;
`odafs cat --why` shows how they read."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Serve(Box<serve::Arguments>),
    Ls(ls::Arguments),
    Stat(stat::Arguments),
    Cat(cat::Arguments),
    Get(get::Arguments),
    Put(put::Arguments),
    Rm(rm::Arguments),
    Mkdir(mkdir::Arguments),
    Mv(mv::Arguments),
    Mount(mount::Arguments),
    Identity(identity::Arguments),
    Refs(refs::Arguments),
    Devices(devices::Arguments),
    Doctor(doctor::Arguments),
    Top(top::Arguments),
    #[command(subcommand)]
    Bench(bench::Command),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| end_with(&error));
    let result = logs::start().and_then(|()| match cli.command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Ls(arguments) => ls::run(arguments),
        Command::Stat(arguments) => stat::run(arguments),
        Command::Cat(arguments) => cat::run(arguments),
        Command::Get(arguments) => get::run(arguments),
        Command::Put(arguments) => put::run(arguments),
        Command::Rm(arguments) => rm::run(arguments),
        Command::Mkdir(arguments) => mkdir::run(arguments),
        Command::Mv(arguments) => mv::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Identity(arguments) => identity::run(arguments),
        Command::Refs(arguments) => refs::run(arguments),
        Command::Devices(arguments) => devices::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Bench(command) => bench::run(command),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<each::Told>() {
            Some(told) => told.exit_code(),
            None => {
                eprintln!("odafs: {}", output::causes(&error));
                exit_code(is_usage(&error))
            }
        },
    }
}

/// Prints clap's error, or the help that was asked for, and ends. An error of the standard library's numbers is put into
/// words that say what to give instead.
fn end_with(error: &clap::Error) -> ! {
    const WORDS: [(&str, &str); 4] = [
        ("invalid digit found in string", "give a whole number"),
        (
            "cannot parse integer from empty string",
            "give a whole number",
        ),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
        (
            "number too small to fit in target type",
            "the number is too small",
        ),
    ];
    let said = error.render().to_string();
    match WORDS.into_iter().find(|(theirs, _)| said.contains(theirs)) {
        Some((theirs, ours)) => {
            eprint!("{}", said.replace(theirs, ours));
            std::process::exit(error.exit_code())
        }
        None => error.exit(),
    }
}

/// The exit status of a command that failed.
fn exit_code(is_usage: bool) -> ExitCode {
    ExitCode::from(if is_usage { 2 } else { 1 })
}

/// Whether the request itself was wrong, so that no change of the environment helps. A fabric that this program was
/// built without counts too.
fn is_usage(error: &anyhow::Error) -> bool {
    let lacks = |error| matches!(error, &odafs::ConnectError::NoFabric { .. });
    error.is::<Usage>() || error.downcast_ref().is_some_and(lacks)
}

/// A request that cannot be met as given. The process exits with status 2.
#[derive(Debug)]
struct Usage(String);

impl Usage {
    /// Refuses zero, with which nothing would be measured.
    fn unless_none(option: &str, is_none: bool) -> Result<(), Self> {
        match is_none {
            true => Err(Self(format!("{option}: must be more than 0"))),
            false => Ok(()),
        }
    }

    /// Refuses a time of zero.
    fn unless_no_time(option: &str, time: Option<std::time::Duration>) -> Result<(), Self> {
        Self::unless_none(option, time.is_some_and(|time| time.is_zero()))
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// clap wraps at 98 columns. A longer line of the hand-written help would be wrapped and leave a stub.
    #[test]
    fn help_fits_its_width() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string);
            for line in help.unwrap_or_default().lines() {
                assert!(line.chars().count() <= 98, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
