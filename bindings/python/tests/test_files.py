import asyncio
import errno
import threading
import time

import numpy
import odafs
import pytest


def test_reads_are_what_the_file_holds(server, data):
    for url in [server.url, f"odafs://{server.rdma}", f"nfs://{server.nfs}"]:
        with odafs.connect(f"{url}/") as client, client.open("data") as file:
            buffer = bytearray(len(data) + 9)
            assert file.read_into(memoryview(buffer)) == len(data)
            assert bytes(buffer[: len(data)]) == data
            page = numpy.empty(1024, numpy.float32)
            for round in range(3):
                for offset in range(0, len(data) - 4096, 65521):
                    assert file.read_into(page, offset) == 4096
                    assert page.tobytes() == data[offset : offset + 4096]
            assert file.read_at(100, len(data) - 7) == data[-7:]
            assert file.read_at(1 << 62, len(data)) == b""
            assert file.stat().size == len(data)


def test_buffers_that_are_none(server, data):
    file = odafs.connect(f"{server.url}/").open("data")
    with pytest.raises((BufferError, TypeError)):
        file.read_into(b"these cannot change")
    with pytest.raises((BufferError, ValueError)):
        file.read_into(numpy.zeros((8, 8))[:, ::2])
    with pytest.raises(TypeError):
        file.read_into(17)
    for objects in [numpy.zeros(4, object), numpy.zeros(4, [("time", "M8[s]"), ("object", "O")])]:
        with pytest.raises(TypeError):
            file.read_into(objects)
    assert file.read_into(numpy.zeros(4, "M8[s]")) == 32
    with pytest.raises(OverflowError):
        file.read_into(bytearray(1), -1)
    assert file.read_into(bytearray()) == 0


def test_many_ranges_are_one_array(server, data):
    file = odafs.connect(f"{server.url}/").open("data")
    offsets = numpy.random.default_rng(7).integers(0, len(data) - 256, 3000)
    truth = numpy.stack([numpy.frombuffer(data[at : at + 256], numpy.uint8) for at in offsets])
    for round in range(3):
        assert (file.read_ranges(offsets, 256) == truth).all()
    out = numpy.empty((3000, 64), numpy.float32)
    assert file.read_ranges(offsets, 256, out) is out
    assert out.tobytes() == truth.tobytes()
    tail = file.read_ranges([len(data) - 3, 0, len(data) + 9], 5)
    assert tail.tobytes() == data[-3:] + b"\0\0" + data[:5] + bytes(5)
    assert file.read_ranges([], 5).shape == (0, 5)
    pieces = file.read_pieces([(0, 3), (len(data) - 2, 10), (9, 0), (4095, 4098)])
    assert pieces == [data[:3], data[-2:], b"", data[4095 : 4095 + 4098]]
    with pytest.raises(ValueError):
        file.read_ranges([-1], 5)
    with pytest.raises(TypeError):
        file.read_ranges([0.5], 5)
    with pytest.raises(ValueError):
        file.read_ranges([1, 2], 5, bytearray_of(9))


def test_ranges_of_many_files_are_one_array(server, data):
    (server.directory / "other").write_bytes(data[::-1])
    client = odafs.connect(f"{server.url}/")
    file, other = client.open("data"), client.open("other")
    of = {file: data, other: data[::-1]}
    offsets = numpy.random.default_rng(8).integers(0, len(data) - 256, 3000)
    files = [file if at % 500 < 250 else other for at in range(3000)]
    truth = b"".join(of[which][at : at + 256] for which, at in zip(files, offsets))
    for round in range(3):
        assert client.read_ranges(files, offsets, 256).tobytes() == truth
    tails = client.read_ranges([other, file, other], [len(data) - 3, len(data) - 1, 0], 5)
    assert tails.tobytes() == data[:3][::-1] + bytes(2) + data[-1:] + bytes(4) + data[-5:][::-1]
    pieces = client.read_pieces([(file, 0, 3), (other, 4095, 4098), (file, len(data), 10), (other, 1, 0)])
    assert pieces == [data[:3], data[::-1][4095 : 4095 + 4098], b"", b""]
    assert client.read_pieces([]) == []
    with pytest.raises(ValueError, match="one file for each"):
        client.read_ranges([file], [1, 2], 5)
    with pytest.raises(ValueError, match="another client"):
        client.read_pieces([(odafs.connect(f"{server.url}/").open("data"), 0, 1)])


def bytearray_of(length):
    return numpy.zeros(length, numpy.uint8)


