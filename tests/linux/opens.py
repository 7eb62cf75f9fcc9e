"""Nanoseconds that an open, read and close of a small file takes.

opens.py DIRECTORY FILES ROUNDS: the files DIRECTORY/small/0 and so on, of 4 KiB each: once each, then so often on the clock.
"""
import os, sys, time
directory, files, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = [f"{directory}/small/{i}" for i in range(files)]
def one(name):
    file = os.open(name, os.O_RDONLY)
    data = os.read(file, 8192)
    os.close(file)
    assert len(data) == 4096, len(data)
for name in names:
    one(name)
begin = time.monotonic_ns()
for _ in range(rounds):
    for name in names:
        one(name)
print((time.monotonic_ns() - begin) // (files * rounds))
