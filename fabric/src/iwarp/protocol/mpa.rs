//! MPA: the handshake of a stream, and frames within it (RFC 5044, RFC 6581).
//!
//! ```text
//!  initiator                       responder
//!  Request frame  ---------------->
//!                 <---------------- Reply frame
//!  first FPDU     ---------------->             (with peer-to-peer: an empty RDMA Write)
//!                 <---------------- FPDUs from now on
//! ```

/// Length in bytes of a handshake frame before its private data (RFC 5044 section 7.1.1).
pub const HEAD_BYTES: usize = 20;

/// The longest private data of a handshake frame, including the enhanced part (RFC 5044 section 7.1.1).
pub const PRIVATE_MAX: usize = 512;

/// Length in bytes of the checksum field after a ULPDU, which is there with and without checksums.
pub const CRC_BYTES: usize = 4;

/// Bytes around a ULPDU, without padding: its length before it, the CRC after it.
pub const FRAMING_BYTES: usize = 6;

/// What is wrong with the frames of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpaError {
    /// The first 16 bytes are not the key of such a frame.
    #[error("the peer does not speak MPA")]
    Key,
    /// Neither revision 1 nor 2, or the enhanced part at revision 1.
    #[error("MPA revision {0} is not spoken here")]
    Revision(u8),
    /// The private data is longer than RFC 5044 allows, or shorter than the enhanced part.
    #[error("private data of {0} bytes")]
    PrivateData(usize),
    /// Markers are not supported (RFC 5044 section 7.1.1 lets a peer refuse them).
    #[error("the peer asks for markers")]
    Markers,
    /// A frame's checksum is wrong.
    #[error("a frame with a wrong checksum")]
    Crc,
}

/// Which of the two handshake frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the side that connects.
    Request,
    /// The answer.
    Reply,
}

impl FrameKind {
    fn key(self) -> &'static [u8; 16] {
        match self {
            FrameKind::Request => b"MPA ID Req Frame",
            FrameKind::Reply => b"MPA ID Rep Frame",
        }
    }
}

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

const PEER_TO_PEER: u16 = 0x8000;
const WRITE_READY: u16 = 0x8000;
const READS_MASK: u16 = 0x3fff;

/// The enhanced part of a handshake frame (RFC 6581 section 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// RDMA Reads that the sender of the frame takes at a time.
    pub inbound_reads: u16,
    /// RDMA Reads that the sender of the frame has under way at a time.
    pub outbound_reads: u16,
    /// The initiator makes the stream ready for both sides by an empty RDMA Write.
    pub peer_to_peer: bool,
}

/// A handshake frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Request or reply.
    pub kind: FrameKind,
    /// 1 or 2.
    pub revision: u8,
    /// Whether its sender wants checksums.
    pub crc: bool,
    /// A reply that refuses.
    pub reject: bool,
    /// Revision 2 only.
    pub enhanced: Option<Enhanced>,
    /// Private data of the upper layer.
    pub private_data: Vec<u8>,
}

impl Frame {
    /// The frame's bytes.
    ///
    /// # Panics
    /// If the private data is longer than RFC 5044 allows.
    pub fn encode(&self) -> Vec<u8> {
        let length = self.private_data.len() + if self.enhanced.is_some() { 4 } else { 0 };
        assert!(length <= PRIVATE_MAX, "too much private data");
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.enhanced.is_some(), ENHANCED);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + length);
        bytes.extend_from_slice(self.kind.key());
        bytes.extend_from_slice(&[flags, self.revision]);
        bytes.extend_from_slice(&(length as u16).to_be_bytes());
        if let Some(enhanced) = &self.enhanced {
            let (ready, write) = match enhanced.peer_to_peer {
                true => (PEER_TO_PEER, WRITE_READY),
                false => (0, 0),
            };
            let inbound = enhanced.inbound_reads.min(READS_MASK) | ready;
            let outbound = enhanced.outbound_reads.min(READS_MASK) | write;
            bytes.extend_from_slice(&inbound.to_be_bytes());
            bytes.extend_from_slice(&outbound.to_be_bytes());
        }
        bytes.extend_from_slice(&self.private_data);
        bytes
    }
}

