//! A linearizability checker for one page, seen as a register.
//!
//! A history is a set of operations, each with the interval in which it must seem to take effect
//! (Herlihy and Wing 1990). The search is Wing and Gong's with Lowe's memory of states already
//! tried. Beyond a plain register it knows what a file server may do to a page:
//!
//! - an operation without a reply may have taken effect, or not, or may take effect much later;
//! - a crash may lose an unstable write, but no write that a reply called stable or committed (RFC 1813, 4.8);
//! - a write whose interval holds a crash may have been sent twice, since the duplicate request
//!   cache does not outlive the server.

use std::collections::{BTreeSet, HashSet};

/// What an operation does to the page. Values of writes are unique in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The page takes `value`; `stable` says whether the reply promised stable storage.
    Write {
        /// Identity of what was written.
        value: u64,
        /// Acknowledged as stable (`DATA_SYNC` or `FILE_SYNC`).
        stable: bool,
    },
    /// A repetition of an ended write may have written `value` once more, or not. Nothing promises that this is stable.
    Again {
        /// Identity of what was written.
        value: u64,
    },
    /// The page was seen to hold `value`.
    Read {
        /// Identity of what was read.
        value: u64,
    },
    /// COMMIT: earlier writes are stable from now on.
    Commit,
    /// The server died. Writes that were not stable may be lost.
    Crash,
}

/// One operation of a history. Times are any counter that only grows.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The operation cannot have taken effect before this.
    pub invoked: u64,
    /// The operation must have taken effect by this. `None` if no reply ever came.
    pub returned: Option<u64>,
    /// The effect.
    pub action: Action,
}

/// No order explains the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The operations of the history, in order of their invocation, for a person to read.
    pub history: String,
}

/// The most operations of one history, because the search keeps a set of them in a `u128`.
pub const OPERATIONS_MAX: usize = 128;

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: u128,
    value: u64,
    /// What the page may hold after a crash now.
    survivors: BTreeSet<u64>,
}

