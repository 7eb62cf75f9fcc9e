"""The fsspec file system `odafs`, `odafs+shm` and `odafs+verbs`: what pandas, Zarr and Dask open by URL, and
pyarrow, polars and DuckDB read through."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import secrets
import sys
import threading
from array import array
from urllib.parse import quote

from fsspec.spec import AbstractFileSystem

from ._client import Client

_SCHEMES = ("odafs+shm", "odafs+verbs", "odafs")
_BLOCK = 1 << 20
# Further options of `Client`.
_OPTIONS = ("memory_bytes", "route", "wait", "lanes", "identity", "server_key")
# What `wb` writes before it is closed.
_PART = re.compile(r"\.[0-9a-f]{16}\.part")


def _split(url):
    """A URL's server, such as `odafs+shm://%2Frun%2Fodafs.sock`, and its path as it is on the server."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in _SCHEMES:
        return None, url
    if scheme == "odafs+shm" and rest.startswith("/") and "?/" in rest:
        socket, _, path = rest.partition("?")
        return f"odafs+shm://{socket.replace('/', '%2F')}", path
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}", slash + path


# What an error has if there is no such file: it is gone, or no file can have the name.
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP}


def _raise_outage(error):
    if error.errno not in _ABSENT and not isinstance(error, PermissionError):
        raise error


