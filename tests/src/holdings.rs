//! What clients of NFS version 4 hold, as far as they can be sure of it: a plain model beside a server that must never give
//! two of them what excludes each other.
//!
//! A client is sure of what it holds from the reply that gave it to the time up to which the server must have kept it. That
//! time ends when the client sends the call that gives it back, when its lease is over, or when the server dies. A client often
//! learns the end only later. So the model keeps past spans, and compares each span that grows with all others.

/// A client, or one of its owners, that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The client.
    pub client: u32,
    /// An owner of ranges within the client; 0 of anything else.
    pub owner: u32,
}

/// What is held of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An open. Its bits stand for reading (1) and writing (2).
    Open {
        /// The access that it gives.
        access: u32,
        /// The access that it denies to others.
        deny: u32,
    },
    /// A lock of one unit of the file.
    Unit {
        /// The number of the unit.
        unit: u8,
        /// Whether it excludes all others.
        write: bool,
    },
    /// A delegation.
    Delegation {
        /// Whether it is for writing too.
        write: bool,
    },
}

impl What {
    /// Whether `other` stands for the same thing, perhaps in another mode.
    fn is_same(&self, other: &What) -> bool {
        match (self, other) {
            (What::Unit { unit, .. }, What::Unit { unit: theirs, .. }) => unit == theirs,
            (What::Open { .. }, What::Open { .. }) => true,
            (What::Delegation { .. }, What::Delegation { .. }) => true,
            _ => false,
        }
    }

    /// Whether two clients cannot hold these two at once.
    fn excludes(&self, other: &What) -> bool {
        match (*self, *other) {
            (What::Open { access, deny }, What::Open { access: a, deny: d }) => {
                access & d != 0 || a & deny != 0
            }
            (What::Unit { unit, write }, What::Unit { unit: u, write: w }) => {
                unit == u && (write || w)
            }
            (What::Delegation { write }, What::Delegation { write: w }) => write || w,
            // A client that reads under a delegation does not tell the server. So nobody may change the file, or deny reading
            // it.
            (What::Delegation { write }, What::Open { access, deny })
            | (What::Open { access, deny }, What::Delegation { write }) => {
                write || access & 2 != 0 || deny & 1 != 0
            }
            _ => false,
        }
    }
}

/// Something that a holder has, or had.
#[derive(Clone, Copy, Debug)]
struct Holding {
    by: Holder,
    file: u8,
    what: What,
    /// The holder surely has it from here,
    since: u64,
    /// to here.
    until: u64,
    /// Whether it is given back, lost or replaced.
    over: bool,
    /// Whether it was held when the server died last.
    kept: bool,
    /// Whether the server still knows of it has to be seen.
    doubted: bool,
}

impl Holding {
    fn clashes(&self, other: &Holding) -> bool {
        let others = match self.what {
            What::Unit { .. } => self.by != other.by,
            _ => self.by.client != other.by.client,
        };
        let both = self.since.max(other.since) <= self.until.min(other.until);
        others && both && self.file == other.file && self.what.excludes(&other.what)
    }
}

/// All that clients hold and held. Times are numbers that only grow.
#[derive(Debug, Default)]
pub struct Holdings(Vec<Holding>);

impl Holdings {
    /// Notes that `by` got this at `now`, in place of the same in another mode. It surely has it up to `until`.
    ///
    /// # Errors
    /// Another holder has what this excludes.
    pub fn given(
        &mut self,
        by: Holder,
        file: u8,
        what: What,
        now: u64,
        until: u64,
    ) -> Result<(), String> {
        self.ended(by, file, what, now);
        self.0.push(Holding {
            by,
            file,
            what,
            since: now,
            until,
            over: false,
            kept: false,
            doubted: false,
        });
        self.check()
    }

