//! Making, removing and renaming.

use super::Operation;
use super::node::{Body, Node};
use super::tree::Tree;
use crate::store::names::Name;
use crate::store::permission::{check_add, check_link, check_search, check_take, check_write};
use crate::store::{Attributes, Credential, ObjectId, Result, Status, Unlinked};

impl Tree {
    pub fn link(
        &mut self,
        who: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        self.may_change(Operation::Directory)?;
        let name = Name::proper(name, Status::Exist, Status::Exist)?;
        let parent = self.node(directory)?;
        let taken = parent.names()?.find(name).is_some();
        if self.node(object)?.is_directory() {
            return Err(Status::IsDir.into());
        }
        check_search(&parent.judged(who), who)?;
        if taken {
            return Err(Status::Exist.into());
        }
        check_link(&self.node(object)?.judged(who), who)?;
        check_add(&parent.judged(who), who)?;
        let now = self.tick();
        let parent = self.node_mut(directory)?;
        parent.names_mut()?.insert(name, object.ino);
        parent.touch_data(now);
        let node = self.node_mut(object)?;
        node.attributes.links += 1;
        node.attributes.ctime = now;
        let attributes = node.attributes;
        self.report(directory);
        self.report(object);
        Ok(attributes)
    }

    /// REMOVE and RMDIR.
    pub fn unlink(
        &mut self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        expect_directory: bool,
    ) -> Result<Unlinked> {
        self.may_change(Operation::Directory)?;
        let victim = self.lookup(who, directory, name)?;
        check_take(&self.node(directory)?.judged(who), &victim.attributes, who)?;
        match (victim.is_directory(), expect_directory) {
            (true, false) => return Err(Status::IsDir.into()),
            (false, true) => return Err(Status::NotDir.into()),
            (true, true) if !victim.names()?.is_empty() => return Err(Status::NotEmpty.into()),
            _ => {}
        }
        let victim = victim.id();
        self.detach(directory, name)?;
        let unlinked = self.drop_link(victim)?;
        self.report(directory);
        Ok(unlinked)
    }

    /// Removes a name from a directory. The object keeps its link count.
    fn detach(&mut self, directory: ObjectId, name: &[u8]) -> Result<()> {
        let now = self.tick();
        let parent = self.node_mut(directory)?;
        parent.names_mut()?.remove(name);
        parent.touch_data(now);
        Ok(())
    }

    /// Notes that an object has lost a name. It is gone if that was the last, and a directory always is.
    fn drop_link(&mut self, object: ObjectId) -> Result<Unlinked> {
        let now = self.tick();
        let node = self.node_mut(object)?;
        let parent = match &node.body {
            Body::Directory(names) => Some(names.parent),
            _ => None,
        };
        node.attributes.ctime = now;
        node.attributes.links -= 1;
        let last = parent.is_some() || node.attributes.links == 0;
        if let Some(parent) = parent.and_then(|ino| self.nodes.get_mut(&ino)) {
            parent.attributes.links -= 1;
        }
        if last {
            self.forget(object);
            self.report_removed(object);
        } else {
            self.report(object);
        }
        Ok(Unlinked { object, last })
    }

    pub fn rename(
        &mut self,
        who: &Credential,
        (from, from_name): (ObjectId, &[u8]),
        (to, to_name): (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        self.may_change(Operation::Directory)?;
        for directory in [from, to] {
            self.node(directory)?.names()?;
        }
        let moved = self.lookup(who, from, from_name)?;
        let target = match self.lookup(who, to, to_name) {
            Ok(found) => Some(found),
            Err(refused) if refused.status == Status::NoEnt => None,
            Err(refused) => return Err(refused),
        };
        // The checks come in the order of Linux.
        let (source, into) = (self.node(from)?.judged(who), self.node(to)?.judged(who));
        let is_directory = moved.is_directory();
        if is_directory && self.is_within(to.ino, moved.id().ino) {
            return Err(Status::Inval.into());
        }
        if target.is_some_and(|target| self.is_within(from.ino, target.id().ino)) {
            return Err(Status::NotEmpty.into());
        }
        if target.is_some_and(|target| target.id() == moved.id()) {
            return Ok(None);
        }
        check_take(&source, &moved.attributes, who)?;
        match target {
            None => check_add(&into, who)?,
            Some(target) => {
                check_take(&into, &target.attributes, who)?;
                match (is_directory, target.is_directory()) {
                    (true, false) => return Err(Status::NotDir.into()),
                    (false, true) => return Err(Status::IsDir.into()),
                    _ => {}
                }
            }
        }
        if is_directory && from != to {
            // The `..` of the directory changes.
            check_write(&moved.judged(who), who)?;
        }
        if target.is_some_and(|target| target.names().is_ok_and(|names| !names.is_empty())) {
            return Err(Status::NotEmpty.into());
        }
        let (moved, target) = (moved.id(), target.map(Node::id));
        self.detach(from, from_name)?;
        let replaced = target.map(|target| self.drop_link(target)).transpose()?;
        self.attach(moved, is_directory, from, to, to_name)?;
        Ok(replaced)
    }

    fn attach(
        &mut self,
        moved: ObjectId,
        is_directory: bool,
        from: ObjectId,
        to: ObjectId,
        name: &[u8],
    ) -> Result<()> {
        let now = self.tick();
        if is_directory {
            self.node_mut(from)?.attributes.links -= 1;
            self.node_mut(to)?.attributes.links += 1;
            self.node_mut(moved)?.names_mut()?.parent = to.ino;
        }
        let parent = self.node_mut(to)?;
        parent.names_mut()?.insert(name, moved.ino);
        parent.touch_data(now);
        self.node_mut(moved)?.attributes.ctime = now;
        [from, to, moved]
            .into_iter()
            .for_each(|object| self.report(object));
        Ok(())
    }

    /// Whether `inner` is `outer` or below it.
    fn is_within(&self, inner: u64, outer: u64) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.nodes.get(&at).and_then(|node| node.names().ok()) {
                Some(names) if names.parent != at => at = names.parent,
                _ => return false,
            }
        }
    }
}
