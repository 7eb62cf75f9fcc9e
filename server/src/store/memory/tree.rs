//! The objects of a memory store, and the operations on them under its lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::node::{Body, Chance, Content, Names, Node, SIZE_MAX};
use super::{Meddler, Operation, OutsideChange};
use crate::store::names::Name;
use crate::store::permission::{
    check_add, check_search, check_set, made_mode, may_write, mode_after_change, mode_after_giving,
    settable_at_first, settable_mode,
};
use crate::store::{
    Attributes, CreateHow, Created, Credential, Device, FileType, ObjectId, OutsideEvent, Result,
    SetAttributes, SetTime, Status, Time, default_mode,
};

pub(super) const ROOT: u64 = 2;
/// `fsid` of every object.
const FSID: u64 = 0x0da5;
/// The most events kept. Beyond that they are lost, and [`OutsideEvent::Overflow`] is reported.
const EVENTS_MAX: usize = 4096;

/// Everything that the store's lock guards.
pub(super) struct Tree {
    pub nodes: BTreeMap<u64, Node>,
    /// Inode numbers of removed objects, with the generation for their next use.
    free: Vec<(u64, u64)>,
    next_ino: u64,
    /// Counts changes, in place of a clock.
    ticks: u64,
    /// For how many more looks the clock stands still.
    pub held: u32,
    chance: Chance,
    failures: BTreeMap<Operation, VecDeque<Status>>,
    pub meddlers: BTreeMap<Operation, VecDeque<Meddler>>,
    pub capacity_bytes: u64,
    /// Bytes of all files, and of the extended attributes of all objects.
    pub used_bytes: u64,
    pub read_only: bool,
    pub watchable: bool,
    pub has_xattrs: bool,
    pub watched: BTreeSet<ObjectId>,
    pub events: VecDeque<OutsideEvent>,
    pub interrupted: bool,
    /// Whether the next wait ends at once.
    pub at_hand: bool,
}

