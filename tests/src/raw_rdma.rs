//! RPC-over-RDMA over iWARP over a bare socket, one FPDU at a time: for what no well-behaved client sends. Written from
//! the RFCs (5040, 5041, 5044, 8166), beside the fabric's own code and not with it.

use crate::raw::PATIENCE;
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::Writer;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Opcodes of RDMAP (RFC 5040, figure 4).
pub const WRITE: u8 = 0;
/// RDMA Read Request.
pub const READ_REQUEST: u8 = 1;
/// RDMA Read Response.
pub const READ_RESPONSE: u8 = 2;
/// Send.
pub const SEND: u8 = 3;
/// Terminate.
pub const TERMINATE: u8 = 7;

/// What an FPDU says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fpdu {
    /// Opcode of RDMAP.
    pub opcode: u8,
    /// Whether it is the last of its message.
    pub last: bool,
    /// Where its payload goes.
    pub to: To,
    /// What is behind the headers.
    pub payload: Vec<u8>,
}

/// The two models of DDP (RFC 5041).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Into memory that is named.
    Tagged {
        /// Steering tag.
        tag: u32,
        /// Tagged offset.
        offset: u64,
    },
    /// Into the next buffer of a queue.
    Queue {
        /// 0: messages, 1: Read Requests, 2: Terminate.
        number: u32,
        /// Counts the messages, from 1.
        message: u32,
        /// Offset in the message.
        offset: u32,
    },
}

/// Why a stream ends: what a Terminate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// 0: RDMAP, 1: DDP, 2: MPA.
    pub layer: u8,
    /// Class of the error in that layer.
    pub kind: u8,
    /// Which one.
    pub code: u8,
}

/// How a peer ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It closed it.
    Closed,
    /// It said why, and closed it.
    Terminated(Terminate),
}

/// A connection for RPC-over-RDMA, on whatever: messages as they are.
pub trait Messages {
    /// Sends one message.
    ///
    /// # Errors
    /// The connection ended.
    fn send_message(&mut self, payload: &[u8]) -> io::Result<()>;

    /// The next message that comes.
    ///
    /// # Errors
    /// The connection ended, or nothing came in [`PATIENCE`].
    fn next_message(&mut self) -> io::Result<Vec<u8>>;

    /// One that was not used yet.
    fn next_xid(&mut self) -> u32;

    /// A call's RPC header, with the xid that it is of.
    fn call(&mut self, (program, version, procedure): (u32, u32, u32)) -> (u32, Vec<u8>) {
        let xid = self.next_xid();
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        rpc::call(&mut w, xid, program, version, procedure, &Auth::None);
        (xid, message)
    }
}

impl Messages for RawRdma {
    fn send_message(&mut self, payload: &[u8]) -> io::Result<()> {
        self.message(payload)
    }

    fn next_message(&mut self) -> io::Result<Vec<u8>> {
        self.receive()
    }

    fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }
}

/// One iWARP connection without receive buffers, tags or manners.
#[derive(Debug)]
pub struct RawRdma {
    stream: TcpStream,
    crc: bool,
    sent: u32,
    xid: u32,
}

/// Private data as Linux sends it: remote invalidation, 4096 bytes inline both ways (RFC 8797).
pub const LINUX: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

/// An MPA request (RFC 6581): revision 2, enhanced, no markers.
pub fn request(crc: bool, private: &[u8]) -> Vec<u8> {
    let mut bytes = b"MPA ID Req Frame".to_vec();
    bytes.extend([0x10 | u8::from(crc) << 6, 2]);
    bytes.extend((4 + private.len() as u16).to_be_bytes());
    bytes.extend([0, 128, 0, 0]);
    bytes.extend(private);
    bytes
}

impl RawRdma {
    /// A TCP connection on which nothing has been said.
    ///
    /// # Panics
    /// Nothing answers at `HOST:PORT`.
    pub fn silent(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Self {
            stream,
            crc: false,
            sent: 0,
            xid: 0x4000_0000,
        }
    }

