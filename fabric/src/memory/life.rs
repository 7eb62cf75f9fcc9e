use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The control word of one server life: while it holds the life's number, what clients read in
/// the arena counts. It lives in a file of the state directory, so that a successor can poison
/// it when a killed server could not.
pub struct LifeWord {}

impl LifeWord {
    /// Starts the life `life` (not 0) with a new file at `path`, after poisoning what is there.
    pub fn create(path: &Path, life: u64) -> io::Result<LifeWord> {
        todo!("{path:?} {life}")
    }

    /// A life without a file, for servers without a state directory: nobody can poison it after a kill.
    pub fn in_memory(life: u64) -> io::Result<LifeWord> {
        todo!("{life}")
    }

    /// Ends the validity of all that the server of an earlier life handed out. No file: nothing to do.
    pub fn poison_predecessor(path: &Path) -> io::Result<()> {
        todo!("{path:?}")
    }

    /// Ends the validity of all that this server handed out.
    pub fn poison(&self) {
        todo!()
    }

    /// The number of this life.
    pub fn life(&self) -> u64 {
        todo!()
    }

    /// A read-only descriptor for a client to map.
    pub fn share(&self) -> io::Result<OwnedFd> {
        todo!()
    }
}

/// A client's mapping of a life word.
pub struct LifeView {}

impl LifeView {
    /// Whether that server life still counts.
    pub fn is_alive(&self) -> bool {
        todo!()
    }
}
