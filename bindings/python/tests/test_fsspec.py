import os

import duckdb
import fsspec
import numpy
import pandas
import polars
import polars.testing
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest


@pytest.fixture
def fs(server):
    return fsspec.filesystem("odafs+shm", server=server.url)


def test_urls(server, data):
    for url in [f"{server.url}/data", f"odafs+shm://{server.socket}?/data", f"odafs://{server.rdma}/data"]:
        fs, path = fsspec.core.url_to_fs(url)
        assert path == "/data" and fs.size(path) == len(data)
        with fsspec.open(url) as file:
            assert file.read() == data
        again, path = fsspec.core.url_to_fs(fs.unstrip_protocol(path))
        assert again is fs and path == "/data"


def test_positions(fs, data):
    with fs.open("/data") as file:
        assert file.seek(-5, 2) == len(data) - 5 and file.read() == data[-5:] and file.read(3) == b""
        random = numpy.random.default_rng(3)
        for offset, length in zip(random.integers(0, len(data), 300), random.integers(0, 9000, 300)):
            file.seek(offset)
            assert file.read(int(length)) == data[offset : offset + length]
        file.seek(0)
        assert b"".join(iter(lambda: file.read(1000), b"")) == data
        file.seek(7)
        assert file.readline() == data[7 : data.index(b"\n", 7) + 1]
        assert file.seek(9, 2) == len(data) + 9 and file.read(5) == b"" and file.read(5) == b"" and file.tell() == len(data) + 9
        with pytest.raises(ValueError):
            file.seek(-1)
        with pytest.raises(OSError):
            file.write(b"x")
    with fs.open("/data", "r+b") as file:
        file.seek(10)
        file.write(b"0123456789")
        file.seek(8)
        assert file.read(14) == data[8:10] + b"0123456789" + data[20:22]
    assert fs.cat_file("/data", 10, 20) == b"0123456789"


def test_ranges(fs, server, data):
    (server.directory / "other").write_bytes(b"other")
    random = numpy.random.default_rng(4)
    starts = random.integers(0, len(data), 2000).tolist()
    ends = [start + 100 for start in starts]
    pieces = fs.cat_ranges(["/data"] * 2000, starts, ends)
    assert pieces == [data[start:end] for start, end in zip(starts, ends)]
    mixed = fs.cat_ranges(["/other", "/data", "/nothing", "/other"], [1, -3, 0, 0], [3, None, 1, -1])
    assert mixed[:2] == [b"th", data[-3:]] and mixed[3] == b"othe"
    assert isinstance(mixed[2], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["/nothing"], [0], [1], on_error="raise")
    assert fs.cat(["/other", "/data"]) == {"/other": b"other", "/data": data}
    assert fs.cat_ranges(["/other"], [2], [1 << 50]) == [b"her"]


def test_ranges_of_many_files_are_one_batch(fs, server, monkeypatch):
    names = [f"/part{number}" for number in range(20)]
    for name in names:
        (server.directory / name[1:]).write_bytes(name.encode() * 100)
    batches = []
    read = type(fs.client)._pieces
    monkeypatch.setattr(type(fs.client), "_pieces", lambda self, batch: batches.append(0) or read(self, batch))
    pieces = fs.cat_ranges(names * 2, [3] * 40, [9] * 40)
    assert pieces == [(name * 100)[3:9].encode() for name in names * 2]
    assert len(batches) == 1


def test_a_file_that_goes_takes_no_other_with_it(fs, server, monkeypatch):
    for name in ["stays", "goes", "stays too"]:
        (server.directory / name).write_bytes(name.encode())
    opened = type(fs.client).open

    def and_goes(self, path):
        file = opened(self, path)
        if path == "/goes":
            self.remove(path)
        return file

    monkeypatch.setattr(type(fs.client), "open", and_goes)
    first = fs.cat_ranges(["/goes", "/stays", "/stays too"], [0, 0, 0], [5, 5, 9])
    assert isinstance(first[0], OSError) and first[1:] == [b"stays", b"stays too"]


