//! Access control lists of objects in memory.

use super::Operation;
use super::node::Node;
use super::tree::Tree;
use crate::store::{Acl, AclKind, Attributes, Credential, FileType, ObjectId, Result, Status};

impl Node {
    /// Attributes by whose mode this caller may do what he may do.
    pub fn judged(&self, who: &Credential) -> Attributes {
        match &self.access_list {
            Some(list) => list.judged(&self.attributes, who),
            None => self.attributes,
        }
    }

    /// The node is new, in a directory with this default list.
    pub fn inherit(&mut self, list: Acl) {
        if self.attributes.kind == FileType::Symlink {
            return;
        }
        self.set_access_list(&list.inherited(self.attributes.mode));
        if self.is_directory() {
            self.default_list = Some(list);
        }
    }

    pub fn set_access_list(&mut self, list: &Acl) {
        self.attributes.mode = self.attributes.mode & !0o777 | list.mode();
        self.access_list = (!list.is_minimal()).then(|| list.clone());
    }

    /// The list follows a mode that was set.
    pub fn mode_was_set(&mut self) {
        let mode = self.attributes.mode;
        self.access_list = self.access_list.take().map(|list| list.with_mode(mode));
    }
}

impl Tree {
    pub fn set_acl(
        &mut self,
        who: &Credential,
        object: ObjectId,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<()> {
        self.may_change(Operation::SetAttributes)?;
        let now = self.tick();
        let node = self.node_mut(object)?;
        if node.attributes.kind == FileType::Symlink {
            return Err(Status::NotSupp.into());
        }
        if ![0, node.attributes.uid].contains(&who.uid) {
            return Err(Status::Perm.into());
        }
        match (kind, list) {
            (AclKind::Access, Some(list)) => node.set_access_list(list),
            (AclKind::Access, None) => node.access_list = None,
            (AclKind::Default, Some(_)) if !node.is_directory() => {
                return Err(Status::Access.into());
            }
            (AclKind::Default, list) => node.default_list = list.cloned(),
        }
        node.attributes.ctime = now;
        self.report(object);
        Ok(())
    }
}
