"""Clients and files, with what is easier said in Python: NumPy, asyncio, context managers."""

from __future__ import annotations

import asyncio
from array import array
from functools import partial

from . import _native


def connect(url, **options):
    """Connects to the server and the export that a URL names; options as those of Client."""
    return Client(url, **options)


class File:
    """An open file. Any number of threads may use it at a time; the interpreter's lock is released meanwhile."""

    __slots__ = ("_file", "read_into", "try_read_into", "read_at", "write_at", "sync", "stat", "revalidate", "__weakref__")

    def __init__(self, file):
        self._file = file
        # Bound once: a read of 4 KiB takes less than a microsecond.
        self.read_into = file.read_into
        self.try_read_into = file.try_read_into
        self.read_at = file.read_at
        self.write_at = file.write_at
        self.sync = file.sync
        self.stat = file.stat
        self.revalidate = file.revalidate

    @property
    def path(self):
        return self._file.path

    def __repr__(self):
        return f"<odafs.File {self.path}>"

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return None

    def read_ranges(self, offsets, length, out=None):
        """Reads `length` bytes at each of `offsets` in one call, into one array of a row for each: uint8, and zeros where
        the file ends before. `out` is an array to fill in place of a new one: C-contiguous, as many bytes."""
        return _rows(self._file.gather, offsets, length, out)

    def read_pieces(self, ranges):
        """Reads `(offset, length)` ranges in one call: a list of bytes, shorter only at the end of the file."""
        ranges = list(ranges)
        offsets = array("Q", [offset for offset, _ in ranges])
        return self._file.pieces(offsets, array("Q", [length for _, length in ranges])) if ranges else []

    async def aread_into(self, buffer, offset=0):
        """As read_into. What needs no waiting is read at once. When it was cancelled, nothing is written to the buffer."""
        got = self.try_read_into(buffer, offset)
        if got is not None:
            return got
        with memoryview(buffer) as view, view.cast("B") as room:
            # The thread goes on after a cancellation: it reads into memory of its own.
            data = await asyncio.to_thread(self.read_at, room.nbytes, offset)
            room[: len(data)] = data
        return len(data)

    async def aread_at(self, length, offset):
        """As read_at, beside other tasks."""
        return await asyncio.to_thread(self.read_at, length, offset)

    async def aread_ranges(self, offsets, length, out=None):
        """As read_ranges, beside other tasks."""
        return await asyncio.to_thread(self.read_ranges, offsets, length, out)

    async def awrite_at(self, data, offset=0):
        """As write_at, beside other tasks."""
        return await asyncio.to_thread(self.write_at, data, offset)

    async def asynced(self):
        """As sync, beside other tasks."""
        await asyncio.to_thread(self.sync)


def _rows(gather, offsets, length, out):
    """Reads `length` bytes at each offset by `gather(offsets, lengths, buffer, counts=None)`."""
    import numpy

    offsets = numpy.ascontiguousarray(offsets).reshape(-1)
    if offsets.size and offsets.dtype.kind not in "iu":
        raise TypeError(f"offsets are integers, not {offsets.dtype}")
    if offsets.dtype.kind == "i" and offsets.size and offsets.min() < 0:
        raise ValueError("an offset is negative")
    offsets = offsets.astype(numpy.uint64, copy=False)
    if out is None:
        out = numpy.empty((offsets.size, length), numpy.uint8)
    elif out.nbytes != offsets.size * length:
        raise ValueError(f"out has {out.nbytes} bytes, and {offsets.size * length} are read")
    if gather(offsets, array("Q", [length]), out) < out.nbytes:
        # A file ended in a row, or before it: read again with counts, and put zeros behind them.
        counts = numpy.zeros(offsets.size, numpy.uint64)
        gather(offsets, array("Q", [length]), out, counts)
        rows = out.reshape(-1).view(numpy.uint8).reshape(offsets.size, length)
        for row in numpy.flatnonzero(counts < length):
            rows[row, int(counts[row]) :] = 0
    return out


def _numbered(files):
    """The different ones of these files, and for each file the number of the one that it is."""
    numbers = {}
    which = array("Q", [numbers.setdefault(file, len(numbers)) for file in files])
    return [file._file for file in numbers], which


class Client:
    """A connection to one export. Any number of threads may use it at a time, and share its caches.

    Options, all by name:
    deadline      seconds that a call may take, reconnecting included (30)
    memory_bytes  for cached pages and references (64 MiB)
    route         "policy", "rpc", "guarded" or "one-sided"
    cache         "close-to-open" or "off": every read sees the server
    wait          "adaptive", "spin" or "sleep": how a thread waits for an answer
    lanes         connections of each kind at most (8)
    identity      our X25519 secret key, 32 bytes, for servers that admit clients by key
    server_key    the server's public key: a server with another one is refused

    Methods: open, create, stat, scandir, mkdir, rmdir, remove, rename, link, symlink, readlink, truncate, chmod, statistics,
    aopen; read_ranges, read_pieces and aread_ranges of several files. A signal such as Ctrl-C is handled when the call under way has ended: the deadline bounds it.
    """

    def __init__(self, url, **options):
        self._client = _native.Client(url, **options)

    def __dir__(self):
        return sorted({*super().__dir__(), *(name for name in dir(self._client) if not name.startswith("_"))})

    def __repr__(self):
        return f"<odafs.Client {self.url}>"

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._client, name)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return None

    def open(self, path):
        """Opens a file for reading and writing at offsets."""
        return File(self._client.open(path))

    def create(self, path, *, mode=0o644, exclusive=False, truncate=True):
        """Makes a file, or cuts one that is there to nothing."""
        return File(self._client.create(path, mode=mode, exclusive=exclusive, truncate=truncate))

    def _gather(self, files):
        """`gather` for ranges of these files, one for each range."""
        return partial(self._client.gather, *_numbered(files))

    def read_ranges(self, files, offsets, length, out=None):
        """As File.read_ranges, of several files of this client: `files` has one for each of `offsets`. All ranges are read
        together; those of one file should follow one another."""
        return _rows(self._gather(files), offsets, length, out)

    def read_pieces(self, ranges):
        """Reads `(file, offset, length)` ranges of files of this client in one call: a list of bytes, shorter only at the end
        of a file. Those of one file should follow one another."""
        ranges = list(ranges)
        if not ranges:
            return []
        files, which = _numbered([file for file, _, _ in ranges])
        offsets = array("Q", [offset for _, offset, _ in ranges])
        return self._client.pieces(files, which, offsets, array("Q", [length for _, _, length in ranges]))

    def _pieces(self, batch):
        """As read_pieces, of files each of which comes with an array of offsets and one of lengths, of unsigned 64-bit
        numbers."""
        which, offsets, lengths = array("Q"), array("Q"), array("Q")
        for number, (_, starts, sizes) in enumerate(batch):
            which.extend(array("Q", [number]) * len(starts))
            offsets.extend(starts)
            lengths.extend(sizes)
        return self._client.pieces([file._file for file, _, _ in batch], which, offsets, lengths) if which else []

    async def aread_ranges(self, files, offsets, length, out=None):
        """As read_ranges, beside other tasks."""
        return await asyncio.to_thread(self.read_ranges, files, offsets, length, out)

    async def aopen(self, path):
        """As open, beside other tasks."""
        return await asyncio.to_thread(self.open, path)
