//! `odafs get`: copies a file from a server.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use odafs::{File, Url};

use crate::connection::{Clients, ReadArguments, url, wants_directory, without_slash};
use crate::output::Beside;
use crate::{Usage, output};

/// Copy a file from a server
#[derive(Args)]
#[command(after_help = "Examples:
  odafs get nfs://127.0.0.1/notes.txt                    to ./notes.txt
  odafs get odafs+shm:///run/odafs.sock?/a.bin /tmp/     to /tmp/a.bin
  odafs get nfs://127.0.0.1/a.tar - | tar t              to stdout

The data is written to a new file beside LOCAL (.odafs-get-...), which gets its name when it is
complete. A get that fails or is interrupted leaves the old file as it was. If LOCAL is a device
or a pipe, the data is written to it. If it is a symbolic link, the link stays, and the file to
which it points is replaced.

The permissions and times of the file on the server are not kept. The new file gets the
permission bits of the file that it replaces, or those that the umask leaves, and the owner and
group of the old file if you may set them. If it cannot get the group, the bits of the group are
cleared. Other hard links keep the old file. Access control lists are lost.")]
pub struct Arguments {
    /// The file to copy
    #[arg(value_name = "URL", value_parser = url)]
    url: Url,
    /// The destination: a file, a directory, or - for stdout [default: the same name in the current directory]
    #[arg(value_name = "LOCAL")]
    local: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadArguments,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut clients = Clients::new(arguments.reading.options()?);
    let keep = arguments.reading.is_direct();
    let (client, path) = clients.at(&arguments.url)?;
    let Some(name) = path.file_name() else {
        bail!(Usage(format!(
            "{} names no file; get copies one file",
            arguments.url
        )));
    };
    // A file of that name on the server is a file here too.
    let to_stdout = arguments.local.as_deref() == Some(Path::new("-"));
    let target = match arguments.local {
        None => PathBuf::from(name),
        Some(local) if local.is_dir() => local.join(name),
        Some(local) if wants_directory(&local) => {
            let place = without_slash(&local);
            match fs::metadata(&place) {
                Ok(_) => bail!("{} is not a directory", place.display()),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    bail!("there is no directory {}", place.display())
                }
                Err(error) => bail!("cannot open {}: {error}", place.display()),
            }
        }
        Some(local) => local,
    };
    let file = client.open(&path)?;
    if to_stdout {
        return copy(&file, keep, &mut output::Stdout::lock());
    }
    if target.metadata().is_ok_and(|there| !there.is_file()) {
        // Never replace a device or a pipe: write to it.
        let mut there = std::fs::OpenOptions::new()
            .write(true)
            .open(&target)
            .with_context(|| format!("cannot open {}", target.display()))?;
        return copy(&file, keep, &mut there)
            .with_context(|| format!("cannot copy to {}", target.display()));
    }
    // A symbolic link stays; the file to which it points is replaced.
    let target = output::behind_links(&target)
        .with_context(|| format!("cannot open {}", target.display()))?;
    let mut local = Beside::begin(&target, "get").with_context(|| match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            format!("cannot write in {}", parent.display())
        }
        _ => "cannot write in .".to_owned(),
    })?;
    copy(&file, keep, &mut local.file)
        .with_context(|| format!("cannot copy to {}", target.display()))?;
    (local.finish()).with_context(|| format!("cannot create {}", target.display()))
}

fn copy(file: &File, keep_to_route: bool, out: &mut impl Write) -> Result<()> {
    let progress = output::byte_progress(file.metadata()?.size, "get");
    crate::copy::copy(file, keep_to_route, out, |bytes| {
        progress.set_position(bytes)
    })?;
    out.flush()?;
    progress.finish_and_clear();
    Ok(())
}
