//! The index of an archive: its members, and where their bytes are. The archive is not trusted.

use std::collections::{BTreeMap, HashMap};
use std::io;

use crate::store::{Attributes, Device, FileType, Time};

use super::header::{BLOCK, Header, text};
use super::pax::{Extended, clamped};
use crate::store::names::NAME_MAX;

/// The number of the root, whether the archive has a member for it or not.
pub(super) const ROOT: u64 = 1;
/// Numbers of directories that occur only in paths begin here. No header is that far into a file.
const IMPLIED: u64 = 1 << 56;
/// The longest path, and the longest target of a link, in bytes.
const PATH_MAX: u64 = 4096;
/// The longest extended header, in bytes.
const EXTENDED_MAX: u64 = 1 << 20;
/// The most left-out members that the log names one by one.
const TOLD_MAX: u64 = 100;
/// The owner of members whose id NFS cannot express.
const NOBODY: u32 = 65534;

/// The most objects of an archive. Each takes about 250 bytes of memory, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The most names, of which an object may have several.
    pub objects: usize,
    /// The most bytes of all names and targets of links together.
    pub names: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            objects: 1 << 22,
            names: 256 << 20,
        }
    }
}

/// Why an archive cannot be served. The text says what is wrong, and where.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("it is neither a directory nor a tar archive")]
    NotTar,
    #[error("it is not a whole tar archive: at offset {offset}, {what}")]
    Damaged { offset: u64, what: String },
    #[error("it holds more than this server can index: at offset {offset}, {what}")]
    TooMuch { offset: u64, what: String },
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The bytes of an archive.
pub(super) trait Bytes {
    /// The number of bytes.
    fn length(&self) -> u64;
    /// Reads all of `data`, or fails.
    fn read_exact(&self, data: &mut [u8], offset: u64) -> io::Result<()>;
}

/// The type and content of an object.
pub(super) enum Body {
    /// The offset of its bytes in the archive.
    File(u64),
    Directory(Names),
    Symlink(Vec<u8>),
    Special,
}

/// The entries of a directory.
pub(super) struct Names {
    pub parent: u32,
    /// While the index is being made, by name.
    growing: BTreeMap<Box<[u8]>, u32>,
    /// Afterwards in order, so that an entry's position is its cookie, also after a restart.
    pub sorted: Vec<(Box<[u8]>, u32)>,
}

/// An object.
pub(super) struct Node {
    pub body: Body,
    pub attributes: Attributes,
}

/// All objects of an archive.
pub(super) struct Index {
    /// The first object is the root. Objects without a link were replaced.
    pub nodes: Vec<Node>,
    by_number: HashMap<u64, u32>,
}

impl Index {
    /// Reads the headers. `root` has the owner and times of directories without a member.
    pub fn read(bytes: &dyn Bytes, root: Attributes, bounds: Bounds) -> Result<Self, Refused> {
        let mut reader = Reader {
            bytes,
            bounds,
            nodes: Vec::new(),
            names: 0,
            entries: 0,
            left_out: 0,
            implied: 0,
            template: root,
        };
        reader.add(0, directory(0), with_kind(root, FileType::Directory, ROOT))?;
        reader.members()?;
        let mut nodes = reader.nodes;
        let mut by_number = HashMap::new();
        for (place, node) in nodes.iter_mut().enumerate() {
            if let Body::Directory(names) = &mut node.body {
                names.sorted = std::mem::take(&mut names.growing).into_iter().collect();
            }
            if node.attributes.links > 0 {
                by_number.insert(node.attributes.fileid, place as u32);
            }
        }
        Ok(Self { nodes, by_number })
    }

    pub fn find(&self, number: u64) -> Option<&Node> {
        let place = *self.by_number.get(&number)?;
        self.nodes.get(place as usize)
    }
}

struct Reader<'a> {
    bytes: &'a dyn Bytes,
    bounds: Bounds,
    nodes: Vec<Node>,
    names: usize,
    entries: usize,
    left_out: u64,
    implied: u64,
    template: Attributes,
}

/// The contents of the headers of one member.
struct Member {
    offset: u64,
    path: Vec<u8>,
    link: Vec<u8>,
    body: Body,
    attributes: Attributes,
    hard_link: bool,
}

fn directory(parent: u32) -> Body {
    Body::Directory(Names {
        parent,
        growing: BTreeMap::new(),
        sorted: Vec::new(),
    })
}

fn with_kind(of: Attributes, kind: FileType, fileid: u64) -> Attributes {
    Attributes {
        kind,
        fileid,
        links: if kind == FileType::Directory { 2 } else { 0 },
        ..of
    }
}

