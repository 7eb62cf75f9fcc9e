//! What the run does: a plan in TOML.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use odafs::{Cache, Options, Route};
use serde::Deserialize;

use crate::load::Path;
use crate::pages::PAGE;
use crate::served::Way;

/// The plan that is followed unless another is given.
const BUILT_IN: &str = include_str!("../../plans/soak.toml");

/// Maximum number of rows of a run.
const SAMPLES: u32 = 300;

/// A plan, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Number of files.
    pub files: usize,
    /// Maximum size of a file in KiB.
    pub file_kib: usize,
    /// The server's page cache, in MiB.
    pub cache_mib: u64,
    /// Names of [`Kind`]s. Each is a client.
    pub readers: Vec<String>,
    /// Names of ways. Each is a client.
    pub writers: Vec<String>,
    /// Number of threads whose clients connect, read and disconnect.
    pub visitors: usize,
    /// Length of an interval in milliseconds.
    pub sample_ms: u64,
}

/// A kind of reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// How it reaches the server.
    pub way: Way,
    /// The route. `None` for default options.
    pub route: Option<Route>,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        let (way, route) = name.split_once(' ')?;
        if route == "default" {
            let route = None;
            return way_named(way).map(|way| Self { way, route });
        }
        match Path::named(name)? {
            Path::Client(way, route) => Some(Self {
                way,
                route: Some(route),
            }),
            Path::NfsTcp => Some(Self {
                way: Way::NfsTcp,
                route: Some(Route::Rpc),
            }),
            Path::Mapped => None,
        }
    }

    /// The fabric and the route of a row.
    pub fn names(self) -> (&'static str, &'static str) {
        let route = self
            .route
            .map(|route| Path::Client(self.way, route).names().1);
        (self.way.name(), route.unwrap_or("default"))
    }

    /// Whether it keeps pages, so that reads may be as old as the last open.
    pub fn keeps(self) -> bool {
        self.route.is_none()
    }

    /// A client's options.
    pub fn options(self) -> Options {
        match self.route {
            None => Options::default(),
            Some(route) => Options {
                route,
                cache: Cache::Off,
                ..Options::default()
            },
        }
    }
}

fn way_named(name: &str) -> Option<Way> {
    [Way::Shm, Way::Iwarp, Way::NfsTcp]
        .into_iter()
        .find(|way| way.name() == name)
}

impl Plan {
    /// The plan that comes with the sources.
    ///
    /// # Errors
    /// None: a test reads it.
    pub fn built_in() -> Result<Self> {
        Self::parse(BUILT_IN)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// The text is not a valid plan. The error says why.
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)?;
        ensure!(
            plan.cache_mib > 0 && plan.sample_ms > 0,
            "cache-mib and sample-ms: must be more than 0"
        );
        ensure!(
            plan.file_kib >= 4 && plan.file_kib.is_multiple_of(4),
            "file-kib: must be a multiple of 4, and 4 or more"
        );
        ensure!(
            (1..=4096).contains(&plan.files) && plan.files * plan.file_kib <= 512 << 10,
            "files must be 1 to 4096, and files x file-kib at most 512 MiB"
        );
        ensure!(
            (1..=plan.files).contains(&plan.writers.len()),
            "writers: must be 1 or more, and at most the number of files"
        );
        ensure!(
            !plan.readers.is_empty() && plan.readers.len() + plan.visitors <= 256,
            "readers must be 1 or more, and readers + visitors at most 256"
        );
        plan.kinds()?;
        plan.ways()?;
        Ok(plan)
    }

    /// The readers.
    ///
    /// # Errors
    /// None, of a plan that was parsed.
    pub fn kinds(&self) -> Result<Vec<Kind>> {
        let kind = |name: &String| {
            Kind::named(name).with_context(|| {
                format!(
                    "{name:?} is no route; give `nfs rpc`, `shm` or `tcp` with `one-sided`, `guarded`, `rpc` or `policy`, \
                     or any of them with `default`"
                )
            })
        };
        self.readers.iter().map(kind).collect()
    }

    /// The writers.
    ///
    /// # Errors
    /// None, of a plan that was parsed.
    pub fn ways(&self) -> Result<Vec<Way>> {
        let way = |name: &String| {
            way_named(name).with_context(|| {
                format!("{name:?} is no route of a writer; give `shm`, `tcp` or `nfs`")
            })
        };
        self.writers.iter().map(way).collect()
    }

    /// Maximum number of pages of a file.
    pub fn pages(&self) -> usize {
        (self.file_kib << 10) / PAGE
    }

    /// Length of an interval of a run that takes this long.
    pub fn sample(&self, time: Duration) -> Duration {
        Duration::from_millis(self.sample_ms).max(time / SAMPLES)
    }

    /// Keeps the readers and writers over one of these fabrics.
    pub fn keep(&mut self, fabrics: &[String]) {
        let over = |name: &String| {
            fabrics
                .iter()
                .any(|f| name.split(' ').next() == Some(f.as_str()))
        };
        self.readers.retain(|name| fabrics.is_empty() || over(name));
        self.writers.retain(|name| fabrics.is_empty() || over(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_plan_has_what_is_asked_for() {
        let plan = Plan::built_in().unwrap();
        for (name, kind) in plan.readers.iter().zip(plan.kinds().unwrap()) {
            let (fabric, route) = kind.names();
            assert_eq!(*name, format!("{fabric} {route}"));
            assert_eq!(kind.keeps(), kind.options().cache == Cache::CloseToOpen);
        }
        assert_eq!(plan.ways().unwrap(), [Way::Shm, Way::Iwarp, Way::NfsTcp]);
        assert!((plan.files * plan.file_kib) as u64 > plan.cache_mib << 10);
        assert_eq!(plan.sample(Duration::from_secs(60)).as_millis(), 500);
        assert_eq!(plan.sample(Duration::from_secs(3600)).as_secs(), 12);
    }

    #[test]
    fn what_is_no_plan_is_told() {
        for (from, to) in [
            ("files = 16", "files = 2"),
            ("file-kib = 1024", "file-kib = 1023"),
            ("\"nfs rpc\"", "\"nfs guarded\""),
            ("\"tcp\", \"nfs\"]", "\"tcp\", \"mmap\"]"),
            ("cache-mib = 8", "cache-mib = 0"),
        ] {
            assert!(BUILT_IN.contains(from));
            assert!(Plan::parse(&BUILT_IN.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn what_is_kept() {
        let mut plan = Plan::built_in().unwrap();
        plan.keep(&["nfs".to_owned()]);
        assert_eq!(plan.readers, ["nfs rpc", "nfs default"]);
        assert_eq!(plan.writers, ["nfs"]);
    }
}
