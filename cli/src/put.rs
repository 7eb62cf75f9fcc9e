//! `odafs put`: copies a file to a server.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use odafs::{Changes, Client, CreateOptions, File, Metadata, PathError, Url, WriteError};

use crate::connection::{Clients, ConnectionArguments, check_parent, url};
use crate::unfinished::Unfinished;
use crate::{Usage, output};

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Symbolic links followed to the file that is replaced.
const LINKS_MAX: u32 = 40;

/// Copy a file to a server
#[derive(Args)]
#[command(after_help = "Examples:
  odafs put notes.txt nfs://127.0.0.1/notes.txt
  odafs put notes.txt nfs://127.0.0.1/inbox/            keeps its name
  tar c src | odafs put - odafs+shm:///src.tar

When put returns, the data is on the server's stable storage. The data is written to a new file
beside the destination (.odafs-put-...), which gets its name when it is complete. A put that
fails or is interrupted leaves the old file as it was. You need the right to create files in
that directory.

The permissions and times of LOCAL are not kept. The new file gets the permission bits of the
file that it replaces, and its owner and group if the server lets you set them. If it cannot get
the group, the bits of the group are cleared. Other hard links keep the old file. Access control
lists are lost. A symbolic link stays, and the file to which it points is replaced.")]
pub struct Arguments {
    /// The local file, or - for stdin
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
    /// The destination: a file, or a directory, where the file keeps its name
    #[arg(value_name = "URL", value_parser = url)]
    url: Url,
    /// Fail if the destination already exists
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let local = &arguments.local;
    let (mut source, length) = open(local)?;
    let mut clients = Clients::new(arguments.connection.options()?);
    let (client, mut path) = clients.at(&arguments.url)?;
    let mut there = find(&client, &path)?;
    if there.is_some_and(|there| there.is_dir()) {
        let Some(name) = local.file_name().filter(|_| local != Path::new("-")) else {
            let url = &arguments.url;
            bail!(Usage(format!(
                "{url} is a directory; name the file in it too, because stdin has no name"
            )));
        };
        path.push(name);
        there = find(&client, &path)?;
    }
    if arguments.new && client.stat_link(&path).is_ok() {
        bail!(
            "{} already exists, and --new replaces nothing",
            arguments.url
        );
    }
    if there.is_some_and(|there| !there.is_file()) {
        bail!(
            "{} is not a regular file, and put replaces regular files only",
            path.display()
        );
    }
    let replacing = Replacing {
        client: &client,
        place: &behind_links(&client, path.clone())?,
        there,
        new: arguments.new,
    };
    let progress = output::byte_progress(length, "put");
    let mut copied = |file: &File| {
        let cannot_read = || format!("cannot read {}", local.display());
        copy(&mut source, file, cannot_read, |bytes| {
            progress.set_position(bytes)
        })
    };
    replace(&replacing, &mut copied).or_else(|error| {
        if is_not_found(&error) {
            check_parent(&client, &path)?;
        }
        Err(named(error, &path))
    })?;
    progress.finish_and_clear();
    Ok(())
}

/// The destination of a put.
struct Replacing<'a> {
    client: &'a Client,
    /// Where the file appears.
    place: &'a Path,
    /// What is there already.
    there: Option<Metadata>,
    /// Whether nothing may be there.
    new: bool,
}