/// Checks that some order of `operations` explains every read, the page holding `initial` (stable)
/// at first.
///
/// # Panics
/// On a history of more than [`OPERATIONS_MAX`] operations, repeated writes counted twice.
pub fn check(initial: u64, operations: &[Operation]) -> Result<(), Violation> {
    let operations = with_repeats(operations);
    assert!(
        operations.len() <= OPERATIONS_MAX,
        "history of {} operations",
        operations.len()
    );
    let mut tried = HashSet::new();
    let mut open = vec![State {
        done: 0,
        value: initial,
        survivors: BTreeSet::from([initial]),
    }];
    while let Some(state) = open.pop() {
        let horizon = operations
            .iter()
            .enumerate()
            .filter(|(i, o)| state.done & (1 << i) == 0 && o.returned.is_some())
            .map(|(_, o)| o.returned.unwrap_or(u64::MAX))
            .min();
        let Some(horizon) = horizon else {
            return Ok(()); // only operations without a reply are left: they need not happen
        };
        for (i, operation) in operations.iter().enumerate() {
            if state.done & (1 << i) != 0 || operation.invoked > horizon {
                continue;
            }
            for next in apply(&state, i, operation) {
                if tried.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    let mut lines: Vec<&Operation> = operations.iter().collect();
    lines.sort_by_key(|o| o.invoked);
    let history = lines.iter().map(|o| format!("{o:?}\n")).collect();
    Err(Violation { history })
}

/// Adds the second sending of each write that lived through a crash, as one that may or may not be. It ends with the
/// operation.
fn with_repeats(operations: &[Operation]) -> Vec<Operation> {
    let crashes: Vec<&Operation> = operations
        .iter()
        .filter(|o| o.action == Action::Crash)
        .collect();
    let mut all = operations.to_vec();
    for o in operations {
        let (Action::Write { value, .. } | Action::Again { value }) = o.action else {
            continue;
        };
        let end = o.returned.unwrap_or(u64::MAX);
        if crashes
            .iter()
            .any(|c| c.invoked < end && c.returned.unwrap_or(u64::MAX) > o.invoked)
        {
            let action = match o.returned {
                Some(_) => Action::Again { value },
                None => o.action,
            };
            all.push(Operation { action, ..*o });
        }
    }
    all
}

fn apply(state: &State, index: usize, operation: &Operation) -> Vec<State> {
    let done = state.done | 1 << index;
    match operation.action {
        Action::Read { value } if value == state.value => vec![State {
            done,
            ..state.clone()
        }],
        Action::Read { .. } => vec![],
        Action::Again { value } => {
            let mut again = State {
                done,
                value,
                survivors: state.survivors.clone(),
            };
            again.survivors.insert(value);
            vec![
                State {
                    done,
                    ..state.clone()
                },
                again,
            ]
        }
        Action::Write { value, stable } => {
            // Others may have seen the data of a COMMIT during which the server died.
            let mut survivors = match stable && operation.returned.is_some() {
                true => BTreeSet::new(),
                false => state.survivors.clone(),
            };
            survivors.insert(value);
            vec![State {
                done,
                value,
                survivors,
            }]
        }
        Action::Commit => {
            vec![State {
                done,
                value: state.value,
                survivors: BTreeSet::from([state.value]),
            }]
        }
        Action::Crash => state
            .survivors
            .iter()
            .map(|&value| State {
                done,
                value,
                survivors: BTreeSet::from([value]),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(invoked: u64, returned: u64, action: Action) -> Operation {
        Operation {
            invoked,
            returned: Some(returned),
            action,
        }
    }
    fn lost(invoked: u64, action: Action) -> Operation {
        Operation {
            invoked,
            returned: None,
            action,
        }
    }
    fn read(value: u64) -> Action {
        Action::Read { value }
    }
    fn write(value: u64) -> Action {
        Action::Write {
            value,
            stable: false,
        }
    }
    fn stable(value: u64) -> Action {
        Action::Write {
            value,
            stable: true,
        }
    }

    #[test]
    fn overlapping_reads_may_see_either_side_of_a_write() {
        assert!(
            check(
                0,
                &[op(1, 9, write(1)), op(2, 3, read(0)), op(4, 5, read(1))]
            )
            .is_ok()
        );
    }

    #[test]
    fn time_never_runs_backwards() {
        let history = [op(1, 9, write(1)), op(2, 3, read(1)), op(4, 5, read(0))];
        assert!(check(0, &history).is_err());
    }

    #[test]
    fn a_read_after_an_acknowledged_write_sees_it() {
        assert!(check(0, &[op(1, 2, write(1)), op(3, 4, read(0))]).is_err());
        assert!(check(0, &[op(1, 2, write(1)), op(3, 4, read(1))]).is_ok());
    }

    #[test]
    fn a_write_without_reply_may_come_late_or_never() {
        assert!(
            check(
                0,
                &[lost(1, write(1)), op(2, 3, read(0)), op(4, 5, read(1))]
            )
            .is_ok()
        );
        assert!(check(0, &[lost(1, write(1)), op(2, 3, read(0))]).is_ok());
        assert!(
            check(
                0,
                &[lost(1, write(1)), op(2, 3, read(1)), op(4, 5, read(0))]
            )
            .is_err()
        );
    }

    #[test]
    fn a_crash_may_lose_what_is_unstable_and_nothing_else() {
        let crash = op(5, 6, Action::Crash);
        assert!(check(0, &[op(1, 2, write(1)), crash, op(7, 8, read(0))]).is_ok());
        assert!(check(0, &[op(1, 2, write(1)), crash, op(7, 8, read(1))]).is_ok());
        assert!(check(0, &[op(1, 2, stable(1)), crash, op(7, 8, read(0))]).is_err());
        let unanswered = [
            lost(1, stable(1)),
            op(2, 3, read(1)),
            crash,
            op(7, 8, read(0)),
        ];
        assert!(check(0, &unanswered).is_ok());
        let committed = [
            op(1, 2, write(1)),
            op(3, 4, Action::Commit),
            crash,
            op(7, 8, read(0)),
        ];
        assert!(check(0, &committed).is_err());
        let older = [
            op(1, 2, stable(1)),
            op(3, 4, stable(2)),
            crash,
            op(7, 8, read(1)),
        ];
        assert!(check(0, &older).is_err());
    }

    #[test]
    fn what_a_sync_sends_again_comes_before_it_ends() {
        let again = Action::Again { value: 1 };
        let history = |last| {
            [
                op(1, 2, write(1)),
                op(3, 5, again),
                op(3, 6, Action::Commit),
                op(7, 8, stable(2)),
                op(9, 10, Action::Crash),
                op(11, 12, read(last)),
            ]
        };
        assert!(check(0, &history(2)).is_ok());
        assert!(check(0, &history(1)).is_err());
        let between = [
            op(1, 2, write(1)),
            op(3, 4, stable(2)),
            op(5, 9, again),
            op(6, 7, read(2)),
            op(10, 11, read(1)),
        ];
        assert!(check(0, &between).is_ok());
    }

    #[test]
    fn a_write_sent_again_after_a_crash_may_take_effect_twice() {
        let twice = [
            op(1, 20, stable(1)),
            op(2, 3, read(1)),
            op(5, 6, Action::Crash),
            op(7, 8, stable(2)),
            op(9, 10, read(2)),
            op(21, 22, read(1)),
        ];
        assert!(check(0, &twice).is_ok());
        let mut answered = twice;
        answered[0].returned = Some(6);
        assert!(check(0, &answered).is_err(), "both come before the reply");
        let without_crash: Vec<_> = twice
            .iter()
            .filter(|o| o.action != Action::Crash)
            .copied()
            .collect();
        assert!(check(0, &without_crash).is_err());
    }
}