    /// As [`Holdings::given`], for what `by` reclaims. It then had it without a pause.
    ///
    /// # Errors
    /// As above, or another holder has had meanwhile what this excludes.
    pub fn reclaimed(
        &mut self,
        by: Holder,
        file: u8,
        what: What,
        now: u64,
        until: u64,
    ) -> Result<(), String> {
        let had = |holding: &&Holding| {
            let same = holding.by == by && holding.file == file && holding.what.is_same(&what);
            same && !holding.over
        };
        if let Some(mine) = self.0.iter().find(had) {
            let meanwhile = Holding {
                until: now,
                ..*mine
            };
            // Only what began later counts.
            let mut later = self.0.iter().filter(|other| other.since > mine.since);
            if let Some(other) = later.find(|other| meanwhile.clashes(other)) {
                return Err(format!("{mine:?} was reclaimed at {now}, beside {other:?}"));
            }
        }
        self.given(by, file, what, now, until)
    }

    /// Notes that the server has kept what a client holds: opens and locks up to one time, delegations up to another.
    ///
    /// # Errors
    /// Another holder has had what this excludes.
    pub fn kept(&mut self, client: u32, states: u64, delegations: u64) -> Result<(), String> {
        for holding in &mut self.0 {
            if holding.by.client == client && !holding.over && !holding.doubted {
                let until = match holding.what {
                    What::Delegation { .. } => delegations,
                    _ => states,
                };
                holding.until = holding.until.max(until);
            }
        }
        self.check()
    }

    /// Notes that `by` gives this back at `now`, or has lost it, in every mode.
    pub fn ended(&mut self, by: Holder, file: u8, what: What, now: u64) {
        self.end(now, |held| {
            held.by == by && held.file == file && held.what.is_same(&what)
        });
    }

    /// Notes that a client gives up or has lost all that it has.
    pub fn gone(&mut self, client: u32, now: u64) {
        self.end(now, |held| held.by.client == client);
    }

    /// Notes that the server dies at `now`. Holders may reclaim what they have, and are sure of nothing until then.
    pub fn died(&mut self, now: u64) {
        for holding in &mut self.0 {
            holding.kept = !holding.over && holding.until >= now;
            holding.until = holding.until.min(now);
            holding.doubted = true;
        }
    }

    /// Notes that the server no longer knows a client. The client may be able to reclaim what it held, or not.
    pub fn doubted(&mut self, client: u32) {
        for holding in self.0.iter_mut().filter(|held| held.by.client == client) {
            holding.doubted = true;
        }
    }

    /// Whether another client has the write delegation of a file, as far as that one knows.
    pub fn is_written_by_another(&self, client: u32, file: u8) -> bool {
        self.0.iter().any(|held| {
            let writes = matches!(held.what, What::Delegation { write: true });
            writes && held.by.client != client && held.file == file && !held.over
        })
    }

    /// Whether `by` held this for sure when the server died last, and has not had it back since.
    pub fn was_kept(&self, by: Holder, file: u8, what: What) -> bool {
        let same = |held: &&Holding| held.by == by && held.file == file && held.what.is_same(&what);
        let mut held = self.0.iter().filter(same);
        held.any(|held| held.kept && !held.over)
    }

    /// Whether another holder surely had what this excludes at any time from `from` to `to`.
    pub fn excluded(&self, by: Holder, file: u8, what: What, from: u64, to: u64) -> bool {
        let asked = |since, until| Holding {
            by,
            file,
            what,
            since,
            until,
            over: false,
            kept: false,
            doubted: false,
        };
        let whole = |other: &Holding| other.since <= from && other.until >= to;
        let mut all = self.0.iter();
        all.any(|other| whole(other) && asked(from, to).clashes(other))
    }

    fn end(&mut self, now: u64, which: impl Fn(&Holding) -> bool) {
        for holding in self.0.iter_mut().filter(|held| !held.over && which(held)) {
            holding.until = holding.until.min(now);
            holding.over = true;
        }
    }

