//! Memory that both ends use. The server creates all of it, and passes it over the socket.

use super::{EndRole, Pair, REGISTER, TaggedMemory};
use crate::clock;
use crate::fabric::{Exposed, QueuePair, Remote, SteeringTag};
use crate::memory::mapping::{Mapping, Protection};
use crate::memory::{ArenaView, LifeView, Region, memfd};
use crate::shm::socket::Packet;
use crate::shm::{hangup, mapped};
use odafs_common::page::{Layout, PageSize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

impl Pair {
    /// The client learns of memory that the server has created.
    pub(super) fn learn(
        &mut self,
        packet: &Packet,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<Option<Arc<Region>>> {
        let invalid = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sent what it should not",
            )
        };
        let EndRole::Client { views, .. } = &mut self.role else {
            return Err(invalid());
        };
        match (packet, descriptors.as_slice()) {
            (&Packet::Region { tag, length, .. }, [memory])
                if self.memories.len() + 1 == tag as usize =>
            {
                let memory = map(memory, length, Protection::ReadWrite)?;
                let region = Arc::new(Region::new(memory, SteeringTag(tag)));
                self.memories
                    .push(TaggedMemory::Shared(Arc::clone(&region)));
                Ok(Some(region))
            }
            (
                &Packet::Exposed {
                    arena,
                    stamps,
                    page,
                    beside,
                    life,
                },
                [frames, marks, control],
            ) if self.memories.len() + 1 == arena as usize
                && stamps == arena + 1
                // The life word is in a file, which cannot be sealed.
                && self.peer.has_power_over_us() =>
            {
                let page = PageSize::new(u64::from(page)).map_err(|_| invalid())?;
                let map_all = |fd: &OwnedFd| {
                    let length = memfd::sealed_length(fd.as_fd())?;
                    mapped::once(fd.as_fd(), life, || map(fd, length, Protection::ReadOnly))
                };
                let (frames, marks) = (map_all(frames)?, map_all(marks)?);
                LifeView::check(control.as_fd(), life)?;
                let map_control = || LifeView::map(control.as_fd());
                let life = LifeView::new(mapped::once(control.as_fd(), life, map_control)?, life);
                let layout = match beside {
                    true => Layout::beside(page),
                    false => Layout::apart(page),
                };
                let watched = hangup::watch(self.socket.as_fd(), life.clone())?;
                let view = ArenaView::new(Arc::clone(&frames), Arc::clone(&marks), life, layout)
                    .ok_or_else(invalid)?;
                self.memories
                    .extend([TaggedMemory::Exposed(frames), TaggedMemory::Exposed(marks)]);
                views.push((exposed(arena, stamps), view, watched));
                Ok(None)
            }
            _ => Err(invalid()),
        }
    }

    /// The server creates a region and passes it on.
    pub(super) fn make_region(&mut self, length: u64, request: u32) -> io::Result<Arc<Region>> {
        let EndRole::Server {
            accounts,
            uid,
            regions,
            ..
        } = &mut self.role
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let limit = accounts.limits().regions_per_connection;
        if *regions >= limit {
            let what = format!("the connection has all its {limit} regions");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
        }
        let bytes = length
            .checked_next_multiple_of(4096)
            .filter(|bytes| *bytes > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let charge = accounts.memory(*uid, bytes)?;
        let fd = memfd::create("odafs-region", bytes)?;
        memfd::settle(&fd)?;
        let memory = map(&fd, length, Protection::ReadWrite)?;
        let tag = self.memories.len() as u32 + 1;
        self.socket.send(
            &Packet::Region {
                tag,
                length,
                request,
            },
            &[fd.as_fd()],
        )?;
        *regions += 1;
        let region = Arc::new(Region::charged(memory, SteeringTag(tag), Box::new(charge)));
        self.memories
            .push(TaggedMemory::Shared(Arc::clone(&region)));
        Ok(region)
    }

    /// The server serves a client's registration.
    pub(super) fn serve_registration(&mut self, length: usize) {
        let (Ok(wanted), EndRole::Server { .. }) =
            (<[u8; 12]>::try_from(&self.message[..length]), &self.role)
        else {
            return self.close(&"a malformed registration");
        };
        let [a, b, c, d, e, f, g, h, request @ ..] = wanted;
        let length = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let request = u32::from_ne_bytes(request);
        if let Err(error) = self.make_region(length, request) {
            let reason = error.to_string();
            let refusal = Packet::NoRegion { request, reason };
            if let Err(error) = self.socket.send(&refusal, &[]) {
                self.close(&error);
            }
        }
    }

    /// The client asks the server for a region and waits for it.
    pub(super) fn ask_for_region(&mut self, length: u64) -> io::Result<Arc<Region>> {
        let EndRole::Client {
            timeout, requests, ..
        } = &mut self.role
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        *requests += 1;
        let (request, deadline) = (*requests, clock::now() + *timeout);
        let words: [&[u8]; 2] = [&length.to_ne_bytes(), &request.to_ne_bytes()];
        self.out.post(REGISTER, self.into.release(), &words)?;
        self.flush();
        loop {
            match self.socket.receive_until(deadline)? {
                (Packet::Wake, _) if clock::now() < deadline => {}
                (Packet::Wake, _) => return Err(io::ErrorKind::TimedOut.into()),
                (
                    Packet::NoRegion {
                        request: answered,
                        reason,
                    },
                    _,
                ) => {
                    if answered == request {
                        return Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason));
                    }
                }
                (packet, descriptors) => {
                    let region = self.learn(&packet, descriptors)?;
                    if matches!(packet, Packet::Region { request: answered, .. } if answered == request)
                    {
                        return region.ok_or_else(|| io::ErrorKind::InvalidData.into());
                    }
                }
            }
        }
    }
}

fn map(fd: &OwnedFd, length: u64, access: Protection) -> io::Result<Mapping> {
    if memfd::sealed_length(fd.as_fd())? < length {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the memory is shorter than was said",
        ));
    }
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    Mapping::of(fd.as_fd(), length, access)
}

/// Memory with these tags begins at address 0.
pub(super) fn exposed(arena: u32, stamps: u32) -> Exposed {
    let [arena, stamps] = [arena, stamps].map(|tag| Remote {
        tag: SteeringTag(tag),
        offset: 0,
    });
    Exposed { arena, stamps }
}