    /// Connects as the Linux client does.
    ///
    /// # Panics
    /// It is refused.
    pub fn connect(address: &str, crc: bool) -> Self {
        let mut raw = Self::silent(address);
        raw.send(&request(crc, &LINUX)).expect("MPA request");
        let reply = raw.reply().expect("MPA reply");
        assert_eq!(reply[16] & 0x20, 0, "rejected");
        assert_eq!(reply[17], 2, "revision");
        raw.crc = reply[16] & 0x40 != 0;
        assert!(raw.crc || !crc, "checksums were asked for");
        raw
    }

    /// The MPA reply, with its private data.
    ///
    /// # Errors
    /// The connection ended.
    pub fn reply(&mut self) -> io::Result<Vec<u8>> {
        let mut reply = vec![0; 20];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(&reply[..16], b"MPA ID Rep Frame");
        let length = usize::from(u16::from_be_bytes([reply[18], reply[19]]));
        assert!(length <= 512, "private data of {length} bytes");
        reply.resize(20 + length, 0);
        self.stream.read_exact(&mut reply[20..])?;
        Ok(reply)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// From now on a send fails that the peer does not take within a second.
    ///
    /// # Panics
    /// The system refuses it.
    pub fn impatient(&self) {
        let patience = Some(Duration::from_secs(1));
        self.stream.set_write_timeout(patience).expect("timeout");
    }

    /// Frames a DDP segment: length, padding, checksum.
    pub fn framed(&self, ulpdu: &[u8]) -> Vec<u8> {
        let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
        bytes.extend(ulpdu);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let crc = if self.crc { crc32c(&bytes) } else { 0 };
        // The checksum alone is little-endian on the wire, as in iSCSI.
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    /// Sends an FPDU.
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub fn put(&mut self, fpdu: &Fpdu) -> io::Result<()> {
        let framed = self.framed(&fpdu.bytes());
        self.send(&framed)
    }

    /// The next FPDU.
    ///
    /// # Errors
    /// The connection ended, or nothing came in [`PATIENCE`].
    pub fn get(&mut self) -> io::Result<Fpdu> {
        let mut frame = vec![0; 2];
        self.stream.read_exact(&mut frame)?;
        let length = usize::from(u16::from_be_bytes([frame[0], frame[1]]));
        frame.resize((2 + length).next_multiple_of(4) + 4, 0);
        self.stream.read_exact(&mut frame[2..])?;
        let checked = frame.len() - 4;
        if self.crc {
            assert_eq!(frame[checked..], crc32c(&frame[..checked]).to_le_bytes());
        }
        Ok(Fpdu::parse(&frame[2..2 + length]))
    }

    /// Sends one message (a Send of one FPDU).
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub fn message(&mut self, payload: &[u8]) -> io::Result<()> {
        self.sent += 1;
        let fpdu = Fpdu {
            opcode: SEND,
            last: true,
            to: To::Queue {
                number: 0,
                message: self.sent,
                offset: 0,
            },
            payload: payload.to_vec(),
        };
        self.put(&fpdu)
    }

    /// The next message that comes, of any number of FPDUs.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Panics
    /// Something else comes.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let fpdu = self.get()?;
            assert!((3..=6).contains(&fpdu.opcode), "no message: {fpdu:?}");
            message.extend(fpdu.payload);
            if fpdu.last {
                return Ok(message);
            }
        }
    }

    /// Reads until the peer ends the connection; what comes before that is passed over.
    ///
    /// # Panics
    /// It does not within [`PATIENCE`].
    pub fn ended(&mut self) -> Ended {
        let mut ended = Ended::Closed;
        loop {
            match self.get() {
                Ok(fpdu) if fpdu.opcode == TERMINATE => {
                    let said = &fpdu.payload;
                    assert!(said.len() >= 4, "a Terminate that says nothing");
                    ended = Ended::Terminated(Terminate {
                        layer: said[0] >> 4,
                        kind: said[0] & 15,
                        code: said[1],
                    });
                }
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        panic!("the connection does not end")
                    }
                    _ => return ended,
                },
            }
        }
    }
}