    fn check(&self) -> Result<(), String> {
        for (at, one) in self.0.iter().enumerate() {
            if let Some(other) = self.0[..at].iter().find(|other| one.clashes(other)) {
                return Err(format!("held at once: {other:?} and {one:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder {
        client: 1,
        owner: 0,
    };
    const B: Holder = Holder {
        client: 2,
        owner: 0,
    };
    const WRITER: What = What::Open { access: 2, deny: 0 };
    const READER: What = What::Open { access: 1, deny: 0 };
    const DENIES: What = What::Open { access: 1, deny: 2 };
    const READS: What = What::Delegation { write: false };

    fn unit(write: bool) -> What {
        What::Unit { unit: 3, write }
    }

    /// Both of them, the second of which must fail.
    fn clash(first: (Holder, What), second: (Holder, What)) {
        let mut all = Holdings::default();
        all.given(first.0, 0, first.1, 1, 9).unwrap();
        all.given(second.0, 0, second.1, 9, 12).unwrap_err();
    }

    #[test]
    fn what_excludes_nothing_is_held_by_all() {
        let mut all = Holdings::default();
        all.given(A, 0, READER, 1, 9).unwrap();
        all.given(B, 0, WRITER, 2, 9).unwrap();
        all.given(A, 0, unit(false), 3, 9).unwrap();
        all.given(B, 0, unit(false), 4, 9).unwrap();
        all.given(A, 1, unit(true), 3, 9).unwrap();
        assert!(!all.excluded(B, 0, unit(false), 4, 5));
        assert!(all.excluded(B, 0, unit(true), 4, 5));
        assert!(!all.excluded(B, 0, unit(true), 2, 5));
    }

    #[test]
    fn what_excludes_is_not_held_at_once() {
        clash((A, DENIES), (B, WRITER));
        clash((A, unit(true)), (B, unit(false)));
        clash((A, unit(true)), (Holder { owner: 1, ..A }, unit(false)));
        clash((A, READS), (B, WRITER));
        clash((A, READS), (B, What::Open { access: 1, deny: 1 }));
        clash((A, What::Delegation { write: true }), (B, READER));
    }

    #[test]
    fn what_is_known_late_is_compared_with_what_is_past() {
        let mut all = Holdings::default();
        all.given(A, 0, READS, 1, 0).unwrap();
        all.given(B, 0, WRITER, 4, 9).unwrap();
        all.ended(B, 0, WRITER, 5);
        all.kept(1, 3, 3).unwrap();
        all.kept(1, 6, 6).unwrap_err();
    }

    #[test]
    fn what_is_given_back_or_over_excludes_nobody() {
        let mut all = Holdings::default();
        all.given(A, 0, DENIES, 1, 9).unwrap();
        all.ended(A, 0, DENIES, 3);
        all.kept(1, 20, 20).unwrap();
        all.given(B, 0, WRITER, 4, 9).unwrap();
        all.given(A, 1, unit(true), 5, 9).unwrap();
        all.given(B, 1, unit(true), 10, 12).unwrap();
        // Another mode replaces the first.
        all.ended(B, 1, unit(true), 11);
        all.given(B, 1, unit(false), 12, 15).unwrap();
        all.given(A, 1, unit(false), 13, 15).unwrap();
    }

    #[test]
    fn what_nobody_had_meanwhile_is_reclaimed() {
        let mut all = Holdings::default();
        all.given(B, 0, unit(true), 1, 9).unwrap();
        all.ended(B, 0, unit(true), 2);
        all.given(A, 0, unit(true), 3, 20).unwrap();
        all.died(5);
        assert!(all.was_kept(A, 0, unit(false)) && !all.was_kept(B, 0, unit(true)));
        all.reclaimed(A, 0, unit(true), 8, 20).unwrap();
        assert!(!all.was_kept(A, 0, unit(true)));
        all.gone(1, 9);
        all.given(B, 0, unit(true), 10, 12).unwrap();
    }

    #[test]
    fn what_is_in_doubt_is_not_kept() {
        let mut all = Holdings::default();
        all.given(A, 0, unit(true), 1, 4).unwrap();
        all.doubted(1);
        all.kept(1, 20, 20).unwrap();
        all.given(B, 0, unit(true), 5, 20).unwrap();
    }

    #[test]
    fn what_another_had_meanwhile_is_not_reclaimed() {
        let mut all = Holdings::default();
        all.given(A, 0, unit(true), 1, 4).unwrap();
        all.given(B, 0, unit(true), 6, 20).unwrap();
        all.ended(B, 0, unit(true), 7);
        all.died(8);
        all.reclaimed(A, 0, unit(true), 9, 20).unwrap_err();
    }
}
