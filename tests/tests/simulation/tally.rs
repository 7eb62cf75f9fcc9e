//! Counts of what happened in runs. A simulation in which nothing happens proves nothing.

use crate::nfs4;

/// Counts of what happened in runs.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub runs: u64,
    pub reads: u64,
    pub writes: u64,
    pub lost_writes: u64,
    pub lost_reads: u64,
    pub cache_hits: u64,
    /// Of those, what was read under delegations of the ODAFS program.
    pub delegated_hits: u64,
    /// Of these delegations, those that were recalled.
    pub recalled: u64,
    /// Reads of logs.
    pub log: u64,
    pub direct_hits: u64,
    pub one_sided_hits: u64,
    pub stale_hits: u64,
    pub rpc_reads: u64,
    /// Of `rpc_reads`, those by RPC-over-RDMA.
    pub rdma_reads: u64,
    /// Of `rdma_reads`, those over iWARP.
    pub iwarp_reads: u64,
    pub reconnects: u64,
    pub kills: u64,
    pub attacks_refused: u64,
    pub replays_refused: u64,
    pub nfs4: nfs4::Tally,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.reads += other.reads;
        self.writes += other.writes;
        self.lost_writes += other.lost_writes;
        self.lost_reads += other.lost_reads;
        self.cache_hits += other.cache_hits;
        self.delegated_hits += other.delegated_hits;
        self.recalled += other.recalled;
        self.log += other.log;
        self.direct_hits += other.direct_hits;
        self.one_sided_hits += other.one_sided_hits;
        self.stale_hits += other.stale_hits;
        self.rpc_reads += other.rpc_reads;
        self.rdma_reads += other.rdma_reads;
        self.iwarp_reads += other.iwarp_reads;
        self.reconnects += other.reconnects;
        self.kills += other.kills;
        self.attacks_refused += other.attacks_refused;
        self.replays_refused += other.replays_refused;
        self.nfs4.add(&other.nfs4);
    }
}
