//! A minimal client of NFS over TCP, whose own cost is the same whatever the server does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use odafs_common::wire::mount3::{self, MountResult};
use odafs_common::wire::nfs3::{
    CreateArgs, CreateHow, CreateResult, DirectoryName, FileHandle, MakeDirectoryArgs, PROGRAM,
    Payload, Procedure, SetAttributes, Stable, VERSION, WriteArgs, WriteResult,
};
use odafs_common::wire::rpc::{self, Auth, AuthSys, Groups};
use odafs_common::wire::xdr::{Decode as _, Encode, Writer};
use odafs_fabric::tcp::{dial, settle_pacing};
use odafs_server::store::Credential;

/// A handle.
pub type FileHandleBytes = Vec<u8>;
/// Writes the arguments of a call.
pub type Arguments<'a> = dyn Fn(&mut Writer<'_>) + 'a;

/// The most bytes of one system call: another thread that wants the processor may have to wait for the end of it.
const SYSTEM_CALL_BYTES: usize = 64 << 10;
/// The procedure MNT.
const MOUNT: u32 = 1;

/// One connection.
pub struct Peer {
    stream: TcpStream,
    uid: u32,
    gid: u32,
    xid: u32,
    message: Vec<u8>,
    reply: Vec<u8>,
}

impl Peer {
    /// Connects, as this user.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream =
            dial(address, Duration::from_secs(10)).context("cannot connect to the server")?;
        settle_pacing(&stream);
        stream.set_nodelay(true)?;
        // Longer than whatever the benches make a server wait for.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let us = Credential::of_this_process();
        Ok(Self {
            stream,
            uid: us.uid,
            gid: us.gid,
            xid: 0,
            message: Vec::new(),
            reply: Vec::new(),
        })
    }

    /// The root directory.
    pub fn mount(&mut self) -> Result<FileHandleBytes> {
        self.send_to((mount3::PROGRAM, mount3::VERSION, MOUNT), &|w| {
            mount3::DirPath(b"/").encode(w);
        })?;
        let mounted = MountResult::from_bytes(self.receive()?)?;
        let mounted = mounted.map_err(|status| anyhow::anyhow!("cannot mount: {status:?}"))?;
        Ok(mounted.file.0.to_vec())
    }

    /// Sends a call.
    pub fn send(&mut self, procedure: Procedure, arguments: &Arguments<'_>) -> Result<()> {
        self.send_to((PROGRAM, VERSION, procedure.code()), arguments)
    }

    fn send_to(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        arguments: &Arguments<'_>,
    ) -> Result<()> {
        self.xid += 1;
        let credential = Auth::Sys(AuthSys {
            stamp: 0,
            machine: b"bench",
            uid: self.uid,
            gid: self.gid,
            gids: Groups::new(&[]),
        });
        let message = &mut self.message;
        message.clear();
        message.extend_from_slice(&[0; 4]);
        let mut w = Writer::new(message);
        rpc::call(&mut w, self.xid, program, version, procedure, &credential);
        arguments(&mut w);
        let mark = 1 << 31 | (message.len() - 4) as u32;
        message[..4].copy_from_slice(&mark.to_be_bytes());
        for part in message.chunks(SYSTEM_CALL_BYTES) {
            self.stream.write_all(part)?;
        }
        Ok(())
    }

    /// The results of the next reply.
    pub fn receive(&mut self) -> Result<&[u8]> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        ensure!(mark >> 31 == 1, "a reply in several fragments");
        self.reply.resize((mark & !(1 << 31)) as usize, 0);
        for part in self.reply.chunks_mut(SYSTEM_CALL_BYTES) {
            self.stream.read_exact(part)?;
        }
        match rpc::parse_reply(&self.reply)?.body {
            Ok(results) => Ok(results.rest()),
            Err(rejection) => bail!("a call was rejected: {rejection}"),
        }
    }

    /// A call and its results, which begin with a status.
    pub fn call(&mut self, procedure: Procedure, arguments: &impl Encode) -> Result<&[u8]> {
        self.send(procedure, &|w| arguments.encode(w))?;
        self.receive()
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, parent: &[u8], name: &str) -> Result<FileHandleBytes> {
        let arguments = MakeDirectoryArgs {
            place: place(parent, name),
            attributes: mode(0o777),
        };
        made(self.call(Procedure::MakeDirectory, &arguments)?)
    }

    /// Makes a file with that many bytes.
    pub fn file(&mut self, parent: &[u8], name: &str, bytes: usize) -> Result<FileHandleBytes> {
        let arguments = CreateArgs {
            place: place(parent, name),
            how: CreateHow::Unchecked(mode(0o666)),
        };
        let file = made(self.call(Procedure::Create, &arguments)?)?;
        for offset in (0..bytes).step_by(1 << 20) {
            let data = vec![7; (bytes - offset).min(1 << 20)];
            let arguments = WriteArgs {
                file: FileHandle(&file),
                offset: offset as u64,
                count: data.len() as u32,
                stable: Stable::Unstable,
                data: Payload(&data),
            };
            let wrote = WriteResult::from_bytes(self.call(Procedure::Write, &arguments)?)?;
            wrote.map_err(|failed| anyhow::anyhow!("WRITE: {:?}", failed.status))?;
        }
        Ok(file)
    }
}

fn made(results: &[u8]) -> Result<FileHandleBytes> {
    let made = CreateResult::from_bytes(results)?;
    let made = made.map_err(|failed| anyhow::anyhow!("cannot make it: {:?}", failed.status))?;
    Ok(made.file.context("no handle in the reply")?.0.to_vec())
}

/// A name in a directory.
pub fn place<'a>(directory: &'a [u8], name: &'a str) -> DirectoryName<'a> {
    DirectoryName {
        directory: FileHandle(directory),
        name: name.as_bytes(),
    }
}

/// A mode alone.
pub fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}