impl Fpdu {
    /// As a DDP segment.
    pub fn bytes(&self) -> Vec<u8> {
        let tagged = matches!(self.to, To::Tagged { .. });
        let control = u8::from(tagged) << 7 | u8::from(self.last) << 6 | 1;
        let mut bytes = vec![control, 0x40 | self.opcode];
        match self.to {
            To::Tagged { tag, offset } => {
                bytes.extend(tag.to_be_bytes());
                bytes.extend(offset.to_be_bytes());
            }
            To::Queue {
                number,
                message,
                offset,
            } => {
                bytes.extend([0; 4]);
                for word in [number, message, offset] {
                    bytes.extend(word.to_be_bytes());
                }
            }
        }
        bytes.extend(&self.payload);
        bytes
    }

    fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
        assert_eq!(bytes[0] & 0x3f, 1, "DDP version and reserved bits");
        assert_eq!(bytes[1] & 0xf0, 0x40, "RDMAP version and reserved bits");
        let (to, head) = if bytes[0] & 0x80 != 0 {
            let offset = u64::from(word(6)) << 32 | u64::from(word(10));
            (
                To::Tagged {
                    tag: word(2),
                    offset,
                },
                14,
            )
        } else {
            let to = To::Queue {
                number: word(6),
                message: word(10),
                offset: word(14),
            };
            (to, 18)
        };
        Self {
            opcode: bytes[1] & 15,
            last: bytes[0] & 0x40 != 0,
            to,
            payload: bytes[head..].to_vec(),
        }
    }
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

/// A read chunk's segment: position, tag, length, offset.
pub type ReadSegment = (u32, u32, u32, u64);
/// A segment of a write or reply chunk: tag, length, offset.
pub type Segment = (u32, u32, u64);

/// An RPC-over-RDMA header with its lists (RFC 8166 section 4.3).
#[derive(Clone, Debug)]
pub struct Header {
    /// That of the call.
    pub xid: u32,
    /// Version: 1.
    pub version: u32,
    /// Credits.
    pub credits: u32,
    /// 0 `RDMA_MSG`, 1 `RDMA_NOMSG`, 2 `RDMA_MSGP`, 3 `RDMA_DONE`, 4 `RDMA_ERROR`.
    pub procedure: u32,
    /// Read list.
    pub reads: Vec<ReadSegment>,
    /// Write list.
    pub writes: Vec<Vec<Segment>>,
    /// Reply chunk.
    pub reply: Option<Vec<Segment>>,
}

impl Header {
    /// `RDMA_MSG` of version 1, without chunks.
    pub fn message(xid: u32) -> Self {
        Self {
            xid,
            version: 1,
            credits: 32,
            procedure: 0,
            reads: Vec::new(),
            writes: Vec::new(),
            reply: None,
        }
    }

    /// On the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut words = vec![self.xid, self.version, self.credits, self.procedure];
        let segment = |words: &mut Vec<u32>, (tag, length, offset): Segment| {
            words.extend([tag, length, (offset >> 32) as u32, offset as u32]);
        };
        for &(position, tag, length, offset) in &self.reads {
            words.extend([1, position]);
            segment(&mut words, (tag, length, offset));
        }
        words.push(0);
        for chunk in self.writes.iter().chain(&self.reply) {
            // Those of the write list, then its end, then the reply chunk.
            if self.reply.as_ref().is_some_and(|r| std::ptr::eq(r, chunk)) {
                words.push(0);
            }
            words.extend([1, chunk.len() as u32]);
            for &s in chunk {
                segment(&mut words, s);
            }
        }
        if self.reply.is_none() {
            words.extend([0, 0]);
        }
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }
}
