//! A client of a world, which reads by one of the routes, and writes by calls.

use crate::history::PagePosition;
use crate::losses::Told;
use crate::tally::Tally;
use crate::world::{ABSENT, OUTSIDE, PAGES, World, below, connect, name_of, page_of, value_of};
use odafs::{Cache, Changes, Route, RpcOver};
use odafs_fabric::clock::{self, Nanos};
use odafs_tests::linear::Action;
use odafs_tests::page::PAGE;
use std::collections::BTreeMap;

const STEPS: u64 = 12;

/// Reads, writes, syncs, truncates and extends at random.
pub fn client(world: &World, number: u32) {
    let history = &world.history;
    let who = format!("client-{number}");
    let route = [Route::OneSided, Route::Guarded, Route::Policy, Route::Rpc][below(4) as usize];
    // Data that a client has read from a server may be lost with that server, without a sign to the client.
    let caches = world.kills == 0 && below(2) == 0;
    let cache = match caches {
        // Nor is there a promise that a disk forgets nothing.
        true if below(2) == 0 && !world.forgets => Cache::Delegated,
        true => Cache::CloseToOpen,
        false => Cache::Off,
    };
    let rpc_over = [RpcOver::Messages, RpcOver::Rdma][below(2) as usize];
    let client = match connect(world, rpc_over, (route, cache)) {
        Ok(client) => client,
        Err(error) => return world.failed(&format!("{who} cannot connect: {error}")),
    };
    // What this client has written and not yet synced: a sync may send it again. With it: does a sync that is answered
    // promise to have made it stable? Of a write that failed it says nothing, be its data there or not.
    let mut unstable: BTreeMap<PagePosition, (u64, bool)> = BTreeMap::new();
    let mut tally = Tally::default();
    // What is delegated stays open: nothing checks what is kept of it.
    let mut delegated = BTreeMap::new();
    for _ in 0..STEPS {
        // Pages that a client keeps may miss changes behind the server's back that others have seen.
        let mut files = world.files();
        files.extend(Some(OUTSIDE).filter(|_| !caches));
        let file_number = files[below(files.len() as u64) as usize];
        let page = below(PAGES.into()) as u8;
        let place = (file_number, page);
        if below(4) == 0 {
            world.store.hold_clock(below(12) as u32);
        }
        if let Some(model) = &world.model {
            clock::sleep(Nanos(below(model.lease.0 / 4)));
        }
        if world.kills == 0 && below(3) == 0 {
            tally.all.log += 1;
            let log = world.log();
            let file = client.open(log.path());
            if !file.is_ok_and(|file| log.read(&file, history)) {
                world.failed(&format!("{who} cannot read a log"));
            }
            continue;
        }
        let opened = history.now();
        let known = delegated.get(&file_number).cloned();
        let open = || client.open(format!("/{}", name_of(file_number)));
        let file = match known.map_or_else(open, Ok) {
            Ok(file) => file,
            Err(error) => {
                world.failed(&format!("{who} open: {error}"));
                tally.all.lost_reads += 1;
                continue;
            }
        };
        let at = u64::from(page) * PAGE as u64;
        let invoked = match cache {
            // What is kept is as old as the open.
            Cache::CloseToOpen => opened,
            Cache::Delegated | Cache::Off => history.now(),
        };
        if cache == Cache::Delegated {
            delegated.insert(file_number, file.clone());
        }
        let tell = |told: Option<Told>| {
            if let Some(told) = told {
                let times = (invoked, history.now());
                world.losses.told(file_number, times, told);
            }
        };
        let chance = if file_number == OUTSIDE { 0 } else { below(10) };
        match chance {
            0..5 => {
                let mut buffer = vec![0; PAGE];
                match file.read_at(&mut buffer, at) {
                    Ok(bytes) => {
                        let value = value_of(&buffer[..bytes], history, place);
                        history.record(&who, [place], invoked, Action::Read { value }, true);
                        tally.all.reads += 1;
                    }
                    Err(error) => {
                        world.failed(&format!("{who} read: {error}"));
                        tally.all.lost_reads += 1;
                    }
                }
            }
            5..8 => {
                let (value, stable) = (history.fresh_value(), below(3) != 0);
                let data = page_of(value);
                let result = match stable {
                    true => file.write_stable_at(&data, at),
                    false => file.write_at(&data, at),
                };
                let answered = result.is_ok();
                tell(Told::by(&result, stable));
                if let Err(error) = result {
                    world.failed(&format!("{who} write: {error}"));
                    tally.all.lost_writes += 1;
                }
                tally.all.writes += 1;
                history.record(
                    &who,
                    [place],
                    invoked,
                    Action::Write { value, stable },
                    answered,
                );
                match (stable, answered) {
                    (true, true) => drop(unstable.remove(&place)),
                    (false, true) => drop(unstable.insert(place, (value, true))),
                    (_, false) => {
                        let promised = unstable.get(&place).is_some_and(|(_, promised)| *promised);
                        unstable.insert(place, (value, promised));
                    }
                }
            }
            8 => {
                let mine: Vec<(PagePosition, u64, bool)> = unstable
                    .iter()
                    .filter(|(p, _)| p.0 == file_number)
                    .map(|(p, (value, promised))| (*p, *value, *promised))
                    .collect();
                let result = file.sync();
                // Without anything to commit it asks nothing.
                let asks = mine.iter().any(|(_, _, promised)| *promised);
                tell(Told::by(&result, asks));
                for (place, value, _) in &mine {
                    // An answered sync has ended, so its repetitions cannot come later.
                    let (value, answered) = (*value, result.is_ok());
                    let again = match answered {
                        true => Action::Again { value },
                        false => Action::Write {
                            value,
                            stable: false,
                        },
                    };
                    history.record(&who, [*place], invoked, again, answered);
                }
                if let Err(error) = result {
                    world.failed(&format!("{who} sync: {error}"));
                } else {
                    let promised = mine.iter().filter(|(_, _, promised)| *promised);
                    let places = promised.map(|(place, _, _)| *place);
                    history.record(&who, places, invoked, Action::Commit, true);
                    unstable.retain(|place, _| place.0 != file_number);
                }
            }
            _ => {
                let last = (file_number, PAGES - 1);
                let size = u64::from(PAGES - 1) * PAGE as u64;
                let changes = Changes {
                    size: Some(size),
                    ..Changes::default()
                };
                let path = format!("/{}", name_of(file_number));
                let result = client.set_attributes(path, &changes);
                let answered = result.is_ok();
                tell(Some(match answered {
                    true => Told::Stable,
                    false => Told::Nothing,
                }));
                if let Err(error) = result {
                    world.failed(&format!("{who} cut: {error}"));
                }
                let cut = Action::Write {
                    value: ABSENT,
                    stable: true,
                };
                history.record(&who, [last], invoked, cut, answered);
                // No sync writes beyond the new end what was written before.
                if answered {
                    unstable.remove(&last);
                }
            }
        }
    }
    let seen = client.statistics();
    if rpc_over == RpcOver::Rdma {
        tally.all.rdma_reads = seen.rpc_reads;
        if world.iwarp {
            tally.all.iwarp_reads = seen.rpc_reads;
        }
    }
    tally.all.cache_hits = seen.cache_hits;
    if cache == Cache::Delegated {
        tally.all.delegated_hits = seen.cache_hits;
        tally.all.recalled = seen.delegations_recalled;
    }
    tally.all.direct_hits = seen.direct_hits;
    tally.all.one_sided_hits = seen.one_sided_hits;
    tally.all.stale_hits = seen.stale_hits;
    tally.all.rpc_reads = seen.rpc_reads;
    tally.all.reconnects = seen.reconnects;
    world.tally.lock().add(&tally);
}
