//! `--export`: the name of the one export, or several exports.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::ValueEnum;
use odafs_server::config::{Anonymous, Direct, ExportOptions, Squash};
use odafs_server::store::table::normalized;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Value;

use super::file;
use super::values::{Allow, SquashName};
use crate::Usage;

/// The value of one `--export`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exported {
    /// `/NAME`: the export of DIR.
    Name(String),
    /// `/NAME=DIR[,OPTION]...`: one of several.
    Directory(ExportOptions),
}

impl Exported {
    /// Whether it says which directory, too.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }

    /// The name of the export.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Directory(export) => &export.name,
        }
    }

    /// Whether it says who may reach it, or as whom.
    pub fn has_rights(&self) -> bool {
        let ids = |e: &ExportOptions| e.squash.is_some() || e.anonymous != Anonymous::default();
        let has = |e: &ExportOptions| e.allow.is_some() || ids(e) || e.insecure;
        matches!(self, Self::Directory(export) if has(export))
    }

    /// Whether it says that callers keep their ids.
    pub fn keeps_ids(&self) -> bool {
        let keeps = |e: &ExportOptions| matches!(e.squash, Some(Squash::Root | Squash::None));
        matches!(self, Self::Directory(export) if keeps(export))
    }
}

/// What the command line calls the options of an export.
const OPTIONS: &str = "read-only, allow=CIDR, squash=none|root|all, anonuid=N, anongid=N, insecure and direct=guarded|off";

/// The names of these options.
const NAMES: [&str; 7] = [
    "read-only",
    "insecure",
    "allow",
    "squash",
    "anonuid",
    "anongid",
    "direct",
];

/// Refuses a directory that is not there if the end of its name may be meant for an option.
pub fn check_options(export: &ExportOptions) -> Result<()> {
    let directory = export.directory.display().to_string();
    match directory.rsplit_once(',') {
        Some((_, last)) if !last.contains('/') && !export.directory.exists() => bail!(
            "--export {}={directory}: there is no such directory, and {last:?} is no option of an export; there are {OPTIONS}",
            export.name
        ),
        _ => Ok(()),
    }
}

/// What one of the texts between commas is.
enum Part<'t> {
    ReadOnly,
    Insecure,
    /// A name and a value.
    Valued(&'t str, &'t str),
    /// Nothing that could be an option.
    Other,
}

impl<'t> Part<'t> {
    fn of(text: &'t str) -> Self {
        let is_name = |name: &str| {
            let mut letters = name.bytes();
            !name.is_empty() && letters.all(|c| c.is_ascii_lowercase() || c == b'-')
        };
        match (text, text.split_once('=')) {
            ("read-only", _) => Self::ReadOnly,
            ("insecure", _) => Self::Insecure,
            (_, Some((name, value))) if is_name(name) => Self::Valued(name, value),
            _ => Self::Other,
        }
    }
}

/// Splits what follows the `=` into the directory, which may have commas in its name, and the options behind it.
fn split(text: &str) -> (&str, &str) {
    let commas = text.match_indices(',').map(|(at, _)| at);
    let mut starts = commas.filter(|at| {
        let part = text[at + 1..].split(',').next().unwrap_or_default();
        !matches!(Part::of(part), Part::Other)
    });
    match starts.next() {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    }
}