/// Reads a handshake frame from a stream, and not one byte beyond it.
#[derive(Debug)]
pub struct FrameReader {
    kind: FrameKind,
    bytes: Vec<u8>,
    wanted: usize,
}

impl FrameReader {
    /// Waits for such a frame.
    pub fn new(kind: FrameKind) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
            wanted: HEAD_BYTES,
        }
    }

    /// Number of bytes that it still needs, as far as is known now.
    pub fn missing(&self) -> usize {
        self.wanted - self.bytes.len()
    }

    /// Processes bytes of the stream, but none beyond [`FrameReader::missing`]. Returns how many, and the frame with
    /// its last byte.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Frame>), MpaError> {
        let mut used = 0;
        loop {
            let taken = self.missing().min(input.len() - used);
            self.bytes.extend_from_slice(&input[used..used + taken]);
            used += taken;
            // Garbage is noticed at its first byte.
            let known = self.bytes.len().min(16);
            if self.bytes[..known] != self.kind.key()[..known] {
                return Err(MpaError::Key);
            }
            if self.missing() > 0 {
                return Ok((used, None));
            }
            let length = usize::from(u16::from_be_bytes([self.bytes[18], self.bytes[19]]));
            if length > PRIVATE_MAX {
                return Err(MpaError::PrivateData(length));
            }
            self.wanted = HEAD_BYTES + length;
            if self.missing() == 0 {
                return Ok((used, Some(self.frame()?)));
            }
        }
    }

    fn frame(&self) -> Result<Frame, MpaError> {
        let (flags, revision) = (self.bytes[16], self.bytes[17]);
        let mut private_data = &self.bytes[HEAD_BYTES..];
        let enhanced = match (revision, flags & ENHANCED != 0) {
            (1, false) | (2, false) => None,
            (2, true) => {
                let Some((&[a, b, c, d], rest)) = private_data.split_first_chunk() else {
                    return Err(MpaError::PrivateData(private_data.len()));
                };
                private_data = rest;
                let (inbound, outbound) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                Some(Enhanced {
                    inbound_reads: inbound & READS_MASK,
                    outbound_reads: outbound & READS_MASK,
                    peer_to_peer: inbound & PEER_TO_PEER != 0 && outbound & WRITE_READY != 0,
                })
            }
            _ => return Err(MpaError::Revision(revision)),
        };
        if flags & MARKERS != 0 {
            return Err(MpaError::Markers);
        }
        Ok(Frame {
            kind: self.kind,
            revision,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0,
            enhanced,
            private_data: private_data.to_vec(),
        })
    }
}

/// Padding after a ULPDU. With its length field and the padding, it fills whole words (RFC 5044 section 4).
pub fn padding(ulpdu: usize) -> usize {
    (2 + ulpdu).wrapping_neg() % 4
}

/// The checksum of a frame, over its length field, ULPDU and padding (RFC 5044 section 4.4).
pub fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}