def test_a_file_is_replaced_at_once_or_not_at_all(fs, server):
    place = server.directory / "file"
    fs.pipe_file("/file", b"old")
    with fs.open("/file", "wb") as file:
        file.write(b"new" * 1000000)
        file.flush()
        assert place.read_bytes() == b"old"
    assert place.read_bytes() == b"new" * 1000000
    with pytest.raises(ZeroDivisionError):
        with fs.open("/file", "wb") as file:
            file.write(b"half of")
            1 / 0
    fs.open("/file", "wb").write(b"never closed")
    assert place.read_bytes() == b"new" * 1000000
    with fs.open("/file", "ab") as file:
        file.write(b"er")
        file.write(b"!")
    assert place.read_bytes()[-6:] == b"newer!"
    with pytest.raises(FileExistsError):
        fs.open("/file", "xb")
    with fs.transaction:
        with fs.open("/file", "wb") as file:
            file.write(b"later")
        assert place.read_bytes() != b"later"
    assert place.read_bytes() == b"later"
    with fs.open("/text", "w") as file:
        file.write("grün\n")
    assert fs.open("/text", "r").read() == "grün\n"
    assert sorted(os.listdir(server.directory)) == ["file", "text"]


def test_what_a_with_has_written_is_kept_within_a_handler(fs, server):
    file = fs.open("/file", "wb")
    try:
        {}["missing"]
    except KeyError:
        with file:
            file.write(b"fallback")
    assert (server.directory / "file").read_bytes() == b"fallback"


def test_what_was_appended_in_part_is_not_appended_twice(fs, server):
    (server.directory / "file").write_bytes(b"0")
    file = fs.open("/file", "ab")
    file.write(b"123")
    stored = file._file

    class Failing:
        def stat(self):
            return stored.stat()

        def write_at(self, data, offset):
            stored.write_at(data[:2], offset)
            raise OSError(28, "no space")

    file._file = Failing()
    with pytest.raises(OSError):
        file.flush()
    file._file = stored
    file.write(b"4")
    file.close()
    assert (server.directory / "file").read_bytes() == b"01234"


def test_what_is_being_written_is_in_no_listing(fs, server):
    with fs.open("/d/file", "wb") as file:
        file.write(b"1")
        assert fs.ls("/d") == [] and fs.find("/d") == []
    assert fs.find("/d") == ["/d/file"]


def test_options_reach_the_client(server):
    with pytest.raises(ValueError, match="route"):
        fsspec.filesystem("odafs+shm", server=server.url, route="none").ls("/")


def test_nothing_is_made_outside_of_the_export(fs, monkeypatch):
    monkeypatch.setattr(type(fs), "exists", lambda self, path: False)
    with pytest.raises(FileNotFoundError):
        fs.makedirs("/elsewhere/x")


def test_names(fs, server):
    fs.makedirs("/a/b/c")
    with pytest.raises(FileExistsError):
        fs.makedirs("/a/b")
    fs.touch("/a/one.bin")
    fs.pipe("/a/b/two.bin", b"22")
    assert fs.find("/") == ["/a/b/two.bin", "/a/one.bin"]
    assert fs.glob("/a/**/*.bin") == ["/a/b/two.bin", "/a/one.bin"] and fs.glob("/a/o?e.bin") == ["/a/one.bin"]
    assert fs.isdir("/a") and fs.isfile("/a/one.bin") and not fs.exists("/a/three")
    assert sorted(fs.ls("/a", detail=False)) == ["/a/b", "/a/one.bin"]
    before = fs.checksum("/a/b/two.bin")
    fs.cp_file("/a/b/two.bin", "/a/three")
    fs.mv("/a/three", "/a/four")
    fs.pipe("/a/b/two.bin", b"33")
    assert fs.cat("/a/four") == b"22" and fs.checksum("/a/b/two.bin") != before
    with pytest.raises(IsADirectoryError):
        fs.rm("/a")
    with pytest.raises(FileNotFoundError):
        fs.ls("/nothing")
    fs.rm("/a", recursive=True)
    assert fs.ls("/") == []


@pytest.fixture
def table(server):
    """A table in several Parquet files, in the served directory."""
    random = numpy.random.default_rng(11)
    count = 60_000
    frame = pandas.DataFrame(
        {
            "id": numpy.arange(count),
            "part": numpy.arange(count) % 3,
            "value": random.normal(size=count),
            "name": random.choice(["red", "green", "blue", None], count),
        }
    )
    for part, rows in frame.groupby("part"):
        (server.directory / f"piece-{part}").mkdir()
        rows.to_parquet(server.directory / f"piece-{part}" / "rows.parquet", row_group_size=5000)
    frame.to_parquet(server.directory / "all.parquet", row_group_size=5000)
    return frame


