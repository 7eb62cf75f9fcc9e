//! Writing. All the branching of writes and of other changes to a file's bytes or rights is here, from top to bottom.
//!
//! A write takes these steps in this order, under the locks of all pages that it touches: write to the store, revoke the
//! old frames, show the new attributes, move the change counter, make new frames visible, acknowledge. So a client that
//! saw the new attributes or the new counter cannot get the old page, and a client that got the old page holds an old
//! counter.
//!
//! A peer may change data that came by RDMA, into memory that a fabric may share. The server copies such data only once for
//! each destination: to the new frames before the store's write, and from these to the store. So the page in memory is
//! the one on disk. Data without a frame goes to the store directly.

use std::ops::RangeInclusive;

use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;

use crate::store::{
    Attributes, Credential, FileType, ObjectId, SetAttributes, SetTime, Status, StoreError, Time,
};
use crate::vfs::around::{Around, Before};
use crate::vfs::attributes::attributes;
use crate::vfs::change::{self, Recording};
use crate::vfs::export::Exports;
use crate::vfs::file::{File, LEAF_PAGES, Leaf, PageLock, Standing};
use crate::vfs::metrics::Reason;
use crate::vfs::promises::may_write;
use crate::vfs::read::Effort;
use crate::vfs::syncs::{SyncTurn, Synced};

mod at_hand;
mod pages;

pub use at_hand::write_at_hand;

/// How stable the data of a write is to be when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stable {
    /// The data may be lost until a commit.
    Unstable,
    /// The data, and the attributes needed to read it again, are on stable storage.
    DataSync,
    /// The data and all attributes are on stable storage.
    FileSync,
}

/// A change that was refused, and the attributes around it as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The reason.
    pub error: StoreError,
    /// The attributes before and after.
    pub around: Around,
}

impl Refused {
    fn plain(error: impl Into<StoreError>) -> Self {
        Self {
            error: error.into(),
            around: Around::default(),
        }
    }

    /// A refusal that has changed nothing.
    fn unchanged(export: &Exports, file: &File, error: impl Into<StoreError>) -> Self {
        Self {
            error: error.into(),
            around: Around {
                before: None,
                after: attributes(export, file.object()).ok(),
            },
        }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Number of bytes written: at least one, and fewer than given if space ran out.
    pub count: u32,
    /// How stable they are, which is never less than asked for.
    pub committed: Stable,
    /// The write verifier, which changes whenever unstable data may have been lost.
    pub verifier: [u8; 8],
    /// The file before and after.
    pub around: Around,
}

/// The largest size of a file in bytes (RFC 1813, `maxfilesize`), which a signed 64-bit offset can reach.
const SIZE_MAX: u64 = i64::MAX as u64;

/// Writes `data` at `offset`. May block.
pub fn write<'d>(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    offset: u64,
    data: impl Into<Gather<'d>>,
    stable: Stable,
) -> Result<Written, Refused> {
    let data = &data.into();
    let length = data.len() as u64;
    let end = offset
        .checked_add(length)
        .filter(|end| *end <= SIZE_MAX)
        .ok_or_else(|| Refused::unchanged(export, file, Status::FBig))?;
    let asked = (export.promises()).ask_to_write(export, who, file.object());
    let _changing = asked.map_err(|error| Refused::unchanged(export, file, error))?;
    let mut settling = Settling::begin(export, file, stable);
    if data.is_empty() {
        // The store checks the right to write, and does nothing else.
        let judged = || export.store().write_from(who, file.object(), offset, data);
        let judge = || judged().and_then(|_| settling.settle());
        let (settled, around) = with_looks(export, file, judge);
        settled.map_err(|error| Refused { error, around })?;
        return Ok(settling.written(0, around));
    }
    let put = Put {
        export,
        who,
        file,
        offset,
        data,
        effort: Effort::MayBlock,
    };
    settling.end(put.run(end)?)
}

