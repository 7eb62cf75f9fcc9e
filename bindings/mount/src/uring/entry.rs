//! An entry of a queue of FUSE over io_uring, with a ring of its own and the memory that it shares with the kernel. All unsafe
//! code of this crate is here.
//!
//! An entry has at most one command in flight. The kernel uses the entry's memory from the time that the command is submitted
//! until it completes, and the entry's owner uses it at all other times.
#![allow(unsafe_code)]

use super::{
    answer::Request,
    wire::{AnswerHeader, Command, Headers, RequestHeader, command},
};
use fuser::Errno;
use io_uring::{IoUring, cqueue, opcode::UringCmd80, squeue::Entry128, types::Fixed};
use memmap2::MmapMut;
use rustix::io::Errno as System;
use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd as _, BorrowedFd},
    time::Duration,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Where in the memory the two `iovec`s are that tell the kernel of headers and payload: behind the headers.
const VECTORS: usize = size_of::<Headers>();
/// Where in the memory the payload begins. It is aligned as pages are everywhere that Linux runs.
const PAYLOAD: usize = 1 << 16;

/// A ring that no thread uses yet.
pub struct Ring(IoUring<Entry128, cqueue::Entry>);

/// An entry. It belongs to the thread that has made it: the kernel copies requests while that thread waits.
pub struct Entry {
    ring: Ring,
    queue: u16,
    /// Headers, `iovec`s and payload.
    memory: Option<MmapMut>,
    /// Whether the kernel uses the memory.
    in_flight: bool,
}

/// What the kernel says of an entry.
pub enum Registered {
    Yes,
    /// It will not use the entry.
    Refused(io::Error),
}

impl Ring {
    /// A ring, which is off until a thread makes an entry of it.
    ///
    /// # Errors
    /// The system has no io_uring, or not for this process.
    pub fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            // The kernel does its work for the ring when the one thread waits, and does not interrupt it.
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(1)?;
        Ok(Self(ring))
    }
}

impl Entry {
    /// Makes a ring the calling thread's, with memory for an entry of the queue of one processor.
    ///
    /// `payload` is the length of the longest request or answer, in bytes, without headers.
    ///
    /// # Errors
    /// The system has no memory, or refuses the ring.
    pub fn new(ring: Ring, queue: u16, payload: usize) -> io::Result<Self> {
        ring.0.submitter().register_enable_rings()?;
        let mut memory = MmapMut::map_anon(PAYLOAD + payload)?;
        let start = memory.as_mut_ptr() as usize;
        let vectors = [start, size_of::<Headers>(), start + PAYLOAD, payload];
        memory[VECTORS..VECTORS + size_of_val(&vectors)].copy_from_slice(vectors.as_bytes());
        Ok(Self {
            ring,
            queue,
            memory: Some(memory),
            in_flight: false,
        })
    }

    /// Gives the entry to the kernel, once. A mount has the device.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn register(&mut self, device: BorrowedFd<'_>) -> io::Result<Registered> {
        (self.ring.0.submitter()).register_files(&[device.as_raw_fd()])?;
        self.push(command::REGISTER, 0)?;
        self.ring.0.submit()?;
        // A refusal is there at once. Requests come only to who waits.
        Ok(match self.completed() {
            Some(Err(why)) => Registered::Refused(why),
            Some(Ok(())) | None => Registered::Yes,
        })
    }

    /// Queues a command. The kernel gets it with the next [`wait`](Self::wait).
    fn push(&mut self, operation: u32, commit_id: u64) -> io::Result<()> {
        let memory = self.memory.as_ref().ok_or(System::NOMEM)?;
        let said = Command {
            flags: 0,
            commit_id,
            queue: self.queue,
            padding: [0; 6],
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(said.as_bytes());
        let vectors = memory[VECTORS..].as_ptr();
        let entry = UringCmd80::new(Fixed(0), operation)
            .cmd(bytes)
            .addr(Some(vectors as u64))
            .build();
        let entry = with_length(entry, 2);
        self.in_flight = true;
        // SAFETY: The command names the first registered file, and memory that stays where it is until the command has
        // completed: `self.memory` is replaced nowhere, and kept for good if the entry is dropped before. Until then nobody
        // here refers to the memory's contents, because `completed` alone clears `in_flight`, `memory` refuses
        // while it is set, and what it returns ends with the borrow of `self`.
        let pushed = unsafe { self.ring.0.submission().push(&entry) };
        pushed.map_err(|_| System::BUSY.into())
    }

    /// Sends the kernel the last answer, and waits for a request.
    ///
    /// # Errors
    /// `ENOTCONN`, `ECONNABORTED` and `ECANCELED`: the mount has ended. Others: the kernel has refused the entry or the answer.
    pub fn wait(&mut self) -> io::Result<()> {
        while self.in_flight {
            match self.ring.0.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The system is short of memory.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some(result) = self.completed() {
                return result;
            }
        }
        Ok(())
    }

    /// The result of the command, if it has completed.
    fn completed(&mut self) -> Option<io::Result<()>> {
        let result = self.ring.0.completion().next()?.result();
        self.in_flight = false;
        Some(match result {
            0.. => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        })
    }

    /// Memory that the kernel does not use.
    fn memory(&mut self) -> io::Result<(&mut Headers, &mut [u8])> {
        let memory = match self.in_flight {
            false => self.memory.as_mut(),
            true => None,
        };
        let (front, payload) = memory.ok_or(System::BUSY)?.split_at_mut(PAYLOAD);
        let (headers, _) = Headers::mut_from_prefix(front).map_err(|_| System::INVAL)?;
        Ok((headers, payload))
    }

    /// Has `answer` answer the request that came, with the length of what it left in the payload. The kernel gets that with
    /// the next [`wait`](Self::wait).
    ///
    /// # Errors
    /// None came.
    pub fn answer(
        &mut self,
        answer: impl FnOnce(Request<'_>) -> Result<usize, Errno>,
    ) -> io::Result<()> {
        let (headers, payload) = self.memory()?;
        let (header, _) =
            RequestHeader::read_from_prefix(&headers.in_out).map_err(|_| System::INVAL)?;
        let commit_id = headers.entry.commit_id;
        let unique = header.unique;
        let answered = answer(Request {
            header,
            argument: &headers.argument,
            payload,
            sent: headers.entry.payload as usize,
        });
        let (length, error) = match answered {
            Ok(length) => (length as u32, 0),
            Err(error) => (0, -error.code()),
        };
        headers.entry.payload = length;
        let answer = AnswerHeader {
            length: size_of::<AnswerHeader>() as u32 + length,
            error,
            unique,
        };
        let written = answer.write_to_prefix(&mut headers.in_out);
        written.map_err(|_| System::INVAL)?;
        self.push(command::COMMIT_AND_FETCH, commit_id)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.in_flight {
            // The kernel may still write there.
            std::mem::forget(self.memory.take());
        }
    }
}

/// A submission with the field `len` set, which [`UringCmd80`] leaves 0.
fn with_length(mut entry: Entry128, length: u32) -> Entry128 {
    /// The field's place in `struct io_uring_sqe`, in bytes.
    const LENGTH: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: `Entry128` is a `struct io_uring_sqe`, of which four bytes at this place are the length; those lie within the
    // 128 bytes of `entry`, which is borrowed here alone, and any number is valid there. The write needs no alignment.
    unsafe {
        let field = (&raw mut entry).cast::<u8>().add(LENGTH).cast::<u32>();
        field.write_unaligned(length);
    }
    entry
}
