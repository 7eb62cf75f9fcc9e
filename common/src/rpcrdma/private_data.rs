//! What both ends say of themselves when they connect (RFC 8797), and what follows from it.

/// Inline threshold of a peer that announces nothing (RFC 8166, section 3.3.2), in bytes.
pub const INLINE_BYTES_DEFAULT: u32 = 1024;
/// Inline threshold that we offer, in bytes.
pub const INLINE_BYTES: u32 = 4096;

const MAGIC: u32 = 0xf6ab_0e18;
const VERSION: u8 = 1;
const REMOTE_INVALIDATE: u8 = 1;
const EXTENSION_MAGIC: [u8; 4] = *b"ODRR";
const EXTENSION_VERSION: u8 = 1;
const READ_READ: u8 = 1;
const KIB: u32 = 1024;

/// The private data of a connection for RPC-over-RDMA: 8 bytes of RFC 8797, section 4, and where the Read-Read design is
/// wanted 8 of ours behind them (docs/WIRE.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// Its sender takes Send With Invalidate.
    pub remote_invalidate: bool,
    /// Longest message that its sender sends, in bytes: 1 KiB to 256 KiB, whole KiB.
    pub send_bytes: u32,
    /// Longest message that its sender receives, in bytes: 1 KiB to 256 KiB, whole KiB.
    pub receive_bytes: u32,
    /// Its sender would use the Read-Read design.
    pub read_read: bool,
}

impl Default for PrivateData {
    fn default() -> Self {
        Self {
            remote_invalidate: true,
            send_bytes: INLINE_BYTES,
            receive_bytes: INLINE_BYTES,
            read_read: false,
        }
    }
}

impl PrivateData {
    /// Size of what RFC 8797 describes, in bytes.
    pub const BYTES: usize = 8;

    /// The bytes on the wire. Sizes are rounded down to whole KiB.
    pub fn encode(&self) -> Vec<u8> {
        let size = |bytes: u32| ((bytes / KIB).clamp(1, 256) - 1) as u8;
        let mut out = MAGIC.to_be_bytes().to_vec();
        out.extend([
            VERSION,
            u8::from(self.remote_invalidate) * REMOTE_INVALIDATE,
            size(self.send_bytes),
            size(self.receive_bytes),
        ]);
        if self.read_read {
            out.extend(EXTENSION_MAGIC);
            out.extend([EXTENSION_VERSION, READ_READ, 0, 0]);
        }
        out
    }

    /// The private data of an RPC-over-RDMA peer, if these bytes hold it: other layers may have put theirs in front of
    /// it, at no alignment (RFC 8797, section 5.2). Flags of later versions and bytes behind (RDMA-CM pads with zeros)
    /// are ignored.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let last = bytes.len().checked_sub(Self::BYTES)?;
        (0..=last).find_map(|at| Self::decode_front(&bytes[at..]))
    }

    fn decode_front(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        if head[..4] != MAGIC.to_be_bytes() || head[4] != VERSION {
            return None;
        }
        let size = |kib: u8| (u32::from(kib) + 1) * KIB;
        let extension = rest
            .strip_prefix(&EXTENSION_MAGIC)
            .and_then(|rest| rest.split_first_chunk::<4>())
            .filter(|([version, ..], _)| *version == EXTENSION_VERSION);
        Some(Self {
            remote_invalidate: head[5] & REMOTE_INVALIDATE != 0,
            send_bytes: size(head[6]),
            receive_bytes: size(head[7]),
            read_read: extension.is_some_and(|([_, flags, ..], _)| flags & READ_READ != 0),
        })
    }
}

/// Longest messages of a connection, transport header included, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// From here.
    pub send: u32,
    /// To here.
    pub receive: u32,
}

/// What holds on a connection, as one end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Inline thresholds: for each direction the smaller of what one end sends and the other receives.
    pub inline: Inline,
    /// A reply may invalidate a steering tag of the requester's.
    pub remote_invalidate: bool,
    /// Replies bring read chunks.
    pub read_read: bool,
}

impl Terms {
    /// The agreement that follows from both sides' announcements, if the peer made one.
    pub fn between(ours: &PrivateData, theirs: Option<&PrivateData>) -> Self {
        let theirs = theirs.copied().unwrap_or(PrivateData {
            remote_invalidate: false,
            send_bytes: INLINE_BYTES_DEFAULT,
            receive_bytes: INLINE_BYTES_DEFAULT,
            read_read: false,
        });
        Self {
            inline: Inline {
                send: ours.send_bytes.min(theirs.receive_bytes),
                receive: ours.receive_bytes.min(theirs.send_bytes),
            },
            remote_invalidate: ours.remote_invalidate && theirs.remote_invalidate,
            read_read: ours.read_read && theirs.read_read,
        }
    }
}
