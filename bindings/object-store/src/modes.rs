//! The permissions of new files and directories: those that the process's umask leaves, as on a local disk.

use odafs::Changes;

/// The usual umask, if the system does not say.
const USUAL: u32 = 0o022;

/// The mode of an object.
pub fn of_file() -> Changes {
    with(0o666 & !umask())
}

/// The mode of a directory above one.
pub fn of_directory() -> Changes {
    with(0o777 & !umask())
}

/// Attributes that set only this mode.
pub fn with(mode: u32) -> Changes {
    Changes {
        mode: Some(mode),
        ..Changes::default()
    }
}

/// No call reads it without changing it.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status");
    status.ok().and_then(|text| told(&text)).unwrap_or(USUAL)
}

fn told(status: &str) -> Option<u32> {
    let umask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(umask.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_the_umask_is() {
        assert_eq!(told("Name:\tx\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(told("Name:\tx\n"), None);
    }
}
