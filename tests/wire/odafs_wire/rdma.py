"""RPC-over-RDMA version 1 (RFC 8166, section 2.1), one call at a time."""

import struct
from collections import namedtuple

from .xdr import Packer, Unpacker

MSG, NOMSG, MSGP, DONE, ERROR = range(5)
ERR_VERS, ERR_CHUNK = 1, 2

Reply = namedtuple("Reply", "version credits reads writes reply body")


class Failed(Exception):
    """RDMA_ERROR: its version and its words."""


def private_data(inline=4096, before=b""):
    """RFC 8797, perhaps behind something of another layer's."""
    return before + struct.pack(">IBBBB", 0xF6AB0E18, 1, 0, inline // 1024 - 1, inline // 1024 - 1)


class Caller:
    """Chunks are lists of segments (tag, length, offset); read segments have their position in front."""

    def __init__(self, pair):
        self.pair = pair

    def exchange(self, message, kind=MSG, reads=(), writes=(), reply=None, version=1, xid=None):
        header = Packer().fixed(message[:4] if xid is None else xid).u32(version, 8, kind)
        for position, tag, length, offset in reads:
            header.u32(1, position, tag, length).u64(offset)
        header.u32(0)
        for chunks in writes, [] if reply is None else [reply]:
            for chunk in chunks:
                header.u32(1, len(chunk))
                for tag, length, offset in chunk:
                    header.u32(tag, length).u64(offset)
            if chunks is writes or not chunks:
                header.u32(0)
        self.pair.send(bytes(header.data) + (b"" if kind == NOMSG else message))
        return self.receive(message[:4])

    def receive(self, xid):
        r = Unpacker(self.pair.receive())
        assert r.take(4) == xid
        version, credits, kind = r.u32(), r.u32(), r.u32()
        assert credits > 0, "a grant is at least 1"
        if kind == ERROR:
            raise Failed(version, *struct.unpack(">%dI" % (len(r.data) // 4 - 4), r.data[16:]))
        assert kind in (MSG, NOMSG) and version == 1
        assert r.u32() == 0, "a reply has no read list outside of the Read-Read design"

        def chunk():
            return [(r.u32(), r.u32(), r.u64()) for _ in range(r.u32())]

        writes = []
        while r.u32():
            writes.append(chunk())
        reply = chunk() if r.u32() else None
        body = bytes(r.data[r.at :])
        if kind == NOMSG:
            assert body == b"" and reply is not None
            body = b"".join(
                self.pair.regions[tag].load(offset, length) for tag, length, offset in reply
            )
        return Reply(version, credits, [], writes, reply, body)

    def __call__(self, message):
        """As an `rpc.Caller` wants it: all inline."""
        return self.exchange(message).body
