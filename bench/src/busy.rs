//! What others take of the processors while something is measured.

use std::collections::HashMap;
use std::fs;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Percent of the processors from which on a machine was busy.
const BUSY_PERCENT: f64 = 10.0;

/// What others took, in percent of all processors' time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Programs other than this one and those that it started.
    pub others_percent: f64,
    /// The host of this virtual machine.
    pub stolen_percent: f64,
}

impl Busy {
    /// Whether that is enough to tell in the figures.
    pub fn is_busy(&self) -> bool {
        self.others_percent + self.stolen_percent >= BUSY_PERCENT
    }

    /// What it was, in words; none of a quiet machine.
    pub fn warning(&self) -> Option<String> {
        self.is_busy().then(|| {
            let stolen = match self.stolen_percent {
                stolen if stolen < 1.0 => String::new(),
                stolen => format!(", and the machine's host {stolen:.0} %"),
            };
            format!(
                "the machine was busy: other programs took {:.0} % of the processors meanwhile{stolen}",
                self.others_percent
            )
        })
    }
}

/// Looks at the processors from its making on.
#[derive(Clone, Debug)]
pub struct Watch {
    begun: Option<Sample>,
    /// Ids of processes that belong to the measurement, though this process did not start them.
    besides: Vec<u32>,
}

/// Ticks since the machine started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    all: u64,
    used: u64,
    stolen: u64,
    /// Used by this process, by what belongs to the measurement besides, and by all below these.
    own: u64,
}

impl Watch {
    /// From now on. What these processes take, and those that they started, is no disturbance either.
    pub fn begin(besides: Vec<u32>) -> Self {
        Self {
            begun: Sample::now(&besides),
            besides,
        }
    }

    /// What others took since; none where the kernel does not say, or too little time went by.
    pub fn found(&self) -> Option<Busy> {
        let (before, after) = (self.begun?, Sample::now(&self.besides)?);
        after.since(before)
    }
}

impl Sample {
    fn now(besides: &[u32]) -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        Self::parse(&stat, own_ticks(besides)?)
    }

    /// Of the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and guests' time,
    /// which is in the first two too.
    fn parse(stat: &str, own: u64) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = (line.split_whitespace().take(8))
            .map(|n| n.parse().unwrap_or(0))
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = ticks[..] else {
            return None;
        };
        let used = user + nice + system + irq + softirq;
        Some(Self {
            all: used + idle + iowait + stolen,
            used,
            stolen,
            own,
        })
    }

    fn since(self, before: Self) -> Option<Busy> {
        let all = self.all.saturating_sub(before.all);
        let used = self.used.saturating_sub(before.used);
        let others = used.saturating_sub(self.own.saturating_sub(before.own));
        let percent = |ticks: u64| (ticks as f64 * 1000.0 / all as f64).round() / 10.0;
        // A tick is 10 ms: of fewer than 20 a percentage says nothing.
        (all >= 20).then(|| Busy {
            others_percent: percent(others),
            stolen_percent: percent(self.stolen.saturating_sub(before.stolen)),
        })
    }
}

/// Ticks of this process, of those besides, and of all below these, those that have ended among them.
fn own_ticks(besides: &[u32]) -> Option<u64> {
    let mut processes: HashMap<u32, (u32, u64)> = HashMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(found) = parent_and_ticks(&stat) {
            processes.insert(pid, found);
        }
    }
    let own = std::process::id();
    let is_below = |mut pid: u32| {
        for _ in 0..processes.len() {
            match processes.get(&pid) {
                _ if pid == own || besides.contains(&pid) => return true,
                Some((parent, _)) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    let below = processes.iter().filter(|(pid, _)| is_below(**pid));
    Some(below.map(|(_, (_, ticks))| ticks).sum())
}

/// The parent, and the ticks of the process and of the children that it has waited for, from `/proc/PID/stat`.
fn parent_and_ticks(stat: &str) -> Option<(u32, u64)> {
    // The name, in brackets, may hold spaces and brackets.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|n| n.parse::<u64>());
    Some((fields[1].parse().ok()?, ticks.sum::<Result<u64, _>>().ok()?))
}

/// What other processes used of a machine: measured until it is printed, or read from a file.
#[derive(Clone, Debug, Default)]
pub enum Others {
    /// Measured from a moment until it is asked for.
    Since(Watch),
    /// Read from a file. `None` if it is not known.
    Found(Option<Busy>),
    /// Not measured.
    #[default]
    Unwatched,
}

impl Others {
    /// The share of others so far, if it is known.
    pub fn found(&self) -> Option<Busy> {
        match self {
            Self::Since(watch) => watch.found(),
            Self::Found(found) => *found,
            Self::Unwatched => None,
        }
    }
}

impl Serialize for Others {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.found().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Others {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<Busy>::deserialize(deserializer).map(Self::Found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_what_is_used_and_not_ours() {
        let sample = |stat: &str, own| Sample::parse(stat, own).unwrap();
        let before = sample("cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1\n", 50);
        let after = sample("cpu  400 100 200 1200 50 10 40 100 90 0\n", 350);
        let busy = after.since(before).unwrap();
        // Of 1100 ticks 550 were used, of which 300 by us.
        assert_eq!((busy.others_percent, busy.stolen_percent), (22.7, 9.1));
        assert!(busy.warning().unwrap().contains("23 %"));
        assert!(after.since(after).is_none());
        assert!(Sample::parse("cpu0 1 2", 0).is_none());
    }

    #[test]
    fn what_a_process_below_uses_is_ours() {
        let stat = "12 (a) b) c) S 7 1 1 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 99 0";
        assert_eq!(parent_and_ticks(stat), Some((7, 127)));
        let before = own_ticks(&[]).unwrap();
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; read line";
        let mut child = std::process::Command::new("sh")
            .args(["-c", spin])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let alive = own_ticks(&[]).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(alive > before && own_ticks(&[]).unwrap() >= alive);
    }

    #[test]
    fn what_a_process_besides_uses_is_ours_too() {
        // A process that has lost its parent, and is below us no more.
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; read line";
        let mut parent = std::process::Command::new("sh")
            .args(["-c", &format!("({spin}) <&0 & echo $!")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = std::io::BufReader::new(parent.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut out, &mut line).unwrap();
            line
        };
        let lines = [line(), line()];
        // `wait` would end it: it closes stdin.
        let stdin = parent.stdin.take();
        parent.wait().unwrap();
        let pid = lines
            .iter()
            .find_map(|line| line.trim().parse().ok())
            .unwrap();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, ticks) = parent_and_ticks(&stat).unwrap();
        let without = own_ticks(&[]).unwrap();
        let with = own_ticks(&[pid]).unwrap();
        drop(stdin);
        assert!(
            ticks > 1 && with >= without + ticks,
            "{with} {without} {ticks}"
        );
    }

    #[test]
    fn what_was_found_is_kept() {
        let found = Others::Found(Some(Busy {
            others_percent: 12.5,
            stolen_percent: 0.5,
        }));
        let json = serde_json::to_string(&found).unwrap();
        let read: Others = serde_json::from_str(&json).unwrap();
        assert_eq!(read.found(), found.found());
        let none: Others = serde_json::from_str("null").unwrap();
        assert!(none.found().is_none());
    }
}
