"""Figures of the README, each beside what it is compared with, in turns: bench.py ODAFS-PROGRAM [DIRECTORY]

DIRECTORY is where the files are made that are served: on a file system in memory, so that nobody waits for a disk.
"""

import mmap
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import fsspec
import numpy
import odafs

TURNS = 9
MIB = 1 << 20


def in_turns(*jobs):
    """Medians of the seconds that each job takes."""
    times = [[] for _ in jobs]
    for turn in range(TURNS + 1):
        for job, taken in zip(jobs, times):
            began = time.perf_counter()
            job()
            if turn > 0:
                taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in times]


def one_page(url, path):
    for route, cache in (("one-sided", "off"), ("policy", "close-to-open")):
        file = odafs.connect(url, route=route, cache=cache).open("data")
        local = open(path, "rb", buffering=0)
        page = memoryview(bytearray(4096))
        random = numpy.random.default_rng(1)
        pages = pathlib.Path(path).stat().st_size // 4096
        for at in range(pages):
            file.read_into(page, at * 4096)
        taken = []
        for offset in (random.integers(0, pages, 100_000) * 4096).tolist():
            began = time.perf_counter_ns()
            file.read_into(page, offset)
            taken.append(time.perf_counter_ns() - began)
        taken.sort()
        print(f"read_into, 4 KiB at random, route {route}: p50 {taken[50_000]} ns, p99 {taken[99_000]} ns")
        local.close()


def gather(url, path):
    for cache in ("off", "close-to-open"):
        gather_with(url, path, cache)


def gather_with(url, path, cache):
    file = odafs.connect(url, cache=cache).open("data")
    with open(path, "rb") as local:
        rows = numpy.frombuffer(mmap.mmap(local.fileno(), 0, access=mmap.ACCESS_READ), numpy.uint8).reshape(-1, 256)
    random = numpy.random.default_rng(2)
    wanted = [random.integers(0, len(rows), 10_000) for _ in range(4)]
    out = numpy.empty((10_000, 256), numpy.uint8)
    for index in wanted:
        for _ in range(20):
            file.read_ranges(index * 256, 256, out)
        assert (out == rows[index]).all()
    at = [0]

    def ours():
        at[0] += 1
        file.read_ranges(wanted[at[0] % 4] * 256, 256)

    def theirs():
        rows[wanted[at[0] % 4]]

    mine, other = in_turns(ours, theirs)
    print(f"gather of 10,000 rows of 256 B, cache {cache}: {mine * 1e6:.0f} us, numpy {other * 1e6:.0f} us: {other / mine:.2f} of its speed")


def cat_ranges(url, path):
    ours = fsspec.filesystem("odafs+shm", server=url.rstrip("/"))
    local = fsspec.filesystem("file")
    random = numpy.random.default_rng(3)
    starts = random.integers(0, pathlib.Path(path).stat().st_size - 4096, 10_000).tolist()
    ends = [start + 256 for start in starts]
    assert ours.cat_ranges(["/data"] * 10_000, starts, ends) == local.cat_ranges([path] * 10_000, starts, ends)
    mine, other = in_turns(
        lambda: ours.cat_ranges(["/data"] * 10_000, starts, ends),
        lambda: local.cat_ranges([path] * 10_000, starts, ends),
    )
    print(f"cat_ranges, 10,000 of 256 B: {mine * 1e3:.1f} ms, fsspec's local {other * 1e3:.1f} ms, {other / mine:.1f} times as fast")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else "/dev/shm") as work:
        served = pathlib.Path(work, "served")
        served.mkdir()
        data = served / "data"
        data.write_bytes(numpy.random.default_rng(0).bytes(64 * MIB))
        socket = f"{work}/sock"
        command = [program, "serve", str(served), "--nfs", "127.0.0.1:0", "--shm", socket, "--state", f"{work}/state"]
        server = subprocess.Popen(
            [*command, "--cache", "128MiB", "--until-stdin-ends"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        server.stdout.readline()
        url = "odafs+shm://" + socket.replace("/", "%2F") + "/"
        try:
            for bench in (one_page, gather, cat_ranges):
                bench(url, str(data))
        finally:
            server.stdin.close()
            server.wait()


if __name__ == "__main__":
    main()
