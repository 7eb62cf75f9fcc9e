//! Memory that is lent to the server for a call: pieces of registered regions, used again and again.
//!
//! What the server writes there is read only when the server can no longer write, unless memory stays lent
//! ([`Registration::Cached`]).

use crate::{options::Registration, transport::ReplyBuffer};
use odafs_common::wire::rpcrdma::{Segment, Segments};
use odafs_fabric::{Access, QueuePair, Region, Remote, SteeringTag, sync::Arc};
use std::{collections::BTreeMap, io};

/// The smallest region.
const BYTES_MIN: usize = 4096;
/// Bytes of unused regions to keep.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The registered memory of one connection.
pub struct RegisteredMemory {
    /// The strategy that was asked for. It is never [`Registration::Pooled`] where ranges cannot have their own tags.
    registration: Registration,
    /// Unused regions, by size and access.
    idle: BTreeMap<(usize, bool, bool), Vec<Arc<Region>>>,
    idle_bytes: usize,
}

/// Registered memory in use.
pub struct Buffer {
    region: Arc<Region>,
    /// Where the memory begins in the region.
    start: usize,
    /// The caller's memory, which goes back to the caller when the call has ended.
    callers: bool,
    access: Access,
    /// Where the server finds the memory.
    remote: Remote,
    bytes: usize,
}

impl RegisteredMemory {
    /// No memory yet.
    pub fn new(registration: Registration) -> Self {
        Self {
            registration,
            idle: BTreeMap::new(),
            idle_bytes: 0,
        }
    }

    /// Lends `bytes` for this use.
    pub fn lend(
        &mut self,
        pair: &mut dyn QueuePair,
        bytes: usize,
        access: Access,
    ) -> io::Result<Buffer> {
        let key = self.key(bytes, access);
        let idle = self.idle.get_mut(&key).and_then(Vec::pop);
        let region = match idle {
            Some(region) => {
                self.idle_bytes -= region.len();
                region
            }
            None => pair.register(key.0, self.access_of_region(access))?,
        };
        let remote = match self.registration {
            Registration::Pooled if access != Access::LOCAL => {
                match pair.bind(&region, 0, bytes, access) {
                    Ok(remote) => remote,
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                        pair.invalidate(region.tag());
                        self.pool_no_longer(pair);
                        return self.lend(pair, bytes, access);
                    }
                    Err(error) => {
                        self.put(key, region);
                        return Err(error);
                    }
                }
            }
            _ => region.remote(0),
        };
        Ok(Buffer {
            region,
            start: 0,
            callers: false,
            access,
            remote,
            bytes,
        })
    }

    /// Lends `bytes` of a caller's memory for the server to write, under a tag for this use alone. Returns `None` if
    /// the fabric does not support that, or the memory is too small.
    pub fn lend_place(
        &self,
        pair: &mut dyn QueuePair,
        bytes: usize,
        place: &ReplyBuffer,
    ) -> Option<Buffer> {
        let ReplyBuffer { region, offset } = place;
        let remote = pair.bind(region, *offset, bytes, Access::WRITE).ok()?;
        Some(Buffer {
            region: Arc::clone(region),
            start: *offset,
            callers: true,
            access: Access::WRITE,
            remote,
            bytes,
        })
    }

    /// Ends the server's access. After this nobody writes to the buffer. `invalidated` is a tag that the server has
    /// invalidated itself (Send With Invalidate).
    pub fn end_access(
        &self,
        pair: &mut dyn QueuePair,
        buffer: &Buffer,
        invalidated: Option<SteeringTag>,
    ) {
        let stays = self.registration == Registration::Cached && !buffer.callers;
        let lent = buffer.access != Access::LOCAL && !stays;
        if lent && invalidated != Some(buffer.remote.tag) {
            pair.invalidate(buffer.remote.tag);
        }
    }

    /// Takes back a buffer whose access has ended. Memory that is not kept is deregistered. That includes memory that
    /// was lent to a `repeated` call: under a tag that stays ([`Registration::Cached`]), the server may still look for
    /// that call's data, and must not find another call's. If the server does look, the connection ends, as with a tag
    /// for one call.
    pub fn take_back(&mut self, pair: &mut dyn QueuePair, buffer: Buffer, repeated: bool) {
        if buffer.callers {
            return;
        }
        if !repeated
            && self.registration != Registration::PerOperation
            && self.idle_bytes + buffer.region.len() <= KEPT_BYTES_MAX
        {
            let key = self.key(buffer.bytes, buffer.access);
            self.put(key, buffer.region);
        } else {
            pair.invalidate(buffer.region.tag());
        }
    }

    /// Ranges cannot have their own tags, so from now on memory is registered for each use.
    fn pool_no_longer(&mut self, pair: &mut dyn QueuePair) {
        self.registration = Registration::PerOperation;
        for region in std::mem::take(&mut self.idle).into_values().flatten() {
            pair.invalidate(region.tag());
        }
        self.idle_bytes = 0;
    }

    fn put(&mut self, key: (usize, bool, bool), region: Arc<Region>) {
        self.idle_bytes += region.len();
        self.idle.entry(key).or_default().push(region);
    }

    /// If tags are bound to ranges, one region serves all uses.
    fn access_of_region(&self, access: Access) -> Access {
        match self.registration {
            Registration::Pooled => Access::LOCAL,
            Registration::PerOperation | Registration::Cached => access,
        }
    }

    fn key(&self, bytes: usize, access: Access) -> (usize, bool, bool) {
        let bytes = match self.registration {
            Registration::PerOperation => bytes,
            Registration::Pooled | Registration::Cached => bytes.max(BYTES_MIN).next_power_of_two(),
        };
        let access = self.access_of_region(access);
        (bytes, access.remote_read, access.remote_write)
    }
}

