//! Issuing references.

use odafs_common::reference::Reference;
use odafs_common::wire::odafs::PageReference;
use odafs_fabric::sync::Arc;

use crate::store::{Credential, may_read};
use crate::vfs::export::Exports;
use crate::vfs::file::{Facts, File, Leaf};
use crate::vfs::read::{Effort, ReadRange};
use crate::vfs::sessions::OpenSession;

/// References of one file for one session. It exists only after the session was found to have the right to read the file,
/// and was admitted to its reader class.
pub(crate) struct Issue<'a> {
    export: &'a Exports,
    file: &'a Arc<File>,
    facts: Facts,
}

impl<'a> Issue<'a> {
    /// `None`: no references of this file for this session, whose client acts in the file's export as `who`. The caller
    /// shares the file's gate from before this until the last reference, so that `facts` stay right.
    pub(crate) fn to(
        export: &'a Exports,
        file: &'a Arc<File>,
        (session, who): (&OpenSession, &Credential),
        facts: Facts,
    ) -> Option<Self> {
        let class = export.class_of(file, &facts)?;
        let facts = Facts {
            class: Some(class),
            ..facts
        };
        let granted = export.hands_out(file)
            && facts.mode_decides
            && may_read(&facts.attributes, who)
            && session.nic().admit(class);
        granted.then_some(Self {
            export,
            file,
            facts,
        })
    }

    /// A reference to the file's change counter. `None` unless outside changes are reported, because otherwise an unchanged
    /// counter would prove nothing.
    pub(crate) fn counter(&self) -> Option<Reference> {
        let watched = self.file.is_watched();
        let class = self.facts.class.filter(|_| watched)?;
        let cache = self.export.cache();
        let enter = |handle, entry| cache.enter_handle(handle, entry);
        self.file.counter().reference(class, cache.keys(), enter)
    }

    /// Adds at most `limit` references to those pages from `first` to `last` that are resident and not locked. Returns
    /// the page with which to continue, if there are more.
    pub(crate) fn pages(
        &self,
        first: u64,
        last: u64,
        mut limit: usize,
        out: &mut Vec<PageReference>,
    ) -> Option<u64> {
        if first > last {
            return None;
        }
        let span = Leaf::count_in(first, last);
        if span <= PROBES_MIN || span <= self.file.leaf_count() as u64 {
            let mut page = first;
            while page <= last {
                let next = Leaf::last_of(page).min(last);
                if let Some(leaf) = self.file.find_leaf(page)
                    && let Some(more) = self.leaf(&leaf, page, next, &mut limit, out)
                {
                    return Some(more);
                }
                page = next.checked_add(1)?;
            }
            return None;
        }
        // A long range has few leaves.
        let leaves = self.file.leaves_from(first);
        leaves.iter().find_map(|leaf| {
            let from = first.max(leaf.first());
            self.leaf(leaf, from, last.min(leaf.last()), &mut limit, out)
        })
    }

    fn leaf(
        &self,
        leaf: &Arc<Leaf>,
        first: u64,
        last: u64,
        limit: &mut usize,
        out: &mut Vec<PageReference>,
    ) -> Option<u64> {
        for page in first..=last {
            if *limit == 0 {
                return Some(page);
            }
            let lock = leaf.try_lock(Leaf::slot(page));
            let found = lock.and_then(|lock| self.export.cache().reference(&lock, &self.facts));
            if let Some(found) = found {
                out.push(found);
                *limit -= 1;
            }
        }
        None
    }
}

/// References to the pages that a read touched, and to neighbours on both sides in the same leaf. The reader will likely
/// read these too, and the locks are in the processor's cache.
pub(crate) fn piggyback(
    export: &Exports,
    file: &Arc<File>,
    session: (&OpenSession, &Credential),
    range: ReadRange,
    limit: usize,
) -> (Vec<PageReference>, Option<Reference>) {
    // This never waits, because a reply without references is valid.
    let Some(gate) = file.enter(Effort::ResidentOnly) else {
        return (Vec::new(), None);
    };
    let facts = file.facts();
    let span = export.page().span(range.offset, range.count.into());
    let (Some(issue), Some(span), false) =
        (Issue::to(export, file, session, facts), span, gate.gone)
    else {
        return (Vec::new(), None);
    };
    let mut out = Vec::with_capacity(limit);
    let (first, last) = span.into_inner();
    let more = issue.pages(first, last, limit, &mut out);
    if more.is_none() && out.len() < limit {
        // First a few pages ahead, and then those behind, up to the limit of neighbours.
        let neighbours = limit.min(out.len() + NEIGHBOURS_MAX);
        let ahead = last.saturating_add(1);
        issue.pages(
            ahead,
            Leaf::last_of(ahead).min(last.saturating_add(NEIGHBOURS_MAX as u64)),
            neighbours - out.len(),
            &mut out,
        );
        if let Some(before) = first.checked_sub(1).filter(|_| out.len() < neighbours) {
            let from = Leaf::first_of(before);
            issue.pages(from, before, neighbours - out.len(), &mut out);
        }
    }
    (out, issue.counter())
}

/// Up to this number of leaves are looked up one by one, however few of them exist.
const PROBES_MIN: u64 = 16;
/// The most neighbours to which a READ brings references.
const NEIGHBOURS_MAX: usize = 8;
