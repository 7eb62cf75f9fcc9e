//! NSM version 1 (XNFS, chapter 11), as far as lock managers need it. A client that has restarted says so, and the server
//! frees its locks. When this server restarts, it tells the hosts that held locks. It monitors nobody on behalf of others.

use std::collections::BTreeSet;
use std::net::IpAddr;

use odafs_common::wire::nsm::{
    Caller as Told, HostName, Monitor, MonitorId, Monitored, Notification, Outcome, PROGRAM,
    Procedure, VERSION,
};
use odafs_common::wire::xdr::{Encode as _, Reader, Writer, XdrError};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;

use super::{Heard, HostKey, Lockd, PeerCall, last, who};
use crate::rpc::{Admission, Answer, Call, Program, reply};
use crate::vfs::locks::Side;
use crate::vfs::read::Effort;

/// The pause before the server tries again to tell a host that it did not reach. It tries as long as the host may reclaim.
const AGAIN: Nanos = Nanos::from_secs(5);

/// The hosts that have not heard yet that the server has restarted.
#[derive(Debug)]
pub(super) struct Untold {
    /// The address of each, and the server's, as the host used it.
    addresses: BTreeSet<(IpAddr, Option<IpAddr>)>,
    next: Nanos,
}

impl Untold {
    /// These hosts, with the server's address. The server tells them at once.
    pub fn new<'a>(hosts: impl Iterator<Item = (&'a HostKey, &'a Option<IpAddr>)>) -> Self {
        let addresses = hosts.filter_map(|(host, ours)| Some((host.address.parse().ok()?, *ours)));
        Self {
            addresses: addresses.collect(),
            next: Nanos(0),
        }
    }
}

impl Lockd {
    /// Tells hosts that this server has restarted, and tries those again that it did not reach. They know the server by the
    /// address that they used, and hear the call only from there.
    pub(super) fn tell_hosts(&self, now: Nanos) {
        let Some(peers) = &self.peers else {
            return;
        };
        let state = self.state;
        let mut untold = self.untold.lock();
        if untold.addresses.is_empty() || now < untold.next {
            return;
        }
        untold.next = now + AGAIN;
        let addresses = std::mem::take(&mut untold.addresses);
        drop(untold);
        let in_time = self.export.locks().is_reclaiming(Side::Nlm, now);
        for (address, used) in addresses {
            if !in_time {
                tracing::warn!(
                    client = %address,
                    "cannot tell an NFSv3 client that the server has restarted: its locks are lost"
                );
                continue;
            }
            let call = PeerCall {
                address,
                ours: used,
                program: PROGRAM,
                version: VERSION,
                procedure: Procedure::Notify.code(),
                arguments: Box::new(move |ours| {
                    let name = used.unwrap_or(ours).to_string();
                    let told = Notification {
                        host: HostName(name.as_bytes()),
                        state,
                    };
                    told.to_bytes()
                }),
            };
            let me = self.me.get().cloned();
            let done = move |heard| match heard {
                Heard::Answer(_) => {
                    tracing::info!(client = %address, "told that the server has restarted");
                }
                Heard::Unreached | Heard::Silence => {
                    if let Some(lockd) = me.and_then(|me| me.upgrade()) {
                        lockd.untold.lock().addresses.insert((address, used));
                    }
                }
            };
            peers.call(call, Box::new(done));
        }
    }
}

/// NSM version 1.
pub struct Nsm(Arc<Lockd>);

impl Nsm {
    /// The program of this lock manager.
    pub fn new(lockd: Arc<Lockd>) -> Self {
        Self(lockd)
    }

    /// Status monitors call from any port.
    fn admits(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Address(address) => self.0.access.admits_address(address.ip()),
            Peer::Uid { .. } | Peer::Simulated(_) => true,
        }
    }

    fn dispatch(
        &self,
        procedure: Procedure,
        call: &Call<'_>,
        results: &mut Writer<'_>,
    ) -> Result<Answer, XdrError> {
        let state = self.0.state;
        let nobody = Monitored {
            outcome: Outcome::Fail,
            state,
        };
        let arguments = &mut call.arguments.clone();
        Ok(match procedure {
            Procedure::Null => Answer::NoProcedure,
            Procedure::Stat => {
                last::<HostName<'_>>(arguments)?;
                reply(results, &nobody)
            }
            Procedure::Monitor => {
                last::<Monitor<'_>>(arguments)?;
                reply(results, &nobody)
            }
            Procedure::Unmonitor => {
                last::<MonitorId<'_>>(arguments)?;
                reply(results, &state)
            }
            Procedure::UnmonitorAll => {
                last::<Told<'_>>(arguments)?;
                reply(results, &state)
            }
            // No caller may make the server say that it has crashed.
            Procedure::SimulateCrash => Answer::Replied,
            Procedure::Notify if !self.admits(&call.caller.peer) => Answer::Replied,
            Procedure::Notify if call.effort == Effort::ResidentOnly => Answer::Blocks,
            Procedure::Notify => {
                let told: Notification<'_> = last(arguments)?;
                let from = who(call.caller, odafs_common::wire::nlm4::Name(told.host.0)).key;
                let freed = self
                    .0
                    .with(|hosts, _| hosts.started_anew(&from.address, &from.name, told.state));
                if freed > 0 {
                    tracing::info!(
                        client = %from.address,
                        name = %from.name.escape_ascii(),
                        "has restarted: its locks are freed"
                    );
                }
                Answer::Replied
            }
        })
    }
}

impl Program for Nsm {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn name(&self) -> &'static str {
        "nsm"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &[
            "NULL",
            "STAT",
            "MON",
            "UNMON",
            "UNMON_ALL",
            "SIMU_CRASH",
            "NOTIFY",
        ]
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Asks
    }

    fn may_sync(&self, procedure: u32, _arguments: Reader<'_>) -> bool {
        Procedure::from_code(procedure) == Some(Procedure::Notify)
    }

    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match Procedure::from_code(call.procedure) {
            Some(procedure) => self
                .dispatch(procedure, &call, results)
                .unwrap_or_else(Answer::from),
            None => Answer::NoProcedure,
        }
    }
}
