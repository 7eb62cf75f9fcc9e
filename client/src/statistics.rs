//! What a client has counted since it connected.

use odafs_common::exception::Exception;

/// Counters of a [`Client`](crate::Client). Every read ends in exactly one of `cache_hits`, `direct_hits` and
/// `rpc_reads`: in `rpc_reads` if any part of it took an RPC, else in `direct_hits` if any part was read directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Reads served by the data cache alone.
    pub cache_hits: u64,
    /// Reads served by direct reads.
    pub direct_hits: u64,
    /// Of those, one-sided.
    pub one_sided_hits: u64,
    /// Of those, guarded.
    pub guarded_hits: u64,
    /// Reads that took an RPC.
    pub rpc_reads: u64,
    /// Direct tries that were refused; the read then went on by RPC.
    pub stale_hits: u64,
    /// Direct tries refused, by exception, in the order of [`Exception`]'s codes.
    pub refused: [u64; 7],
    /// Lookups in the directory of references that found one.
    pub directory_hits: u64,
    /// Lookups that found none.
    pub directory_misses: u64,
    /// References learned, from replies and eager queries.
    pub references_learned: u64,
    /// References that the directory holds now.
    pub references_held: u64,
    /// Bytes that the directory takes now.
    pub directory_bytes: u64,
    /// Bytes of pages in the data cache now.
    pub cache_bytes: u64,
    /// Bytes read, by any route.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// RPCs of any kind sent, retries included.
    pub calls: u64,
    /// Connections made again after one was lost.
    pub reconnects: u64,
    /// What the policy has measured, of reads of about 4 KiB.
    pub terms: RdmaTerms,
    /// Times that the policy changed its mind: another route is the cheapest, or a file is refused too often, or no more.
    pub policy_switches: u64,
    /// Probes: some direct reads of a file that is read by RPC because it was refused too often.
    pub policy_probes: u64,
    /// Trials: two routes took turns for a few reads each, to compare what they cost.
    pub policy_trials: u64,
}

/// The terms of the paper's ratio (paper 004 section III-B) as measured, in nanoseconds and hits per read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RdmaTerms {
    /// A read by RPC.
    pub rpc_ns: u64,
    /// A direct read that completed, by the cheapest direct route.
    pub direct_ns: u64,
    /// A guarded read; 0 while none was timed.
    pub guarded_ns: u64,
    /// A one-sided read; 0 while none was timed.
    pub one_sided_ns: u64,
    /// A hit of the data cache; 0 while none was timed.
    pub hit_ns: u64,
    /// A direct read that was refused, up to the refusal.
    pub stale_ns: u64,
    /// Direct reads tried, decayed count in thousandths.
    pub directory_hits_milli: u64,
    /// Direct reads refused, decayed count in thousandths.
    pub stale_hits_milli: u64,
}

impl Statistics {
    /// Direct tries refused with this exception.
    pub fn refused_with(&self, exception: Exception) -> u64 {
        self.refused[exception as usize - 1]
    }
}
