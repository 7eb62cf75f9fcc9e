//! Outside changes, and how the server tells them from its own.
//!
//! After each of its own changes the server records the store's attributes (size, times, mode, owner). Any later difference
//! comes from someone else. The server then closes the file's gate, drops its pages with all references, and moves the
//! change counter. It looks at files under a watch when the store reports something, and at others at LOOKUP and GETATTR,
//! before reads, and every second.
//!
//! A write of the server looks at the attributes right before and right after it (`Recording`). The later look records only
//! attributes that were as recorded before.
//!
//! Another writer sets the file's times before it copies the bytes, and the report comes after both. A look in between
//! sees an outside change, and a fill after that look may read old bytes. So the report counts even if the attributes
//! show nothing new, unless it is of a write of the server (`Reports`). The pages are dropped again, and the file is
//! shown with later times.
//!
//! The server cannot see these:
//!
//! - an outside change between the two looks (the time of one `pwrite`), if size, mode and owner stay the same;
//! - one in the same tick of the file system's clock as the record;
//! - writes through a mapping, until their times are updated;
//! - changes that set the times back on a file system without a change time;
//! - pages filled during an outside write of more than two seconds, if the file has no watch or the server writes to it,
//!   too.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, MutexGuard};

use crate::store::{Attributes, ObjectId, OutsideEvent, Status};
use crate::vfs::export::Exports;
use crate::vfs::file::{File, Leaf, PageLock, Standing};
use crate::vfs::metrics::Reason;
use crate::vfs::read::{Effort, ReadFailed};

/// How long attributes of a file without a watch count as current.
const UNWATCHED_AGE_MAX: Nanos = Nanos::from_secs(1);

/// To be called before a read. Checks the attributes of a file without a watch if they are too old.
pub(crate) fn recheck_unwatched(
    export: &Exports,
    file: &Arc<File>,
    effort: Effort,
) -> Result<(), ReadFailed> {
    if file.is_watched() || file.unchecked_for(clock::now()) <= UNWATCHED_AGE_MAX {
        return Ok(());
    }
    match effort {
        Effort::ResidentOnly => Err(ReadFailed::NotResident),
        Effort::MayBlock => Ok(check(export, file)?),
    }
}

/// Compares the store's attributes with those recorded, and notes an outside change. May block.
pub(crate) fn check(export: &Exports, file: &Arc<File>) -> Result<(), Status> {
    let now = clock::now();
    if is_as_recorded(export, file) {
        if !file.is_watched() && file.reports().others_may_be_at_it(now) {
            // Nothing will report the end of that change.
            return drop_again(export, file);
        }
        file.set_checked(now);
        return Ok(());
    }
    // It may be a change of the server that is not recorded yet. Whoever makes it is inside of the gate.
    look(export, file, |seen| !is_same(seen, &file.attributes()))
}

fn is_as_recorded(export: &Exports, file: &Arc<File>) -> bool {
    let _recording = file.recording.lock();
    let seen = export.store().getattr(file.object());
    seen.is_ok_and(|seen| is_same(&seen, &file.attributes()))
}

/// Handles the store's report that something was written to the file. Returns whether that was the server. May block.
fn written(export: &Exports, file: &Arc<File>) -> Result<bool, Status> {
    let own = file.reports().is_own();
    if !is_as_recorded(export, file) {
        return check(export, file).map(|()| false);
    }
    let now = clock::now();
    match (own, file.reports().others_may_be_at_it(now)) {
        (true, false) => return Ok(true),
        (true, true) => drop_again(export, file),
        (false, true) => {
            file.reports().note_foreign(now);
            drop_again(export, file)
        }
        (false, false) => {
            export.times().changed_by_others(file.object());
            take_note(export, file)
        }
    }
    .map(|()| false)
}

/// Someone else has changed the file, and may have continued after that was noted.
fn drop_again(export: &Exports, file: &Arc<File>) -> Result<(), Status> {
    export.times().changed_by_others(file.object());
    let now = clock::now();
    let standing = file.close();
    if standing.gone {
        return Err(Status::Stale);
    }
    let seen = export.store().getattr(file.object());
    start_anew(export, file, &seen.map_err(|error| error.status)?);
    file.set_checked(now);
    Ok(())
}

/// A write of our own found that someone else was at the file. Its attributes need not tell any more: a write may
/// have given back the size that another took.
pub(crate) fn take_note(export: &Exports, file: &Arc<File>) -> Result<(), Status> {
    look(export, file, |_| true)
}

