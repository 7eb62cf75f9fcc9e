//! What machine a figure comes from.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::busy::{Others, Watch};

/// The machine and the build, printed with every set of figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// How many processors this process may use.
    pub cpus: usize,
    /// The largest cache, as the kernel writes it ("32768K").
    pub cache: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Whether the processor says that it is a virtual one.
    pub virtual_machine: bool,
    /// Whether this program was built with optimisation.
    pub optimised: bool,
    /// How much of the processors others took, from then until the report.
    #[serde(default)]
    pub busy: Others,
}

impl Machine {
    /// Describes this machine, before something is measured on it.
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = |key: &str| {
            cpuinfo
                .lines()
                .find(|l| l.starts_with(key))
                .and_then(|l| l.split_once(':'))
                .map(|(_, v)| v.trim())
        };
        Self {
            cpu: line("model name")
                .unwrap_or(std::env::consts::ARCH)
                .to_owned(),
            cpus: crate::cpu::allowed().len(),
            cache: largest_cache().unwrap_or_default(),
            memory_bytes: memory_bytes().unwrap_or(0),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            virtual_machine: line("flags").is_some_and(|f| f.split(' ').any(|f| f == "hypervisor")),
            optimised: !cfg!(debug_assertions),
            busy: Others::Since(Watch::begin(Vec::new())),
        }
    }

    /// The same, with processes that others started for the measurement: what they take is no disturbance.
    pub fn with(self, besides: Vec<u32>) -> Self {
        Self {
            busy: Others::Since(Watch::begin(besides)),
            ..self
        }
    }

    /// The same, for a server that others started and whose process is not known, or where no processor is measured.
    pub fn unwatched(self) -> Self {
        Self {
            busy: Others::Unwatched,
            ..self
        }
    }

    /// Why its figures are to be taken with care, if they are.
    pub fn warning(&self) -> Option<String> {
        self.busy.found().and_then(|busy| busy.warning())
    }

    /// One line for the head of a table: the machine, and whether it was busy.
    pub fn sentence(&self) -> String {
        let warning = self.warning();
        let warning = warning.map_or(String::new(), |warning| format!("; {warning}"));
        format!("{}{warning}", self.hardware())
    }

    /// The machine in one line.
    pub fn hardware(&self) -> String {
        format!(
            "{}, {}{}, {} of memory, Linux {}{}",
            self.cpu,
            crate::table::counted(self.cpus, "processor"),
            if self.virtual_machine {
                " (virtual)"
            } else {
                ""
            },
            crate::table::bytes(self.memory_bytes),
            self.kernel,
            if self.optimised {
                ""
            } else {
                ", UNOPTIMISED BUILD: figures mean nothing"
            },
        )
    }
}

fn largest_cache() -> Option<String> {
    (0..8)
        .rev()
        .find_map(|i| {
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size")).ok()
        })
        .map(|size| size.trim().to_owned())
}

fn memory_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("MemTotal:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

/// The commit that this program was built from, or the version where the build
/// had no repository.
pub fn commit() -> &'static str {
    env!("ODAFS_COMMIT")
}
