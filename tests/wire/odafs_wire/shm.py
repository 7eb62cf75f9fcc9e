"""The fabric `shm` (section 13)."""

import array
import ctypes
import mmap
import os
import socket
import struct
import threading
import time

MAGIC, VERSION = 0x4F444653, 4
HELLO, WELCOME, REFUSED, REGION, EXPOSED, NO_REGION = 1, 2, 3, 4, 5, 6
RING, SLOTS_AT, DATA_AT, DATA = 593920, 256, 65792, 512 << 10
MESSAGE, REGISTRATION = 0, 1


class Refused(Exception):
    """The server's reason."""


def fence():
    """The lock's atomic exchange is a full fence."""
    with threading.Lock():
        pass


class Region:
    """Memory that the server has made, for it to write to."""

    def __init__(self, tag, memory):
        self.tag, self.memory = tag, memory

    def at(self, offset):
        return self.tag, offset

    def load(self, offset, length):
        return self.memory[offset : offset + length]


class Ring:
    def __init__(self, memory, base):
        self.memory, self.base = memory, base

    def word(self, at):
        return ctypes.c_uint64.from_buffer(self.memory, self.base + at)

    def half(self, at):
        return ctypes.c_uint32.from_buffer(self.memory, self.base + at)

    def bytes(self, at, length):
        return self.memory[self.base + at : self.base + at + length]

    def put(self, at, data):
        self.memory[self.base + at : self.base + at + len(data)] = data


class Pair:
    """A queue pair."""

    fabric = b"shm"

    def __init__(self, path, private, reads=False):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.socket.send(struct.pack("=IIII", MAGIC, VERSION, HELLO, 0) + private)
        kind, said, memories = self.packet()
        if kind == REFUSED:
            raise Refused(said.decode())
        assert kind == WELCOME and len(memories) == 1
        self.private_data = said
        rings = mmap.mmap(memories[0], 2 * RING)
        os.close(memories[0])
        self.out, self.into = Ring(rings, 0), Ring(rings, RING)
        self.posted = self.taken = self.told = self.untold = self.heard = 0
        self.tags, self.registrations, self.exposed, self.answers = 0, 0, {}, []
        self.life = None
        # Where in the data the next long message goes, and how many messages there were with the last long one.
        self.head = self.long = 0

    def packet(self):
        """The next packet: kind, what follows, descriptors. A wake-up has the kind 0."""
        descriptors = array.array("i")
        data, control, _, _ = self.socket.recvmsg(512, socket.CMSG_SPACE(3 * 4))
        if not data:
            raise ConnectionError("the server closed the connection")
        for level, kind, body in control:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            descriptors.frombytes(body)
        if len(data) < 16:
            return 0, b"", []
        magic, version, kind, zero = struct.unpack_from("=IIII", data)
        assert (magic, version, zero) == (MAGIC, VERSION, 0)
        return kind, data[16:], list(descriptors)

    def take_packet(self):
        """Acts on the next packet."""
        kind, said, memories = self.packet()
        if kind == EXPOSED:
            self.learn_exposed(said, memories)
        elif kind:
            self.answers.append((kind, said, memories))

    def place(self, length):
        """Where in the data a long message goes: behind the last one, or at the front when it does not fit there."""
        assert self.heard >= self.long, "one message at a time may be long"
        self.long = self.posted + 1
        start = self.head if self.head + length <= DATA else 0
        self.head = start + length + -length % 64
        return start

    def send(self, message, kind=MESSAGE):
        assert len(message) <= 68 << 10 and self.posted - self.heard < 256, "no room"
        at = SLOTS_AT + self.posted % 256 * 256
        place = 0
        if len(message) <= 248:
            self.out.put(at + 8, message)
        else:
            start = self.place(len(message))
            self.out.put(DATA_AT + start, message)
            place = start // 64
        header = (
            (self.posted + 1 & 0xFFFF) << 48
            | (self.taken & 0xFFFF) << 32
            | kind << 30
            | place << 17
            | len(message)
        )
        self.out.word(at).value = header
        self.posted += 1
        fence()
        if self.out.half(0).value:
            self.out.half(0).value = 0
            self.wake()

    def wake(self):
        self.socket.send(b"\x00")

    def header(self):
        """The first word of the next message, if it is there."""
        word = self.into.word(SLOTS_AT + self.taken % 256 * 256).value
        return word if word >> 48 == self.taken + 1 & 0xFFFF else None

    def receive(self):
        """The next message. It looks for it for a while, and then sleeps until a wake-up comes."""
        until = time.monotonic() + 20
        for look in range(1 << 30):
            header = self.header()
            if header is not None:
                break
            if look > 1000:
                self.into.half(0).value = 1
                fence()
                if self.header() is None:
                    assert time.monotonic() < until, "no answer"
                    self.take_packet()
                self.into.half(0).value = 0
        kind, place, length = header >> 30 & 3, header >> 17 & 0x1FFF, header & 0x1FFFF
        assert kind == MESSAGE and length <= 68 << 10
        if length <= 248:
            message = self.into.bytes(SLOTS_AT + self.taken % 256 * 256 + 8, length)
        else:
            assert place * 64 + length <= DATA
            message = self.into.bytes(DATA_AT + place * 64, length)
            self.untold += length + -length % 64
        self.taken += 1
        self.heard += (header >> 32) - self.heard & 0xFFFF
        assert self.heard <= self.posted
        if self.taken - self.told >= 64 or self.untold >= 128 << 10:
            self.into.word(128).value = self.taken
            self.told, self.untold = self.taken, 0
            fence()
            if self.into.half(64).value:
                self.into.half(64).value = 0
                self.wake()
        return message

    def register(self, length):
        self.registrations += 1
        self.send(struct.pack("=QI", length, self.registrations), REGISTRATION)
        while not self.answers:
            self.take_packet()
        kind, said, memories = self.answers.pop()
        if kind == NO_REGION:
            assert struct.unpack_from("=Q", said)[0] == self.registrations
            raise Refused(said[8:].decode())
        tag, bytes_, number = struct.unpack("=QQQ", said)
        assert (kind, bytes_, number) == (REGION, length, self.registrations)
        assert tag == self.tags + 1 and len(memories) == 1
        self.tags = tag
        memory = mmap.mmap(memories[0], length)
        os.close(memories[0])
        return Region(tag, memory)

    def learn_exposed(self, said, memories):
        arena, stamps, _page, _beside, life = struct.unpack("=QQQQQ", said)
        assert len(memories) == 3
        assert (arena, stamps) == (self.tags + 1, self.tags + 2)
        self.tags = stamps
        for tag, memory in zip((arena, stamps), memories):
            self.exposed[tag] = mmap.mmap(memory, os.fstat(memory).st_size, prot=mmap.PROT_READ)
        self.life = mmap.mmap(memories[2], 8, prot=mmap.PROT_READ)
        assert self.is_alive(life)
        for memory in memories:
            os.close(memory)

    def load(self, place, offset, length):
        tag, base = place
        while tag not in self.exposed:
            self.take_packet()
        return self.exposed[tag][base + offset : base + offset + length]

    def is_alive(self, life):
        return struct.unpack("=Q", self.life[:8])[0] == life

    def close(self):
        self.socket.close()
