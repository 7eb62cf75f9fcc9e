//! Extended attributes of objects in memory. Only files and directories have any.

use super::Operation;
use super::node::Node;
use super::tree::Tree;
use crate::store::permission::attributes_permit;
use crate::store::{Credential, FileType, ObjectId, Result, Status, XattrHow, access};

/// The longest name and value, and the most bytes of all names of an object together. Linux has the same limits.
const NAME_MAX: usize = 250;
const LENGTH_MAX: usize = 1 << 16;

impl Node {
    /// Bytes of all names and values.
    pub fn xattr_bytes(&self) -> u64 {
        let pairs = self.xattrs.iter();
        pairs.map(|(name, value)| bytes(name, value)).sum()
    }

    /// Refuses callers without this right, and objects that have no attributes.
    fn check_xattrs(&self, who: &Credential, right: u32) -> Result<()> {
        if !matches!(
            self.attributes.kind,
            FileType::Regular | FileType::Directory
        ) {
            return Err(Status::NotSupp.into());
        }
        match attributes_permit(&self.judged(who), who, right) {
            0 => Err(Status::Access.into()),
            _ => Ok(()),
        }
    }
}

/// What an attribute takes of the store's capacity.
fn bytes(name: &[u8], value: &[u8]) -> u64 {
    (name.len() + value.len()) as u64
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&0) {
        return Err(Status::Inval.into());
    }
    match name.len() > NAME_MAX {
        true => Err(Status::NameTooLong.into()),
        false => Ok(()),
    }
}

impl Tree {
    pub fn xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.with_xattrs(object)?;
        check_name(name)?;
        node.check_xattrs(who, access::READ)?;
        let value = node.xattrs.get(name).ok_or(Status::NoEnt)?;
        Ok(value.clone())
    }

    pub fn xattrs(&self, who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        let node = self.with_xattrs(object)?;
        node.check_xattrs(who, access::READ)?;
        Ok(node.xattrs.keys().cloned().collect())
    }

    pub fn set_xattr(
        &mut self,
        who: &Credential,
        object: ObjectId,
        (name, value): (&[u8], &[u8]),
        how: XattrHow,
    ) -> Result<()> {
        let node = self.with_xattrs(object)?;
        check_name(name)?;
        node.check_xattrs(who, access::MODIFY)?;
        if value.len() > LENGTH_MAX {
            return Err(Status::FBig.into());
        }
        match (how, node.xattrs.contains_key(name)) {
            (XattrHow::Create, true) => return Err(Status::Exist.into()),
            (XattrHow::Replace, false) => return Err(Status::NoEnt.into()),
            _ => {}
        }
        let others = node.xattrs.keys().filter(|other| *other != name);
        let names: usize = others.map(|other| other.len() + 1).sum();
        if names + name.len() >= LENGTH_MAX {
            return Err(Status::NoSpc.into());
        }
        self.may_change(Operation::SetAttributes)?;
        let room = self.capacity_bytes.saturating_sub(self.used_bytes);
        let kept = &mut self.node_mut(object)?.xattrs;
        let before = kept.get(name).map_or(0, |before| bytes(name, before));
        let after = bytes(name, value);
        if after.saturating_sub(before) > room {
            return Err(Status::NoSpc.into());
        }
        kept.insert(name.to_vec(), value.to_vec());
        self.used_bytes = self.used_bytes - before + after;
        self.xattrs_changed(object)
    }

    pub fn remove_xattr(&mut self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<()> {
        let node = self.with_xattrs(object)?;
        check_name(name)?;
        node.check_xattrs(who, access::MODIFY)?;
        let before = bytes(name, node.xattrs.get(name).ok_or(Status::NoEnt)?);
        self.may_change(Operation::SetAttributes)?;
        self.node_mut(object)?.xattrs.remove(name);
        self.used_bytes -= before;
        self.xattrs_changed(object)
    }

    /// An object, if the store has extended attributes.
    fn with_xattrs(&self, object: ObjectId) -> Result<&Node> {
        match self.has_xattrs {
            true => self.node(object),
            false => Err(Status::NotSupp.into()),
        }
    }

    fn xattrs_changed(&mut self, object: ObjectId) -> Result<()> {
        let now = self.tick();
        self.node_mut(object)?.attributes.ctime = now;
        self.report(object);
        Ok(())
    }
}
