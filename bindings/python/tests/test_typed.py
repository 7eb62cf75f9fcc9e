"""What the stubs say is so: mypy checks this file (strictly), pytest runs it."""

import asyncio
import pathlib
from typing import Any

import numpy
import odafs
from numpy.typing import NDArray


def test_each_function_as_the_stubs_have_it(server: Any, data: bytes) -> None:
    with odafs.connect(f"{server.url}/", deadline=5, cache="off", wait="sleep", lanes=2) as client:
        url: str = client.url
        file: odafs.File = client.open(pathlib.PurePosixPath("data"))
        path: str = file.path
        got: int = file.read_into(memoryview(bytearray(10)), 5)
        at_once: int | None = file.try_read_into(bytearray(10))
        part: bytes = file.read_at(10, 5)
        rows: NDArray[numpy.uint8] = file.read_ranges([1, 2], 5)
        pieces: list[bytes] = file.read_pieces([(0, 5), (6, 7)])
        both: NDArray[numpy.uint8] = client.read_ranges([file, file], [1, 2], 5)
        parts: list[bytes] = client.read_pieces([(file, 0, 5), (file, 6, 7)])
        known: odafs.Attributes = file.stat()
        same: bool = file.revalidate()
        assert url.startswith("odafs") and path == "data" and got == 10 and at_once in (None, 10) and same
        assert part == data[5:15] and rows.shape == both.shape == (2, 5) and pieces == parts == [data[:5], data[6:13]]
        assert known.size == client.stat("data", follow_symlinks=False).size and known.kind == "file"
        times: tuple[float, float, int, int] = (known.accessed, known.modified, known.modified_ns, known.changed_ns)
        numbers: tuple[int, ...] = (known.mode, known.links, known.uid, known.gid, known.used, known.file_id)
        assert all(time >= 0 for time in times) and all(number >= 0 for number in numbers)
        made = client.create("made", mode=0o600, exclusive=True, truncate=False)
        written: int = made.write_at(b"abc", 1)
        made.sync()
        assert written == 3
        names: list[tuple[str, odafs.Attributes | None]] = client.scandir("/")
        assert sorted(name for name, _ in names) == ["data", "made"]
        counted: dict[str, int] = client.statistics()
        assert counted["bytes_written"] == 3

        async def beside() -> int:
            again = await client.aopen("data")
            await again.aread_into(bytearray(5))
            await again.aread_ranges([1], 2)
            await made.awrite_at(b"x")
            await made.asynced()
            return len(await again.aread_at(5, 0))

        assert asyncio.run(beside()) == 5
        for name in odafs.__all__:
            assert hasattr(odafs, name)