impl Tree {
    pub fn new(seed: u64) -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            free: Vec::new(),
            next_ino: ROOT,
            ticks: 0,
            held: 0,
            chance: Chance(seed),
            failures: BTreeMap::new(),
            meddlers: BTreeMap::new(),
            capacity_bytes: 1 << 40,
            used_bytes: 0,
            read_only: false,
            watchable: true,
            has_xattrs: true,
            watched: BTreeSet::new(),
            events: VecDeque::new(),
            interrupted: false,
            at_hand: false,
        };
        let owner = Credential::of(0, 0, &[]);
        let body = Body::Directory(Names::new(ROOT));
        tree.insert(&owner, None, FileType::Directory, body, 0o777);
        tree
    }

    pub fn root(&self) -> ObjectId {
        ObjectId {
            ino: ROOT,
            generation: 1,
        }
    }

    pub fn fail_next(&mut self, operation: Operation, status: Status) {
        self.failures
            .entry(operation)
            .or_default()
            .push_back(status);
    }

    /// Whether a call of that kind needs no waiting. Every second call needs none, unless a test has planned something
    /// for it.
    pub fn is_at_hand(&mut self, operation: Operation) -> bool {
        let at_hand = self.at_hand;
        self.at_hand = !at_hand;
        at_hand && !self.is_planned(operation)
    }

    /// Whether a test has planned something for the next call of that kind.
    pub fn is_planned(&self, operation: Operation) -> bool {
        fn planned<T>(plans: Option<&VecDeque<T>>) -> bool {
            plans.is_some_and(|plans| !plans.is_empty())
        }
        planned(self.meddlers.get(&operation)) || planned(self.failures.get(&operation))
    }

    /// Fails if a test has asked for it.
    pub fn injected(&mut self, operation: Operation) -> Result<()> {
        match self
            .failures
            .get_mut(&operation)
            .and_then(VecDeque::pop_front)
        {
            Some(status) => Err(status.into()),
            None => Ok(()),
        }
    }

    pub fn objects(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub fn may_change(&mut self, operation: Operation) -> Result<()> {
        if self.read_only {
            return Err(Status::RoFs.into());
        }
        self.injected(operation)
    }

    pub fn node(&self, object: ObjectId) -> Result<&Node> {
        self.nodes
            .get(&object.ino)
            .filter(|node| node.generation == object.generation)
            .ok_or_else(|| Status::Stale.into())
    }

    pub fn node_mut(&mut self, object: ObjectId) -> Result<&mut Node> {
        self.nodes
            .get_mut(&object.ino)
            .filter(|node| node.generation == object.generation)
            .ok_or_else(|| Status::Stale.into())
    }

    /// The object of a name.
    pub fn named(&self, ino: u64) -> Result<&Node> {
        self.nodes.get(&ino).ok_or_else(|| Status::Stale.into())
    }

    pub fn lookup(&self, who: &Credential, directory: ObjectId, name: &[u8]) -> Result<&Node> {
        let found = self.node(directory)?;
        let names = found.names()?;
        check_search(&found.judged(who), who)?;
        match Name::parse(name)? {
            Name::Here => Ok(found),
            Name::Up => self.named(names.parent),
            Name::Proper(name) => self.named(names.find(name).ok_or(Status::NoEnt)?),
        }
    }

    pub fn tick(&mut self) -> Time {
        match self.held.checked_sub(1) {
            Some(left) => self.held = left,
            None => self.ticks += 1,
        }
        let nanoseconds = self.ticks * 1000;
        Time {
            seconds: 1_600_000_000 + (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as u32,
        }
    }

    pub fn report(&mut self, object: ObjectId) {
        if self.watched.contains(&object) {
            self.push_event(OutsideEvent::Changed(object));
        }
    }

    pub fn report_written(&mut self, object: ObjectId) {
        if self.watched.contains(&object) {
            self.push_event(OutsideEvent::Written(object));
        }
    }

    pub fn report_removed(&mut self, object: ObjectId) {
        if self.watched.remove(&object) {
            self.push_event(OutsideEvent::Removed(object));
        }
    }

    /// Ends all watches, and reports it.
    pub fn end_watches(&mut self) {
        for object in std::mem::take(&mut self.watched) {
            self.push_event(OutsideEvent::Removed(object));
        }
    }

    fn push_event(&mut self, event: OutsideEvent) {
        if self.events.contains(&event) {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.clear();
            self.events.push_back(OutsideEvent::Overflow);
        } else {
            self.events.push_back(event);
        }
    }

    /// Makes an object that has no name yet.
    fn insert(
        &mut self,
        who: &Credential,
        directory: Option<&Attributes>,
        kind: FileType,
        body: Body,
        mode: u32,
    ) -> ObjectId {
        let now = self.tick();
        let (ino, generation) = self.free.pop().unwrap_or_else(|| {
            self.next_ino += 1;
            (self.next_ino - 1, 1)
        });
        let inherited = directory.filter(|directory| directory.mode & 0o2000 != 0);
        let is_directory = kind == FileType::Directory;
        let set_group = if inherited.is_some() && is_directory {
            0o2000
        } else {
            0
        };
        let attributes = Attributes {
            kind,
            mode: mode & 0o7777 | set_group,
            links: if is_directory { 2 } else { 1 },
            uid: who.uid,
            gid: inherited.map_or(who.gid, |directory| directory.gid),
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: FSID,
            fileid: ino,
            atime: now,
            mtime: now,
            ctime: now,
        };
        let mut node = Node {
            generation,
            attributes,
            birth: now,
            body,
            access_list: None,
            default_list: None,
            xattrs: BTreeMap::new(),
        };
        node.measure();
        let object = node.id();
        self.nodes.insert(ino, node);
        object
    }

    /// Makes an object under a name that must be free.
    #[expect(clippy::too_many_arguments, reason = "what MKNOD takes")]
    fn make(
        &mut self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        kind: FileType,
        body: Body,
        device: Device,
        new: &SetAttributes,
    ) -> Result<ObjectId> {
        let parent = self.node(directory)?;
        let names = parent.names()?;
        check_search(&parent.judged(who), who)?;
        if names.find(name).is_some() {
            return Err(Status::Exist.into());
        }
        check_add(&parent.judged(who), who)?;
        let inherited = parent.default_list.clone();
        let parent = parent.attributes;
        let umask = if inherited.is_some() { 0 } else { new.umask };
        let mode = new.mode.unwrap_or(default_mode(kind)) & !umask;
        let mode = made_mode(mode, kind, &parent, who);
        let object = self.insert(who, Some(&parent), kind, body, mode);
        let node = self.node_mut(object)?;
        node.attributes.device = device;
        if let Some(list) = inherited {
            node.inherit(list);
        }
        let rest = SetAttributes {
            mode: None,
            ..settable_at_first(who, new)
        };
        if let Err(refused) = self.set(who, object, &rest) {
            self.forget(object);
            return Err(refused);
        }
        let now = self.tick();
        let is_directory = kind == FileType::Directory;
        let parent = self.node_mut(directory)?;
        parent.names_mut()?.insert(name, object.ino);
        parent.attributes.links += u32::from(is_directory);
        parent.touch_data(now);
        self.report(directory);
        Ok(object)
    }

    pub fn forget(&mut self, object: ObjectId) {
        if let Some(node) = self.nodes.remove(&object.ino) {
            self.used_bytes -= node.kept_bytes();
            self.free.push((object.ino, object.generation + 1));
        }
    }

    pub fn create(
        &mut self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: CreateHow<'_>,
    ) -> Result<Created> {
        self.may_change(Operation::Directory)?;
        let name = Name::proper(name, Status::Exist, Status::Exist)?;
        match self.lookup(who, directory, name) {
            Ok(found) => return how.existing(found.id(), found.attributes),
            Err(refused) if refused.status == Status::NoEnt => {}
            Err(refused) => return Err(refused),
        }
        let new = match how {
            CreateHow::Unchecked(new) | CreateHow::Guarded(new) => *new,
            CreateHow::Exclusive(verifier, new) => new.exclusive(verifier),
        };
        let body = Body::File(Content::default());
        let device = Device::default();
        let object = self.make(who, directory, name, FileType::Regular, body, device, &new)?;
        Ok(Created {
            object,
            attributes: self.node(object)?.attributes,
            existed: false,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "what MKNOD takes")]
    pub fn make_other(
        &mut self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        kind: FileType,
        body: Body,
        device: Device,
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        self.may_change(Operation::Directory)?;
        let name = Name::proper(name, Status::Exist, Status::Exist)?;
        let new = SetAttributes { size: None, ..*new };
        let object = self.make(who, directory, name, kind, body, device, &new)?;
        Ok((object, self.node(object)?.attributes))
    }

    pub fn set_attributes(
        &mut self,
        who: &Credential,
        object: ObjectId,
        new: &SetAttributes,
    ) -> Result<Attributes> {
        self.may_change(Operation::SetAttributes)?;
        self.set(who, object, new)?;
        match new.size {
            Some(_) => self.report_written(object),
            None => self.report(object),
        }
        Ok(self.node(object)?.attributes)
    }

    fn set(&mut self, who: &Credential, object: ObjectId, new: &SetAttributes) -> Result<()> {
        let node = self.node_mut(object)?;
        if new.size.is_some() {
            node.file()?;
        }
        check_set(&node.judged(who), who, new)?;
        if node.attributes.kind == FileType::Symlink && new.mode.is_some() {
            return Err(Status::NotSupp.into());
        }
        if let Some(size) = new.size {
            self.resize(object, size)?;
        }
        let now = self.tick();
        let node = self.node_mut(object)?;
        let attributes = &mut node.attributes;
        if new.size.is_some() {
            attributes.mode = mode_after_change(attributes, who);
        }
        if new.uid.is_some() || new.gid.is_some() {
            attributes.mode = mode_after_giving(attributes, who);
        }
        attributes.uid = new.uid.unwrap_or(attributes.uid);
        attributes.gid = new.gid.unwrap_or(attributes.gid);
        if let Some(mode) = new.mode {
            attributes.mode = settable_mode(mode, attributes.gid, who);
        }
        for (slot, time) in [
            (&mut attributes.atime, new.atime),
            (&mut attributes.mtime, new.mtime),
        ] {
            match time {
                SetTime::Keep => {}
                SetTime::ServerTime => *slot = now,
                SetTime::To(time) => *slot = time,
            }
        }
        if *new != SetAttributes::default() {
            attributes.ctime = now;
        }
        if new.mode.is_some() {
            node.mode_was_set();
        }
        Ok(())
    }

    pub fn resize(&mut self, object: ObjectId, size: u64) -> Result<()> {
        let room = self.capacity_bytes.saturating_sub(self.used_bytes);
        let now = self.tick();
        let node = self.node_mut(object)?;
        let before = node.attributes.size;
        let content = node.file()?;
        if size > SIZE_MAX {
            return Err(Status::FBig.into());
        }
        if size.saturating_sub(before) > room {
            return Err(Status::NoSpc.into());
        }
        content.resize(size);
        node.touch_data(now);
        node.measure();
        self.used_bytes = self.used_bytes - before + size;
        Ok(())
    }

    pub fn write(
        &mut self,
        who: &Credential,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        self.may_change(Operation::Write)?;
        let node = self.node_mut(object)?;
        node.file()?;
        if !may_write(&node.judged(who), who) {
            return Err(Status::Access.into());
        }
        if data.is_empty() {
            return Ok(0);
        }
        let written = self.put(object, offset, data)?;
        let attributes = &mut self.node_mut(object)?.attributes;
        attributes.mode = mode_after_change(attributes, who);
        self.report_written(object);
        Ok(written)
    }

    pub fn put(&mut self, object: ObjectId, offset: u64, data: &[u8]) -> Result<usize> {
        let room = self.capacity_bytes.saturating_sub(self.used_bytes);
        let now = self.tick();
        let node = self.node_mut(object)?;
        let before = node.attributes.size;
        let content = node.file()?;
        let end = offset.saturating_add(data.len() as u64);
        if end > SIZE_MAX {
            return Err(Status::FBig.into());
        }
        if data.is_empty() {
            return Ok(0);
        }
        let fits = (before + room).min(end).saturating_sub(offset) as usize;
        if fits == 0 {
            return Err(Status::NoSpc.into());
        }
        content.write(offset, &data[..fits]);
        node.touch_data(now);
        node.measure();
        self.used_bytes = self.used_bytes - before + self.node(object)?.attributes.size;
        Ok(fits)
    }

    pub fn sync(&mut self, object: ObjectId) -> Result<()> {
        let injected = self.injected(Operation::Sync);
        let Some(node) = self.nodes.get_mut(&object.ino) else {
            return Err(Status::Stale.into());
        };
        if node.generation != object.generation {
            return Err(Status::Stale.into());
        }
        if let Body::File(content) = &mut node.body {
            match injected {
                Ok(()) if content.sync() => {}
                Ok(()) => return Err(Status::Io.into()),
                Err(_) => content.sync_badly(&mut self.chance),
            }
        }
        injected
    }

    pub fn write_back_badly(&mut self, object: ObjectId) -> bool {
        if let Some(node) = self.nodes.get_mut(&object.ino)
            && node.generation == object.generation
            && let Body::File(content) = &mut node.body
        {
            return content.write_back_badly(&mut self.chance);
        }
        false
    }

    pub fn crash(&mut self) -> bool {
        let mut lost = false;
        self.used_bytes = 0;
        for node in self.nodes.values_mut() {
            if let Body::File(content) = &mut node.body {
                lost |= content.crash(&mut self.chance);
                node.measure();
            }
            self.used_bytes += node.kept_bytes();
        }
        self.watched.clear();
        self.events.clear();
        lost
    }

    pub fn outside_change(&mut self, object: ObjectId, change: OutsideChange<'_>) -> Result<()> {
        self.held = 0;
        let now = self.tick();
        match change {
            OutsideChange::Write { offset, data } => {
                self.put(object, offset, data)?;
                self.report_written(object);
            }
            OutsideChange::BeginWrite => self.node_mut(object)?.touch_data(now),
            OutsideChange::EndWrite { offset, data } => {
                let node = self.node_mut(object)?;
                if offset + data.len() as u64 > node.attributes.size {
                    return Err(Status::Inval.into());
                }
                node.file()?.write(offset, data);
                self.report_written(object);
            }
            OutsideChange::Resize(size) => {
                self.resize(object, size)?;
                self.report_written(object);
            }
            OutsideChange::Mode(mode) => {
                let node = self.node_mut(object)?;
                node.attributes.mode = mode & 0o7777;
                node.attributes.ctime = now;
                node.mode_was_set();
                self.report(object);
            }
            OutsideChange::Acl(list) => {
                let node = self.node_mut(object)?;
                node.set_access_list(list);
                node.attributes.ctime = now;
                self.report(object);
            }
            OutsideChange::Owner(uid) => {
                let attributes = &mut self.node_mut(object)?.attributes;
                attributes.uid = uid;
                attributes.ctime = now;
                self.report(object);
            }
            OutsideChange::Remove => self.remove_everywhere(object, now)?,
        }
        Ok(())
    }

    fn remove_everywhere(&mut self, object: ObjectId, now: Time) -> Result<()> {
        let node = self.node(object)?;
        if node.is_directory() && (object.ino == ROOT || !node.names()?.is_empty()) {
            return Err(Status::NotEmpty.into());
        }
        let is_directory = node.is_directory();
        let mut parents = Vec::new();
        for parent in self.nodes.values_mut() {
            if let Body::Directory(names) = &mut parent.body
                && names.remove_object(object.ino)
            {
                parent.attributes.links -= u32::from(is_directory);
                parent.touch_data(now);
                parents.push(parent.id());
            }
        }
        self.forget(object);
        self.report_removed(object);
        parents.into_iter().for_each(|parent| self.report(parent));
        Ok(())
    }
}
