"""A seeded walk over one file: writes, reads, truncations and mappings on the mount, each compared with a copy in memory.

random_walk.py FILE SEED STEPS
"""
import mmap
import os
import random
import sys

path, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
most = 300_000
copy = bytearray()
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def check(step, what, got, wanted):
    if bytes(got) != bytes(wanted):
        first = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), "the end")
        sys.exit(f"seed {seed}, step {step}, {what}: differs at {first}, {len(got)} bytes of {len(wanted)}")


for step in range(steps):
    what = chance.choice(["write", "write", "append", "read", "truncate", "map", "map-read", "reopen", "sync"])
    at, length = chance.randrange(most), chance.randrange(1, 70_000)
    if what == "write":
        data = chance.randbytes(length)
        assert os.pwrite(file, data, at) == length
        if at > len(copy):
            copy.extend(bytes(at - len(copy)))
        copy[at : at + length] = data
    elif what == "append":
        data = chance.randbytes(length % 5000 + 1)
        with open(path, "ab", buffering=0) as end:
            assert end.write(data) == len(data)
        copy.extend(data)
    elif what == "read":
        check(step, what, os.pread(file, length, at), copy[at : at + length])
    elif what == "truncate":
        os.ftruncate(file, at)
        copy = copy[:at] + bytes(max(0, at - len(copy)))
    elif what in ("map", "map-read") and copy:
        at %= len(copy)
        with mmap.mmap(file, len(copy)) as mapped:
            if what == "map":
                data = chance.randbytes(min(length, len(copy) - at))
                mapped[at : at + len(data)] = data
                copy[at : at + len(data)] = data
                if chance.random() < 0.5:
                    mapped.flush()
            else:
                check(step, what, mapped[at : at + length], copy[at : at + length])
    elif what == "reopen":
        os.close(file)
        file = os.open(path, os.O_RDWR)
    elif what == "sync":
        os.fsync(file)
    if os.fstat(file).st_size != len(copy):
        sys.exit(f"seed {seed}, step {step}, {what}: {os.fstat(file).st_size} bytes, and not {len(copy)}")
os.close(file)
with open(path, "rb") as file:
    check(steps, "the end", file.read(), copy)