impl FromStr for Exported {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let mut commas = name.match_indices(',').map(|(at, _)| at);
        let is_option = |at: &usize| {
            let part = name[at + 1..].split(',').next();
            part.is_some_and(|part| NAMES.contains(&part))
        };
        if let Some(at) = commas.find(is_option) {
            let (export, options) = text.split_at(at);
            return Err(format!(
                "options need a directory, as in {export}=DIR{options}; with DIR apart from --export, use the server's options, \
                 such as --read-only"
            ));
        }
        let Some(rest) = rest else {
            return Ok(Self::Name(text.to_owned()));
        };
        let (directory, options) = split(rest);
        if directory.is_empty() {
            return Err(format!(
                "name a directory or a tar archive after the =, as in {name}=DIR"
            ));
        }
        let name = normalized(name).map_err(|error| error.to_string())?;
        let mut export = ExportOptions::new(name, directory);
        let mut allowed = None;
        for part in options.split(',').filter(|_| !options.is_empty()) {
            match Part::of(part) {
                Part::ReadOnly => export.read_only = true,
                Part::Insecure => export.insecure = true,
                Part::Valued("allow", value) => {
                    allowed.get_or_insert_with(Vec::new).extend(allow(value)?);
                }
                Part::Valued("squash", value) => {
                    let name = SquashName::from_str(value, false).map_err(|_| {
                        format!("squash={value}: give none, root or all, as in squash=root")
                    })?;
                    once("squash", &mut export.squash, name.into())?;
                }
                Part::Valued("anonuid", value) => {
                    once("anonuid", &mut export.anonymous.uid, id("anonuid", value)?)?;
                }
                Part::Valued("anongid", value) => {
                    once("anongid", &mut export.anonymous.gid, id("anongid", value)?)?;
                }
                Part::Valued("direct", value) => {
                    let name = Less::from_str(value, false).map_err(|_| {
                        format!("direct={value}: give guarded or off, as in direct=off; without it, what --direct says holds")
                    })?;
                    once("direct", &mut export.direct, name.into())?;
                }
                Part::Valued(..) | Part::Other => {
                    return Err(format!(
                        "{part:?} is no option of an export; there are {OPTIONS}. (For a directory with such a name, use \
                         --config and [[export]] with name and dir)"
                    ));
                }
            }
        }
        set_allowed(&mut export, allowed);
        Ok(Self::Directory(export))
    }
}

/// Sets an option that an export can have once.
fn once<T>(name: &str, option: &mut Option<T>, value: T) -> Result<(), String> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{name}= is given twice; leave one of them out")),
    }
}

/// The number of a user or a group.
fn id(name: &str, value: &str) -> Result<u32, String> {
    let number = value.parse();
    number.map_err(|_| format!("{name}={value}: give a number, as in {name}=65534"))
}

/// Which direct reads of an export the server grants, if less than `--direct` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Less {
    Guarded,
    Off,
}

impl From<Less> for Direct {
    fn from(less: Less) -> Self {
        match less {
            Less::Guarded => Self::Guarded,
            Less::Off => Self::Off,
        }
    }
}

/// The networks of `allow=`, which colons separate. An IPv6 network has colons of its own and stands alone.
fn allow(value: &str) -> Result<Vec<Allow>, String> {
    if let Ok(one) = value.parse() {
        return Ok(vec![one]);
    }
    let parsed: Result<_, String> = value.split(':').map(str::parse).collect();
    parsed.map_err(|_| {
        format!(
            "allow={value}: give networks such as 10.0.0.0/8, addresses or no-loopback, with colons between them; an IPv6 \
             network needs an allow= of its own"
        )
    })
}

fn set_allowed(export: &mut ExportOptions, allowed: Option<Vec<Allow>>) {
    export.no_loopback = allowed.iter().flatten().any(|a| *a == Allow::NoLoopback);
    export.allow = allowed.map(|all| all.iter().filter_map(Allow::network).collect());
}

/// One of `[[export]]` in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    name: String,
    dir: PathBuf,
    #[serde(default)]
    read_only: bool,
    #[serde(default, deserialize_with = "networks")]
    allow: Option<Vec<Allow>>,
    squash: Option<SquashName>,
    anonuid: Option<u32>,
    anongid: Option<u32>,
    #[serde(default)]
    insecure: bool,
    direct: Option<Less>,
}

fn networks<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Allow>>, D::Error> {
    file::list(from).map(Some)
}

impl Table {
    fn export(self) -> Result<Exported, String> {
        let name = normalized(&self.name).map_err(|error| error.to_string())?;
        let mut export = ExportOptions {
            read_only: self.read_only,
            squash: self.squash.map(Into::into),
            anonymous: Anonymous {
                uid: self.anonuid,
                gid: self.anongid,
            },
            insecure: self.insecure,
            direct: self.direct.map(Into::into),
            ..ExportOptions::new(name, self.dir)
        };
        set_allowed(&mut export, self.allow);
        Ok(Exported::Directory(export))
    }
}

