//! The permissions of what is made: those that the process's umask leaves, as files and directories on disk have them.

use odafs::Changes;

/// The usual umask, for where the system does not say.
const USUAL: u32 = 0o022;

/// Of an object.
pub fn of_file() -> Changes {
    with(0o666 & !umask())
}

/// Of a directory above one.
pub fn of_directory() -> Changes {
    with(0o777 & !umask())
}

/// Attributes with this mode alone.
pub fn with(mode: u32) -> Changes {
    Changes {
        mode: Some(mode),
        ..Changes::default()
    }
}

/// There is no call that reads it and leaves it as it is.
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
