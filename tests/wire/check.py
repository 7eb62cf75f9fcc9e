"""What docs/WIRE.md and docs/WIRE-DIRECT.md say, tried on a server: by a client that was written from it."""

import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from odafs_wire import direct, iwarp, program, rdma, rpc, shm
from odafs_wire.direct import (
    DENIED,
    NOT_RESIDENT,
    OUT_OF_BOUNDS,
    REPLAYED,
    REVOKED,
    STALE,
    Direct,
    Exceptional,
)
from odafs_wire.program import BLAKE3, HMAC_SHA_256, ONE_SIDED, Refused, Session
from odafs_wire.xdr import Packer, Unpacker

PAGE = 4096
CACHE = 8 << 20


def content(pages, salt):
    return b"".join(b"%08d %-23s" % (page, salt) * (PAGE // 32) for page in range(pages))


class Server:
    """`odafs serve`, of a directory with a few files."""

    def __init__(self, *options):
        self.scratch = tempfile.TemporaryDirectory()
        self.files = {
            b"small": b"the content of a small file",
            b"file": content(700, b"file"),
            b"sweep": content(2 * CACHE // PAGE, b"sweep"),
            b"changing": content(4, b"before"),
        }
        tree = os.path.join(self.scratch.name, "tree")
        os.mkdir(tree, 0o755)
        os.chmod(self.scratch.name, 0o755)
        for name, data in self.files.items():
            path = os.path.join(tree, name.decode())
            with open(path, "wb") as file:
                file.write(data)
            os.chmod(path, 0o666)
        self.shm = os.path.join(self.scratch.name, "socket")
        command = [os.environ["ODAFS"], "serve", tree, "--state", os.path.join(self.scratch.name, "state")]
        command += ["--nfs", "127.0.0.1:0", "--rdma", "127.0.0.1:0", "--shm", self.shm]
        command += ["--cache", str(CACHE), "--direct", "one-sided", *options]
        self.log = open(os.path.join(self.scratch.name, "log"), "w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready = dict(word.split("=") for word in self.process.stdout.readline().split()[1:])
        self.nfs, self.rdma = (self.address(ready[name]) for name in ("nfs", "rdma"))

    @staticmethod
    def address(text):
        host, port = text.rsplit(":", 1)
        return host, int(port)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.log.close()
            self.scratch.cleanup()

    def pair(self, fabric, role, reads=False, **options):
        private = direct.private_data(role, reads)
        if fabric == b"shm":
            return shm.Pair(self.shm, private, reads)
        return iwarp.Pair(self.rdma, private, reads, **options)

    def tcp(self):
        return rpc.Caller(rpc.Tcp(self.nfs))


class Pairwise:
    """A call and its reply as messages of a queue pair."""

    def __init__(self, pair):
        self.pair = pair

    def __call__(self, message):
        self.pair.send(message)
        return self.pair.receive()


class WithServer(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.options)
        cls.tcp = cls.server.tcp()
        cls.root = rpc.mount(cls.tcp, b"/")
        cls.handles = {name: rpc.lookup(cls.tcp, cls.root, name) for name in cls.server.files}

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def raises(self, status, call, *arguments, **others):
        with self.assertRaises((Exceptional, Refused)) as caught:
            call(*arguments, **others)
        self.assertEqual(caught.exception.status, status)


class OverTcp(WithServer):
    """Section 2 and 4, on NFS's own port."""

    def test_program(self):
        self.assertEqual(self.tcp.call(rpc.ODAFS, program.NULL).data[-4:], bytes(4))
        for call, expected in (
            ((rpc.ODAFS, 7), ("accepted", 3)),
            ((rpc.ODAFS, program.READ), ("accepted", 4)),
            (((0x200DAF50, 2), 0), ("accepted", 2)),
            (((0x200DAF51, 1), 0), ("accepted", 1)),
        ):
            with self.assertRaises(rpc.Rejected) as caught:
                self.tcp.call(*call)
            self.assertEqual(caught.exception.args, expected)

    def test_headers(self):
        """2: calls that are not served."""
        tcp = rpc.Tcp(self.server.nfs)
        nfs = [*rpc.NFS, 1]
        for words, expected in (
            ([7, 0, 3, *nfs, 0, 0, 0, 0], [7, 1, 1, 0, 2, 2]),
            ([7, 0, 2, *nfs], [7, 1, 0, 0, 0, 4]),
            ([7, 0, 2, *nfs, 1, 4, 9, 0, 0], [7, 1, 1, 1, 1]),
            ([7, 0, 2, *nfs, 0, 0, 1, 4, 9], [7, 1, 1, 1, 3]),
            ([7, 0, 2, *nfs, 6, 0, 0, 0], [7, 1, 1, 1, 1]),
            ([7, 0, 2, *rpc.NFS, 0, 6, 0, 0, 0], [7, 1, 0, 0, 0, 0]),
        ):
            reply = tcp(bytes(Packer().u32(*words).data))
            self.assertEqual(list(struct.unpack(">%dI" % (len(reply) // 4), reply)), expected)

    def test_records(self):
        """2: fragments, calls in a row, records that are too long."""
        tcp = rpc.Tcp(self.server.nfs)
        calls = [bytes(Packer().u32(xid, 0, 2, *rpc.NFS, 0, 0, 0, 0, 0).data) for xid in range(40)]
        for xid, call in enumerate(calls):
            tcp.send(call, fragment=xid + 1)
        replies = {struct.unpack(">6I", tcp.receive()) for _ in calls}
        self.assertEqual(replies, {(xid, 1, 0, 0, 0, 0) for xid in range(40)})
        tcp.socket.sendall(struct.pack(">I", 1 << 31 | (1 << 20) + (64 << 10) + 1))
        self.assertEqual(tcp.socket.recv(1), b"")

    def test_portmapper(self):
        """2: one port answers every program."""
        for program_ in rpc.NFS, rpc.MOUNT:
            reply = self.tcp.call(rpc.PORTMAP, 3, Packer().u32(*program_, 6, 0).data)
            self.assertEqual(reply.u32(), self.server.nfs[1])

    def test_sessions_are_not_opened_here(self):
        for fabric in (b"tcp", b"shm", b"nfs"):
            self.raises(program.UNSUPPORTED, Session, self.tcp, fabric)

    def test_read(self):
        data = self.server.files[b"file"]
        for offset, count, expected in (
            (0, 10, 10),
            (PAGE - 3, 2 * PAGE, 2 * PAGE),
            (len(data) - 5, 100, 5),
            (len(data), 1, 0),
            (0, 4 << 20, 1 << 20),
        ):
            done = program.read(self.tcp, self.handles[b"file"], offset, count)
            self.assertEqual(done.count, expected)
            self.assertEqual(done.data, data[offset : offset + expected])
            self.assertEqual(done.eof, offset + expected == len(data))
            self.assertEqual((done.references, done.counter), ([], None))

    def test_a_chunk_is_nowhere(self):
        """4.3: the data is in the reply, and no more than the chunk would hold."""
        done = program.read(self.tcp, self.handles[b"file"], 0, 9000, chunk=(7, 0, 5000))
        self.assertEqual(done.data, self.server.files[b"file"][:5000])

    def test_sessions_that_are_not_there(self):
        """4.3, 4.4."""
        done = program.read(self.tcp, self.handles[b"file"], 0, 100, session=12345)
        self.assertEqual(done.references, [])
        self.raises(program.NOSESSION, program.get_refs, self.tcp, 12345, [])


class OverFabric:
    """Sections 4 to 8, on one fabric."""

    def setUp(self):
        self.call_pair = self.server.pair(self.fabric, direct.RPC)
        direct.nonce_of(self.call_pair.private_data, direct.RPC)
        self.caller = rpc.Caller(Pairwise(self.call_pair))
        self.file = self.handles[b"file"]
        self.data = self.server.files[b"file"]

    def tearDown(self):
        self.call_pair.close()

    def open(self, **options):
        return Session(self.caller, self.fabric, **options)

    def attached(self, session, one_sided=False):
        line = Direct(self.server.pair(self.fabric, direct.DIRECT, reads=one_sided))
        self.addCleanup(line.pair.close)
        line.grant = line.attach(session, one_sided)
        return line

    def page(self, reference, page):
        return self.data[page * PAGE : page * PAGE + reference.length]

    def references(self, session, offset=0, count=1):
        done = program.read(self.caller, self.file, offset, count, session.number)
        self.assertEqual(done.data, self.data[offset : offset + done.count])
        return dict(done.references)

    def test_session(self):
        """4.2, 5."""
        for macs, expected in ((1, HMAC_SHA_256), (2, BLAKE3)):
            session = self.open(macs=macs)
            self.assertEqual((session.accepted.mac, session.accepted.mode), (expected, 0))
            self.assertEqual(session.accepted.page_bytes, PAGE)
            line = self.attached(session)
            found = self.references(session, 3 * PAGE)
            self.assertEqual(line.read(found[3]), self.page(found[3], 3))
            session.close()
            self.raises(program.NOSESSION, session.close)
        # The first message may have a payload, which nobody looks at.
        self.open(hello=b"hello").close()
        for wrong in ({"export": b"/other"}, {"macs": 4}, {"server": bytes(range(32))}):
            with self.assertRaises(Refused) as caught:
                self.open(**wrong)
            self.assertIn(caught.exception.status, (program.UNSUPPORTED, program.BADHANDSHAKE))
        self.raises(program.UNSUPPORTED, Session, self.caller, b"verbs")

    def test_guarded(self):
        """6.3: inline, to memory, of parts."""
        session = self.open()
        line = self.attached(session)
        region = line.pair.register(4 * PAGE)
        found = self.references(session, 0, 10 * PAGE)
        self.assertTrue(set(range(10)) <= set(found) and len(found) <= 32)
        for page, reference in found.items():
            expected = self.page(reference, page)
            self.assertEqual(line.read(reference), expected)
            self.assertEqual(line.read_to(reference, region, 100), expected)
            self.assertEqual(line.read_to(reference, region, PAGE, marked=True), expected)
            if self.fabric == b"shm":
                marks = [region.load(2 * PAGE + 64 * mark, 8) for mark in range(3)]
                self.assertEqual(marks, [line.sequence.to_bytes(8, "little")] * 3)
            part = line.read(reference, address=reference.address + 7, length=1000)
            self.assertEqual(part, expected[7:1007])

    def test_exceptions(self):
        """6.5, but for Busy."""
        session, other = self.open(), self.open()
        line = self.attached(session)
        reference = self.references(session)[0]
        self.assertEqual(line.read(reference), self.page(reference, 0))

        self.raises(REPLAYED, line.read, reference, sequence=line.sequence)
        self.raises(OUT_OF_BOUNDS, line.read, reference, length=reference.length + 1)
        self.raises(OUT_OF_BOUNDS, line.read, reference, length=0)
        self.raises(STALE, line.read, reference, key=reference.key ^ 1)
        self.raises(STALE, line.read, reference, epoch=1 << 62)
        good = line.request(reference)
        bad = good[:-1] + bytes([good[-1] ^ 1])
        for message in (bad, good[:-1], b"", line.request(reference, connection=line.number + 1)):
            done = line.judge(message)
            self.assertEqual((done.status, done.length), (DENIED, 0))
            self.assertEqual(done.sequence, 0 if len(message) < 24 else int.from_bytes(message[16:24], "little"))
        # A number counts as used only once its tag has held.
        self.assertEqual(line.judge(good).status, 0)
        self.raises(DENIED, line.read, reference, session=other)
        self.raises(DENIED, line.attach, other)
        self.assertEqual(line.read(reference), self.page(reference, 0))

        session.close()
        self.raises(REVOKED, line.read, reference)

    def test_throttled(self):
        """6.2 and 6.6, step 1: while slowed even a good Attach is refused, by an Attached."""
        session = self.open()
        line = Direct(self.server.pair(self.fabric, direct.DIRECT))
        self.addCleanup(line.pair.close)
        bad, good = line.attach_message(session, spoil=1), line.attach_message(session)
        # Until pauses are long, also where each exchange takes longer than the first of them.
        until, refused = time.monotonic() + 0.6, 0
        while refused < 40 or time.monotonic() < until:
            refused += 1
            self.raises(DENIED, line.attached, session, bad, line.exchange(bad))
        line.pair.send(bad)
        line.pair.send(good)
        for message in bad, good:
            self.raises(DENIED, line.attached, session, message, line.pair.receive())

    def test_paged_out(self):
        """6.5: NotResident."""
        session = self.open()
        line = self.attached(session)
        found = self.references(session, 0, 32 * PAGE)
        sweep = self.server.files[b"sweep"]
        for _ in range(3):
            for offset in range(0, len(sweep), 1 << 20):
                rpc.read(self.tcp, self.handles[b"sweep"], offset, 1 << 20)
        statuses = [line.judge(line.request(reference)).status for reference in found.values()]
        self.assertIn(NOT_RESIDENT, statuses)
        again = self.references(session)[0]
        self.assertEqual(line.read(again), self.page(again, 0))

    def test_one_sided(self):
        """7."""
        session = self.open(mode=ONE_SIDED)
        self.assertEqual(session.accepted.mode, ONE_SIDED)
        line = self.attached(session, one_sided=True)
        self.assertIsNotNone(line.grant)
        found = self.references(session, 0, 20 * PAGE)
        for page, reference in found.items():
            self.assertEqual(line.read_alone(reference), self.page(reference, page))
            self.assertEqual(line.read_alone(reference, 9, 50), self.page(reference, page)[9:59])
        self.assertEqual(line.read(found[0]), self.page(found[0], 0))
        # Granted to a session, and still asked for by each connection.
        self.assertIsNone(self.attached(session).grant)

    def test_revalidate(self):
        """3.2, 4.3: the change counter, by all routes; a write makes references stale."""
        session = self.open(mode=ONE_SIDED)
        line = self.attached(session, one_sided=True)
        file = self.handles[b"changing"]
        done = program.read(self.caller, file, 0, 4 * PAGE, session.number)
        references, counter = dict(done.references), done.counter
        self.assertEqual((counter.address % 8, counter.length), (0, 8))
        self.assertEqual(set(references), {0, 1, 2, 3})
        same = done.change.to_bytes(8, "little")
        self.assertEqual((line.read(counter), line.read_alone(counter)), (same, same))

        new = os.urandom(100)
        rpc.write(self.tcp, file, PAGE + 10, new)
        (now,) = {line.read(counter), line.read_alone(counter)}
        self.assertNotEqual(now, same)
        self.raises(STALE, line.read, references[1])
        self.raises(STALE, line.read_alone, references[1])
        expected = done.data[PAGE : PAGE + 10] + new + done.data[PAGE + 110 : 2 * PAGE]
        again = program.read(self.caller, file, PAGE, PAGE, session.number)
        self.assertEqual((again.data, again.change.to_bytes(8, "little")), (expected, now))
        reference = dict(again.references)[1]
        self.assertEqual((line.read(reference), line.read_alone(reference)), (expected, expected))

    def test_get_refs(self):
        """4.4, with the references that a long READ does not bring."""
        session = self.open()
        line = self.attached(session)
        for offset in range(0, len(self.data), 1 << 16):
            rpc.read(self.tcp, self.file, offset, 1 << 16)
        found, counter = program.all_refs(self.caller, session.number, self.file)
        self.assertEqual(set(found), set(range(len(self.data) // PAGE)))
        self.assertEqual(counter.length, 8)
        for page in (0, 99, 699):
            self.assertEqual(line.read(found[page]), self.page(found[page], page))
        ranges = [(self.file, 5 * PAGE, 1), (bytes(64), 0, 1), (self.handles[b"small"], 0, 100)]
        files, resume = program.get_refs(self.caller, session.number, ranges)
        self.assertEqual([file.range for file in files], [0, 1, 2])
        self.assertEqual(([page for page, _ in files[0].references], resume), ([5], 0))
        self.assertNotEqual(files[1].status, 0)
        self.assertEqual((files[1].size, files[1].counter, files[1].references), (0, None, []))
        self.assertEqual((files[0].size, files[2].size), (len(self.data), 27))

    def test_delegate(self):
        """4.7: what the client gives back, what it keeps, and who waits."""
        session = self.open()
        small = self.handles[b"small"]
        done = program.read(self.caller, small, 0, 100, session.number)
        first = program.delegate(self.caller, session.number, small)
        self.assertEqual((first.change, first.attributes), (done.change, done.attributes))
        again = program.delegate(self.caller, session.number, small, [first.number])
        self.assertNotIn(again.number, (0, first.number))
        self.assertIsNone(program.delegate(self.caller, session.number, None, [again.number]))
        self.raises(program.DENIED, program.delegate, self.caller, session.number, bytes(64))
        self.raises(program.NOSESSION, program.delegate, self.caller, 12345, small)
        # Nobody has it any more, so that it does not cool down.
        rpc.write(self.tcp, small, 0, done.data)

        sent = time.monotonic()
        kept = program.delegate(self.caller, session.number, small)
        rpc.write(self.tcp, small, 0, done.data)
        self.assertGreaterEqual(time.monotonic() - sent, kept.lease_ms / 1000)
        self.raises(program.TRYLATER, program.delegate, self.caller, session.number, small)

    def test_rekey(self):
        """4.5, 5.3."""
        session = self.open()
        line = self.attached(session)
        reference = self.references(session)[0]
        for generation in (1, 2, 3):
            session.rekey()
            self.assertEqual(session.generation, generation)
            self.assertEqual(len(line.read(reference)), PAGE)
            # The one before is taken for a grace.
            self.assertEqual(len(line.read(reference, generation=generation - 1)), PAGE)
        session.rekey(3)
        for generation in (0, 2, 5):
            self.raises(program.DENIED, session.rekey, generation)
        self.raises(program.DENIED, session.rekey, 4, bytes(16))
        # Two ago has the parity of the current one, and another key.
        self.raises(DENIED, line.read, reference, generation=1)
        self.assertEqual(len(line.read(reference)), PAGE)

    def test_chunk(self):
        """4.3: the data goes to the client's memory, ahead of the reply."""
        region = self.call_pair.register(3 * PAGE)
        tag, at = region.at(11)
        done = program.read(self.caller, self.file, PAGE, 3 * PAGE, chunk=(tag, at, 2 * PAGE))
        self.assertEqual((done.count, done.data), (2 * PAGE, b""))
        self.assertEqual(region.load(11, 2 * PAGE), self.data[PAGE : 3 * PAGE])

    def test_flow(self):
        """6: 128 requests without an answer."""
        session = self.open()
        line = self.attached(session)
        reference = self.references(session)[0]
        for _ in range(5):
            first = line.sequence + 1
            for _ in range(128):
                line.pair.send(line.request(reference, length=8))
            done = [line.completion(line.pair.receive()) for _ in range(128)]
            self.assertEqual(sorted(one.sequence for one in done), list(range(first, first + 128)))
            self.assertEqual({(one.status, one.data) for one in done}, {(0, self.data[:8])})

    def test_calls_flow(self):
        """2: 128 calls without a reply, each of which may have to wait for the file."""
        sweep, longest = self.handles[b"sweep"], 60000

        def post(xid):
            call = Packer().u32(xid, 0, 2, *rpc.ODAFS, program.READ, 0, 0, 0, 0)
            call.opaque(sweep).u64(xid * 131 % 200 * 65536).u32(longest, 0, 0, 0)
            self.call_pair.send(bytes(call.data))

        replied = []
        for xid in range(1000):
            post(xid)
            if xid >= 127:
                replied.append(self.call_pair.receive())
        replied += [self.call_pair.receive() for _ in range(127)]
        xids = {struct.unpack_from(">I", reply)[0] for reply in replied}
        self.assertEqual(xids, set(range(1000)))
        self.assertTrue(all(reply[20:28] == bytes(8) and len(reply) > longest for reply in replied))

    def test_session_of_another(self):
        """3.2: references are good where they were issued."""
        session, other = self.open(), self.open()
        theirs = self.attached(other)
        reference = self.references(session)[0]
        self.raises(DENIED, theirs.read, reference)
        self.references(other)
        self.assertEqual(len(theirs.read(reference)), PAGE)

    def test_end(self):
        """8: a session ends with the connection over which it was opened."""
        pair = self.server.pair(self.fabric, direct.RPC)
        session = Session(rpc.Caller(Pairwise(pair)), self.fabric)
        line = self.attached(session)
        reference = self.references(session)
        self.assertEqual(set(reference) & {0}, {0})
        pair.close()
        session.caller = self.caller
        until = time.monotonic() + 20
        with self.assertRaises(Refused) as caught:
            while time.monotonic() < until:
                session.rekey()
        self.assertEqual(caught.exception.status, program.NOSESSION)
        self.raises(REVOKED, line.read, reference[0])


class OverShm(OverFabric, WithServer):
    fabric = b"shm"

    def test_over_tcp(self):
        """5.2: on another connection of another kind this process is another peer."""
        session = self.open()
        done = program.read(self.tcp, self.file, 0, PAGE, session.number)
        self.assertEqual((done.references, done.counter), ([], None))
        self.raises(program.NOSESSION, program.get_refs, self.tcp, session.number, [])

    def test_many_messages(self):
        """13: rings go round, with messages of all lengths."""
        for length in list(range(0, 60000, 997)) * 10:
            done = program.read(self.caller, self.file, length, length)
            self.assertEqual(done.data, self.data[length : 2 * length])

    def test_regions(self):
        """13: one too many is refused, and nothing else comes of it."""
        regions = [self.call_pair.register(100) for _ in range(64)]
        with self.assertRaises(shm.Refused):
            self.call_pair.register(100)
        done = program.read(self.caller, self.file, 0, 10, chunk=(*regions[63].at(0), 10))
        self.assertEqual((done.data, regions[63].load(0, 10)), (b"", self.data[:10]))

    def test_sinks(self):
        """6.3: memory that the client does not have."""
        session = self.open()
        line = self.attached(session)
        region = line.pair.register(PAGE + 100)
        reference = self.references(session)[0]
        self.assertEqual(line.read_to(reference, region, 100), self.page(reference, 0))
        self.raises(OUT_OF_BOUNDS, line.read_to, reference, region, 101)
        self.raises(OUT_OF_BOUNDS, line.read_to, reference, region, 0, marked=True)
        for sink in (region.tag + 1, 0), (0, 0), (region.tag, 1 << 63):
            done = line.judge(line.request(reference, flags=0, sink=sink))
            self.assertEqual(done.status, OUT_OF_BOUNDS)
        self.assertEqual(line.read_to(reference, region), self.page(reference, 0))

    def test_refused(self):
        """13, 2: what is of no protocol served here."""
        for private in (b"", b"ODAF\x02\x01" + bytes(18), b"ODAF\x01\x03" + bytes(18)):
            with self.assertRaises(shm.Refused):
                shm.Pair(self.server.shm, private)


class OverIwarp(OverFabric, WithServer):
    fabric = b"tcp"

    def test_over_tcp(self):
        """4.2, 5.2: READ and GET_REFS with the session, on NFS's own port."""
        session = self.open()
        line = self.attached(session)
        for _ in range(2):
            done = program.read(self.tcp, self.file, 0, 1 << 20, session.number)
            self.assertEqual(done.data, self.data[: 1 << 20])
        found = dict(done.references)
        self.assertEqual(set(found), set(range(32)), "the first that there are")
        for page, reference in found.items():
            self.assertEqual(line.read(reference), self.page(reference, page))
        found, _ = program.all_refs(self.tcp, session.number, self.file)
        self.assertEqual(line.read(found[200]), self.page(found[200], 200))

    def test_checksums(self):
        """12."""
        session = self.open()
        line = Direct(self.server.pair(b"tcp", direct.DIRECT, crc=True))
        self.assertTrue(line.pair.crc)
        line.attach(session)
        region = line.pair.register(PAGE)
        for page, reference in self.references(session, 0, 3 * PAGE).items():
            self.assertEqual(line.read(reference), self.page(reference, page))
            self.assertEqual(line.read_to(reference, region), self.page(reference, page))

    def test_segments(self):
        """12: a message of two segments."""
        session = self.open()
        line = self.attached(session)
        reference = self.references(session)[0]
        line.pair.send(line.request(reference), split=33)
        self.assertEqual(line.completion(line.pair.receive()).data, self.page(reference, 0))

    def refusal(self, frame):
        """What the server says to a handshake: flags, revision and private data, or nothing."""
        with socket.create_connection(self.server.rdma, timeout=20) as peer:
            peer.sendall(frame)
            answer = b""
            try:
                while more := peer.recv(4096):
                    answer += more
            except ConnectionResetError:
                pass
        if not answer:
            return None
        self.assertEqual(answer[:16], b"MPA ID Rep Frame")
        self.assertEqual(int.from_bytes(answer[18:20], "big"), len(answer) - 20)
        return answer[16], answer[17], answer[20:]

    def test_refusals(self):
        """12: of handshakes."""
        good = direct.private_data(direct.DIRECT)
        bare = (iwarp.REJECT, 1, b"")
        ask = iwarp.request_frame
        self.assertEqual(self.refusal(ask(good, iwarp.ENHANCED | iwarp.MARKERS)), bare)
        self.assertEqual(self.refusal(ask(good, revision=3)), bare)
        self.assertEqual(self.refusal(ask(good, revision=1)), bare)
        self.assertIsNone(self.refusal(ask(good, key=b"GET / HTTP/1.1\r\n")))
        self.assertIsNone(self.refusal(ask(bytes(513), flags=0)))
        self.assertIsNone(self.refusal(ask(b"", flags=0)[:16] + b"\x10\x02\x00\x02AB"))
        # Of a protocol of ours that is not served here: in words.
        other = b"ODAF" + bytes([9, 1]) + bytes(18)
        flags, revision, said = self.refusal(ask(other))
        self.assertEqual((flags, revision, said[:4]), (iwarp.REJECT | iwarp.ENHANCED, 2, bytes(4)))
        self.assertTrue(0 < len(said) - 4 <= 56)
        flags, revision, said = self.refusal(ask(other, flags=0, revision=1))
        self.assertEqual((flags, revision), (iwarp.REJECT, 1))

    def terminated(self, line, act):
        with self.assertRaises(iwarp.Terminated) as caught:
            act()
            while True:
                line.pair.receive()
        return caught.exception.args

    def test_terminates(self):
        """12: what ends a stream."""
        session = self.open(mode=ONE_SIDED)
        line = self.attached(session, one_sided=True)
        tag, at = line.grant.arena
        ended = self.terminated(line, lambda: line.pair.load((tag + 1, at), 0, 8))
        self.assertEqual(ended, (0, 1, 0))
        line = self.attached(session, one_sided=True)
        ended = self.terminated(line, lambda: line.pair.load(line.grant.arena, 1 << 40, 8))
        self.assertEqual(ended, (0, 1, 1))
        line = self.attached(session)
        ended = self.terminated(line, lambda: line.pair.load((tag, at), 0, 8))
        self.assertEqual(ended, (1, 2, 2))
        line = self.attached(session)
        line.pair.sent += 1
        self.assertEqual(self.terminated(line, lambda: line.pair.send(b"x")), (1, 2, 3))
        line = self.attached(session)
        self.assertEqual(self.terminated(line, lambda: line.pair.send(bytes(70000), split=9000)), (1, 2, 5))


class OverRdma(WithServer):
    """2.1: RPC-over-RDMA."""

    def setUp(self):
        self.pair = iwarp.Pair(self.server.rdma, rdma.private_data())
        self.addCleanup(self.pair.close)
        self.rdma = rdma.Caller(self.pair)
        self.region = self.pair.register(200_000)
        self.xid = 100

    def message(self, program, procedure, arguments=b""):
        self.xid += 1
        call = Packer().u32(self.xid, 0, 2, *program, procedure, 0, 0, 0, 0)
        return bytes(call.data) + bytes(arguments)

    def results(self, body):
        """Behind the header of a reply that was accepted."""
        r = Unpacker(body)
        self.assertEqual([r.u32() for _ in range(6)], [self.xid, 1, 0, 0, 0, 0])
        return r

    def segment(self, offset, length):
        tag, at = self.region.at(offset)
        return tag, length, at

    def fails(self, *words, **how):
        with self.assertRaises(rdma.Failed) as caught:
            self.rdma.exchange(self.message(rpc.NFS, 0), **how)
        self.assertEqual(caught.exception.args, words)
        # And nothing else comes of it.
        self.results(self.rdma.exchange(self.message(rpc.NFS, 0)).body).end()

    def test_who_is_one(self):
        """Private data: RFC 8797's at any offset, or none, or somebody's."""
        for private in (b"", rdma.private_data(before=b"xyz"), b"something else"):
            pair = iwarp.Pair(self.server.rdma, private)
            caller = rpc.Caller(rdma.Caller(pair))
            self.assertEqual(rpc.mount(caller, b"/"), self.root)
            pair.close()

    def test_read(self):
        """Data go to the write chunk, whatever their length; its segments come back with what was written to each."""
        data = self.server.files[b"file"]
        for program_, procedure, more in (rpc.NFS, 6, b""), (rpc.ODAFS, program.READ, bytes(12)):
            for length in 90_000, 10:
                arguments = Packer().opaque(self.handles[b"file"]).u64(5).u32(length).data
                chunk = [self.segment(1000, 50_000), self.segment(90_000, 60_000)]
                message = self.message(program_, procedure, arguments + more)
                # There is one result, so the second chunk is not used.
                done = self.rdma.exchange(message, writes=[chunk, [self.segment(0, 500)]])
                written, unused = done.writes
                self.assertEqual([one[1] for one in written], [min(length, 50_000), max(length - 50_000, 0)])
                self.assertEqual([one[::2] for one in written], [one[::2] for one in chunk])
                self.assertEqual(unused, [self.segment(0, 0)])
                found = b"".join(self.region.load(at, count) for _, count, at in written)
                self.assertEqual(found, data[5 : 5 + length])
                r = self.results(done.body)
                self.assertEqual((r.u32(), r.u32()), (0, 1))
                r.take(84)
                expected = (length, 0) if program_ == rpc.NFS else None
                if expected:
                    self.assertEqual((r.u32(), r.u32()), expected)
                else:
                    r.u64()
                    self.assertEqual((r.u32(), r.u32()), (0, length))
                self.assertEqual(r.u32(), length, "of the data only the length is left")
                if expected:
                    r.end()

    def test_write(self):
        """The server reads the data out of a read chunk of two segments."""
        data = os.urandom(70_001)
        self.region.memory[: len(data)] = data
        file = self.handles[b"sweep"]
        arguments = Packer().opaque(file).u64(0).u32(len(data), 2, len(data)).data
        message = self.message(rpc.NFS, 7, arguments)
        parts = [(len(message), *self.segment(0, 50_000)), (len(message), *self.segment(50_000, 20_001))]
        done = self.rdma.exchange(message, reads=parts)
        self.assertEqual(self.results(done.body).u32(), 0)
        self.assertEqual(rpc.read(self.tcp, file, 0, 100_000)[: len(data)], data)
        # Nor if nobody takes the second of two chunks.
        message = self.message(rpc.NFS, 7, Packer().opaque(file).u64(0).u32(8, 2, 8).data)
        at = len(message)
        done = self.rdma.exchange(message, reads=[(at, *self.segment(0, 8)), (at + 8, *self.segment(0, 8))])
        self.assertEqual(done.body[20:24], (4).to_bytes(4, "big"), "GARBAGE_ARGS")
        # Not for what has to be in the message.
        handle = Packer().opaque(file).data
        message = self.message(rpc.NFS, 1)
        self.region.memory[: len(handle)] = handle
        done = self.rdma.exchange(message, reads=[(len(message), *self.segment(0, len(handle)))])
        self.assertEqual(done.body[20:24], (4).to_bytes(4, "big"), "GARBAGE_ARGS")

    def test_long_messages(self):
        """A call in a chunk at position zero; a reply in a reply chunk, which comes back empty if there was no need."""
        session = Session(rpc.Caller(self.rdma), b"tcp")
        for offset in range(0, 1 << 20, 1 << 16):
            rpc.read(self.tcp, self.handles[b"file"], offset, 1 << 16)
        ranges = [(self.handles[b"file"], 0, 1 << 20)] * 40
        arguments = Packer().u32(session.number, len(ranges))
        for file, offset, length in ranges:
            arguments.opaque(file).u64(offset, length)
        message = self.message(rpc.ODAFS, program.GET_REFS, arguments.u64(0).data)
        self.region.memory[: len(message)] = message
        done = self.rdma.exchange(
            message,
            kind=rdma.NOMSG,
            reads=[(0, *self.segment(0, len(message)))],
            reply=[self.segment(10_000, 100_000), self.segment(120_000, 50_000)],
        )
        self.assertGreater(len(done.body), 50_000)
        self.assertEqual(self.results(done.body).u32(), 0)
        short = self.rdma.exchange(self.message(rpc.NFS, 0), reply=[self.segment(0, 5000)])
        self.assertEqual(short.reply, [self.segment(0, 0)])

    def test_errors(self):
        """ERR_CHUNK and ERR_VERS."""
        chunk = [self.segment(0, 8)]
        self.fails(1, rdma.ERR_CHUNK, kind=rdma.MSGP)
        self.fails(1, rdma.ERR_CHUNK, kind=rdma.NOMSG)
        self.fails(1, rdma.ERR_CHUNK, kind=9)
        self.fails(1, rdma.ERR_CHUNK, reads=[(6, *chunk[0])])
        self.fails(1, rdma.ERR_CHUNK, reads=[(400, *chunk[0])])
        self.fails(1, rdma.ERR_CHUNK, reads=[(0, *chunk[0])])
        self.fails(1, rdma.ERR_CHUNK, writes=[chunk * 17])
        self.fails(1, rdma.ERR_CHUNK, writes=[chunk] * 9)
        self.fails(1, rdma.ERR_CHUNK, writes=[chunk * 11] * 3)
        self.fails(1, rdma.ERR_CHUNK, reads=[(4 + 8 * at, *chunk[0]) for at in range(9)])
        self.fails(1, rdma.ERR_CHUNK, reads=[(8, *chunk[0]), (12, *chunk[0])])
        self.fails(2, rdma.ERR_VERS, 1, 1, version=2)


class Identified(WithServer):
    """5.1: NK proves the server, KK the client too."""

    identity = bytes(range(1, 33))

    @classmethod
    def setUpClass(cls):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        raw = X25519PrivateKey.from_private_bytes(cls.identity).public_key().public_bytes_raw()
        cls.admitted = tempfile.NamedTemporaryFile("w")
        cls.admitted.write(raw.hex() + "\n")
        cls.admitted.flush()
        cls.options = ("--admit", cls.admitted.name)
        super().setUpClass()
        state = os.path.join(cls.server.scratch.name, "state")
        (path,) = (
            os.path.join(folder, "identity.pub")
            for folder, _, names in os.walk(state)
            if "identity.pub" in names
        )
        with open(path) as file:
            cls.key = bytes.fromhex(file.read().strip())

    def caller(self):
        return rpc.Caller(Pairwise(self.server.pair(b"tcp", direct.RPC)))

    def test_patterns(self):
        # A list that another pattern could pass by would be none.
        self.raises(program.DENIED, Session, self.caller(), b"tcp")
        self.raises(program.DENIED, Session, self.caller(), b"tcp", server=self.key)
        other = bytes(range(2, 34))
        self.raises(program.DENIED, Session, self.caller(), b"tcp", server=self.key, identity=other)
        wrong = bytes(range(3, 35))
        self.raises(
            program.BADHANDSHAKE, Session, self.caller(), b"tcp", server=wrong, identity=self.identity
        )
        session = Session(self.caller(), b"tcp", server=self.key, identity=self.identity)
        line = Direct(self.server.pair(b"tcp", direct.DIRECT))
        line.attach(session)
        done = program.read(session.caller, self.handles[b"small"], 0, 100, session.number)
        self.assertEqual(line.read(done.references[0][1]), self.server.files[b"small"])
        # On the same host who may is the kernel's word.
        local = rpc.Caller(Pairwise(self.server.pair(b"shm", direct.RPC)))
        Session(local, b"shm", server=self.key)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
