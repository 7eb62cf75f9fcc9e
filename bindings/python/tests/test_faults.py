"""What went wrong once."""

import os
import threading

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
    fs = fsspec.filesystem("odafs+shm", server=server.url, deadline=0.5, cache="off", skip_instance_cache=True)
    file = fs.open("/data")
    assert file.read(5) == data[:5]
    server.kill()
    with pytest.raises(OSError):
        while file.read(2 << 20):
            pass
    at = file.tell()
    assert at < len(data)
    server.start()
    assert file.read() == data[at:]
