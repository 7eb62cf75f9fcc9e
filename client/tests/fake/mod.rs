//! A small NFSv3 server in memory, over TCP, that can be told to misbehave. It has no ODAFS program.

// The results are the wire's own.
#![allow(clippy::result_large_err)]

mod calls;
mod mount;

use odafs_common::wire::{
    nfs3::*,
    xdr::{Decode as _, Encode as _, Reader, Writer},
};
use std::{
    collections::{BTreeMap, VecDeque},
    net::TcpListener,
    sync::{Arc, Mutex},
};

/// What happens to the next call of a procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is never answered.
    Stall,
    /// It is done and answered after 50 ms, and so is none of the later ones before.
    Late,
    /// It is done, and the connection closed instead of an answer.
    CutAfter,
    /// The connection is closed before it is done.
    CutBefore,
    /// It is answered with JUKEBOX.
    Jukebox,
    /// Only so many bytes are read or written.
    Short(u32),
    /// The server loses what is unstable, before it is done.
    Restart,
    /// The answer is cut short.
    Garbled,
    /// The server loses what is unstable; then it is done, and answered with IO.
    Fails,
    /// It is not done, and answered with NOSPC.
    Full,
}

#[derive(Debug, Default)]
pub struct World {
    nodes: BTreeMap<u64, Node>,
    /// Number of nodes made beside the root. No number is used twice.
    made: u64,
    verifier: u64,
    clock: u32,
    pub trouble: VecDeque<(Procedure, Trouble)>,
    pub calls: Vec<Procedure>,
    pub xids: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Node {
    kind: FileType,
    mode: u32,
    data: Vec<u8>,
    stable: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    changed: u32,
    /// Of an exclusive create: it stands where the times are, until those are set.
    verifier: Option<[u8; 8]>,
}

pub struct Fake {
    pub world: Arc<Mutex<World>>,
    pub port: u16,
}

impl Fake {
    /// Serves an empty root, exported as `/export`.
    pub fn start() -> Self {
        let mut world = World::default();
        world
            .nodes
            .insert(1, World::node(FileType::Directory, 0o755));
        let world = Arc::new(Mutex::new(world));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = world.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let world = shared.clone();
                std::thread::spawn(move || calls::serve(stream, &world));
            }
        });
        Self { world, port }
    }

    pub fn url(&self) -> odafs::Url {
        format!("nfs://127.0.0.1:{}/export", self.port)
            .parse()
            .unwrap()
    }

    /// The next calls of these procedures, in this order, meet trouble.
    pub fn plan(&self, trouble: &[(Procedure, Trouble)]) {
        self.world.lock().unwrap().trouble = trouble.iter().copied().collect();
    }

    /// Calls of a procedure so far.
    pub fn count(&self, procedure: Procedure) -> usize {
        self.world
            .lock()
            .unwrap()
            .calls
            .iter()
            .filter(|called| **called == procedure)
            .count()
    }

    /// What a file in the root holds.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let world = self.world.lock().unwrap();
        world.nodes[&world.nodes[&1].names[name.as_bytes()]]
            .data
            .clone()
    }

    /// Changes a file behind the client's back.
    pub fn put(&self, name: &str, data: &[u8]) {
        let mut world = self.world.lock().unwrap();
        let id = match world.nodes[&1].names.get(name.as_bytes()) {
            Some(id) => *id,
            None => world.add(1, name.as_bytes(), World::node(FileType::Regular, 0o644)),
        };
        let now = world.tick();
        let node = world.nodes.get_mut(&id).unwrap();
        node.data = data.to_vec();
        node.stable = data.to_vec();
        node.changed = now;
    }
}

/// The answer about a node that is gone.
fn stale() -> Failed<WccData> {
    Failed {
        status: Status::Stale,
        rest: WccData::default(),
    }
}

fn id(file: FileHandle<'_>) -> u64 {
    u64::from_be_bytes(file.0.try_into().unwrap())
}

impl World {
    fn node(kind: FileType, mode: u32) -> Node {
        Node {
            kind,
            mode,
            data: vec![],
            stable: vec![],
            names: BTreeMap::new(),
            changed: 0,
            verifier: None,
        }
    }

    fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock
    }

    pub fn restart(&mut self) {
        self.verifier += 1;
        self.nodes
            .values_mut()
            .for_each(|node| node.data = node.stable.clone());
    }

    fn add(&mut self, directory: u64, name: &[u8], mut node: Node) -> u64 {
        node.changed = self.tick();
        self.made += 1;
        let number = 1 + self.made;
        self.nodes.insert(number, node);
        self.nodes
            .get_mut(&directory)
            .unwrap()
            .names
            .insert(name.to_vec(), number);
        number
    }

    /// A name of a node is gone. With the last one, the node is.
    fn unnamed(&mut self, number: u64) {
        let mut directories = self.nodes.values();
        if !directories.any(|node| node.names.values().any(|named| *named == number)) {
            self.nodes.remove(&number);
        }
    }

    fn attributes(&self, number: u64) -> Option<Attributes> {
        let node = self.nodes.get(&number)?;
        let at = |seconds| Time {
            seconds,
            nanoseconds: 0,
        };
        let ctime = at(node.changed);
        let (atime, mtime) = node.verifier.map_or((ctime, ctime), |verifier| {
            let half = |i| at(u32::from_be_bytes(verifier[i..i + 4].try_into().unwrap()));
            (half(0), half(4))
        });
        Some(Attributes {
            kind: node.kind,
            mode: node.mode,
            links: 1,
            uid: 0,
            gid: 0,
            size: node.data.len() as u64,
            used: node.data.len() as u64,
            device: Device::default(),
            fsid: 7,
            fileid: number,
            atime,
            mtime,
            ctime,
        })
    }

    fn call(&mut self, procedure: Procedure, r: &mut Reader<'_>, w: &mut Writer<'_>, short: u32) {
        use Procedure as P;
        match procedure {
            P::Null => {}
            P::GetAttributes => self
                .get_attributes(id(FileHandle::decode(r).unwrap()))
                .encode(w),
            P::SetAttributes => self
                .set_attributes(&SetAttributesArgs::decode(r).unwrap())
                .encode(w),
            P::Lookup => self.lookup(&DirectoryName::decode(r).unwrap(), w),
            P::ReadLink => {
                let target = self.nodes[&id(FileHandle::decode(r).unwrap())].data.clone();
                ReadLinkResult::Ok(ReadLinkOk {
                    attributes: None,
                    target: Payload(&target),
                })
                .encode(w);
            }
            P::Read => self.read(&ReadArgs::decode(r).unwrap(), short, w),
            P::Write => self.write(&WriteArgs::decode(r).unwrap(), short).encode(w),
            P::Create => self.create(&CreateArgs::decode(r).unwrap(), w),
            P::MakeDirectory => {
                let arguments = MakeDirectoryArgs::decode(r).unwrap();
                let mode = arguments.attributes.mode.unwrap_or(0o755);
                self.make(&arguments.place, World::node(FileType::Directory, mode), w);
            }
            P::Symlink => {
                let arguments = SymlinkArgs::decode(r).unwrap();
                let mut node = World::node(FileType::Symlink, 0o777);
                node.data = arguments.target.0.to_vec();
                self.make(&arguments.place, node, w);
            }
            P::Remove | P::RemoveDirectory => {
                self.remove(&DirectoryName::decode(r).unwrap()).encode(w)
            }
            P::Rename => self.rename(&RenameArgs::decode(r).unwrap()).encode(w),
            P::Link => {
                let arguments = LinkArgs::decode(r).unwrap();
                let names = &mut self
                    .nodes
                    .get_mut(&id(arguments.place.directory))
                    .unwrap()
                    .names;
                names.insert(arguments.place.name.to_vec(), id(arguments.file));
                LinkResult::Ok(LinkData::default()).encode(w);
            }
            P::ReadDirPlus => self.list(&ReadDirPlusArgs::decode(r).unwrap(), w),
            P::FsStat => FsStatResult::Ok(FsStatOk {
                attributes: None,
                total_bytes: 1000,
                free_bytes: 500,
                available_bytes: 400,
                total_files: 10,
                free_files: 5,
                available_files: 4,
                invariant_seconds: 0,
            })
            .encode(w),
            P::FsInfo => FsInfoResult::Ok(FsInfoOk {
                attributes: None,
                read_max: 8192,
                read_preferred: 8192,
                read_multiple: 512,
                write_max: 8192,
                write_preferred: 8192,
                write_multiple: 512,
                directory_preferred: 4096,
                file_max: 1 << 40,
                time_delta: Time::default(),
                properties: 0x1b,
            })
            .encode(w),
            P::Commit => {
                let file = id(CommitArgs::decode(r).unwrap().file);
                self.commit(file).encode(w);
            }
            other => panic!("the client has no need of {other:?}"),
        }
    }

    fn get_attributes(&self, number: u64) -> GetAttributesResult {
        self.attributes(number).ok_or(Failed {
            status: Status::Stale,
            rest: (),
        })
    }

    fn set_attributes(&mut self, arguments: &SetAttributesArgs<'_>) -> SetAttributesResult {
        let number = id(arguments.file);
        let before = self.attributes(number).as_ref().map(WccAttributes::from);
        let now = self.tick();
        let node = self.nodes.get_mut(&number).ok_or_else(stale)?;
        if let Some(size) = arguments.attributes.size {
            node.data.resize(size as usize, 0);
            // Unlike a write, this is never lost.
            node.stable.resize(size as usize, 0);
        }
        node.mode = arguments.attributes.mode.unwrap_or(node.mode);
        let SetAttributes { atime, mtime, .. } = arguments.attributes;
        if (atime, mtime) == (SetTime::ServerTime, SetTime::ServerTime) {
            node.verifier = None;
        }
        node.changed = now;
        Ok(WccData {
            before,
            after: self.attributes(number),
        })
    }

    fn find(&self, place: &DirectoryName<'_>) -> Option<u64> {
        self.nodes
            .get(&id(place.directory))?
            .names
            .get(place.name)
            .copied()
    }

    fn lookup(&self, place: &DirectoryName<'_>, w: &mut Writer<'_>) {
        match self.find(place) {
            Some(number) => LookupResult::Ok(LookupOk {
                file: FileHandle(&number.to_be_bytes()),
                // A server may leave them out.
                attributes: self.attributes(number).filter(|_| number.is_multiple_of(2)),
                directory: None,
            })
            .encode(w),
            None => LookupResult::Err(Failed {
                status: Status::NoEnt,
                rest: None,
            })
            .encode(w),
        }
    }

    fn read(&self, arguments: &ReadArgs<'_>, short: u32, w: &mut Writer<'_>) {
        let number = id(arguments.file);
        let Some(Node { data, .. }) = self.nodes.get(&number) else {
            let gone = Failed {
                status: Status::Stale,
                rest: None,
            };
            return ReadResult::Err(gone).encode(w);
        };
        let start = data.len().min(arguments.offset as usize);
        let end = data.len().min(start + arguments.count.min(short) as usize);
        let (count, eof) = ((end - start) as u32, end == data.len());
        let attributes = self.attributes(number);
        ReadResult::Ok(ReadOk {
            attributes,
            count,
            eof,
            data: Payload(&data[start..end]),
        })
        .encode(w);
    }

    fn write(&mut self, arguments: &WriteArgs<'_>, short: u32) -> WriteResult {
        let number = id(arguments.file);
        let before = self.attributes(number).as_ref().map(WccAttributes::from);
        let now = self.tick();
        let count = arguments.count.min(short);
        let node = self.nodes.get_mut(&number).ok_or_else(stale)?;
        let end = arguments.offset as usize + count as usize;
        node.data.resize(node.data.len().max(end), 0);
        node.data[arguments.offset as usize..end]
            .copy_from_slice(&arguments.data.0[..count as usize]);
        node.changed = now;
        if arguments.stable != Stable::Unstable {
            node.stable = node.data.clone();
        }
        let wcc = WccData {
            before,
            after: self.attributes(number),
        };
        Ok(WriteOk {
            wcc,
            count,
            committed: arguments.stable,
            verifier: self.verifier.to_be_bytes(),
        })
    }

    fn commit(&mut self, number: u64) -> CommitResult {
        let before = self.attributes(number).as_ref().map(WccAttributes::from);
        let node = self.nodes.get_mut(&number).ok_or_else(stale)?;
        node.stable = node.data.clone();
        let wcc = WccData {
            before,
            after: self.attributes(number),
        };
        Ok(CommitOk {
            wcc,
            verifier: self.verifier.to_be_bytes(),
        })
    }

    fn create(&mut self, arguments: &CreateArgs<'_>, w: &mut Writer<'_>) {
        let there = self.find(&arguments.place);
        match (arguments.how, there) {
            (CreateHow::Unchecked(attributes), Some(number)) => {
                if let Some(size) = attributes.size {
                    let now = self.tick();
                    let node = self.nodes.get_mut(&number).unwrap();
                    node.data.resize(size as usize, 0);
                    node.stable.resize(size as usize, 0);
                    node.changed = now;
                }
                self.made(number, w);
            }
            (_, Some(_)) => {
                let rest = WccData::default();
                CreateResult::Err(Failed {
                    status: Status::Exist,
                    rest,
                })
                .encode(w);
            }
            (how, None) => {
                let mut node = World::node(FileType::Regular, 0);
                match how {
                    CreateHow::Exclusive(verifier) => node.verifier = Some(verifier),
                    CreateHow::Unchecked(asked) | CreateHow::Guarded(asked) => {
                        node.mode = asked.mode.unwrap_or(0);
                    }
                }
                self.make(&arguments.place, node, w);
            }
        }
    }

    fn make(&mut self, place: &DirectoryName<'_>, node: Node, w: &mut Writer<'_>) {
        let number = self.add(id(place.directory), place.name, node);
        self.made(number, w);
    }

    fn made(&self, number: u64, w: &mut Writer<'_>) {
        let handle = number.to_be_bytes();
        // A server may leave it out.
        let file = number.is_multiple_of(2).then_some(FileHandle(&handle));
        let directory = WccData::default();
        CreateResult::Ok(CreateOk {
            file,
            attributes: self.attributes(number),
            directory,
        })
        .encode(w);
    }

    fn remove(&mut self, place: &DirectoryName<'_>) -> RemoveResult {
        let rest = WccData::default();
        match self
            .nodes
            .get_mut(&id(place.directory))
            .unwrap()
            .names
            .remove(place.name)
        {
            Some(number) => {
                self.unnamed(number);
                Ok(rest)
            }
            None => Err(Failed {
                status: Status::NoEnt,
                rest,
            }),
        }
    }

    fn rename(&mut self, arguments: &RenameArgs<'_>) -> RenameResult {
        let Some(number) = self.find(&arguments.from) else {
            return Err(Failed {
                status: Status::NoEnt,
                rest: RenameData::default(),
            });
        };
        self.nodes
            .get_mut(&id(arguments.from.directory))
            .unwrap()
            .names
            .remove(arguments.from.name);
        let to = self.nodes.get_mut(&id(arguments.to.directory)).unwrap();
        if let Some(replaced) = to.names.insert(arguments.to.name.to_vec(), number) {
            self.unnamed(replaced);
        }
        Ok(RenameData::default())
    }

    /// Three entries at a time.
    fn list(&self, arguments: &ReadDirPlusArgs<'_>, w: &mut Writer<'_>) {
        let names = &self.nodes[&id(arguments.directory)].names;
        let rest = names.iter().zip(1u64..).skip(arguments.cookie as usize);
        let handles: Vec<_> = rest
            .take(3)
            .map(|((name, number), cookie)| (name, *number, cookie))
            .collect();
        let entries = handles.iter().map(|(name, number, cookie)| EntryPlus {
            entry: Entry {
                fileid: *number,
                name,
                cookie: *cookie,
            },
            attributes: self.attributes(*number),
            file: None,
        });
        let entries: Vec<_> = entries.collect();
        let eof = arguments.cookie as usize + entries.len() == names.len();
        ReadDirPlusResult::Ok(ReadDirPlusOk {
            attributes: None,
            verifier: [1; 8],
            entries,
            eof,
        })
        .encode(w);
    }
}
