//! The counters of a client since it connected.

use odafs_common::exception::Exception;

/// Counters of a [`Client`](crate::Client). Every read ends in exactly one of `cache_hits`, `direct_hits` and
/// `rpc_reads`: in `rpc_reads` if any part of it took an RPC, else in `direct_hits` if any part was read directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Reads served by the data cache alone.
    pub cache_hits: u64,
    /// Reads served by direct reads.
    pub direct_hits: u64,
    /// Of `direct_hits`, one-sided reads.
    pub one_sided_hits: u64,
    /// Of `direct_hits`, guarded reads.
    pub guarded_hits: u64,
    /// Reads that took an RPC.
    pub rpc_reads: u64,
    /// Direct reads that were refused. Each then went on by RPC.
    pub stale_hits: u64,
    /// Refused direct reads by exception, in the order of [`Exception`]'s codes (the code less 1).
    pub refused: [u64; 7],
    /// Lookups in the directory that found a reference.
    pub directory_hits: u64,
    /// Lookups in the directory that found no reference.
    pub directory_misses: u64,
    /// References learned, from replies and eager queries.
    pub references_learned: u64,
    /// References that the directory holds now.
    pub references_held: u64,
    /// Memory of the directory now, in bytes.
    pub directory_bytes: u64,
    /// Pages in the data cache now, in bytes.
    pub cache_bytes: u64,
    /// Bytes read, by any route.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// RPCs of any kind sent, retries included.
    pub calls: u64,
    /// Connections made again after a loss.
    pub reconnects: u64,
    /// Files that the server has delegated to this client now.
    pub delegations_held: u64,
    /// Delegations given, those that follow others of the same files included.
    pub delegations_granted: u64,
    /// Delegations that the server did not give again, because somebody else changes the file, has changed it lately or has
    /// it alone (ODAFS_TRYLATER). Refusals for other reasons do not count.
    pub delegations_recalled: u64,
    /// What the policy has measured for reads of about 4 KiB.
    pub terms: RdmaTerms,
    /// Changes of the policy's choice: another route became the cheapest, or a file began or ceased to be refused too
    /// often.
    pub policy_switches: u64,
    /// Probes: a few direct reads of a file that goes by RPC because it was refused too often.
    pub policy_probes: u64,
    /// Trials: two routes took turns of a few reads each, to compare their costs.
    pub policy_trials: u64,
}

/// The terms of the paper's ratio (paper 004 section III-B) as measured, in nanoseconds and hits per read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RdmaTerms {
    /// Time of a read by RPC, in nanoseconds.
    pub rpc_ns: u64,
    /// Time of a completed direct read by the cheapest direct route, in nanoseconds.
    pub direct_ns: u64,
    /// Time of a guarded read, in nanoseconds; 0 while none was timed.
    pub guarded_ns: u64,
    /// Time of a one-sided read, in nanoseconds; 0 while none was timed.
    pub one_sided_ns: u64,
    /// Time of a hit of the data cache, in nanoseconds; 0 while none was timed.
    pub hit_ns: u64,
    /// Time to keep a page in place of another, in nanoseconds; 0 while none was timed.
    pub put_ns: u64,
    /// Time of a refused direct read up to its refusal, in nanoseconds.
    pub stale_ns: u64,
    /// Direct reads tried: a decayed count, in thousandths.
    pub directory_hits_milli: u64,
    /// Direct reads refused: a decayed count, in thousandths.
    pub stale_hits_milli: u64,
}

impl Statistics {
    /// Direct reads that were refused with this exception.
    pub fn refused_with(&self, exception: Exception) -> u64 {
        self.refused[exception as usize - 1]
    }
}