fn damaged(offset: u64, what: impl Into<String>) -> Refused {
    let what = what.into();
    Refused::Damaged { offset, what }
}

/// The components of a path, without leading slashes, as with tar. Otherwise the reason to leave the member out.
fn components(path: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    if path.contains(&0) {
        return Err("its name holds a NUL");
    }
    let parts = path.split(|byte| *byte == b'/');
    let parts: Vec<_> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.contains(&b"..".as_slice()) {
        return Err("its name holds `..`");
    }
    if parts.iter().any(|part| part.len() > NAME_MAX) {
        return Err("a name in its path is longer than 255 bytes");
    }
    Ok(parts)
}

impl Reader<'_> {
    fn members(&mut self) -> Result<(), Refused> {
        let mut global = Extended::default();
        let mut own = None;
        let (mut long_path, mut long_link) = (None, None);
        let mut offset = 0;
        loop {
            let header = self.header(offset)?;
            if header.is_zero() {
                return self.end();
            }
            if !header.has_good_checksum() {
                return Err(match offset {
                    0 => Refused::NotTar,
                    _ => damaged(offset, "a header's checksum is wrong"),
                });
            }
            let data = offset + BLOCK;
            let told = header.size();
            let told = told.ok_or_else(|| damaged(offset, "a member's size is no number"))?;
            match header.flag() {
                b'L' => long_path = Some(self.text(data, told)?),
                b'K' => long_link = Some(self.text(data, told)?),
                b'x' | b'X' => {
                    let mut said = global.clone();
                    self.extend(&mut said, data, told)?;
                    own = Some(said);
                }
                b'g' => self.extend(&mut global, data, told)?,
                flag => {
                    let mut said = own.take().unwrap_or_else(|| global.clone());
                    said.path = said.path.or(long_path.take());
                    said.link = said.link.or(long_link.take());
                    (long_path, long_link) = (None, None);
                    // No data follows these types (POSIX), whatever size some programs write.
                    let size = match flag {
                        b'1'..=b'6' => 0,
                        _ => said.size.unwrap_or(told),
                    };
                    let data = self.after_map(&header, data)?;
                    let next = self.after(data, size)?;
                    self.member(&header, said, (offset, data), size)?;
                    offset = next;
                    continue;
                }
            }
            offset = self.after(data, told)?;
        }
    }

    fn end(&self) -> Result<(), Refused> {
        if self.left_out > TOLD_MAX {
            tracing::warn!("archive: {} members are left out in all", self.left_out);
        }
        Ok(())
    }

    fn header(&self, offset: u64) -> Result<Header, Refused> {
        let length = self.bytes.length();
        if offset == 0 && length < BLOCK {
            return Err(Refused::NotTar);
        }
        if offset.checked_add(BLOCK).is_none_or(|end| end > length) {
            return Err(damaged(length, "it ends without the mark of its end"));
        }
        let mut block = [0; BLOCK as usize];
        self.bytes.read_exact(&mut block, offset)?;
        Ok(Header(block))
    }

    /// Where the data begins: behind the map of holes, for which GNU may use further blocks.
    fn after_map(&self, header: &Header, mut data: u64) -> Result<u64, Refused> {
        let mut goes_on = header.flag() == b'S' && header.sparse_map_goes_on();
        while goes_on {
            goes_on = self.header(data)?.0[504] != 0;
            data += BLOCK;
        }
        Ok(data)
    }

    /// The offset of the next header, behind so many bytes of data.
    fn after(&self, data: u64, size: u64) -> Result<u64, Refused> {
        let length = self.bytes.length();
        let end = data.checked_add(size).filter(|end| *end <= length);
        let next = end.and_then(|end| end.checked_next_multiple_of(BLOCK));
        next.ok_or_else(|| {
            let what = format!("it ends within a member whose {size} bytes begin at {data}");
            damaged(length, what)
        })
    }

    fn small(&self, data: u64, size: u64, most: u64, what: &str) -> Result<Vec<u8>, Refused> {
        if size > most {
            let what = format!("{what} takes {size} bytes, {most} are the most");
            return Err(Refused::TooMuch { offset: data, what });
        }
        self.after(data, size)?;
        let mut bytes = vec![0; size as usize];
        self.bytes.read_exact(&mut bytes, data)?;
        Ok(bytes)
    }

    fn text(&self, data: u64, size: u64) -> Result<Vec<u8>, Refused> {
        let bytes = self.small(data, size, PATH_MAX, "a long name")?;
        Ok(text(&bytes).to_vec())
    }

    fn extend(&self, said: &mut Extended, data: u64, size: u64) -> Result<(), Refused> {
        let records = self.small(data, size, EXTENDED_MAX, "an extended header")?;
        said.take(&records).map_err(|what| damaged(data, what))
    }

    fn member(
        &mut self,
        header: &Header,
        said: Extended,
        (offset, data): (u64, u64),
        size: u64,
    ) -> Result<(), Refused> {
        let path = said.sparse_name.or(said.path);
        let path = path.unwrap_or_else(|| header.path());
        let link = said.link.unwrap_or_else(|| header.link().to_vec());
        if path.len().max(link.len()) as u64 > PATH_MAX {
            let what = format!("a path is longer than {PATH_MAX} bytes");
            return Err(Refused::TooMuch { offset, what });
        }
        let flag = header.flag();
        let (kind, body) = match flag {
            // Before POSIX, a directory was a file whose name ended with a slash.
            b'0' | 0 if path.ends_with(b"/") => (FileType::Directory, directory(0)),
            b'5' | b'D' => (FileType::Directory, directory(0)),
            b'2' => (FileType::Symlink, Body::Symlink(link.clone())),
            b'3' => (FileType::Character, Body::Special),
            b'4' => (FileType::Block, Body::Special),
            b'6' => (FileType::Fifo, Body::Special),
            b'V' => return Ok(()),
            b'S' => return self.leave_out_all(offset, &path, "it is a sparse file"),
            b'M' => return self.leave_out_all(offset, &path, "it began in another archive"),
            // POSIX takes an unknown type for a file.
            _ => (FileType::Regular, Body::File(data)),
        };
        if said.sparse {
            return self.leave_out_all(offset, &path, "it is a sparse file");
        }
        let id = |own: Option<i64>, told: Option<i64>| {
            let id = own.or(told).and_then(|id| u32::try_from(id).ok());
            id.unwrap_or(NOBODY)
        };
        let mtime = said.mtime.or_else(|| Some(clamped(header.mtime()?, 0)));
        let time = mtime.unwrap_or(Time {
            seconds: 0,
            nanoseconds: 0,
        });
        let device = match kind {
            FileType::Character | FileType::Block => header.device().unwrap_or_default(),
            _ => (0, 0),
        };
        let size = match kind {
            FileType::Regular => size,
            FileType::Symlink => link.len() as u64,
            _ => 0,
        };
        let attributes = Attributes {
            mode: header.mode().map_or(0, |mode| mode as u32 & 0o7777),
            uid: id(said.uid, header.uid()),
            gid: id(said.gid, header.gid()),
            size,
            used: size.next_multiple_of(BLOCK),
            device: Device {
                major: device.0,
                minor: device.1,
            },
            atime: time,
            mtime: time,
            ctime: time,
            ..with_kind(self.template, kind, offset / BLOCK + 2)
        };
        let member = Member {
            offset,
            path,
            link,
            body,
            attributes,
            hard_link: flag == b'1',
        };
        self.place(member)
    }

    /// Adds a member to the tree.
    fn place(&mut self, member: Member) -> Result<(), Refused> {
        let Member {
            offset,
            path,
            link,
            body,
            attributes,
            hard_link,
        } = member;
        let path = &path;
        let parts = match components(path) {
            Ok(parts) => parts,
            Err(why) => return self.leave_out(offset, path, why),
        };
        let is_directory = matches!(body, Body::Directory(_));
        let Some((name, parents)) = parts.split_last() else {
            if is_directory {
                self.renew(0, attributes);
                return Ok(());
            }
            return self.leave_out(offset, path, "it has no name");
        };
        if let Body::Symlink(target) = &body
            && (target.is_empty() || target.contains(&0))
        {
            return self.leave_out(offset, path, "its target is empty or holds a NUL");
        }
        let earlier = hard_link.then(|| {
            let target = components(&link).ok()?;
            let found = self.walk(&target)?;
            let object = !matches!(self.nodes[found as usize].body, Body::Directory(_));
            object.then_some(found)
        });
        let Some(parent) = self.walk_or_make(offset, parents)? else {
            return self.leave_out(offset, path, "what leads to it is no directory");
        };
        match (earlier, self.child(parent, name)) {
            (Some(None), _) => {
                return self.leave_out(offset, path, "it is a link to no earlier member");
            }
            (Some(Some(target)), Some(old)) if target == old => return Ok(()),
            (_, Some(old)) => {
                if let Body::Directory(names) = &self.nodes[old as usize].body {
                    if is_directory {
                        self.renew(old, attributes);
                        return Ok(());
                    }
                    if !names.growing.is_empty() {
                        let why = "a directory of its name is not empty";
                        return self.leave_out(offset, path, why);
                    }
                }
                self.remove(parent, name, old);
            }
            (_, None) => {}
        }
        let place = match earlier.flatten() {
            Some(place) => place,
            None => {
                if let Body::Symlink(target) = &body {
                    self.hold(offset, target.len())?;
                }
                self.add(offset, body, attributes)?
            }
        };
        self.enter(offset, parent, name, place)
    }

    fn child(&self, directory: u32, name: &[u8]) -> Option<u32> {
        match &self.nodes[directory as usize].body {
            Body::Directory(names) => names.growing.get(name).copied(),
            _ => None,
        }
    }

    fn walk(&self, parts: &[&[u8]]) -> Option<u32> {
        parts.iter().try_fold(0, |at, part| self.child(at, part))
    }

    /// The directory of that path, which is made if no member has named it. `None` if something else is in its way.
    fn walk_or_make(&mut self, offset: u64, parts: &[&[u8]]) -> Result<Option<u32>, Refused> {
        let mut at = 0;
        for part in parts {
            at = match self.child(at, part) {
                Some(found) => found,
                None => {
                    let number = IMPLIED + self.implied;
                    self.implied += 1;
                    let attributes = with_kind(self.template, FileType::Directory, number);
                    let made = self.add(offset, directory(0), attributes)?;
                    self.enter(offset, at, part, made)?;
                    made
                }
            };
            if !matches!(self.nodes[at as usize].body, Body::Directory(_)) {
                return Ok(None);
            }
        }
        Ok(Some(at))
    }

    fn add(&mut self, offset: u64, body: Body, attributes: Attributes) -> Result<u32, Refused> {
        let most = self.bounds.objects;
        if self.nodes.len() >= most {
            let what = format!("there are more than {most} files and directories");
            return Err(Refused::TooMuch { offset, what });
        }
        self.nodes.push(Node { body, attributes });
        Ok(self.nodes.len() as u32 - 1)
    }

    fn enter(&mut self, offset: u64, parent: u32, name: &[u8], child: u32) -> Result<(), Refused> {
        self.hold(offset, name.len())?;
        self.entries += 1;
        let most = self.bounds.objects;
        if self.entries > most {
            let what = format!("there are more than {most} names");
            return Err(Refused::TooMuch { offset, what });
        }
        let node = &mut self.nodes[child as usize];
        if let Body::Directory(names) = &mut node.body {
            names.parent = parent;
            self.nodes[parent as usize].attributes.links += 1;
        } else {
            node.attributes.links += 1;
        }
        if let Body::Directory(names) = &mut self.nodes[parent as usize].body {
            names.growing.insert(name.into(), child);
        }
        Ok(())
    }

    /// Counts the bytes of a name or target.
    fn hold(&mut self, offset: u64, bytes: usize) -> Result<(), Refused> {
        self.names += bytes;
        let most = self.bounds.names;
        if self.names > most {
            let what = format!("names take more than {most} bytes");
            return Err(Refused::TooMuch { offset, what });
        }
        Ok(())
    }

    fn remove(&mut self, parent: u32, name: &[u8], old: u32) {
        let node = &mut self.nodes[old as usize];
        if matches!(node.body, Body::Directory(_)) {
            node.attributes.links = 0;
            self.nodes[parent as usize].attributes.links -= 1;
        } else {
            node.attributes.links -= 1;
        }
        if let Body::Directory(names) = &mut self.nodes[parent as usize].body {
            names.growing.remove(name);
        }
    }

    /// Applies a later member to a directory that exists already.
    fn renew(&mut self, place: u32, by: Attributes) {
        let known = &mut self.nodes[place as usize].attributes;
        let (fileid, links) = (known.fileid, known.links);
        *known = Attributes {
            fileid,
            links,
            ..by
        };
    }

    /// Leaves out the member, and removes the earlier file of its name, whose content is out of date.
    fn leave_out_all(&mut self, offset: u64, path: &[u8], why: &str) -> Result<(), Refused> {
        if let Ok(parts) = components(path)
            && let Some((name, parents)) = parts.split_last()
            && let Some(parent) = self.walk(parents)
            && let Some(old) = self.child(parent, name)
            && !matches!(self.nodes[old as usize].body, Body::Directory(_))
        {
            self.remove(parent, name, old);
        }
        self.leave_out(offset, path, why)
    }

    fn leave_out(&mut self, offset: u64, path: &[u8], why: &str) -> Result<(), Refused> {
        self.left_out += 1;
        if self.left_out <= TOLD_MAX {
            let name = path.escape_ascii();
            tracing::warn!("archive: {name} at offset {offset} is left out: {why}");
        }
        Ok(())
    }
}