class OdafsFileSystem(AbstractFileSystem):
    """Files of one server. `server` is a URL without a path (`odafs+shm://` is the default socket); paths are absolute. Further
    options are those of `Client`."""

    protocol = _SCHEMES
    root_marker = "/"
    cachable = True

    def __init__(self, server="odafs+shm://", block_size=_BLOCK, deadline=30.0, cache="close-to-open", **storage_options):
        super().__init__(**storage_options)
        self.server = _split(f"{server}/")[0]
        self.block_size = block_size
        self._options = {"deadline": deadline, "cache": cache}
        self._options.update((name, storage_options[name]) for name in _OPTIONS if name in storage_options)
        self._lock, self._client, self._first = threading.Lock(), None, "/"
        # fsspec calls it of the class too, which knows no server.
        self._strip_protocol = self._path_here

    @property
    def client(self):
        """Connects with the first path that is used: a server may have exports of several names."""
        with self._lock:
            if self._client is None:
                self._client = Client(self.server + quote(os.fsencode(self._first)), **self._options)
            return self._client

    def _path_here(self, path):
        """The path on this server, of a path or of a URL; those of other servers are refused."""
        if isinstance(path, list):
            return [self._path_here(one) for one in path]
        server = _split(os.fspath(path))[0]
        if server is not None and server.removesuffix(":20049") != self.server.removesuffix(":20049"):
            raise ValueError(f"{path} is on {server}, and this file system is of {self.server}")
        path = type(self)._strip_protocol(path)
        self._first = path
        return path

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path) if not isinstance(path, str) else path
        path = _split(path)[1].rstrip("/")
        return path if path.startswith("/") else f"/{path}"

    @staticmethod
    def _get_kwargs_from_urls(url):
        server, _ = _split(url)
        return {"server": server} if server else {}

    def unstrip_protocol(self, name):
        return name if "://" in name else f"{self.server}{self._strip_protocol(name)}"

    @property
    def fsid(self):
        return self.server

    # What there is.

    @staticmethod
    def _info(path, known):
        return {
            "name": path,
            "size": known.size if known.kind == "file" else 0,
            "type": known.kind,
            "mode": known.mode,
            "uid": known.uid,
            "gid": known.gid,
            "ino": known.file_id,
            "nlink": known.links,
            "mtime": known.modified,
            "mtime_ns": known.modified_ns,
        }

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        return self._info(path, self.client.stat(path))

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        known = self.client.stat(path)
        if known.kind != "directory":
            found = [self._info(path, known)]
        else:
            found = []
            for name, known in self.client.scandir(path):
                if _PART.fullmatch(os.fspath(name)):
                    continue
                child = posixpath.join(path, os.fspath(name))
                if known is None or known.kind == "link":
                    known = self._followed(child) or known
                if known is not None:
                    found.append(self._info(child, known))
        return found if detail else [entry["name"] for entry in found]

    def _followed(self, path):
        """What a link leads to, or None where it leads nowhere or to a directory: no walk goes through links, which may lead
        in circles."""
        try:
            known = self.client.stat(path)
            if known.kind == "directory":
                known = self.client.stat(path, follow_symlinks=False)
            return known
        except OSError as failed:
            _raise_outage(failed)
            return None

    def walk(self, path, maxdepth=None, topdown=True, on_error="omit", **kwargs):
        """As fsspec has it, and `find` and `glob` stand on it. By default it leaves out what is gone or must not be read. If
        the server does not answer, it raises."""
        if on_error == "omit":
            on_error = _raise_outage
        return super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=on_error, **kwargs)

    def _kind(self, path):
        """What there is, or None if there is nothing. That a server does not answer says nothing about it."""
        try:
            return self.info(path)["type"]
        except OSError as failed:
            if failed.errno in _ABSENT:
                return None
            raise

    def exists(self, path, **kwargs):
        return self._kind(path) is not None

    def isdir(self, path):
        return self._kind(path) == "directory"

    def isfile(self, path):
        return self._kind(path) == "file"

    def created(self, path):
        raise NotImplementedError("NFS version 3 tells no time of creation")

    def modified(self, path):
        from datetime import datetime, timezone

        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    def checksum(self, path):
        found = self.info(path)
        return hash((found["ino"], found["size"], found["mtime_ns"]))

    ukey = checksum

    # Changes.

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(posixpath.dirname(path), exist_ok=True)
        self.client.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        if self.exists(path):
            if exist_ok and self.isdir(path):
                return
            raise FileExistsError(17, "it exists already", path)
        if path == "/":
            raise FileNotFoundError(2, "no export contains it", path)
        self.makedirs(posixpath.dirname(path), exist_ok=True)
        try:
            self.client.mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise

    def rmdir(self, path):
        self.client.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.client.remove(self._strip_protocol(path))

    def _rm(self, path):
        self.rm_file(path)

    def rm(self, path, recursive=False, maxdepth=None):
        if maxdepth is not None:
            raise NotImplementedError("rm removes whole directories: leave maxdepth out")
        given = [path] if isinstance(path, (str, os.PathLike)) else path
        for one in [found for path in given for found in self._expanded(path)]:
            if self.client.stat(one, follow_symlinks=False).kind != "directory":
                self.rm_file(one)
                continue
            if not recursive:
                raise IsADirectoryError(21, "a directory (recursive=True removes it)", one)
            self._rm_tree(one)

    def _expanded(self, path):
        """A path that exists stands for itself; else what it matches as a pattern."""
        path = self._strip_protocol(path)
        try:
            self.client.stat(path, follow_symlinks=False)
            return [path]
        except FileNotFoundError:
            found = self.glob(path) if any(sign in path for sign in "*?[") else []
            if not found:
                raise
            return found

    def _rm_tree(self, directory):
        for name, known in self.client.scandir(directory):
            child = posixpath.join(directory, os.fspath(name))
            if known is None:
                known = self.client.stat(child, follow_symlinks=False)
            if known.kind == "directory":
                self._rm_tree(child)
            else:
                self.rm_file(child)
        self.client.rmdir(directory)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        self.client.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def cp_file(self, path1, path2, **kwargs):
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path1, "rb") as source, self.open(path2, "wb") as target:
            while piece := source.read(4 << 20):
                target.write(piece)

    def touch(self, path, truncate=True, **kwargs):
        self.client.create(self._strip_protocol(path), truncate=truncate)

    # Data.

    def cat_file(self, path, start=None, end=None, **kwargs):
        return self.cat_ranges([path], [start], [end], on_error="raise")[0]

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        """Ranges of many files, in one batch."""
        paths = [paths] if isinstance(paths, str) else list(paths)
        starts = list(starts) if isinstance(starts, (list, tuple)) or hasattr(starts, "__len__") else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, (list, tuple)) or hasattr(ends, "__len__") else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("as many paths as starts and ends")
        wanted = {}
        for at, path in enumerate(paths):
            wanted.setdefault(path, []).append(at)
        out, batch, read = [None] * len(paths), [], []
        for path, places in wanted.items():
            try:
                file = self.client.open(self._strip_protocol(path))
                batch.append((file, *_ranges(file, [starts[at] for at in places], [ends[at] for at in places])))
                read.extend(places)
            except OSError as failed:
                if on_error == "raise":
                    raise
                for at in places:
                    out[at] = failed
        for at, piece in zip(read, self._read(batch, on_error)):
            out[at] = piece
        return out

    def _read(self, batch, on_error):
        """The bytes of ranges, as Client._pieces takes them. If one fails and errors are returned, each file is read by
        itself, because the error of a batch is that of one file."""
        try:
            return self.client._pieces(batch)
        except OSError:
            if on_error == "raise":
                raise
        pieces = []
        for same in batch:
            try:
                pieces.extend(self.client._pieces([same]))
            except OSError as failed:
                pieces.extend(failed for _ in same[1])
        return pieces

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        path = self._strip_protocol(path)
        mode = "r+b" if mode == "rb+" else mode
        if not autocommit and mode in ("ab", "r+b"):
            raise ValueError(f"mode {mode!r} changes a file in place: it has no transaction")
        if mode == "rb":
            return OdafsReader(self, path, block_size or self.block_size)
        return OdafsFile(self, path, mode, block_size or self.block_size, autocommit)

    def sign(self, path, expiration=100, **kwargs):
        raise NotImplementedError("an ODAFS server signs no URLs")