def test_pandas(server, table):
    local, url = f"{server.directory}/all.parquet", f"{server.url}/all.parquet"
    pandas.testing.assert_frame_equal(pandas.read_parquet(url), pandas.read_parquet(local))
    some = dict(columns=["value"], filters=[("id", "<", 7000)])
    pandas.testing.assert_frame_equal(pandas.read_parquet(url, **some), pandas.read_parquet(local, **some))
    table.to_parquet(f"{server.url}/written.parquet")
    pandas.testing.assert_frame_equal(pandas.read_parquet(f"{server.directory}/written.parquet"), table)
    table.head(50).to_csv(f"{server.url}/rows.csv", index=False)
    pandas.testing.assert_frame_equal(
        pandas.read_csv(f"{server.url}/rows.csv"), pandas.read_csv(server.directory / "rows.csv")
    )


def test_pyarrow(fs, server, table):
    ours = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))

    def rows(place, filesystem=None):
        files = [f"{place}/piece-{number}/rows.parquet" for number in range(3)]
        wanted = (pyarrow.dataset.field("part") == 1) & (pyarrow.dataset.field("value") > 0.5)
        return pyarrow.dataset.dataset(files, filesystem=filesystem).to_table(filter=wanted).sort_by("id")

    assert rows("", ours).num_rows > 0 and rows("", ours).equals(rows(server.directory))
    assert pyarrow.dataset.dataset("/piece-1", filesystem=ours).count_rows() == 20_000
    whole = pyarrow.parquet.read_table(f"fsspec+{server.url}/all.parquet")
    assert whole.equals(pyarrow.parquet.read_table(f"{server.directory}/all.parquet"))
    pyarrow.parquet.write_table(whole, "/again.parquet", filesystem=ours)
    assert pyarrow.parquet.read_table(f"{server.directory}/again.parquet").equals(whole)


def test_polars(server, table):
    def query(source):
        frame = polars.read_parquet(source, columns=["part", "value", "name"])
        return frame.group_by("part", "name").agg(polars.col("value").sum()).sort("part", "name", nulls_last=True)

    with fsspec.open(f"{server.url}/all.parquet") as file:
        polars.testing.assert_frame_equal(query(file), query(server.directory / "all.parquet"))


def test_duckdb(fs, server, table):
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    query = "select part, name, count(*), round(sum(value), 6) from '{}' where id > 1000 group by all order by all"
    url, local = server.url, server.directory
    for files in ["all.parquet", "piece-*/rows.parquet", "piece-?/rows.parquet"]:
        ours, theirs = (connection.sql(query.format(f"{place}/{files}")).fetchall() for place in (url, local))
        assert ours == theirs and len(ours) == 12
    connection.sql(f"copy (select 42 as answer) to '{url}/answer.parquet'")
    assert duckdb.sql(f"select * from '{local}/answer.parquet'").fetchall() == [(42,)]


def test_zarr(fs, server):
    zarr = pytest.importorskip("zarr")
    numbers = numpy.random.default_rng(5).normal(size=(200, 300))
    made = zarr.create_array(f"{server.url}/numbers.zarr", shape=numbers.shape, chunks=(50, 70), dtype="f8")
    made[:] = numbers
    assert (zarr.open_array(f"{server.url}/numbers.zarr", mode="r")[17:90, 3:200] == numbers[17:90, 3:200]).all()
    assert (zarr.open_array(f"{server.directory}/numbers.zarr", mode="r")[:] == numbers).all()


def test_a_server_that_is_killed_under_a_query(server, table):
    fs = fsspec.filesystem("odafs+shm", server=server.url, deadline=1.0, skip_instance_cache=True)
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    query = f"select sum(id) from '{server.url}/all.parquet'"
    truth = int(table["id"].sum())
    assert connection.sql(query).fetchall() == [(truth,)]
    server.kill()
    with pytest.raises(Exception, match=r"(Timeout|Connection\w*)Error: \[Errno \d+\]"):
        connection.sql(query).fetchall()
    server.start()
    assert connection.sql(query).fetchall() == [(truth,)]
