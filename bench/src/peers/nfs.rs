//! A reader over NFS version 3 and TCP, the same for every server. It uses one connection with many READs in flight (RFC
//! 1813, RFC 5531).

use anyhow::{Context, Result, anyhow, bail, ensure};
use odafs_common::wire::mount3::{self, DirPath, MountResult};
use odafs_common::wire::nfs3::{
    self, DirectoryName, FileHandle, LookupResult, Payload, ReadArgs, ReadResult, Stable,
    WriteArgs, WriteResult,
};
use odafs_common::wire::record::RecordMark;
use odafs_common::wire::rpc::{self, Auth, AuthSys, Groups};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};

use super::Asks;
use super::stream::Stream;

/// An RPC program on a connection.
pub(super) struct Program {
    stream: Stream,
    number: u32,
    version: u32,
    xid: u32,
    message: Vec<u8>,
}

impl Program {
    /// Connects to a program of this number and version.
    pub fn connect(
        address: (&str, u16),
        (number, version): (u32, u32),
        spin: bool,
    ) -> Result<Self> {
        Ok(Self {
            stream: Stream::tcp(address, spin)?,
            number,
            version,
            xid: 0,
            message: Vec::new(),
        })
    }

    fn send(&mut self, procedure: u32, arguments: &impl Encode) -> Result<u32> {
        self.send_with(procedure, |w| arguments.encode(w))
    }

    /// Sends a call whose arguments `arguments` writes, and returns its number.
    pub fn send_with(
        &mut self,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u32> {
        self.xid = self.xid.wrapping_add(1);
        self.message.clear();
        let mut w = Writer::new(&mut self.message);
        w.u32(0);
        let credential = Auth::Sys(AuthSys {
            stamp: 0,
            machine: b"bench",
            uid: 0,
            gid: 0,
            gids: Groups::new(&[]),
        });
        let (number, version) = (self.number, self.version);
        rpc::call(&mut w, self.xid, number, version, procedure, &credential);
        arguments(&mut w);
        let length = (self.message.len() - RecordMark::BYTES) as u32;
        self.message[..RecordMark::BYTES].copy_from_slice(&RecordMark::whole(length).to_bytes());
        self.stream.send(&self.message)?;
        Ok(self.xid)
    }

    /// The next reply, as one record in one fragment.
    pub fn receive(&mut self) -> Result<(u32, Reader<'_>)> {
        let mark: [u8; RecordMark::BYTES] = self.stream.take(RecordMark::BYTES)?.try_into()?;
        let mark = RecordMark::from_bytes(mark);
        ensure!(
            mark.last && mark.length < 4 << 20,
            "a reply in several fragments, or of {} bytes",
            mark.length
        );
        let record = self.stream.take(mark.length as usize)?;
        let reply = rpc::parse_reply(record).map_err(|error| anyhow!("not a reply: {error}"))?;
        let body = reply.body.map_err(|rejection| anyhow!("{rejection}"))?;
        Ok((reply.xid, body))
    }
}

/// A file on an NFS server.
pub struct NfsFile {
    program: Program,
    handle: Vec<u8>,
}

impl NfsFile {
    /// Mounts the directory of the URL's file and looks the file up.
    ///
    /// # Errors
    /// The server cannot be reached, or does not admit this client.
    pub fn open(url: &odafs::Url, spin: bool) -> Result<Self> {
        let odafs::ServerAddress::NfsTcp(host) = &url.server else {
            bail!("{url} is not an nfs:// URL");
        };
        let cut = url.path.iter().rposition(|&b| b == b'/').unwrap_or(0);
        let (directory, name) = (&url.path[..cut.max(1)], &url.path[cut + 1..]);
        let connect = |port, number, spin| {
            // Both programs are of version 3.
            Program::connect((&host.name, port), (number, nfs3::VERSION), spin)
        };
        let mut mount = connect(url.mount_port.unwrap_or(host.port), mount3::PROGRAM, false)?;
        mount.send(mount3::Procedure::Mount.code(), &DirPath(directory))?;
        let (_, mut body) = mount.receive()?;
        let mounted = MountResult::decode(&mut body)?;
        let root = mounted
            .map_err(|status| anyhow!("MOUNT is refused: {status:?}"))?
            .file
            .0
            .to_vec();
        let mut program = connect(host.port, nfs3::PROGRAM, spin)?;
        let wanted = DirectoryName {
            directory: FileHandle(&root),
            name,
        };
        program.send(nfs3::Procedure::Lookup.code(), &wanted)?;
        let (_, mut body) = program.receive()?;
        let found = LookupResult::decode(&mut body)?;
        let handle = found
            .map_err(|failed| anyhow!("LOOKUP fails: {:?}", failed.status))?
            .file
            .0
            .to_vec();
        Ok(Self { program, handle })
    }

    /// Makes a READ, waits for it, and returns how many bytes it brought.
    ///
    /// # Errors
    /// The connection broke, or the server refused the call.
    pub fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.ask(offset, into.len())?;
        let (_, data) = self.answer()?;
        let length = data.len().min(into.len());
        into[..length].copy_from_slice(&data[..length]);
        Ok(length)
    }

    /// Makes an unstable WRITE of at most 1 MiB, and waits for it.
    ///
    /// # Errors
    /// The connection broke, or the server refused the call or wrote only a part.
    pub fn write_at(&mut self, data: &[u8], offset: u64) -> Result<()> {
        let arguments = WriteArgs {
            file: FileHandle(&self.handle),
            offset,
            count: data.len() as u32,
            stable: Stable::Unstable,
            data: Payload(data),
        };
        self.program
            .send(nfs3::Procedure::Write.code(), &arguments)?;
        let (_, mut body) = self.program.receive()?;
        let wrote = WriteResult::decode(&mut body).context("not the result of a WRITE")?;
        let wrote = wrote.map_err(|failed| anyhow!("WRITE fails: {:?}", failed.status))?;
        ensure!(
            wrote.count as usize == data.len(),
            "the server wrote a part of a page"
        );
        Ok(())
    }
}

impl Asks for NfsFile {
    fn ask(&mut self, offset: u64, length: usize) -> Result<u64> {
        let arguments = ReadArgs {
            file: FileHandle(&self.handle),
            offset,
            count: length as u32,
        };
        self.program
            .send(nfs3::Procedure::Read.code(), &arguments)
            .map(u64::from)
    }

    fn answer(&mut self) -> Result<(u64, &[u8])> {
        let (xid, mut body) = self.program.receive()?;
        let read = ReadResult::decode(&mut body).context("not the result of a READ")?;
        let read = read.map_err(|failed| anyhow!("READ fails: {:?}", failed.status))?;
        Ok((u64::from(xid), read.data.0))
    }
}