/// A piece of a stream of frames.
#[derive(Debug, PartialEq, Eq)]
pub enum Deframed<'a> {
    /// More bytes are needed.
    Nothing,
    /// A ULPDU of this many bytes begins.
    Begin(usize),
    /// Its next bytes.
    Bytes(&'a [u8]),
    /// Its frame is complete.
    End,
    /// A whole ULPDU, whose checksum is right.
    Whole(&'a [u8]),
}

#[derive(Debug)]
enum State {
    Length,
    Body,
    Trailer,
}

/// Parses frames, wherever the stream is split. With checksums, nothing of a frame is returned before its checksum is
/// verified. Without, bytes are returned as they come.
#[derive(Debug)]
pub struct Deframer {
    crc: bool,
    state: State,
    /// The length field, while it is incomplete.
    head: [u8; 2],
    have: usize,
    /// Number of missing bytes of the present part.
    left: usize,
    trailer: usize,
    /// With checksums: the beginning of an incomplete frame.
    held: Vec<u8>,
    /// Whether `held` has been returned.
    given: bool,
}

impl Deframer {
    /// At the beginning of a frame.
    pub fn new(crc: bool) -> Self {
        Self {
            crc,
            state: State::Length,
            head: [0; 2],
            have: 0,
            left: 0,
            trailer: 0,
            held: Vec::new(),
            given: false,
        }
    }

    /// Whether the stream is between two frames.
    #[cfg(test)]
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Length)
            && self.have == 0
            && (self.held.is_empty() || self.given)
    }

    /// Number of missing bytes of the present ULPDU that may be used as they come.
    pub fn body_left(&self) -> usize {
        match self.state {
            State::Body if !self.crc => self.left,
            _ => 0,
        }
    }

    /// This many of them have come another way.
    pub fn skip(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.body_left());
        self.left -= bytes;
        if self.left == 0 {
            self.state = State::Trailer;
        }
    }

    /// The next piece, and how many bytes of `input` were processed.
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Deframed<'a>), MpaError> {
        if self.crc {
            return self.next_whole(input);
        }
        match self.state {
            State::Length => {
                let taken = (2 - self.have).min(input.len());
                self.head[self.have..self.have + taken].copy_from_slice(&input[..taken]);
                self.have += taken;
                if self.have < 2 {
                    return Ok((taken, Deframed::Nothing));
                }
                self.have = 0;
                self.left = usize::from(u16::from_be_bytes(self.head));
                self.trailer = padding(self.left) + 4;
                self.state = if self.left > 0 {
                    State::Body
                } else {
                    State::Trailer
                };
                Ok((taken, Deframed::Begin(self.left)))
            }
            State::Body => {
                let taken = self.left.min(input.len());
                self.left -= taken;
                if self.left == 0 {
                    self.state = State::Trailer;
                }
                Ok((taken, Deframed::Bytes(&input[..taken])))
            }
            State::Trailer => {
                let taken = self.trailer.min(input.len());
                self.trailer -= taken;
                if self.trailer > 0 {
                    return Ok((taken, Deframed::Nothing));
                }
                self.state = State::Length;
                Ok((taken, Deframed::End))
            }
        }
    }

    fn next_whole<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Deframed<'a>), MpaError> {
        if std::mem::take(&mut self.given) {
            self.held.clear();
            if self.held.capacity() > HELD_KEPT {
                self.held = Vec::new();
            }
        }
        if self.held.is_empty()
            && let Some(length) = frame_length(input)
            && input.len() >= length
        {
            return Ok((length, Deframed::Whole(checked(&input[..length])?)));
        }
        let mut used = 0;
        loop {
            let wanted = frame_length(&self.held).unwrap_or(2);
            let taken = (wanted - self.held.len()).min(input.len() - used);
            self.held.extend_from_slice(&input[used..used + taken]);
            used += taken;
            match frame_length(&self.held) {
                Some(length) if length == self.held.len() => {
                    self.given = true;
                    return Ok((used, Deframed::Whole(checked(&self.held)?)));
                }
                _ if used == input.len() => return Ok((used, Deframed::Nothing)),
                _ => {}
            }
        }
    }
}

/// Memory that a deframer keeps between two frames, in bytes.
const HELD_KEPT: usize = 8 << 10;

/// Length of the frame that begins here, if its length field is complete.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let (head, _) = bytes.split_first_chunk::<2>()?;
    let ulpdu = usize::from(u16::from_be_bytes(*head));
    Some(ulpdu + padding(ulpdu) + FRAMING_BYTES)
}

/// The ULPDU of a frame.
fn checked(frame: &[u8]) -> Result<&[u8], MpaError> {
    let (covered, crc) = frame.split_at(frame.len() - 4);
    if checksum(covered) != crc {
        return Err(MpaError::Crc);
    }
    let ulpdu = usize::from(u16::from_be_bytes([frame[0], frame[1]]));
    Ok(&frame[2..2 + ulpdu])
}
