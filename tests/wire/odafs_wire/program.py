"""The ODAFS program (sections 3 to 5)."""

import hashlib
import hmac
import struct
from collections import namedtuple

import blake3
from noise.connection import Keypair, NoiseConnection

from .rpc import ODAFS, OK
from .xdr import Packer, Unpacker

NULL, OPEN_SESSION, READ, GET_REFS, REKEY, CLOSE_SESSION, DELEGATE = range(7)
DENIED, NOSESSION, BADHANDSHAKE, UNSUPPORTED, TRYLATER = 1, 2, 3, 4, 6
GUARDED, ONE_SIDED = 0, 1
NN, NK, KK = 0, 1, 2
HMAC_SHA_256, BLAKE3 = 0, 1

Reference = namedtuple("Reference", "address length handle key epoch")
Accepted = namedtuple(
    "Accepted", "session features mac mode page_bytes life rekey_requests rekey_seconds max_read"
)
Read = namedtuple("Read", "attributes change eof count data references counter feedback")
File = namedtuple("File", "range status change size counter references")
Delegated = namedtuple("Delegated", "number lease_ms change attributes")


class Refused(Exception):
    """The procedure's own status."""

    def __init__(self, status):
        super().__init__(status)
        self.status = status


def reference(r):
    return Reference(r.u64(), r.u32(), r.u32(), r.u64(), r.u64())


def page_reference(r):
    return r.u64(), reference(r)


def checked(reply):
    status = reply.u32()
    if status != OK:
        raise Refused(status)
    return reply


def read(caller, file, offset, count, session=0, chunk=None):
    """READ (4.3); references if there is a session. `chunk`: (tag, offset, length)."""
    arguments = Packer().opaque(file).u64(offset).u32(count, session, int(session != 0))
    if chunk is None:
        arguments.u32(0)
    else:
        tag, at, length = chunk
        arguments.u32(1, tag).u64(at).u32(length)
    r = checked(caller.call(ODAFS, READ, arguments.data))
    done = Read(
        r.optional(lambda: r.take(84)),
        r.u64(),
        r.boolean(),
        r.u32(),
        r.opaque(),
        r.array(lambda: page_reference(r)),
        r.optional(lambda: reference(r)),
        r.u64(),
    )
    r.end()
    return done


def get_refs(caller, session, ranges, resume=0):
    """One GET_REFS (4.4): the files, and where to go on. `ranges`: (file, offset, length)."""
    arguments = Packer().u32(session, len(ranges))
    for file, offset, length in ranges:
        arguments.opaque(file).u64(offset, length)
    r = checked(caller.call(ODAFS, GET_REFS, arguments.u64(resume).data))

    def file():
        return File(
            r.u32(),
            r.u32(),
            r.u64(),
            r.u64(),
            r.optional(lambda: reference(r)),
            r.array(lambda: page_reference(r)),
        )

    files, resume = r.array(file), r.u64()
    r.end()
    return files, resume


def all_refs(caller, session, file):
    """The references of a whole file that is in the server's memory, by page, and its counter."""
    found, resume = {}, 0
    while True:
        (answer,), resume = get_refs(caller, session, [(file, 0, 2**64 - 1)], resume)
        assert answer.status == OK
        found.update(answer.references)
        if resume == 0:
            return found, answer.counter


def delegate(caller, session, file, returned=()):
    """DELEGATE (4.7): gives some back, and asks for one if there is a `file`."""
    arguments = Packer().u32(session, len(returned)).u64(*returned).u32(int(file is not None))
    if file is not None:
        arguments.opaque(file)
    r = checked(caller.call(ODAFS, DELEGATE, arguments.data))
    done = r.optional(lambda: Delegated(r.u64(), r.u32(), r.u64(), r.take(84)))
    r.end()
    return done


def hkdf_expand(key, info):
    """HKDF-Expand (RFC 5869) with SHA-256 for 32 bytes: one block."""
    return hmac.digest(key, info + b"\x01", "sha256")


class Session:
    """OPEN_SESSION (4.2, 5.1) over `caller`, whose connection the session lives by."""

    def __init__(self, caller, fabric, macs=1, mode=GUARDED, export=b"/", server=None, identity=None, hello=b""):
        self.caller = caller
        pattern = NN if server is None else NK if identity is None else KK
        parameters = Packer().u32(1).u64(0).u32(macs, mode, pattern).opaque(export).opaque(fabric)
        parameters = bytes(parameters.data)
        noise = NoiseConnection.from_name(
            b"Noise_%s_25519_ChaChaPoly_BLAKE2s" % (b"NN", b"NK", b"KK")[pattern]
        )
        noise.set_as_initiator()
        noise.set_prologue(parameters)
        if server is not None:
            noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, server)
        message = b""
        if identity is not None:
            noise.set_keypair_from_private_bytes(Keypair.STATIC, identity)
            message = noise.noise_protocol.keypairs["s"].public_bytes
        noise.start_handshake()
        message += bytes(noise.write_message(hello))
        arguments = Packer().opaque(parameters).opaque(message)
        r = checked(caller.call(ODAFS, OPEN_SESSION, arguments.data))
        payload = bytes(noise.read_message(r.opaque()))
        r.end()
        r = Unpacker(payload)
        fields = (r.u32, r.u64, r.u32, r.u32, r.u32, r.u64, r.u64, r.u32, r.u32)
        self.accepted = Accepted(*(field() for field in fields))
        r.end()
        assert 1 << self.accepted.mac & macs and self.accepted.session != 0
        # 5.3: the initiator encrypts with the first key of Split() and decrypts with the second.
        state = noise.noise_protocol
        secret = state.cipher_state_encrypt.k + state.cipher_state_decrypt.k
        self.prk = hmac.digest(noise.get_handshake_hash(), secret, "sha256")
        self.generation = 0

    @property
    def number(self):
        return self.accepted.session

    def tag(self, label, message):
        """Of Attach and control messages: HMAC-SHA-256 whatever was agreed."""
        key = hkdf_expand(self.prk, label + bytes(4))
        return hmac.digest(key, message, hashlib.sha256)[:16]

    def request_tag(self, message, generation):
        label = (b"odafs request hmac-sha256", b"odafs request blake3")[self.accepted.mac]
        key = hkdf_expand(self.prk, label + struct.pack(">I", generation))
        if self.accepted.mac == BLAKE3:
            return blake3.blake3(message, key=key).digest()[:16]
        return hmac.digest(key, message, hashlib.sha256)[:16]

    def control_tag(self, what, generation):
        return self.tag(b"odafs control", struct.pack(">III", what, self.number, generation))

    def rekey(self, generation=None, tag=None):
        """REKEY (4.5)."""
        generation = self.generation + 1 if generation is None else generation
        tag = tag or self.control_tag(1, generation)
        arguments = Packer().u32(self.number, generation).fixed(tag)
        r = checked(self.caller.call(ODAFS, REKEY, arguments.data))
        assert r.u32() == generation
        assert r.take(16) == self.control_tag(2, generation), "the answer's tag"
        r.end()
        self.generation = generation

    def close(self):
        """CLOSE_SESSION (4.6)."""
        arguments = Packer().u32(self.number).fixed(self.control_tag(3, 0))
        checked(self.caller.call(ODAFS, CLOSE_SESSION, arguments.data)).end()
