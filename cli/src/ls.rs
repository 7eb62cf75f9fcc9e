//! `odafs ls`: lists directories.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use odafs::{FileKind, Metadata, Url};
use odafs_bench::table::{Table, bytes};
use serde::Serialize;

use crate::connection::{Clients, ConnectionArguments, url};
use crate::each::each;
use crate::output;

/// List directories
#[derive(Args)]
#[command(after_help = "Examples:
  odafs ls odafs+shm:///
  odafs ls odafs://server/data
  odafs ls -l nfs://127.0.0.1:2049/data nfs://127.0.0.1:2049/logs
  odafs ls --json nfs://127.0.0.1/ | jq '.[].entries[].name'

Names are sorted by their bytes. In names, a backslash is printed as \\\\, control characters as
\\n or \\u{1b}, and bytes that are not UTF-8 as \\xff. In JSON, a name that is not UTF-8 also has
`name_bytes`, percent-encoded as in a URL. Times are UTC.")]
pub struct Arguments {
    /// Directories (or files) to list
    #[arg(required = true, value_name = "URL", value_parser = url)]
    urls: Vec<Url>,
    /// Print kind, mode, links, owner, group, size and time of last modification too
    #[arg(short, long)]
    long: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Serialize)]
struct Listed {
    url: String,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(skip)]
    raw: OsString,
    name: String,
    /// The name in the percent-encoding of URLs. Only names that are not UTF-8 have it, because `name` is lossy there.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    file_id: u64,
    #[serde(flatten)]
    facts: Option<Facts>,
}

impl Entry {
    fn new(raw: OsString, file_id: u64, facts: Option<Facts>) -> Self {
        Self {
            name: raw.to_string_lossy().into_owned(),
            name_bytes: raw.to_str().is_none().then(|| Url::encode(raw.as_bytes())),
            raw,
            file_id,
            facts,
        }
    }
}

/// The attributes of a file, as `ls` and `stat` print them in tables and JSON.
#[derive(Serialize)]
pub struct Facts {
    /// `file`, `directory`, `link`, …
    pub kind: &'static str,
    /// Permission bits in octal.
    pub mode: String,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of the content, in bytes.
    pub size: u64,
    /// Bytes on disk.
    pub used: u64,
    /// Last change of the data, in UTC (RFC 3339).
    pub modified: String,
    /// Last change of the attributes, in UTC.
    pub changed: String,
    /// Last access, in UTC.
    pub accessed: String,
}

impl From<&Metadata> for Facts {
    fn from(metadata: &Metadata) -> Self {
        Self {
            kind: kind(metadata.kind),
            mode: format!("{:04o}", metadata.mode),
            links: metadata.links,
            uid: metadata.uid,
            gid: metadata.gid,
            size: metadata.size,
            used: metadata.used,
            modified: date(metadata.modified),
            changed: date(metadata.changed),
            accessed: date(metadata.accessed),
        }
    }
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        FileKind::BlockDevice => "block-device",
        FileKind::CharacterDevice => "character-device",
        FileKind::Socket => "socket",
        FileKind::Pipe => "pipe",
    }
}

/// A moment in UTC (RFC 3339), from the day count of the proleptic Gregorian
/// calendar: eras of 400 years begin on the first of March.
pub fn date(time: SystemTime) -> String {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs() as i64,
        Err(before) => -(before.duration().as_secs() as i64),
    };
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut clients = Clients::new(arguments.connection.options()?);
    let mut listed = Vec::new();
    let all = each(&arguments.urls, |url| {
        let (client, path) = clients.at(url)?;
        let metadata = (client.stat(&path)).map_err(|error| error.about("ls", &path))?;
        let mut entries = Vec::new();
        if metadata.is_dir() {
            for entry in client.read_dir(&path)? {
                let entry = entry?;
                let facts = entry.metadata.as_ref().map(Facts::from);
                entries.push(Entry::new(entry.name, entry.file_id, facts));
            }
            entries.sort_by(|a, b| a.raw.cmp(&b.raw));
        } else {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
            let facts = Some(Facts::from(&metadata));
            entries.push(Entry::new(name, metadata.file_id, facts));
        }
        listed.push(Listed {
            url: url.to_string(),
            entries,
        });
        Ok(())
    });
    output::found(
        &listed,
        arguments.json,
        |listed| print_all(listed, &arguments),
        all,
    )
}

fn print_all(listed: &[Listed], arguments: &Arguments) -> Result<()> {
    for (i, list) in listed.iter().enumerate() {
        if arguments.urls.len() > 1 {
            output::text(&format!("{}{}:\n", if i > 0 { "\n" } else { "" }, list.url))?;
        }
        print(list, arguments.long)?;
    }
    Ok(())
}

fn print(list: &Listed, long: bool) -> Result<()> {
    if !long {
        let names: String = list
            .entries
            .iter()
            .map(|e| output::printable(&e.raw) + "\n")
            .collect();
        return output::text(&names);
    }
    let mut table = Table::new([
        "<kind",
        "<mode",
        "links",
        "owner",
        "group",
        "size",
        "<modified",
        "<name",
    ]);
    for entry in &list.entries {
        let name = output::printable(&entry.raw);
        table.row(match &entry.facts {
            Some(f) => vec![
                f.kind.to_owned(),
                f.mode.clone(),
                f.links.to_string(),
                f.uid.to_string(),
                f.gid.to_string(),
                bytes(f.size),
                f.modified.clone(),
                name,
            ],
            None => ["?", "?", "?", "?", "?", "?", "?"]
                .map(str::to_owned)
                .into_iter()
                .chain([name])
                .collect(),
        });
    }
    output::table(&table)
}

#[cfg(test)]
mod tests {
    use super::date;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn dates() {
        assert_eq!(date(UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(
            date(UNIX_EPOCH + Duration::from_secs(951_827_696)),
            "2000-02-29T12:34:56Z"
        );
        assert_eq!(
            date(UNIX_EPOCH + Duration::from_secs(1_735_689_599)),
            "2024-12-31T23:59:59Z"
        );
        assert_eq!(
            date(UNIX_EPOCH - Duration::from_secs(86_400)),
            "1969-12-31T00:00:00Z"
        );
    }
}
