//! Weak cache consistency of directories (RFC 1813, section 2.6): the attributes from before a change are
//! only told if nothing else of ours can have changed the directory between them and the change. A client
//! that is told takes the change for its own and keeps what it has cached.

use odafs_common::wire::nfs3::{Attributes, WccAttributes, WccData};
use odafs_fabric::sync::{Mutex, MutexGuard};

use super::Context;
use crate::store::ObjectId;

const STRIPES: usize = 64;

/// Which directories are being changed, by stripes: two directories of one stripe count as one.
pub struct DirectoryChanges {
    stripes: [Mutex<Stripe>; STRIPES],
}

#[derive(Clone, Copy, Default)]
struct Stripe {
    under_way: u32,
    begun: u64,
}

impl Default for DirectoryChanges {
    fn default() -> Self {
        Self {
            stripes: std::array::from_fn(|_| Mutex::new(Stripe::default())),
        }
    }
}

impl DirectoryChanges {
    fn stripe(&self, directory: ObjectId) -> &Mutex<Stripe> {
        let mixed = (directory.ino ^ directory.generation.rotate_left(32))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.stripes[(mixed >> 32) as usize % STRIPES]
    }
}

/// A change of a directory under way.
pub struct Change<'a> {
    stripe: &'a Mutex<Stripe>,
    directory: ObjectId,
    /// The number of this change in its stripe; `None` if another was under way at its beginning.
    number: Option<u64>,
    /// It is not part of another change that the stripe counts.
    counted: bool,
    before: Option<WccAttributes>,
}

impl<'a> Change<'a> {
    /// Begins: the attributes from before are taken.
    pub fn begin(context: &Context<'a>, directory: ObjectId) -> Self {
        let stripe = context.directories.stripe(directory);
        let number = {
            let mut stripe = stripe.lock();
            let alone = stripe.under_way == 0;
            stripe.under_way += 1;
            stripe.begun += 1;
            alone.then_some(stripe.begun)
        };
        Self::of(context, directory, stripe, number, true)
    }

    /// Begins the other half of a change of two directories: they do not stand in each other's way.
    pub fn begin_beside(context: &Context<'a>, directory: ObjectId, first: &Self) -> Self {
        let stripe = context.directories.stripe(directory);
        match std::ptr::eq(stripe, first.stripe) {
            true => Self::of(context, directory, stripe, first.number, false),
            false => Self::begin(context, directory),
        }
    }

    fn of(
        context: &Context<'a>,
        directory: ObjectId,
        stripe: &'a Mutex<Stripe>,
        number: Option<u64>,
        counted: bool,
    ) -> Self {
        let before = context.attributes(directory);
        Self {
            stripe,
            directory,
            number,
            counted,
            before: before.as_ref().map(WccAttributes::from),
        }
    }

    /// Ends: the attributes from after are taken.
    pub fn end(self, context: &Context<'_>) -> WccData {
        let after: Option<Attributes> = context.attributes(self.directory);
        let stripe: MutexGuard<'_, Stripe> = self.stripe.lock();
        let alone = self.number == Some(stripe.begun);
        drop(stripe);
        WccData {
            before: self.before.filter(|_| alone),
            after,
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.stripe.lock().under_way -= 1;
        }
    }
}
