//! How much memory this process may still take before the kernel kills a process for want of it.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory that this process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Size in bytes.
    pub bytes: u64,
    /// What limits it.
    pub bound: Bound,
}

/// What limits memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The memory of the machine (`MemAvailable`).
    Machine,
    /// The limit of a control group of this process.
    ControlGroup,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Machine => "MemAvailable in /proc/meminfo",
            Self::ControlGroup => "the memory limit of its control group",
        })
    }
}

/// The memory that the kernel reports, or `None` if it reports none.
pub fn available() -> Option<Available> {
    available_below(Path::new("/"))
}

fn available_below(root: &Path) -> Option<Available> {
    let machine = (of_machine(root), Bound::Machine);
    let groups = groups(root).filter_map(|group| group.room());
    let group = (groups.min(), Bound::ControlGroup);
    let known = |(bytes, bound): (Option<u64>, Bound)| {
        Some(Available {
            bytes: bytes?,
            bound,
        })
    };
    [machine, group]
        .into_iter()
        .filter_map(known)
        .min_by_key(|available| available.bytes)
}

fn of_machine(root: &Path) -> Option<u64> {
    let kib = figure(&root.join("proc/meminfo"), "MemAvailable:")?;
    kib.checked_mul(1024)
}

/// A control group with a memory controller.
struct Group {
    directory: PathBuf,
    version: Version,
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

/// The groups of this process and all above them. In a container its own group may be the root of what is mounted.
fn groups(root: &Path) -> impl Iterator<Item = Group> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounted = root.join("sys/fs/cgroup");
    let mut all = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (base, version) = match controllers {
            "" => (mounted.clone(), Version::Two),
            _ if controllers.split(',').any(|c| c == "memory") => {
                (mounted.join("memory"), Version::One)
            }
            _ => continue,
        };
        let own = base.join(path.trim_start_matches('/'));
        let within = own.ancestors().take_while(|above| above.starts_with(&base));
        all.extend(within.map(|directory| Group {
            directory: directory.to_owned(),
            version,
        }));
    }
    all.into_iter()
}

impl Group {
    /// Bytes that the group may still take. The kernel can drop its cached file pages, so these do not count.
    fn room(&self) -> Option<u64> {
        let [limit, usage, inactive, active] = match self.version {
            Version::One => [
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
                "total_active_file",
            ],
            Version::Two => [
                "memory.max",
                "memory.current",
                "inactive_file",
                "active_file",
            ],
        };
        let number = |name| {
            fs::read_to_string(self.directory.join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        // `max` means that there is no limit.
        let (limit, usage): (u64, u64) = (number(limit)?, number(usage)?);
        let stat = self.directory.join("memory.stat");
        let files = [inactive, active].map(|name| figure(&stat, name).unwrap_or(0));
        let used = usage.saturating_sub(files.iter().sum());
        Some(limit.saturating_sub(used))
    }
}

/// The number after a name, in a file with a name and a number on each line.
fn figure(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with 1 GiB available.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let meminfo = (
            "proc/meminfo",
            "MemTotal: 9999999 kB\nMemAvailable:    1048576 kB\n",
        );
        for (path, text) in [meminfo].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("a file");
        }
        root
    }

    fn of(files: &[(&str, &str)]) -> Option<Available> {
        available_below(machine(files).path())
    }

    #[test]
    fn the_machine_bounds_where_no_group_does() {
        let all = Some(Available {
            bytes: 1 << 30,
            bound: Bound::Machine,
        });
        assert_eq!(of(&[]), all);
        let free = [
            ("proc/self/cgroup", "0::/user/me\n"),
            ("sys/fs/cgroup/user/me/memory.max", "max\n"),
            ("sys/fs/cgroup/user/me/memory.current", "100\n"),
        ];
        assert_eq!(of(&free), all);
        let nothing = tempfile::tempdir().expect("a directory");
        assert_eq!(available_below(nothing.path()), None);
    }

    #[test]
    fn a_group_bounds_less_what_it_has_taken_and_cannot_give_back() {
        let bounded = Some(Available {
            bytes: 700,
            bound: Bound::ControlGroup,
        });
        let second = [
            ("proc/self/cgroup", "0::/above/own\n"),
            ("sys/fs/cgroup/above/own/memory.max", "max\n"),
            ("sys/fs/cgroup/above/memory.max", "1000\n"),
            ("sys/fs/cgroup/above/memory.current", "500\n"),
            (
                "sys/fs/cgroup/above/memory.stat",
                "anon 300\nactive_file 50\ninactive_file 150\n",
            ),
        ];
        assert_eq!(of(&second), bounded);
        // In a container this is a path of the host.
        let first = [
            (
                "proc/self/cgroup",
                "5:cpu:/docker/a\n4:memory,x:/docker/a\n0::/\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "500\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 200\n",
            ),
        ];
        assert_eq!(of(&first), bounded);
    }
}
