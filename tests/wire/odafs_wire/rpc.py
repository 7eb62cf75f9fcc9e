"""ONC RPC (RFC 5531) over NFS's TCP port, or as bare messages on a connection of role 2 (section 2)."""

import itertools
import socket
import struct

from .xdr import Packer, Unpacker

PORTMAP, NFS, MOUNT, ODAFS = (100000, 2), (100003, 3), (100005, 3), (0x200DAF50, 1)
OK = 0


class Rejected(Exception):
    """The call was not served: accept_stat or reject_stat."""


def auth_sys(uid, gid):
    body = Packer().u32(0).opaque(b"wire").u32(uid, gid, 0).data
    return 1, bytes(body)


class Caller:
    """Calls, one at a time. `exchange` carries a message there and the next one back."""

    def __init__(self, exchange, credential=(0, b"")):
        self.exchange, self.credential = exchange, credential
        self.xids = itertools.count(1)

    def call(self, program, procedure, arguments=b""):
        xid, (flavour, body) = next(self.xids), self.credential
        call = Packer().u32(xid, 0, 2, *program, procedure, flavour).opaque(body).u32(0, 0)
        reply = Unpacker(self.exchange(bytes(call.data) + bytes(arguments)))
        assert (reply.u32(), reply.u32()) == (xid, 1), "a reply to another call"
        if reply.u32() != 0:
            raise Rejected("denied", reply.u32())
        reply.u32(), reply.opaque()
        status = reply.u32()
        if status != 0:
            raise Rejected("accepted", status)
        return reply


class Tcp:
    """Records, one fragment each way; replies come in one fragment (section 2)."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=20)

    def __call__(self, message):
        self.send(message)
        return self.receive()

    def send(self, message, fragment=1 << 30):
        """In fragments of so many bytes."""
        parts = [message[at : at + fragment] for at in range(0, len(message), fragment)]
        marks = [len(part) for part in parts]
        marks[-1] |= 1 << 31
        self.socket.sendall(b"".join(struct.pack(">I", m) + p for m, p in zip(marks, parts)))

    def receive(self):
        (mark,) = struct.unpack(">I", self.exactly(4))
        assert mark >> 31, "a reply in fragments"
        return self.exactly(mark & 0x7FFFFFFF)

    def exactly(self, count):
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return bytes(data)


# Of RFC 1813 and its appendix I, what is needed to find a file and to change it.


def mount(caller, path):
    reply = caller.call(MOUNT, 1, Packer().opaque(path).data)
    assert reply.u32() == OK, "MNT"
    return reply.opaque()


def lookup(caller, directory, name):
    reply = caller.call(NFS, 3, Packer().opaque(directory).opaque(name).data)
    assert reply.u32() == OK, "LOOKUP"
    return reply.opaque()


def write(caller, file, offset, data):
    """A stable WRITE."""
    arguments = Packer().opaque(file).u64(offset).u32(len(data), 2).opaque(data)
    reply = caller.call(NFS, 7, arguments.data)
    assert reply.u32() == OK, "WRITE"


def read(caller, file, offset, count):
    reply = caller.call(NFS, 6, Packer().opaque(file).u64(offset).u32(count).data)
    assert reply.u32() == OK, "READ"
    reply.optional(lambda: reply.take(84))
    reply.u32(), reply.u32()
    return reply.opaque()