def _ranges(file, starts, ends):
    """Arrays of offsets and of lengths, of starts and ends as slices have them."""
    try:
        offsets, ends = array("Q", starts), array("Q", ends)
    except (TypeError, OverflowError):
        # One of them is left out or negative: it counts from the end.
        offsets, ends = _from_the_end(file.stat().size, starts, ends)
    return offsets, array("Q", [end - start if end > start else 0 for start, end in zip(offsets, ends)])


def _from_the_end(size, starts, ends):
    def place(at, default):
        at = default if at is None else int(at)
        return max(0, size + at) if at < 0 else at

    return array("Q", [place(at, 0) for at in starts]), array("Q", [place(at, size) for at in ends])


class OdafsReader(io.RawIOBase):
    """A file at a position, to read (`rb`), as long as it was when it was opened."""

    mode = "rb"

    def __init__(self, fs, path, block_size):
        super().__init__()
        self.fs, self.path, self.blocksize = fs, path, block_size
        reader = fs.client.open(path)._file.reader(block_size)
        # Not written in Python: nobody comes between the seek and the read of a thread (see src/reader.rs).
        self.seek, self.tell, self.peek = reader.seek, reader.tell, reader.peek
        self.read = self.read1 = reader.read
        self.readinto = self.readinto1 = reader.readinto
        self.readall = reader.read
        self.size = reader.size

    details = property(lambda self: self.fs.info(self.path))
    full_name = property(lambda self: self.fs.unstrip_protocol(self.path))

    def readable(self):
        return True

    def seekable(self):
        return True

    def write(self, data):
        raise io.UnsupportedOperation(f"{self.path} is open for reading")

    def close(self):
        if not self.closed:
            self.seek = self.read = self.read1 = self.readinto = self.readinto1 = self.readall = self.peek = self._is_closed
        super().close()

    def _is_closed(self, *arguments):
        raise ValueError(f"{self.path} is closed")

    def __repr__(self):
        return f"<OdafsReader {self.path}>"


