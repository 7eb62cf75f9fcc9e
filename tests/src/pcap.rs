//! Capture files: TCP connections made up around bytes that need no wire, and what tshark says of them.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use odafs_common::wire::record::RecordMark;
use odafs_common::wire::rpc::{Auth, AuthSys, Groups, call, reply_success};
use odafs_common::wire::xdr::Writer;

/// A capture file in the making.
#[derive(Debug)]
pub struct Capture {
    file: Vec<u8>,
}

/// One TCP connection in it, without TCP's own handshake.
#[derive(Debug)]
pub struct Connection {
    ports: [u16; 2],
    sequence: [u32; 2],
}

impl Connection {
    /// From a client's port to a server's.
    pub fn new(client: u16, server: u16) -> Self {
        Self {
            ports: [client, server],
            sequence: [1; 2],
        }
    }
}

impl Default for Capture {
    fn default() -> Self {
        let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        file.extend([2, 0, 4, 0]);
        file.extend([0; 8]);
        file.extend((1_u32 << 18).to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        Self { file }
    }
}

impl Capture {
    /// One TCP segment, from the client (0) or the server (1).
    ///
    /// # Panics
    /// It is longer than an IP packet.
    pub fn packet(&mut self, connection: &mut Connection, from: usize, payload: &[u8]) {
        let mut tcp = connection.ports[from].to_be_bytes().to_vec();
        tcp.extend(connection.ports[1 - from].to_be_bytes());
        tcp.extend(connection.sequence[from].to_be_bytes());
        tcp.extend(connection.sequence[1 - from].to_be_bytes());
        tcp.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        connection.sequence[from] = connection.sequence[from].wrapping_add(payload.len() as u32);

        let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
        let length = u16::try_from(20 + tcp.len()).expect("an IP packet's length");
        frame.extend(length.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1 + from as u8, 10, 0, 0, 2 - from as u8]);
        frame.extend(tcp);
        self.file.extend([0; 8]);
        self.file
            .extend([frame.len() as u32; 2].map(u32::to_le_bytes).concat());
        self.file.extend(frame);
    }

    /// What tshark prints of it with these arguments; `None` where there is no tshark.
    ///
    /// # Panics
    /// tshark fails, or is not there and [required](crate::skipped).
    pub fn tshark(&self, arguments: &[&str]) -> Option<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("capture.pcap");
        fs::write(&path, &self.file).expect("a capture file");
        let mut command = Command::new("tshark");
        let output = match command.arg("-r").arg(&path).args(arguments).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                crate::skipped("tshark", "there is no tshark");
                return None;
            }
            output => output.expect("tshark runs"),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        Some(String::from_utf8(output.stdout).expect("text"))
    }

    /// The fields of the packets that `filter` lets through, one packet a line.
    ///
    /// # Panics
    /// As [`tshark`](Self::tshark).
    pub fn fields(&self, filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
        let mut arguments = vec!["-Y", filter, "-T", "fields"];
        arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
        let split = |line: &str| line.split('\t').map(str::to_owned).collect();
        let printed = self.tshark(&arguments)?;
        Some(printed.lines().map(split).collect())
    }
}

/// Calls of one connection, with their replies.
#[derive(Debug)]
pub struct Messages {
    /// All of them.
    pub capture: Capture,
    connection: Connection,
    /// The last call's, and the number of calls.
    pub xid: u32,
}

impl Default for Messages {
    fn default() -> Self {
        Self::new()
    }
}

impl Messages {
    /// None.
    pub fn new() -> Self {
        Self {
            capture: Capture::default(),
            connection: Connection::new(900, 2049),
            xid: 0,
        }
    }

    /// Adds a call and its reply.
    pub fn exchange(
        &mut self,
        program: u32,
        version: u32,
        procedure: u8,
        args: &[u8],
        result: &[u8],
    ) {
        self.xid += 1;
        let gids = Groups::new(&[100, 4]);
        let sys = Auth::Sys(AuthSys {
            stamp: 1,
            machine: b"host",
            uid: 1000,
            gid: 100,
            gids,
        });
        let xid = self.xid;
        self.record(0, args, |w| {
            call(w, xid, program, version, procedure.into(), &sys)
        });
        self.record(1, result, |w| reply_success(w, xid));
    }

    fn record(&mut self, from: usize, body: &[u8], header: impl FnOnce(&mut Writer<'_>)) {
        let mut message = Vec::new();
        header(&mut Writer::new(&mut message));
        message.extend(body);
        let mark = RecordMark::whole(message.len() as u32).to_bytes();
        let record = [&mark[..], &message].concat();
        self.capture.packet(&mut self.connection, from, &record);
    }
}