def test_writes_and_names(server):
    client = odafs.connect(f"{server.url}/")
    client.mkdir("room")
    with client.create("room/made", exclusive=True) as file:
        assert file.write_at(b"hello", 3) == 5
        file.sync()
    assert (server.directory / "room/made").read_bytes() == b"\0\0\0hello"
    client.rename("room/made", "moved")
    client.symlink("moved", "link")
    assert client.readlink("link") == "moved"
    assert client.stat("link").size == 8 and client.stat("link", follow_symlinks=False).kind == "link"
    client.truncate("moved", 4)
    client.chmod("moved", 0o600)
    assert {name: known.kind for name, known in client.scandir(".")} == {"room": "directory", "moved": "file", "link": "link"}
    assert client.stat("moved").mode == 0o600 and client.stat("moved").size == 4
    client.remove("link")
    client.rmdir("room")
    assert [name for name, _ in client.scandir("/")] == ["moved"]
    assert client.statistics()["bytes_written"] == 5


def test_errors_are_the_languages_own_and_name_the_remedy(server, data):
    client = odafs.connect(f"{server.url}/")
    with pytest.raises(FileNotFoundError, match="nothing here"):
        client.open("nothing here")
    with pytest.raises(IsADirectoryError):
        client.open("/")
    with pytest.raises(FileExistsError):
        client.create("data", exclusive=True)
    with pytest.raises(OSError, match=r"odafs\+shm://") as wrong:
        odafs.connect("http://here/")
    assert wrong.value.errno == errno.EINVAL
    with pytest.raises(ConnectionRefusedError, match="is it running"):
        odafs.connect("odafs+shm://%2Fnowhere%2Fat.all/")
    with pytest.raises(ConnectionRefusedError, match="is it running"):
        odafs.connect("nfs://127.0.0.1:1/")
    with pytest.raises(ValueError, match="one-sided"):
        odafs.connect(server.url, route="the shortest")
    # Callers over the network have the rights of nobody.
    (server.directory / "data").chmod(0o600)
    with pytest.raises(PermissionError, match="--squash"):
        odafs.connect(f"nfs://{server.nfs}/").open("data").read_at(1, 0)


def test_asyncio(server, data):
    async def main():
        client = odafs.connect(f"{server.url}/")
        file = await client.aopen("data")
        buffers = [bytearray(5000) for _ in range(40)]
        got = await asyncio.gather(*(file.aread_into(into, at * 5000) for at, into in enumerate(buffers)))
        assert got == [5000] * 40
        assert b"".join(buffers) == data[: 40 * 5000]
        assert await file.aread_at(10, 5) == data[5:15]
        assert (await file.aread_ranges([1, 2], 3)).tobytes() == data[1:4] + data[2:5]
        assert (await client.aread_ranges([file, file], [1, 2], 3)).tobytes() == data[1:4] + data[2:5]
        made = odafs.connect(f"{server.url}/").create("made")
        await made.awrite_at(b"abc")
        await made.asynced()
        assert (server.directory / "made").read_bytes() == b"abc"

    asyncio.run(main())


def test_threads_read_beside_each_other_while_the_lock_is_free(server, data):
    file = odafs.connect(f"{server.url}/").open("data")
    wrong = []

    def read(seed):
        buffer = bytearray(3000)
        for offset in numpy.random.default_rng(seed).integers(0, len(data) - 3000, 500).tolist():
            if file.read_into(buffer, offset) != 3000 or buffer != data[offset : offset + 3000]:
                wrong.append(offset)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []


def test_the_lock_is_free_while_a_call_waits(server, data):
    file = odafs.connect(f"{server.url}/", deadline=30, cache="off").open("data")
    server.kill()
    got = []
    thread = threading.Thread(target=lambda: got.append(file.read_at(4096, 0)))
    thread.start()
    # The call waits for what only this thread does: it would fail by its deadline if the lock were held.
    time.sleep(0.2)
    server.start()
    thread.join()
    assert got == [data[:4096]]


def test_a_server_that_is_killed_and_started_again(server, data):
    file = odafs.connect(f"{server.url}/", deadline=1, cache="off").open("data")
    assert file.read_at(5000, 100) == data[100:5100]
    server.kill()
    buffer = bytearray(4096)
    with pytest.raises((TimeoutError, ConnectionError)):
        for offset in range(0, len(data) - 4096, 4096):
            assert file.read_into(buffer, offset) == 4096
            assert buffer == data[offset : offset + 4096]
    server.start()
    for offset in range(0, len(data) - 4096, 4096):
        assert file.read_into(buffer, offset) == 4096
        assert buffer == data[offset : offset + 4096]
