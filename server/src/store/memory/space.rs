//! Allocation, holes, copies and clones.

use super::Operation;
use super::node::{PAGE_BYTES, SIZE_MAX};
use super::tree::Tree;
use crate::store::permission::{may_write, mode_after_change};
use crate::store::{Credential, Extent, ObjectId, Result, Status};

impl Tree {
    pub fn allocate(
        &mut self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let size = self.writable(who, object)?;
        let end = offset.saturating_add(length);
        match end > size {
            true => self.resize(object, end)?,
            false => self.touch(object)?,
        }
        self.written(who, object)
    }

    pub fn deallocate(
        &mut self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let size = self.writable(who, object)?;
        if offset.checked_add(length).is_none_or(|end| end > SIZE_MAX) {
            return Err(Status::FBig.into());
        }
        let length = length.min(size.saturating_sub(offset));
        self.touch(object)?;
        if length > 0 {
            let zeros = vec![0; length as usize];
            self.node_mut(object)?.file()?.write(offset, &zeros);
        }
        self.written(who, object)
    }

    pub fn clone_range(
        &mut self,
        who: &Credential,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        count: u64,
    ) -> Result<()> {
        let size = self.writable(who, to.0)?;
        let source = &self.node_mut(from.0)?.file()?.data;
        let source_end = from.1.saturating_add(count);
        let in_blocks = |bytes: u64| bytes.is_multiple_of(PAGE_BYTES);
        let begins = in_blocks(from.1) && in_blocks(to.1);
        let cut = !in_blocks(count);
        let fits = !cut || (source_end == source.len() as u64 && to.1 + count >= size);
        if !begins || !fits || source_end > source.len() as u64 {
            return Err(Status::Inval.into());
        }
        let bytes = source[from.1 as usize..source_end as usize].to_vec();
        if size.max(to.1 + count) - size > self.capacity_bytes.saturating_sub(self.used_bytes) {
            return Err(Status::NoSpc.into());
        }
        self.put(to.0, to.1, &bytes)?;
        self.written(who, to.0)
    }

    /// Pages of zeros are holes.
    pub fn seek(&mut self, object: ObjectId, offset: u64, what: Extent) -> Result<Option<u64>> {
        let data = &self.node_mut(object)?.file()?.data;
        let size = data.len() as u64;
        if offset >= size {
            return Err(Status::Nxio.into());
        }
        let pages = (0..).zip(data.chunks(PAGE_BYTES as usize));
        let mut behind = pages.skip((offset / PAGE_BYTES) as usize);
        let is_hole = |page: &[u8]| page.iter().all(|byte| *byte == 0);
        let found = behind.find(|(_, page)| is_hole(page) == (what == Extent::Hole));
        let found = found.map(|(number, _): (u64, _)| offset.max(number * PAGE_BYTES));
        Ok(found.or((what == Extent::Hole).then_some(size)))
    }

    /// The size of a file that the caller may write to.
    fn writable(&mut self, who: &Credential, object: ObjectId) -> Result<u64> {
        self.may_change(Operation::Write)?;
        let node = self.node_mut(object)?;
        node.file()?;
        match may_write(&node.judged(who), who) {
            true => Ok(node.attributes.size),
            false => Err(Status::Access.into()),
        }
    }

    fn touch(&mut self, object: ObjectId) -> Result<()> {
        let now = self.tick();
        self.node_mut(object)?.touch_data(now);
        Ok(())
    }

    /// Updates the attributes and reports the change, after each change of bytes.
    fn written(&mut self, who: &Credential, object: ObjectId) -> Result<()> {
        let attributes = &mut self.node_mut(object)?.attributes;
        attributes.mode = mode_after_change(attributes, who);
        self.report_written(object);
        Ok(())
    }
}