/// Creates a new file beside its place, has `write` fill it, and moves it to its place.
fn replace(what: &Replacing, write: &mut dyn FnMut(&File) -> Result<()>) -> Result<()> {
    let (client, path) = (what.client, what.place);
    let beside = output::beside(path, "put");
    let undo = {
        let (client, beside) = (client.clone(), beside.clone());
        move || remove(&client, &beside)
    };
    let unfinished = Unfinished::new(undo)?;
    let made = CreateOptions {
        // The file that it replaces may be private to its owner.
        mode: if what.there.is_some() { 0o600 } else { 0o644 },
        exclusive: true,
        ..CreateOptions::default()
    };
    let file = match client.create_with(&beside, &made) {
        Err(error) => {
            // Without an answer, the file may still appear. With one, it exists if only setting its attributes failed.
            let answered = !matches!(error, PathError::Call { .. });
            let is_gone = || matches!(client.stat_link(&beside), Err(PathError::Server { .. }));
            if answered && is_gone() {
                unfinished.forget();
            }
            return Err(error.into());
        }
        Ok(file) => file,
    };
    write(&file)?;
    if let Some(there) = &what.there {
        inherit(client, &beside, &file, there)?;
    }
    file.sync()?;
    if what.new {
        // A hard link replaces nothing. `unfinished` removes the first name.
        client.hard_link(&beside, path)?;
    } else {
        unfinished.finish(|| client.rename(&beside, path))?;
    }
    Ok(())
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<PathError>();
    error.is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Makes an error name the file that the caller asked for, not the one beside it.
fn named(error: anyhow::Error, place: &Path) -> anyhow::Error {
    match error.downcast::<PathError>() {
        Ok(error) => error.about("put", place).into(),
        Err(error) => match error.downcast::<WriteError>() {
            Ok(error) => error.about("put", place).into(),
            Err(error) => error,
        },
    }
}

/// The source, and its length if that is known, else 0.
fn open(local: &Path) -> Result<(Box<dyn Read>, u64)> {
    if local == Path::new("-") {
        return Ok((Box::new(std::io::stdin().lock()), 0));
    }
    let cannot = || format!("cannot open {}", local.display());
    let file = fs::File::open(local).with_context(cannot)?;
    let found = file.metadata().with_context(cannot)?;
    if found.is_dir() {
        bail!(
            "{} is a directory; put copies one file (to copy a tree, use `odafs mount` and cp)",
            local.display()
        );
    }
    Ok((Box::new(file), found.len()))
}

/// The metadata of what is at a path, behind symbolic links. `None` if nothing is there.
fn find(client: &Client, path: &Path) -> Result<Option<Metadata>, PathError> {
    match client.stat(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path that the symbolic links at the end of this one lead to.
fn behind_links(client: &Client, mut path: PathBuf) -> Result<PathBuf> {
    for _ in 0..LINKS_MAX {
        if !client
            .stat_link(&path)
            .is_ok_and(|found| found.is_symlink())
        {
            return Ok(path);
        }
        let target = client.readlink(&path)?;
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    bail!("{}: too many symbolic links", path.display())
}

fn copy(
    source: &mut dyn Read,
    file: &File,
    cannot_read: impl Fn() -> String,
    told: impl Fn(u64),
) -> Result<()> {
    let mut buffer = vec![0; WRITE_BYTES];
    let mut offset = 0;
    loop {
        let bytes = match source.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.with_context(&cannot_read)?,
        };
        if bytes == 0 {
            return Ok(());
        }
        file.write_at(&buffer[..bytes], offset)?;
        offset += bytes as u64;
        told(offset);
    }
}

/// Gives a new file the rights of the one that it replaces.
fn inherit(client: &Client, path: &Path, file: &File, there: &Metadata) -> Result<(), PathError> {
    let made = file.metadata()?;
    let mut shared = made.gid == there.gid;
    if !shared {
        let group = Changes {
            gid: Some(there.gid),
            ..Changes::default()
        };
        shared = client.set_attributes(path, &group).is_ok();
    }
    if made.uid != there.uid {
        let owner = Changes {
            uid: Some(there.uid),
            ..Changes::default()
        };
        // Most users may not change the owner. The new file then belongs to this one.
        let _ = client.set_attributes(path, &owner);
    }
    // Clear the set-id bits, as a write to a file does, and the group's bits if the group is another one now.
    let kept = if shared { 0o777 } else { 0o707 };
    let mode = Changes {
        mode: Some(there.mode & kept),
        ..Changes::default()
    };
    client.set_attributes(path, &mode).map(drop)
}

/// Removes an unfinished file, and prints a message if that fails.
fn remove(client: &Client, path: &Path) {
    match client.remove(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => eprintln!(
            "odafs: an unfinished file stays on the server; remove it yourself: {}",
            output::without_error_numbers(&error.to_string())
        ),
    }
}
