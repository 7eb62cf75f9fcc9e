//! ONC RPC over a bare socket: for what no well-behaved client sends.

use odafs_common::wire::mount3;
use odafs_common::wire::nfs3;
use odafs_common::wire::record::RecordMark;
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Encode, Writer};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// How long a test waits for an answer before it calls the server hung.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Connections that this process has made. No two of them use the same xids: the server knows a client by its address
/// alone, so an equal call with an equal xid would be a repetition to it, and get the reply that the first call got.
static CONNECTIONS: AtomicU32 = AtomicU32::new(0);

/// A TCP connection that speaks record-marked RPC.
#[derive(Debug)]
pub struct RawRpc {
    stream: TcpStream,
    xid: u32,
}

impl RawRpc {
    /// Connects to `HOST:PORT`.
    ///
    /// # Panics
    /// Nothing answers there.
    pub fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let xid = CONNECTIONS.fetch_add(1, Relaxed) << 16;
        Self { stream, xid }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends one call, and returns its xid.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub fn post(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        arguments: &[u8],
    ) -> io::Result<u32> {
        self.xid += 1;
        let mut message = Vec::new();
        rpc::call(
            &mut Writer::new(&mut message),
            self.xid,
            program,
            version,
            procedure,
            &Auth::None,
        );
        message.extend_from_slice(arguments);
        self.send_message(&message)?;
        Ok(self.xid)
    }

    /// Sends one message with its record mark.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub fn send_message(&mut self, message: &[u8]) -> io::Result<()> {
        let mark = RecordMark::whole(message.len() as u32).to_bytes();
        self.send(&[&mark[..], message].concat())
    }

    /// The next message, without its record mark; at most 2 MiB.
    ///
    /// # Errors
    /// The connection ended, or nothing came in [`PATIENCE`].
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 1 << 31 != 0, "a message in several fragments");
        let length = (mark & !(1 << 31)) as usize;
        assert!(length <= 2 << 20, "a message of {length} bytes");
        let mut message = vec![0; length];
        self.stream.read_exact(&mut message)?;
        Ok(message)
    }

    /// One call and its reply.
    ///
    /// # Errors
    /// As [`post`](Self::post) and [`receive`](Self::receive).
    pub fn call(&mut self, procedure: (u32, u32, u32), arguments: &[u8]) -> io::Result<Vec<u8>> {
        let xid = self.post(procedure, arguments)?;
        let reply = self.receive()?;
        assert_eq!(reply[..4], xid.to_be_bytes(), "a reply to another call");
        Ok(reply)
    }

    /// Whether the server closes the connection, or has closed it.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0))
            || self.stream.take_error().ok().flatten().is_some()
    }

    /// MNT of `/`: the root's handle.
    ///
    /// # Panics
    /// The server refuses it.
    pub fn root(&mut self) -> Vec<u8> {
        let mut arguments = Vec::new();
        mount3::DirPath(b"/").encode(&mut Writer::new(&mut arguments));
        let reply = self
            .call((mount3::PROGRAM, mount3::VERSION, 1), &arguments)
            .expect("MNT");
        let mut body = rpc::parse_reply(&reply)
            .expect("reply")
            .body
            .expect("accepted");
        assert_eq!(body.u32().expect("status"), 0, "MNT / is refused");
        body.opaque("handle", 64).expect("handle").to_vec()
    }

    /// One NFS call: the status and what follows it.
    ///
    /// # Panics
    /// No reply, or one that is no NFS reply.
    pub fn nfs(&mut self, procedure: u32, arguments: &[u8]) -> (u32, Vec<u8>) {
        let reply = self
            .call((nfs3::PROGRAM, nfs3::VERSION, procedure), arguments)
            .expect("NFS call");
        let mut body = rpc::parse_reply(&reply)
            .expect("reply")
            .body
            .expect("accepted");
        let status = body.u32().expect("status");
        (status, body.rest().to_vec())
    }
}

/// XDR of `value`.
pub fn xdr(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}