/// Closes the gate, and returns whether the store's attributes show an outside change.
fn look(
    export: &Exports,
    file: &Arc<File>,
    is_foreign: impl Fn(&Attributes) -> bool,
) -> Result<(), Status> {
    let now = clock::now();
    let mut standing = file.close();
    if standing.gone {
        return Err(Status::Stale);
    }
    match export.store().getattr(file.object()) {
        Ok(seen) => {
            if is_foreign(&seen) {
                absorb(export, file, &seen);
            }
            file.set_checked(now);
            Ok(())
        }
        Err(error) if error.status == Status::Stale => {
            bury(export, file, &mut standing, Reason::Outside);
            export.promises().broken(file.object());
            drop(standing);
            export.forget(file);
            Err(error.status)
        }
        Err(error) => Err(error.status),
    }
}

/// Whether nobody has changed the file between the two looks.
pub(crate) fn is_same(a: &Attributes, b: &Attributes) -> bool {
    let content = |of: &Attributes| (of.size, of.mtime, of.ctime);
    content(a) == content(b) && rights(a) == rights(b)
}

fn rights(of: &Attributes) -> (u32, u32, u32) {
    (of.uid, of.gid, of.mode)
}

/// The file was changed from outside, and these are its attributes now. The caller has closed the gate.
pub(crate) fn absorb(export: &Exports, file: &Arc<File>, now: &Attributes) {
    export.metrics().outside_changes.increment();
    file.reports().note_foreign(clock::now());
    start_anew(export, file, now);
}

/// Nothing is kept of the file, and these are its attributes. The caller has closed the gate.
fn start_anew(export: &Exports, file: &Arc<File>, now: &Attributes) {
    export.promises().broken(file.object());
    drop_pages(export, file, 0, Reason::Outside);
    revoke_counter(export, file);
    file.counter().bump();
    file.set_facts(export.facts_of(file.object(), *now));
}

/// For changes of our own that begin with a look at the attributes. The caller has closed the gate.
pub(crate) fn absorb_if_foreign(export: &Exports, file: &Arc<File>, now: &Attributes) {
    if !is_same(now, &file.attributes()) {
        absorb(export, file, now);
    }
}

/// A change of our own took the file's attributes from one to the other, and its size perhaps to `asked` in between. What
/// that has made untrue is taken back. The caller has closed the gate.
pub(crate) fn absorb_own(
    export: &Exports,
    file: &Arc<File>,
    (before, after): (&Attributes, Option<&Attributes>),
    asked: Option<u64>,
) {
    let Some(after) = after else {
        // The state of the file is unknown.
        drop_pages(export, file, 0, Reason::Size);
        revoke_counter(export, file);
        file.counter().bump();
        return;
    };
    let sizes = [before.size, after.size, asked.unwrap_or(after.size)];
    if sizes != [before.size; 3] {
        let least = sizes.into_iter().min().unwrap_or(0);
        drop_pages(export, file, export.page().index(least), Reason::Size);
    }
    let judged = export.facts_of(file.object(), *after);
    if judged.facts.class != file.facts().class {
        revoke_pages(export, file, Reason::Rights);
    }
    file.set_facts(judged);
    if sizes != [before.size; 3] || !is_same(before, after) {
        file.counter().bump();
    }
}

/// A change of our own took the file's attributes from one to the other, and some or all of these bytes may be others now.
/// If the change was not ours alone (`foreign`), nothing is known of the other bytes. The caller has closed the gate.
pub(crate) fn absorb_bytes(
    export: &Exports,
    file: &Arc<File>,
    (before, after): (&Attributes, Option<&Attributes>),
    (offset, length): (u64, u64),
    foreign: bool,
) {
    if let Some(pages) = export.page().span(offset, length) {
        let retire = |page: &mut PageLock<'_>| export.cache().retire(page, Reason::Write);
        for_pages(file, pages, retire);
    }
    match after.filter(|_| foreign) {
        Some(after) => absorb(export, file, after),
        None => {
            absorb_own(export, file, (before, after), None);
            file.counter().bump();
        }
    }
}

/// What the store holds may not be what was written to it: everything is read anew.
pub(crate) fn start_over(export: &Exports, file: &Arc<File>) {
    let _closed = file.close();
    // Data that clients keep under a promise may be lost as well.
    export.promises().broken(file.object());
    drop_pages(export, file, 0, Reason::Write);
    revoke_counter(export, file);
    file.counter().bump();
    if let Ok(seen) = export.store().getattr(file.object()) {
        file.set_facts(export.facts_of(file.object(), seen));
    }
}