/// `export = "/NAME"`, a list of the values that `--export` takes, or tables `[[export]]`.
pub fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Exported>, D::Error> {
    let values = match Value::deserialize(from)? {
        Value::Array(values) => values,
        one => vec![one],
    };
    let one = |value| match value {
        Value::String(text) => text.parse().map_err(D::Error::custom),
        table @ Value::Table(_) => {
            let table = Table::deserialize(table).map_err(|error| {
                D::Error::custom(format!("[[export]]: {}", error.to_string().trim_end()))
            })?;
            table.export().map_err(D::Error::custom)
        }
        other => Err(D::Error::custom(format!(
            "expected a name such as \"/data\", a list of \"/NAME=DIR\", or tables [[export]] with name and dir, found a \
             value of type {}",
            other.type_str()
        ))),
    };
    values.into_iter().map(one).collect()
}

/// What to serve, by DIR and all `--export` together.
pub enum Served<'a> {
    /// One directory, under one name.
    One {
        /// The name, or `None` for the default.
        name: Option<&'a str>,
        /// The directory, or `None` if it was not given.
        dir: Option<&'a Path>,
    },
    /// A table of exports.
    Several(Vec<ExportOptions>),
}

impl<'a> Served<'a> {
    /// Combines them, and refuses combinations that make no sense.
    pub fn of(exports: &'a [Exported], dir: Option<&'a Path>) -> Result<Self> {
        let several: Vec<ExportOptions> = exports
            .iter()
            .filter_map(|export| match export {
                Exported::Directory(export) => Some(export.clone()),
                Exported::Name(_) => None,
            })
            .collect();
        let named = exports.len() - several.len();
        match (several.is_empty(), named, dir) {
            (true, 0 | 1, dir) => Ok(Self::One {
                name: exports.first().map(Exported::name),
                dir,
            }),
            (true, ..) => bail!(Usage(
                "--export: DIR can have only one name; for several exports, give --export /NAME=DIR for each"
                    .to_owned()
            )),
            (false, 0, None) => Ok(Self::Several(several)),
            (false, 0, Some(dir)) => bail!(Usage(format!(
                "{}: beside other exports, this directory needs a name; give --export /NAME={}",
                dir.display(),
                dir.display()
            ))),
            (false, ..) => {
                let name = exports
                    .iter()
                    .find(|export| matches!(export, Exported::Name(_)));
                let name = name.map_or("", Exported::name);
                bail!(Usage(format!(
                    "--export {name}: the directory is missing; beside other exports, give --export {name}=DIR"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(texts: &[&str], dir: Option<&str>) -> Result<Vec<ExportOptions>, String> {
        let exports: Vec<Exported> = texts.iter().map(|text| text.parse().unwrap()).collect();
        match Served::of(&exports, dir.map(Path::new)) {
            Ok(Served::Several(all)) => Ok(all),
            Ok(Served::One { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn exports_are_read() {
        let all = several(&["/a=/srv/a", "/b/c=d=e,read-only"], None).unwrap();
        let export = |name: &str, directory: &str, read_only| ExportOptions {
            read_only,
            ..ExportOptions::new(name, directory)
        };
        assert_eq!(
            all,
            [export("/a", "/srv/a", false), export("/b/c", "d=e", true)]
        );
        assert_eq!(several(&["/a"], Some("/srv")).unwrap(), []);
        assert_eq!(several(&[], Some("/srv")).unwrap(), []);
        assert!("/a=".parse::<Exported>().unwrap_err().contains("/a=DIR"));
        assert!("/a=,read-only".parse::<Exported>().is_err());
    }

    #[test]
    fn what_makes_no_sense_is_told_with_a_remedy() {
        for (texts, dir, told) in [
            (&["/a", "/b"][..], Some("/srv"), "/NAME=DIR"),
            (&["/a=/x"], Some("/srv"), "/NAME=/srv"),
            (&["/a=/x", "/b"], None, "--export /b=DIR"),
        ] {
            let said = several(texts, dir).unwrap_err();
            assert!(said.contains(told), "{texts:?}: {said}");
        }
        assert!(
            "/=/x"
                .parse::<Exported>()
                .unwrap_err()
                .contains("as in /data")
        );
        let written = |text: &str| text.parse::<Exported>().unwrap().name().to_owned();
        assert_eq!([written("/a=/x"), written("//a/=/x")], ["/a", "/a"]);
    }

    /// The options of one export.
    fn options(text: &str) -> ExportOptions {
        match text.parse() {
            Ok(Exported::Directory(export)) => export,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_export_has_options_of_its_own() {
        let plain = options("/a=/srv/a,b");
        assert_eq!(plain, ExportOptions::new("/a", "/srv/a,b"));
        let all = options(
            "/a=/srv/a,b,allow=10.0.0.0/8:192.0.2.7,squash=root,read-only,insecure,allow=fd00::/8,allow=no-loopback,\
             anonuid=99,anongid=98,direct=off",
        );
        let networks = ["10.0.0.0/8", "192.0.2.7/32", "fd00::/8"];
        let wanted = ExportOptions {
            read_only: true,
            allow: Some(networks.map(|text| text.parse().unwrap()).to_vec()),
            no_loopback: true,
            squash: Some(Squash::Root),
            anonymous: Anonymous {
                uid: Some(99),
                gid: Some(98),
            },
            insecure: true,
            direct: Some(Direct::Off),
            ..ExportOptions::new("/a", "/srv/a,b")
        };
        assert_eq!(all, wanted);
        assert_eq!(options("/a=/x,squash=none").squash, Some(Squash::None));
        let file = "[[export]]\nname = '/a'\ndir = '/srv/a,b'\nread-only = true\nsquash = 'root'\ninsecure = true\n\
                    anonuid = 99\nanongid = 98\ndirect = 'off'\n\
                    allow = ['10.0.0.0/8', '192.0.2.7', 'fd00::/8', 'no-loopback']\n";
        #[derive(Deserialize)]
        struct File {
            #[serde(deserialize_with = "one_or_more")]
            export: Vec<Exported>,
        }
        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.export);
        assert_eq!(read(file).unwrap(), [Exported::Directory(wanted)]);
        let both = read("export = ['/b=/x,squash=all', { name = '/c', dir = '/y' }]").unwrap();
        assert!(both[0].has_rights() && !both[1].has_rights() && both[1].name() == "/c");
        for (text, told) in [
            ("export = 3", "/NAME=DIR"),
            ("[[export]]\nname = '/a'", "missing field `dir`"),
            (
                "[[export]]\nname = '/a'\ndir = '/x'\nro = true",
                "unknown field `ro`",
            ),
            (
                "[[export]]\nname = '/a'\ndir = '/x'\nsquash = 'some'",
                "unknown variant `some`",
            ),
            (
                "[[export]]\nname = '/a'\ndir = '/x'\nallow = 'x'",
                "give a network",
            ),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(told), "{text}: {said}");
        }
    }

    #[test]
    fn a_wrong_option_of_an_export_is_told_with_a_remedy() {
        for (text, told) in [
            ("/a=/x,alow=10.0.0.0/8", "read-only, allow=CIDR"),
            ("/a=/x,read-only,fast", "\"fast\" is no option"),
            ("/a=/x,squash=some", "give none, root or all"),
            ("/a=/x,squash=root,squash=all", "leave one of them out"),
            ("/a=/x,anonuid=nobody", "give a number, as in anonuid=65534"),
            ("/a=/x,anongid=1,anongid=2", "anongid= is given twice"),
            ("/a=/x,direct=auto", "give guarded or off"),
            ("/a=/x,allow=everybody", "give networks such as 10.0.0.0/8"),
            ("/a=/x,allow=10.0.0.0/8:fd00::/8", "an allow= of its own"),
            ("/a=,allow=10.0.0.0/8", "/a=DIR"),
        ] {
            let said = text.parse::<Exported>().unwrap_err();
            assert!(said.contains(told), "{text}: {said}");
        }
    }
}