/// How the data of a write becomes as stable as it is to be.
struct Settling<'a> {
    export: &'a Exports,
    file: &'a Arc<File>,
    stable: Stable,
    /// From before the write. If a sync fails in between, the client will notice that it has changed.
    verifier: [u8; 8],
    failures: u64,
    /// The right to sync, of a thread that must not wait for it.
    turn: Option<SyncTurn<'a>>,
}

impl<'a> Settling<'a> {
    /// To be called before the write.
    fn begin(export: &'a Exports, file: &'a Arc<File>, stable: Stable) -> Self {
        Self {
            export,
            file,
            stable,
            verifier: export.verifier(),
            failures: file.syncs().failures(),
            turn: None,
        }
    }

    /// As [`Settling::begin`], if nobody else syncs the file. Nobody else does before this is over.
    fn begin_at_hand(export: &'a Exports, file: &'a Arc<File>, stable: Stable) -> Option<Self> {
        let turn = Some(file.syncs().try_turn()?);
        let settling = Self::begin(export, file, stable);
        Some(Self { turn, ..settling })
    }

    fn settle(&mut self) -> Synced {
        let data_only = self.stable != Stable::FileSync;
        match (self.stable, self.turn.take()) {
            (Stable::Unstable, _) if !self.export.wants_sync(self.file.object()) => {
                Ok(self.verifier)
            }
            (_, None) => sync(self.export, self.file, data_only),
            (_, Some(turn)) => {
                let run = |with_times: bool| sync_alone(self.export, self.file, !with_times);
                turn.sync(!data_only, run)
            }
        }
    }

    /// So many bytes have been written.
    fn end(mut self, (count, around): (u32, Around)) -> Result<Written, Refused> {
        self.settle().map_err(|error| Refused { error, around })?;
        // Someone else's sync of the file has failed meanwhile, and may have been told of the loss of these bytes. To
        // ask for them again would be wrong: they may be there, and others may have written over them since.
        if self.stable != Stable::Unstable && self.file.syncs().failures() != self.failures {
            let error = Status::Io.into();
            return Err(Refused { error, around });
        }
        Ok(self.written(count, around))
    }

    fn written(self, count: u32, around: Around) -> Written {
        let metrics = self.export.metrics();
        metrics.writes.increment();
        metrics.written_bytes.add(count.into());
        Written {
            count,
            committed: self.stable,
            verifier: self.verifier,
            around,
        }
    }
}

/// COMMIT. Brings everything written to stable storage, and returns the write verifier. May block.
pub fn commit(export: &Exports, file: &Arc<File>) -> Result<([u8; 8], Around), Refused> {
    let (synced, around) = with_looks(export, file, || sync(export, file, true));
    let verifier = synced.map_err(|error| Refused { error, around })?;
    Ok((verifier, around))
}

/// Syncs a file, by itself or by another caller's sync. Gives the verifier as of then. Nobody who calls this holds the
/// file's gate.
pub(super) fn sync(export: &Exports, file: &Arc<File>, data_only: bool) -> Synced {
    let run = |with_times: bool| sync_alone(export, file, !with_times);
    file.syncs().share(!data_only, run)
}

/// After a failure the kernel may have dropped what it could not write, and it tells only one of us: all that
/// was not yet stable counts as lost, and the verifier says so before anyone is answered, as do the file's pages. The
/// caller has the turn to sync.
fn sync_alone(export: &Exports, file: &Arc<File>, data_only: bool) -> Synced {
    match export.store().sync(file.object(), data_only) {
        Ok(()) => {
            export.metrics().syncs.increment();
            Ok(export.verifier())
        }
        Err(error) => {
            export.change_verifier();
            export.metrics().failed_syncs.increment();
            change::start_over(export, file);
            Err(error)
        }
    }
}