/// The file's last link went. The caller has closed the gate.
fn bury(export: &Exports, file: &Arc<File>, standing: &mut Standing, reason: Reason) {
    standing.gone = true;
    drop_pages(export, file, 0, reason);
    revoke_counter(export, file);
    file.counter().bump();
}

/// Removes the pages from `first` on from memory. The caller has closed the gate.
fn drop_pages(export: &Exports, file: &Arc<File>, first: u64, reason: Reason) {
    let retire = |page: &mut PageLock<'_>| export.cache().retire(page, reason);
    for_pages(file, first..=u64::MAX, retire);
}

/// Makes all references to pages of the file worthless. The caller has closed the gate.
fn revoke_pages(export: &Exports, file: &Arc<File>, reason: Reason) {
    let revoke = |page: &mut PageLock<'_>| export.cache().revoke(page, reason);
    for_pages(file, 0..=u64::MAX, revoke);
    revoke_counter(export, file);
}

fn revoke_counter(export: &Exports, file: &Arc<File>) {
    let forget = |handle| export.cache().forget_handle(handle);
    file.counter().revoke(forget);
}

fn for_pages(file: &Arc<File>, pages: RangeInclusive<u64>, mut act: impl FnMut(&mut PageLock<'_>)) {
    let (first, last) = pages.into_inner();
    let leaves = file.leaves_from(first).into_iter();
    for leaf in leaves.take_while(|leaf| leaf.first() <= last) {
        for page in first.max(leaf.first())..=last.min(leaf.last()) {
            act(&mut leaf.lock(Leaf::slot(page)));
        }
        file.prune(&leaf);
    }
}

/// A write of our own and the looks at the attributes around it, which nobody else's writes or looks come between.
/// The file is closed, or the pages concerned are locked.
pub(crate) struct Recording<'a> {
    export: &'a Exports,
    file: &'a Arc<File>,
    _one: MutexGuard<'a, ()>,
    /// The file was as recorded.
    known: bool,
}

impl<'a> Recording<'a> {
    /// To be called right before the write of the store. `None`: the thread must not wait, and somebody else is looking or
    /// writing, or the file is not as recorded.
    pub(crate) fn begin(export: &'a Exports, file: &'a Arc<File>, effort: Effort) -> Option<Self> {
        let one = match effort {
            Effort::MayBlock => file.recording.lock(),
            Effort::ResidentOnly => file.recording.try_lock()?,
        };
        let seen = export.store().getattr(file.object());
        let known = seen.is_ok_and(|seen| is_same(&seen, &file.attributes()));
        (known || effort == Effort::MayBlock).then_some(Self {
            export,
            file,
            _one: one,
            known,
        })
    }

    /// Right after it: records the attributes. `size` is what it must be now. Gives them, and whether someone else
    /// was at the file too, in which case the old record stays as far as that goes and [`take_note`] is due.
    pub(crate) fn end(self, size: u64) -> (Attributes, bool) {
        let old = self.file.facts();
        let seen = self.export.store().getattr(self.file.object());
        let ours = |seen: &Attributes| {
            self.known && seen.size == size && is_same_class(seen, &old.attributes)
        };
        let (attributes, foreign) = match seen {
            Ok(seen) if ours(&seen) => (seen, false),
            _ => (
                Attributes {
                    size,
                    ..old.attributes
                },
                true,
            ),
        };
        self.file.set_attributes(attributes);
        (attributes, foreign)
    }
}

/// Writing may clear the set-id bits. The permission bits stay.
fn is_same_class(a: &Attributes, b: &Attributes) -> bool {
    (a.uid, a.gid, a.mode & 0o1777) == (b.uid, b.gid, b.mode & 0o1777)
}

/// After a change of our own to the names of an object: its change time is no outsider's doing.
pub(crate) fn record_links(export: &Exports, object: ObjectId) {
    let Some(file) = export.live(object) else {
        return;
    };
    let _closed = file.close();
    let old = file.facts();
    let Ok(seen) = export.store().getattr(object) else {
        return;
    };
    let as_before = Attributes {
        ctime: old.attributes.ctime,
        ..seen
    };
    if is_same(&as_before, &old.attributes) {
        // Somebody may have set an access control list in the same moment, which shows in the change time alone.
        absorb_own(export, &file, (&old.attributes, Some(&seen)), None);
    }
}

