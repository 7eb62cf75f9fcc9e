//! Counts of what happened in runs. A simulation in which nothing happens proves nothing.

use crate::nfs4;

/// Counts that can be added, and told apart by name.
macro_rules! counts {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$of:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub struct $name {
            $($(#[$of])* pub $field: u64,)*
        }

        impl $name {
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Each of them by its name.
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}
pub(crate) use counts;

counts! {
    /// Counts of what happened in runs.
    pub struct Counts {
        runs,
        reads,
        writes,
        lost_writes,
        lost_reads,
        cache_hits,
        /// Of those, what was read under delegations of the ODAFS program.
        delegated_hits,
        /// Of these delegations, those that were recalled.
        recalled,
        /// Reads of logs.
        log,
        direct_hits,
        one_sided_hits,
        stale_hits,
        rpc_reads,
        /// Of `rpc_reads`, those by RPC-over-RDMA.
        rdma_reads,
        /// Of `rdma_reads`, those over iWARP.
        iwarp_reads,
        reconnects,
        kills,
        /// Of these, those that lost data.
        losing_kills,
        /// Direct reads from a server that was started after a kill.
        direct_after_kill,
        /// Outside writes of a page that the server had in memory.
        outside_of_cached,
        /// How often a disk lost data that nobody had asked it to sync.
        lost_by_disk,
        /// Of these, in runs without a kill, those of which a client was told.
        heard_of_loss,
        attacks_refused,
        /// Direct reads of the attacker with a session and a reference of its own,
        grants_used,
        /// and with such a reference and a guess in it.
        guesses_refused,
        replays_refused,
    }
}

/// What happened, also to clients of version 4.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub all: Counts,
    pub nfs4: nfs4::Tally,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.all.add(&other.all);
        self.nfs4.add(&other.nfs4);
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        let counts = self.all.each().into_iter().chain(self.nfs4.each());
        let missing = counts.filter(|(_, count)| *count == 0);
        missing.map(|(name, _)| name).collect()
    }
}
