//! The command `odafs`: serves a directory, reads and writes files on a
//! server, and measures both.
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
  odafs demo                                      see what it does, on files made for it
  odafs serve /srv/data                           serve a directory to this machine
  odafs ls odafs+shm:///run/odafs.sock?/          list it, over shared memory
  odafs cat --why nfs://127.0.0.1/notes.txt       the route of each read, and why
  odafs mount odafs+shm:///run/odafs.sock?/ /mnt  mount it, for all programs
  mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,nolock 127.0.0.1:/ /mnt
                                                  mount it with the kernel's own client

URLs:
  odafs+shm:///PATH                               shared memory here, by the default socket
  odafs+shm:///SOCKET?/PATH                       by another, such as /run/data.sock?/
  odafs+shm://%2FSOCKET/PATH                      the same: %2Frun%2Fdata.sock/
  odafs://HOST[:PORT]/PATH[?mountport=N&crc=1]    RDMA over TCP (port 20049)
  odafs+verbs://HOST[:PORT]/PATH[?mountport=N]    an RDMA device (port 20049; docs/RDMA.md)
  nfs://HOST[:PORT]/PATH[?mountport=N]            NFS version 3 over TCP, any server

Exit status: 0 done, 1 failed, 2 wrong usage. ODAFS_LOG=debug has a server tell more on
stderr; clients log only what goes wrong below them: `odafs cat --why` shows what they do."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Serve(serve::Arguments),
    Ls(ls::Arguments),
    Stat(stat::Arguments),
    Cat(cat::Arguments),
    Get(get::Arguments),
    Put(put::Arguments),
    Rm(rm::Arguments),
    Mkdir(mkdir::Arguments),
    Mv(mv::Arguments),
    Mount(mount::Arguments),
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
    let cli = Cli::parse();
    let result = logs::start().and_then(|()| match cli.command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Ls(arguments) => ls::run(arguments),
        Command::Stat(arguments) => stat::run(arguments),
        Command::Cat(arguments) => cat::run(arguments),
        Command::Get(arguments) => get::run(arguments),
        Command::Put(arguments) => put::run(arguments),
        Command::Rm(arguments) => rm::run(arguments),
        Command::Mkdir(arguments) => mkdir::run(arguments),
        Command::Mv(arguments) => mv::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
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

/// How a process ends that failed.
fn exit_code(is_usage: bool) -> ExitCode {
    ExitCode::from(if is_usage { 2 } else { 1 })
}

/// Whether it is what was asked for that cannot be, however all else stands: so is a fabric that this program lacks.
fn is_usage(error: &anyhow::Error) -> bool {
    let lacks = |error| matches!(error, &odafs::ConnectError::NoFabric { .. });
    error.is::<Usage>() || error.downcast_ref().is_some_and(lacks)
}

/// Asked for in a way that cannot be met: the process ends with status 2.
#[derive(Debug)]
struct Usage(String);

impl Usage {
    /// Refuses none of something: then nothing would be measured.
    fn unless_none(option: &str, is_none: bool) -> Result<(), Self> {
        match is_none {
            true => Err(Self(format!("{option}: more than none is needed"))),
            false => Ok(()),
        }
    }

    /// The same for a time.
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

    /// What is written by hand below the options is not wrapped a second time, which leaves stubs.
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
