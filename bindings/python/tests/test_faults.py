"""What went wrong once."""

import asyncio
import os
import threading
from urllib.parse import quote

import conftest
import fsspec
import numpy
import odafs
import pytest


@pytest.fixture
def fs(server):
    return fsspec.filesystem("odafs+shm", server=server.url, skip_instance_cache=True)


def test_a_thread_that_writes_to_its_buffer_does_not_change_what_is_read(server, data):
    client = odafs.connect(f"{server.url}/", route="rpc")
    file = client.open("data")
    buffer, done = bytearray(4096), threading.Event()

    def scribble():
        while not done.is_set():
            buffer[:] = b"!" * 4096

    thread = threading.Thread(target=scribble)
    thread.start()
    for at in range(0, 3 << 20, 4096):
        file.read_into(buffer, at)
    done.set()
    thread.join()
    for at in range(0, 3 << 20, 4096):
        assert file.read_at(4096, at) == data[at : at + 4096]


def test_arrays_of_objects_are_refused(server, data):
    file = odafs.connect(f"{server.url}/").open("data")
    with pytest.raises(TypeError):
        file.read_into(numpy.array([None] * 8, object))
    assert file.read_into(numpy.zeros(8, "datetime64[s]")) == 64


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_an_exception_leaves_the_old_file(fs, server, mode):
    fs.pipe_file("/file", b"old")
    with pytest.raises(ZeroDivisionError), fsspec.open(f"{server.url}/file", mode) as file:
        file.write(b"new" if mode == "wb" else "new")
        1 / 0
    assert fs.cat("/file") == b"old" and os.listdir(server.directory) == ["file"]
    try:
        1 / 0
    except ZeroDivisionError:
        with fs.open("/file", "wb") as file:
            file.write(b"in a handler")
    assert fs.cat("/file") == b"in a handler"


def test_replacing_keeps_permissions_and_links(fs, server):
    place = server.directory / "file"
    place.write_bytes(b"old")
    place.chmod(0o600)
    (server.directory / "link").symlink_to("file")
    fs.pipe_file("/link", b"new")
    assert place.read_bytes() == b"new" and place.stat().st_mode & 0o777 == 0o600
    assert (server.directory / "link").is_symlink()


def test_two_who_create_exclusively(fs, server):
    first, second = fs.open("/file", "xb"), fs.open("/file", "xb")
    first.write(b"first")
    second.write(b"second")
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    assert fs.cat("/file") == b"first" and os.listdir(server.directory) == ["file"]


def test_links_that_lead_nowhere_or_in_circles(fs, server):
    (server.directory / "file").write_bytes(b"1")
    for name, target in [("loop", "loop"), ("through", "file/x"), ("up", "."), ("nowhere", "nothing")]:
        (server.directory / name).symlink_to(target)
    kinds = {entry["name"]: entry["type"] for entry in fs.ls("/")}
    assert kinds == {"/file": "file", "/loop": "link", "/through": "link", "/up": "link", "/nowhere": "link"}
    assert all(path.count("/") == 1 for path in fs.find("/"))
    assert not fs.exists("/loop") and not fs.exists("/" + "x" * 300)


def test_names_are_taken_for_what_they_are(fs, server, data):
    for name in ["xa", "xb", "y"]:
        fs.touch(f"/{name}")
    fs.rm("/x*")
    assert sorted(os.listdir(server.directory)) == ["data", "y"]
    with pytest.raises(NotImplementedError):
        fs.rm("/y", recursive=True, maxdepth=1)
    with pytest.raises(ValueError, match="elsewhere"):
        fs.open("odafs://elsewhere/data")
    fs.pipe_file("/" + "ü" * 120, b"long")
    with fs.open("/data", "rb+") as file, pytest.raises(ValueError):
        file.seek(0, -1)
    with pytest.raises(ValueError), fs.transaction:
        fs.open("/data", "ab")


def test_a_read_that_fails_is_read_again(server, data):
    fs = fsspec.filesystem("odafs+shm", server=server.url, deadline=2, cache="off", skip_instance_cache=True)
    file = conftest.in_the_end(lambda: fs.open("/data"))
    assert conftest.in_the_end(lambda: file.read(5)) == data[:5]
    server.kill()
    with pytest.raises(OSError):
        while file.read(2 << 20):
            pass
    at = file.tell()
    assert at < len(data)
    server.start()
    assert conftest.in_the_end(file.read) == data[at:]


def test_exports_that_have_a_name(tmp_path):
    directory = tmp_path / "served"
    directory.mkdir()
    (directory / "file").write_bytes(b"here")
    server = conftest.Server(tmp_path, directory, "--export", "/named")
    try:
        with fsspec.open(f"{server.url}/named/file") as file:
            assert file.read() == b"here"
        fs = fsspec.filesystem("odafs+shm", server=server.url, skip_instance_cache=True)
        assert fs.ls("/named", detail=False) == ["/named/file"]
    finally:
        server.stop()


def test_a_write_that_fails_takes_no_data(server):
    fs = fsspec.filesystem("odafs+shm", server=server.url, deadline=2, block_size=10, skip_instance_cache=True)
    (server.directory / "file").write_bytes(b"")
    file = conftest.in_the_end(lambda: fs.open("/file", "r+b"))
    file.write(b"0123456789")
    server.kill()
    with pytest.raises(OSError):
        file.write(b"abc")
    server.start()
    conftest.in_the_end(lambda: file.write(b"abc"))
    conftest.in_the_end(file.flush)
    file.close()
    assert (server.directory / "file").read_bytes() == b"0123456789abc"


def test_the_programs_own_exception_is_what_it_sees(server):
    fs = fsspec.filesystem("odafs+shm", server=server.url, deadline=2, skip_instance_cache=True)
    with pytest.raises(ZeroDivisionError):
        with fs.open("/file", "wb") as file:
            file.write(b"half of")
            server.kill()
            1 / 0
    server.start()


def test_what_is_appended_goes_to_the_end(fs, server):
    (server.directory / "file").write_bytes(b"1")
    with fs.open("/file", "ab") as file:
        file.write(b"3")
        with open(server.directory / "file", "ab") as other:
            other.write(b"2")
    assert (server.directory / "file").read_bytes() == b"123"


def test_a_cancelled_read_leaves_the_buffer_alone(server, data):
    async def main():
        file = odafs.connect(f"{server.url}/", cache="off", deadline=10).open("data")
        server.kill()
        buffer = bytearray(9000)
        task = asyncio.create_task(file.aread_into(buffer, 0))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.start()
        assert await file.aread_at(5, 0) == data[:5]
        return buffer

    assert asyncio.run(main()) == bytes(9000)


def test_without_a_server_nothing_is_taken_for_missing(tmp_path):
    nobody = "odafs+shm://" + quote(str(tmp_path / "socket"), safe="")
    fs = fsspec.filesystem("odafs+shm", server=nobody, skip_instance_cache=True)
    for ask in (fs.exists, fs.isdir, fs.cat, fs.find, lambda path: fs.glob(f"{path}/*")):
        with pytest.raises(ConnectionRefusedError):
            ask("/data")


def test_a_name_that_no_file_can_have_is_of_none(fs):
    path = "/" + "x" * 300
    assert not fs.exists(path) and not fs.isdir(path) and fs.find(path) == []
