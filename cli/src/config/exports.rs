//! `--export`: the name of the one export, or several exports.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use odafs_server::config::ExportOptions;
use odafs_server::store::table::normalized;
use serde::{Deserialize, Deserializer};

use crate::Usage;

/// The value of one `--export`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exported {
    /// `/NAME`: the export of DIR.
    Name(String),
    /// `/NAME=DIR[,read-only]`: one of several.
    Directory(ExportOptions),
}

const READ_ONLY: &str = ",read-only";

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
}

impl FromStr for Exported {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, directory)) = text.split_once('=') else {
            return Ok(Self::Name(text.to_owned()));
        };
        let (directory, read_only) = match directory.strip_suffix(READ_ONLY) {
            Some(directory) => (directory, true),
            None => (directory, false),
        };
        if directory.is_empty() {
            return Err(format!(
                "name a directory or a tar archive after the =, as in {name}=DIR"
            ));
        }
        Ok(Self::Directory(ExportOptions {
            name: normalized(name).map_err(|error| error.to_string())?,
            directory: PathBuf::from(directory),
            read_only,
        }))
    }
}

/// `export = "/NAME"`, or a list of the values that `--export` takes.
pub fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Exported>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "a name such as \"/data\", or a list of \"/NAME=DIR\""
    )]
    enum Value {
        One(String),
        Several(Vec<String>),
    }
    let texts = match Value::deserialize(from)? {
        Value::One(text) => vec![text],
        Value::Several(texts) => texts,
    };
    let parsed = texts.iter().map(|text| text.parse());
    parsed
        .collect::<Result<_, String>>()
        .map_err(serde::de::Error::custom)
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
            name: name.to_owned(),
            directory: directory.into(),
            read_only,
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
}
