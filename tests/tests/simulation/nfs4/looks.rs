//! What clients are told of the change attributes and the sizes of files, beside what others write of these by themselves, under
//! delegations. Times are those of the history, but for `life`, the start of the server.

use odafs_fabric::clock::Nanos;

/// What a client was told of a file.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub by: u32,
    pub file: u8,
    pub life: Nanos,
    pub invoked: u64,
    pub returned: u64,
    pub change: u64,
    pub size: u64,
}

/// Something that a client has written by itself, and has sent later.
#[derive(Clone, Copy, Debug)]
pub struct Unseen {
    pub by: u32,
    pub file: u8,
    pub life: Nanos,
    pub invoked: u64,
    pub returned: u64,
    /// When it began to send it.
    pub sent: u64,
    /// The file is at least so long with it, in bytes.
    pub end: u64,
}

/// All of them.
#[derive(Default)]
pub struct Looks {
    looks: Vec<Look>,
    written: Vec<Unseen>,
}

impl Looks {
    pub fn looked(&mut self, look: Look) -> Result<(), String> {
        self.looks.push(look);
        self.written.iter().try_for_each(|write| self.judge(write))
    }

    pub fn written(&mut self, write: Unseen) -> Result<(), String> {
        self.written.push(write);
        self.judge(&write)
    }

    /// Whoever looks when another has written something is told another change attribute than before, and that the file is as long.
    fn judge(&self, write: &Unseen) -> Result<(), String> {
        let here = |look: &&Look| (look.file, look.life) == (write.file, write.life);
        let looks = || self.looks.iter().filter(here);
        for after in looks().filter(|look| look.by != write.by && look.invoked > write.returned) {
            let mut before = looks().filter(|look| look.returned < write.invoked);
            if let Some(before) = before.find(|before| before.change == after.change) {
                return Err(format!("{before:?} and {after:?} beside {write:?}"));
            }
            if after.returned < write.sent && after.size < write.end {
                return Err(format!("{after:?} beside {write:?}"));
            }
        }
        Ok(())
    }
}
