"""The fabric `tcp` (section 12): MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040) on a socket."""

import socket
import struct
from collections import deque

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, TERMINATE = 0, 1, 2, 3, 4, 7
CRC, REJECT, ENHANCED, MARKERS = 0x40, 0x20, 0x10, 0x80
READS = 16


class Terminated(Exception):
    """The server ended the stream: layer, type, code."""


class NotAccepted(Exception):
    """A reply with the reject bit: flags, revision, private data."""


def crc32c_table():
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


TABLE = tuple(crc32c_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def request_frame(private, flags=ENHANCED, revision=2, key=b"MPA ID Req Frame"):
    """A request; enhanced, with peer-to-peer by an RDMA Write, if the flags say so."""
    parts = struct.pack(">HH", 0x8000 | READS, 0x8000 | READS) if flags & ENHANCED else b""
    return key + bytes([flags, revision]) + struct.pack(">H", len(parts + private)) + parts + private


class Region:
    """Memory of ours that the server may write to."""

    def __init__(self, tag, length):
        self.tag, self.memory = tag, bytearray(length)

    def at(self, offset):
        return self.tag, offset

    def load(self, offset, length):
        return bytes(self.memory[offset : offset + length])


class Pair:
    """A queue pair."""

    fabric = b"tcp"

    def __init__(self, address, private, reads=False, crc=False):
        self.socket = socket.create_connection(address, timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(request_frame(private, ENHANCED | (CRC if crc else 0)))
        head = self.exactly(20)
        flags, revision, length = struct.unpack_from(">BBH", head, 16)
        said = self.exactly(length)
        assert head[:16] == b"MPA ID Rep Frame" and not flags & MARKERS
        if flags & REJECT:
            raise NotAccepted(flags, revision, said)
        assert revision == 2 and flags & ENHANCED and (not crc or flags & CRC)
        inbound, outbound = struct.unpack_from(">HH", said)
        assert inbound & 0x8000 and outbound & 0x8000, "peer-to-peer was asked for"
        self.crc = bool(flags & CRC)
        self.reads_max = min(inbound & 0x3FFF, READS)
        assert (self.reads_max > 0) == reads, "a responder offers reads where they may come"
        self.private_data = said[4:]
        self.sent, self.reads, self.taken, self.served = 0, 0, 0, 0
        self.regions, self.messages, self.pending = {}, deque(), deque()
        self.message = bytearray()
        # RFC 6581, section 9.2: an RDMA Write of no bytes comes first.
        self.frame(struct.pack(">BBIQ", 0xC1, 0x40 | WRITE, 0, 0))

    def exactly(self, count):
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return bytes(data)

    def frame(self, segment):
        """One FPDU."""
        covered = struct.pack(">H", len(segment)) + segment
        covered += bytes(-len(covered) % 4)
        self.socket.sendall(covered + struct.pack("<I", crc32c(covered) if self.crc else 0))

    def untagged(self, opcode, queue, number, payload, split=0):
        """A message in a queue; of several segments if it is to be split."""
        cuts = [0, split, len(payload)] if split else [0, len(payload)]
        for start, end in zip(cuts, cuts[1:]):
            last = 0x40 if end == len(payload) else 0
            head = struct.pack(">BBIIII", last | 1, 0x40 | opcode, 0, queue, number, start)
            self.frame(head + payload[start:end])

    def send(self, message, split=0):
        self.sent += 1
        self.untagged(SEND, 0, self.sent, message, split)

    def register(self, length):
        tag = 0x1000 + len(self.regions)
        self.regions[tag] = Region(tag, length)
        return self.regions[tag]

    def receive(self):
        """The next message."""
        while not self.messages:
            self.step()
        return self.messages.popleft()

    def step(self):
        """The next segment."""
        head = self.exactly(2)
        (length,) = struct.unpack(">H", head)
        rest = self.exactly(length + -(length + 2) % 4 + 4)
        if self.crc:
            assert struct.unpack("<I", rest[-4:])[0] == crc32c(head + rest[:-4]), "checksum"
        segment = rest[:length]
        control, opcode = segment[0], segment[1] & 0x0F
        assert control & 3 == 1 and segment[1] >> 6 == 1, "versions"
        last = bool(control & 0x40)
        if control & 0x80:
            tag, offset = struct.unpack_from(">IQ", segment, 2)
            self.tagged(opcode, last, tag, offset, segment[14:])
        else:
            queue, number, offset = struct.unpack_from(">III", segment, 6)
            if opcode == READ_REQUEST:
                assert (queue, number, offset, last) == (1, self.served + 1, 0, True)
                self.served += 1
                self.serve(*struct.unpack(">IQIIQ", segment[18:]))
                return
            self.queued(opcode, last, queue, number, offset, segment[18:])

    def tagged(self, opcode, last, tag, offset, payload):
        if opcode == WRITE:
            memory = self.regions[tag].memory
            assert offset + len(payload) <= len(memory), "a write beyond the region"
            memory[offset : offset + len(payload)] = payload
            return
        sink, length, data = self.pending[0]
        assert opcode == READ_RESPONSE and tag == sink and offset == len(data)
        data += payload
        assert last == (len(data) == length)
        if last:
            self.pending.popleft()

    def serve(self, sink, at, length, tag, offset):
        """The server reads a region of ours."""
        data = self.regions[tag].load(offset, length)
        assert len(data) == length, "a read beyond the region"
        for start in range(0, max(length, 1), 50000):
            part = data[start : start + 50000]
            last = 0x40 if start + len(part) == length else 0
            head = struct.pack(">BBIQ", 0x81 | last, 0x40 | READ_RESPONSE, sink, at + start)
            self.frame(head + part)

    def queued(self, opcode, last, queue, number, offset, payload):
        if opcode == TERMINATE:
            raise Terminated(payload[0] >> 4, payload[0] & 15, payload[1])
        assert opcode in (SEND, SEND_INVALIDATE) and queue == 0
        assert (number, offset) == (self.taken + 1, len(self.message))
        self.message += payload
        if last:
            self.taken += 1
            self.messages.append(bytes(self.message))
            self.message = bytearray()

    def load(self, place, offset, length):
        """An RDMA Read."""
        tag, base = place
        self.reads += 1
        sink, data = 0x80000000 | self.reads, bytearray()
        self.pending.append((sink, length, data))
        request = struct.pack(">IQIIQ", sink, 0, length, tag, base + offset)
        self.untagged(READ_REQUEST, 1, self.reads, request)
        while self.pending:
            self.step()
        return bytes(data)

    def is_alive(self, life):
        """The tags end with the connection."""
        return True

    def close(self):
        self.socket.close()