/// The attributes of a file, if they are still those from before. If somebody has changed it where that is not seen (`unseen`), it is
/// shown with later times from now on.
pub(crate) fn as_before(
    export: &Exports,
    file: &Arc<File>,
    before: &Attributes,
    unseen: bool,
) -> Option<Attributes> {
    let _closed = file.close();
    let look = || export.store().getattr(file.object()).ok();
    let is_known = |seen: &Attributes| is_same(seen, before) && is_same(seen, &file.attributes());
    let seen = look().filter(is_known)?;
    if !unseen {
        return Some(seen);
    }
    export.times().changed_by_others(file.object());
    let later = look()?;
    file.set_attributes(later);
    file.counter().bump();
    Some(later)
}

/// The last link of an object is gone by our own doing: whoever has a reference to it can forget it.
pub(crate) fn removed(export: &Exports, object: ObjectId) {
    if let Some(file) = export.live(object) {
        bury(export, &file, &mut file.close(), Reason::Rights);
        export.forget(&file);
    }
}

/// Whether attributes from the store show an outside change that nobody has taken note of.
pub(crate) fn is_news(export: &Exports, object: ObjectId, attributes: &Attributes) -> bool {
    export
        .live(object)
        .is_some_and(|file| !is_same(attributes, &file.attributes()))
}

/// Attributes of an object from the store, for GETATTR, LOOKUP and the like: takes note of an outside change
/// that they show. Whether there was one to look for. May block.
pub(crate) fn seen(export: &Exports, object: ObjectId, attributes: &Attributes) -> bool {
    let file = export.live(object);
    let file = file.filter(|file| !is_same(attributes, &file.attributes()));
    if let Some(file) = &file {
        // Its answer is the caller's next call's.
        let _ = check(export, file);
    }
    file.is_some()
}

/// Waits for reports of outside changes and handles them. Only one thread may call it at a time.
pub fn observe(export: &Exports, timeout: Duration) {
    if handle(export, export.store().wait_events(timeout)) {
        clock::sleep(OWN_PAUSE);
    }
}

/// Handles reports. Returns whether they were of the server's own writes, and of nothing else in a live file.
fn handle(export: &Exports, events: Vec<OutsideEvent>) -> bool {
    // In an order of its own, so that a run of the simulator can be repeated; and whether it was written.
    let mut changed = BTreeMap::new();
    for event in events {
        match event {
            OutsideEvent::Written(object) => {
                changed.insert(object, true);
            }
            OutsideEvent::Changed(object) => {
                changed.entry(object).or_insert(false);
            }
            OutsideEvent::Removed(object) => {
                if let Some(file) = export.live(object) {
                    end_watch(export, &file);
                }
                changed.entry(object).or_insert(false);
            }
            OutsideEvent::Overflow => {
                // Among the reports that are lost may be the one that follows the bytes of a write.
                for file in export.live_files() {
                    changed.insert(file.object(), true);
                }
            }
        }
    }
    // Each write of the server is reported, too. One look for each file is enough.
    let (mut own, mut others) = (false, false);
    for (object, is_written) in changed {
        let Some(file) = export.live(object) else {
            continue;
        };
        let is_own = match is_written {
            true => written(export, &file) == Ok(true),
            false => {
                let _ = check(export, &file);
                false
            }
        };
        own |= is_own;
        others |= !is_own;
    }
    own && !others
}

/// How long reports wait after some that were of the server's own writes alone. There are likely more to come, and to look at
/// each by itself would cost as much as a small write.
const OWN_PAUSE: Nanos = Nanos::from_millis(2);

/// The file is left to one client alone ([`crate::vfs::promises`]): references to it are worth nothing from now on.
pub fn hide(export: &Exports, file: &Arc<File>) {
    let _closed = file.close();
    revoke_pages(export, file, Reason::Rights);
    file.counter().bump();
}

/// Changes of the file are reported no more, so an unchanged counter says nothing.
fn end_watch(export: &Exports, file: &Arc<File>) {
    let _closed = file.close();
    file.end_watch();
    revoke_counter(export, file);
    file.counter().bump();
}

/// Checks the files without a watch.
pub fn check_unwatched(export: &Exports) {
    let now = clock::now();
    let mut files = export.live_files();
    files.retain(|file| !file.is_watched() && file.unchecked_for(now) >= UNWATCHED_AGE_MAX);
    // As in `observe`.
    files.sort_unstable_by_key(|file| file.object());
    for file in files {
        let _ = check(export, &file);
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