/// Takes the attributes around a call that changes none. If they differ, someone else has changed the file.
fn with_looks<T>(export: &Exports, file: &File, act: impl FnOnce() -> T) -> (T, Around) {
    let look = || attributes(export, file.object()).ok();
    let before = look().as_ref().map(Before::from);
    let done = act();
    let after = look();
    let now = after.as_ref().map(Before::from);
    let before = before.filter(|_| before == now);
    (done, Around { before, after })
}

/// The effect of a write's data.
struct Done {
    /// Number of bytes written.
    written: Result<usize, StoreError>,
    /// The attributes around it.
    around: Around,
    /// Whether they show that someone else has changed the file, too.
    foreign: bool,
}

/// The data of a write on its way.
#[derive(Clone, Copy)]
struct Put<'a> {
    export: &'a Exports,
    who: &'a Credential,
    file: &'a Arc<File>,
    offset: u64,
    data: &'a Gather<'a>,
    /// Whether it may wait for others who are at the file.
    effort: Effort,
}

impl Put<'_> {
    fn store(&self, data: &Gather<'_>) -> Result<usize, StoreError> {
        let store = self.export.store();
        store.write_from(self.who, self.file.object(), self.offset, data)
    }

    /// Writes all data, which ends at `end`.
    fn run(&self, end: u64) -> Result<(u32, Around), Refused> {
        let done = self.within_size(end).or_else(|| self.extending());
        self.conclude(done.expect("it waits"))
    }

    /// The result, once the file is open to others again.
    fn conclude(&self, done: Done) -> Result<(u32, Around), Refused> {
        let mut around = done.around;
        if done.foreign {
            around = Around::default();
            // To take note is to close the gate. A thread that must not wait leaves that to the next look at the attributes,
            // which differ from the record as long as nobody has taken note.
            if self.effort == Effort::MayBlock {
                // A failure here is about an outside change, not about this write.
                let _ = change::take_note(self.export, self.file);
                around.after = attributes(self.export, self.file.object()).ok();
            }
        }
        match done.written {
            Ok(count) => Ok((count as u32, around)),
            Err(error) => Err(Refused { error, around }),
        }
    }

    /// A write that keeps the size, beside other readers and writers of the file. `None` if it would change the size.
    fn within_size(&self, end: u64) -> Option<Done> {
        let gate = self.file.enter_blocking();
        let size = self.file.attributes().size;
        (end <= size).then(|| self.put(&gate, size)).flatten()
    }

    /// A write beyond the end, with the gate closed. (By now it may not be beyond the end, which does no harm.)
    fn extending(&self) -> Option<Done> {
        let gate = self.file.close();
        let size = self.file.attributes().size;
        self.put(&gate, size)
    }

    /// `None`: it must not wait for others, and has done nothing.
    fn put(&self, gate: &Standing, size: u64) -> Option<Done> {
        if gate.gone {
            return Some(Done {
                written: Err(Status::Stale.into()),
                around: Around::default(),
                foreign: false,
            });
        }
        let pages = self
            .export
            .page()
            .span(self.offset, self.data.len() as u64)
            .expect("there is data");
        let leaves = self.leaves(&pages);
        let done = self.put_in(&leaves, pages, size);
        for leaf in &leaves {
            self.file.prune(leaf);
        }
        done
    }

    /// Puts the data into the pages of these leaves.
    fn put_in(&self, leaves: &[Arc<Leaf>], pages: RangeInclusive<u64>, size: u64) -> Option<Done> {
        // The page that holds the old end is about to be longer than its references say. If the write touches it, it is
        // dealt with among the others. The gate is closed then, so nobody else holds its lock for long.
        let extends = self.offset + self.data.len() as u64 > size;
        let old_end = size.checked_sub(1).filter(|_| extends);
        let old_end = old_end
            .map(|last| self.export.page().index(last))
            .filter(|page| !pages.contains(page));
        let old_leaf = old_end.and_then(|page| Some((page, self.file.find_leaf(page)?)));
        let mut old_lock = old_leaf
            .as_ref()
            .map(|(page, leaf)| leaf.lock(Leaf::slot(*page)));
        let locks: Option<Vec<PageLock<'_>>> = pages
            .map(|page| leaf_of(leaves, page).lock_with(Leaf::slot(page), self.effort))
            .collect();
        let mut locks = locks?;

        // Of what may change meanwhile one copy counts, and the store is to get that one.
        let full_size = size.max(self.offset + self.data.len() as u64);
        // A caller without the right to write gets no frames. A write without bytes checks that.
        let judged = match self.data.is_fixed() {
            true => Ok(0),
            false => self.store(&Gather::new()),
        };
        let ahead = (!self.data.is_fixed() && judged.is_ok())
            .then(|| self.prepare_all(&locks, size, full_size));
        let copied = ahead.as_ref().map(|new| self.copied(&locks, new));
        let data = copied.as_ref().unwrap_or(self.data);

        let recording = Recording::begin(self.export, self.file, self.effort)?;
        // No other write comes between these attributes and those behind ours.
        let before = Before::from(&self.file.attributes());
        self.file.reports().expect_own();
        let written = judged.and_then(|_| self.store(data));
        self.file.reports().expect_own();
        drop(copied);
        let new_size = match &written {
            Ok(count) => size.max(self.offset + *count as u64),
            Err(_) => size,
        };
        // A client that sees the new attributes can no longer read the old pages.
        self.revoke(&mut locks, &written);
        if let Some(lock) = old_lock.as_mut().filter(|_| new_size != size) {
            self.export.cache().retire(lock, Reason::Size);
        }
        let (after, foreign) = recording.end(new_size);
        match &written {
            // The rest of the pages is unknown.
            Ok(_) if foreign => self.retire_pages(&mut locks, Reason::Outside),
            Ok(count) if *count == self.data.len() => {
                let new = ahead.unwrap_or_else(|| self.prepare_all(&locks, size, new_size));
                self.replace_pages(&mut locks, new);
            }
            // The disk is full or nearly so. The store reports how far it came.
            Ok(_) => self.retire_pages(&mut locks, Reason::Write),
            // The times may change even if no byte does.
            Err(error) if error.may_be_partial() || before != Before::from(&after) => {
                self.file.counter().bump();
            }
            Err(_) => {}
        }
        let around = Around {
            before: Some(before),
            after: Some(after),
        };
        Some(Done {
            written,
            around,
            foreign,
        })
    }

    /// The leaves of pages, each of them once.
    fn leaves(&self, pages: &RangeInclusive<u64>) -> Vec<Arc<Leaf>> {
        let (first, last) = (Leaf::first_of(*pages.start()), *pages.end());
        (first..=last)
            .step_by(LEAF_PAGES as usize)
            .map(|page| self.file.leaf(page))
            .collect()
    }

    /// Makes the references to the pages worth nothing, unless the write was refused. Of a write that failed nobody knows
    /// how much has arrived: the store shall say.
    fn revoke(&self, locks: &mut [PageLock<'_>], written: &Result<usize, StoreError>) {
        let cache = self.export.cache();
        for lock in locks {
            match written {
                Ok(_) => cache.outdate(lock),
                Err(error) if error.may_be_partial() => cache.retire(lock, Reason::Write),
                Err(_) => {}
            }
        }
    }

    /// The store shall say what the pages are.
    fn retire_pages(&self, locks: &mut [PageLock<'_>], reason: Reason) {
        for lock in locks {
            self.export.cache().retire(lock, reason);
        }
        self.file.counter().bump();
    }
}

/// The leaf of a page, among neighbouring leaves.
fn leaf_of(leaves: &[Arc<Leaf>], page: u64) -> &Arc<Leaf> {
    &leaves[((page - leaves[0].first()) / LEAF_PAGES) as usize]
}

/// SETATTR of any object. With `guard`, only if the object's ctime is still that (else NOTSYNC). May block.
pub fn set_attributes(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    new: &SetAttributes,
    guard: Option<Time>,
) -> Result<Around, Refused> {
    let store = export.store();
    let asked = (export.promises()).ask_judged(object, || may_set(export, who, object, new));
    let _changing = asked.map_err(Refused::plain)?;
    let before = store.getattr(object).map_err(Refused::plain)?;
    if before.kind != FileType::Regular {
        return set_plain(export, who, object, new, (guard, before));
    }
    let file = export.file(object).map_err(Refused::plain)?;
    let around = set_file(export, who, &file, new, guard)?;
    sync(export, &file, false).map_err(|error| Refused { error, around })?;
    Ok(around)
}

/// Refuses attributes that the caller has not the right to set. What else there is, setting them finds out.
fn may_set(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    new: &SetAttributes,
) -> Result<(), StoreError> {
    let times = [new.atime, new.mtime];
    let is_told = times.iter().any(|time| matches!(time, SetTime::To(_)));
    let is_owners = new.mode.is_some() || new.uid.is_some() || new.gid.is_some() || is_told;
    // The serving user's own rights only the kernel knows.
    if is_owners && who.uid != 0 && !who.own && export.store().getattr(object)?.uid != who.uid {
        return Err(Status::Perm.into());
    }
    match new.size.is_some() || times.contains(&SetTime::ServerTime) {
        true => may_write(export, who, object),
        false => Ok(()),
    }
}

/// SETATTR of a regular file, without its sync.
fn set_file(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    new: &SetAttributes,
    guard: Option<Time>,
) -> Result<Around, Refused> {
    let (store, object) = (export.store(), file.object());
    let gate = file.close();
    if gate.gone {
        return Err(Refused::plain(Status::Stale));
    }
    let before = store.getattr(object).map_err(Refused::plain)?;
    check_guard(guard, &before)?;
    change::absorb_if_foreign(export, file, &before);

    // The store reports a set modification time like a write.
    let is_reported = new.size.is_some() || new.mtime != SetTime::Keep;
    let expect = || is_reported.then(|| file.reports().expect_own());
    expect();
    let set = store.setattr(who, object, new);
    expect();
    // The refusal may come after a part of the change.
    let after = set.or_else(|_| store.getattr(object));
    let asked = match &set {
        Err(error) if !error.may_be_partial() => None,
        _ => new.size,
    };
    change::absorb_own(export, file, (&before, after.as_ref().ok()), asked);
    let around = Around {
        before: Some(Before::from(&before)),
        after: after.ok(),
    };
    match set {
        Ok(_) => Ok(around),
        Err(error) => Err(Refused { error, around }),
    }
}

/// SETATTR of an object without pages.
fn set_plain(
    export: &Exports,
    who: &Credential,
    object: ObjectId,
    new: &SetAttributes,
    (guard, before): (Option<Time>, Attributes),
) -> Result<Around, Refused> {
    check_guard(guard, &before)?;
    let before = Before::from(&before);
    let store = export.store();
    let set = store.setattr(who, object, new);
    match set.and_then(|after| store.sync(object, false).map(|()| after)) {
        Ok(after) => Ok(Around {
            before: Some(before),
            after: Some(after),
        }),
        Err(error) => Err(Refused {
            error,
            around: Around {
                before: Some(before),
                after: store.getattr(object).ok(),
            },
        }),
    }
}

fn check_guard(guard: Option<Time>, now: &Attributes) -> Result<(), Refused> {
    if guard.is_none_or(|ctime| ctime == now.ctime) {
        return Ok(());
    }
    Err(Refused {
        error: Status::NotSync.into(),
        around: Around {
            before: Some(Before::from(now)),
            after: Some(*now),
        },
    })
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;

#[cfg(test)]
mod attribute_tests;
