"""The direct protocol: guarded reads (section 6) and one-sided ones (section 7)."""

import os
import struct
from collections import namedtuple

DIRECT, RPC = 1, 2
INLINE, ODD, MARKED = 1, 2, 4
NOT_RESIDENT, STALE, REVOKED, BUSY, DENIED, REPLAYED, OUT_OF_BOUNDS = range(1, 8)

Completion = namedtuple("Completion", "inline status length sequence epoch feedback data")
Grant = namedtuple("Grant", "connection in_order rising beside arena stamps")


class Exceptional(Exception):
    """A direct read was refused: which exception."""

    def __init__(self, status):
        super().__init__(status)
        self.status = status


def private_data(role, reads=False):
    """6.1, of a client."""
    return b"ODAF" + bytes([1, role, int(reads), 0]) + bytes(16)


def nonce_of(said, role):
    """6.1, of the server: its nonce."""
    assert said[:6] == b"ODAF" + bytes([1, role]), said
    return said[8:24]


class Direct:
    """A direct connection over a queue pair, and the session that it is attached to."""

    def __init__(self, pair):
        self.pair = pair
        self.nonce = nonce_of(pair.private_data, DIRECT)
        self.session, self.number, self.sequence = None, 0, 0

    def exchange(self, message):
        self.pair.send(message)
        return self.pair.receive()

    def attach_message(self, session, one_sided=False, spoil=0):
        """6.2. With `spoil` its tag does not hold."""
        body = struct.pack("<BBBBI", 1, 2, 0, int(one_sided), session.number) + os.urandom(16)
        tag = bytearray(session.tag(b"odafs attach", body + self.nonce))
        tag[0] ^= spoil
        return body + bytes(tag)

    def attach(self, session, one_sided=False):
        message = self.attach_message(session, one_sided)
        return self.attached(session, message, self.exchange(message))

    def attached(self, session, message, answer):
        """The answer to an Attach."""
        assert len(answer) == 48
        opcode, flags, status, number, arena, stamps, at, stamps_at = struct.unpack_from(
            "<BBHIIIQQ", answer
        )
        assert opcode == 0x82
        if status:
            assert answer[4:] == bytes(44), "a refusal says nothing else"
            raise Exceptional(status)
        expected = session.tag(b"odafs attach", answer[:32] + message[8:24] + self.nonce)
        assert answer[32:] == expected, "the answer's tag"
        self.session, self.number = session, number
        if not flags & 1:
            return None
        self.grant = Grant(
            number, bool(flags & 2), bool(flags & 4), bool(flags & 8), (arena, at), (stamps, stamps_at)
        )
        return self.grant

    def request(self, reference, flags=INLINE, sink=(0, 0), session=None, **other):
        """6.3, sealed. `other`: fields that are not what they should be."""
        session = session or self.session
        self.sequence += 1
        generation = other.get("generation", session.generation)
        body = struct.pack(
            "<BBBBIIIQQQQQII",
            other.get("version", 1),
            1,
            other.get("mac", session.accepted.mac),
            flags | (ODD if generation & 1 else 0),
            other.get("number", session.number),
            other.get("connection", self.number),
            sink[0],
            other.get("sequence", self.sequence),
            other.get("address", reference.address),
            other.get("key", reference.key),
            other.get("epoch", reference.epoch),
            sink[1],
            other.get("handle", reference.handle),
            other.get("length", reference.length),
        )
        assert len(body) == 64
        return body + session.request_tag(body, generation)

    @staticmethod
    def completion(message):
        """6.4."""
        opcode, flags, *rest = struct.unpack_from("<BBHIQQQ", message)
        done = Completion(bool(flags & 1), *rest, message[32:])
        assert opcode == 0x81 and flags < 2 and done.status <= 7
        assert len(done.data) == (done.length if done.inline and not done.status else 0)
        assert done.length == 0 or not done.status
        return done

    def judge(self, message):
        """Sends a request as it is: its completion."""
        return self.completion(self.exchange(message))

    def read(self, reference, **other):
        """A guarded read, inline."""
        done = self.judge(self.request(reference, **other))
        assert done.sequence == other.get("sequence", self.sequence)
        if done.status:
            raise Exceptional(done.status)
        return done.data

    def read_to(self, reference, region, offset=0, marked=False):
        """A guarded read to a region of the client's."""
        flags = MARKED if marked else 0
        done = self.judge(self.request(reference, flags=flags, sink=region.at(offset)))
        if done.status:
            raise Exceptional(done.status)
        return region.load(offset, done.length)

    def read_alone(self, reference, offset=0, length=None):
        """A one-sided read (7)."""
        grant, page = self.grant, self.session.accepted.page_bytes
        length = reference.length - offset if length is None else length
        address = reference.address + offset
        frame = address // page
        gap = 64 if grant.beside else 0
        data = self.pair.load(grant.arena, frame * (page + gap) + address % page, length)
        at = frame * (page + gap) + page if grant.beside else frame * 8
        (stamp,) = struct.unpack("<Q", self.pair.load(grant.stamps, at, 8))
        if stamp > reference.epoch or not self.pair.is_alive(self.session.accepted.life):
            raise Exceptional(STALE)
        return data
