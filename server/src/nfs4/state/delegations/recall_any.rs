//! What the server does when there are nearly as many delegations as there may be (CB_RECALL_ANY; RFC 8881, section 20.6).

use odafs_fabric::clock::Nanos;

use crate::nfs4::state::State;
use crate::nfs4::state::back_channel::Callback;

/// The shortest time between two requests to return delegations.
const INTERVAL: Nanos = Nanos::from_secs(10);

/// Whether there are nearly as many as there may be.
fn is_near(count: usize, most: usize) -> bool {
    count >= most - most / 8
}

impl State {
    /// The clients whose leases are over and that hold nothing but delegations. If there are nearly too many delegations: all
    /// clients that hold some and whose leases are over.
    pub(in crate::nfs4::state) fn idle_with_delegations(&self, now: Nanos) -> Vec<u32> {
        let table = &self.delegations;
        let full = is_near(table.all.len(), self.limits.all_delegations);
        let holders = table.clients.iter().filter(|(number, of)| {
            let known = self.clients.get(number);
            let alone = known.is_some_and(|known| known.states == of.states.len());
            (full || alone) && self.is_over(**number, now)
        });
        holders.map(|(number, _)| *number).collect()
    }

    /// Asks a client that has nearly as many delegations as it may have to return half of them. If there are nearly as many as
    /// there may be of all, asks all clients.
    pub(super) fn ask_for_some(&mut self, now: Nanos, client: u32) {
        let table = &mut self.delegations;
        let lately = |asked: Option<Nanos>| asked.is_some_and(|asked| now.since(asked) < INTERVAL);
        let mut asked = Vec::new();
        if is_near(table.all.len(), self.limits.all_delegations) && !lately(table.asked) {
            table.asked = Some(now);
            asked.extend(table.clients.keys().copied());
        }
        if let Some(of) = table.clients.get(&client)
            && is_near(of.states.len(), self.limits.delegations)
            && !lately(of.asked)
        {
            asked.push(client);
        }
        for client in asked {
            // A client whose lease is over does not answer. It loses its delegations in another way.
            if self.is_over(client, now) {
                continue;
            }
            if let Some(of) = self.delegations.clients.get_mut(&client) {
                of.asked = Some(now);
                let keep = (of.states.len() / 2) as u32;
                self.say(client, Callback::RecallAny { keep });
            }
        }
    }
}