impl Buffer {
    /// The segment that tells the server about the memory.
    pub fn segments(&self) -> Segments {
        Segments::one(Segment {
            handle: self.remote.tag.0,
            length: self.bytes as u32,
            offset: self.remote.offset,
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Where the memory begins in the region.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Copies into the memory. Returns false if it is too small.
    pub fn store(&self, at: usize, from: &[u8]) -> bool {
        at + from.len() <= self.bytes && self.region.store(self.start + at, from)
    }

    /// Copies from the memory. Returns false if it is too small.
    pub fn load(&self, at: usize, into: &mut [u8]) -> bool {
        at + into.len() <= self.bytes && self.region.load(self.start + at, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odafs_fabric::Listener as _;
    use odafs_fabric::iwarp::{ConnectOptions, Limits, Listener, connect};

    fn pair() -> Box<dyn QueuePair> {
        let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), Limits::default()).unwrap();
        let address = listener.local_addr();
        let client =
            std::thread::spawn(move || connect(address, b"", &ConnectOptions::default()).unwrap());
        loop {
            if let Some(incoming) = listener.poll_accept().unwrap() {
                incoming.accept(b"", 0).unwrap();
                return client.join().unwrap();
            }
        }
    }

    /// If ranges cannot have their own tags, pooled memory is registered for each use.
    #[test]
    fn without_tags_for_ranges_memory_is_registered_for_each_use() {
        use odafs_fabric::sim::{Network, NetworkConfig};
        let network = Network::new(
            1,
            NetworkConfig {
                bare: true,
                ..NetworkConfig::default()
            },
        );
        let mut listener = network.listen("server").unwrap();
        let client = std::thread::spawn(move || network.connect("server", b"").unwrap());
        let _server = loop {
            if let Some(incoming) = listener.poll_accept().unwrap() {
                break incoming.accept(b"", 0).unwrap();
            }
        };
        let (mut pair, mut memory) = (
            client.join().unwrap(),
            RegisteredMemory::new(Registration::Pooled),
        );
        let local = memory.lend(&mut *pair, 100, Access::LOCAL).unwrap();
        let mut tags = Vec::new();
        for _ in 0..3 {
            let lent = memory.lend(&mut *pair, 5000, Access::WRITE).unwrap();
            assert_eq!(lent.region().len(), 5000, "for this use alone");
            tags.push(lent.remote.tag);
            memory.end_access(&mut *pair, &lent, None);
            memory.take_back(&mut *pair, lent, false);
        }
        tags.dedup();
        assert_eq!(tags.len(), 3);
        memory.end_access(&mut *pair, &local, None);
        memory.take_back(&mut *pair, local, false);
        assert_eq!(memory.idle_bytes, 0);
    }

    /// The first answer may come before the server fetches for the second time.
    #[test]
    fn what_a_repeated_call_had_is_not_used_again() {
        let (mut pair, mut memory) = (pair(), RegisteredMemory::new(Registration::Cached));
        let lent = memory.lend(&mut *pair, 5000, Access::READ).unwrap();
        let region = Arc::downgrade(lent.region());
        memory.end_access(&mut *pair, &lent, None);
        memory.take_back(&mut *pair, lent, true);
        assert_eq!((region.strong_count(), memory.idle_bytes), (0, 0));
    }

    /// Memory that is not kept is gone, and the connection holds no reference to it.
    #[test]
    fn what_is_not_kept_is_given_back() {
        for registration in [
            Registration::PerOperation,
            Registration::Pooled,
            Registration::Cached,
        ] {
            for access in [Access::LOCAL, Access::READ, Access::WRITE] {
                let (mut pair, mut memory) = (pair(), RegisteredMemory::new(registration));
                let bytes = KEPT_BYTES_MAX / 2;
                let lent: Vec<_> = (0..5)
                    .map(|_| memory.lend(&mut *pair, bytes, access).unwrap())
                    .collect();
                let regions: Vec<_> = lent
                    .iter()
                    .map(|buffer| Arc::downgrade(buffer.region()))
                    .collect();
                for buffer in lent {
                    memory.end_access(&mut *pair, &buffer, None);
                    memory.take_back(&mut *pair, buffer, false);
                }
                let left = regions.iter().filter(|region| region.strong_count() > 0);
                let kept = match registration {
                    Registration::PerOperation => 0,
                    Registration::Pooled | Registration::Cached => 2,
                };
                assert_eq!(left.count(), kept, "{registration:?} {access:?}");
            }
        }
    }
}