class OdafsFile(io.RawIOBase):
    """A file at a position, to write: `r+b`, `wb`, `xb`, `ab`. One thread at a time may use it.

    What `wb` and `xb` write goes to a file beside, which takes the name when it is closed: readers see the old content or all
    of the new. The old one stays if the `with` of this file ends by an exception, if it is closed while an exception is
    handled or passes (as that of `fsspec.open` and of text mode), if nobody closes it, or if `discard` is called. `ab` writes
    at the end as it is at each store; two who append at a time may overwrite each other.
    """

    def __init__(self, fs, path, mode, block_size, autocommit):
        super().__init__()
        self.fs, self.path, self.mode, self.blocksize = fs, path, mode, block_size
        self._position, self._part, self._pending, self._pending_at = 0, None, bytearray(), 0
        # Of `ab`: the end has been found at which the pending bytes belong.
        self._placed = False
        # An exception that was being handled when it was opened is none of ours.
        self._handled = sys.exc_info()[1]
        self._autocommit, self._reads, self._exclusive = autocommit, mode == "r+b", mode == "xb"
        client = fs.client
        if mode == "r+b":
            self._file = client.open(path)
        elif mode == "ab":
            self._file = client.create(path, truncate=False)
            self._position = self._pending_at = self._file.stat().size
        elif mode in ("wb", "xb"):
            self._replace(client, path)
        else:
            raise ValueError(f"mode {mode!r}: it is one of rb, r+b, wb, xb and ab")

    def _replace(self, client, path):
        self._target = path = self._resolved(client, path)
        try:
            known = client.stat(path)
        except FileNotFoundError:
            known = None
        if known is not None and known.kind == "directory":
            raise IsADirectoryError(21, "a directory", path)
        if known is not None and self._exclusive:
            raise FileExistsError(17, "it exists already", path)
        directory, name = posixpath.split(path)
        # As those of an object store, files bring their directories with them.
        self.fs.makedirs(directory, exist_ok=True)
        part = posixpath.join(directory, f".{secrets.token_hex(8)}.part")
        self._part = part
        try:
            # Nobody else may read what replaces a private file.
            self._file = client.create(part, mode=0o600, exclusive=True)
        except BaseException:
            # It may have been made nevertheless.
            self.discard()
            raise
        self._mode = known.mode & 0o7777 if known is not None else 0o644

    def _resolved(self, client, path):
        """Where links at the end of a path lead: they stay, and what they lead to is replaced."""
        for _ in range(40):
            try:
                if self._exclusive or client.stat(path, follow_symlinks=False).kind != "link":
                    return path
            except FileNotFoundError:
                return path
            path = posixpath.join(posixpath.dirname(path), os.fspath(client.readlink(path)))
        raise OSError(errno.ELOOP, "too many links", path)

    details = property(lambda self: self.fs.info(self.path))
    full_name = property(lambda self: self.fs.unstrip_protocol(self.path))

    def readable(self):
        return self._reads

    def writable(self):
        return True

    def seekable(self):
        return True

    @property
    def size(self):
        self._store()
        return self._file.stat().size

    def tell(self):
        return self._position

    def seek(self, offset, whence=0):
        if whence not in (0, 1, 2):
            raise ValueError(f"whence={whence}: it is 0, 1 or 2")
        base = (0, self._position, None)[whence]
        position = (self.size if base is None else base) + offset
        if position < 0:
            raise ValueError("a position before the first byte")
        self._position = position
        return position

    def readinto(self, buffer):
        if not self._reads:
            raise io.UnsupportedOperation(f"{self.path} is open for writing")
        self._store()
        got = self._file.read_into(memoryview(buffer).cast("B"), self._position)
        self._position += got
        return got

    def write(self, data):
        if self.closed:
            raise ValueError(f"{self.path} is closed")
        data = memoryview(data).cast("B")
        # What fails fails before the data is taken: a caller may try again.
        if self._pending_at + len(self._pending) != self._position or len(self._pending) >= self.blocksize:
            self._store()
            self._pending_at = self._position
        self._pending += data
        self._position += len(data)
        return len(data)

    def _store(self):
        if self._pending:
            # Not anew if a store has failed: parts of it may be there.
            if self.mode == "ab" and not self._placed:
                self._pending_at = self._file.stat().size
                self._position = self._pending_at + len(self._pending)
                self._placed = True
            self._file.write_at(self._pending, self._pending_at)
            self._pending, self._placed = bytearray(), False
        self._pending_at = self._position

    def flush(self, force=False):
        if not self.closed:
            self._store()

    def truncate(self, size=None):
        size = self._position if size is None else size
        self._store()
        self.fs.client.truncate(self._part or self.path, size)
        return size

    def commit(self):
        """Gives what was written its name."""
        if self._part is None:
            return
        client = self.fs.client
        self._store()
        client.chmod(self._part, self._mode)
        if self._exclusive:
            try:
                client.link(self._part, self._target)
            finally:
                self.discard()
        else:
            client.rename(self._part, self._target)
            self._part = None

    def discard(self):
        """Forgets what was written."""
        self._pending = bytearray()
        if self._part is not None:
            part, self._part = self._part, None
            try:
                self.fs.client.remove(part)
            except OSError:
                # It is hidden, and harms nobody; what made us give up matters more.
                pass

    def close(self):
        if self.closed:
            return
        raised = sys.exc_info()[1]
        try:
            if self._part is not None and raised is not None and raised is not self._handled:
                self.discard()
                return
            self._store()
            self._file.sync()
            if self._autocommit:
                self.commit()
        except BaseException:
            self.discard()
            raise
        finally:
            self._pending = bytearray()
            super().close()

    def __exit__(self, kind, *raised):
        if kind is None:
            # It ends well, whatever is being handled around it.
            self._handled = sys.exc_info()[1]
            self.close()
            return
        try:
            if self._part is not None:
                self.discard()
            self.close()
        except OSError:
            # The program's own exception says more.
            pass

    def __del__(self):
        # Nobody closed it. What replaces a file is not known to be whole; the rest is where it belongs.
        if self.closed or not hasattr(self, "_file"):
            return
        try:
            if self._part is not None and self._autocommit:
                self.discard()
            self._store()
        except OSError:
            pass
        self._pending = bytearray()
        super().close()

    def __repr__(self):
        return f"<OdafsFile {self.mode} {self.path}>"
