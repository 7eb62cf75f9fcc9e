"""A server of a directory, for each test module; $ODAFS is the program."""

import os
import pathlib
import signal
import subprocess

import pytest


def in_the_end(act):
    """What comes of it at last: a short deadline may be over because this machine stood still."""
    for _ in range(30):
        try:
            return act()
        except TimeoutError:
            pass
    return act()


class Server:
    def __init__(self, work, directory, *options):
        self.directory = directory
        self.socket = work / "odafs.sock"
        self.command = [
            os.environ["ODAFS"], "serve", str(directory), "--nfs", "127.0.0.1:0", "--rdma", "127.0.0.1:0",
            "--shm", str(self.socket), "--state", str(work / "state"), "--cache", "256MiB", "--until-stdin-ends", *options,
        ]  # fmt: skip
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = dict(word.split("=", 1) for word in self.process.stdout.readline().split()[1:])
        self.nfs, self.rdma = ready["nfs"], ready["rdma"]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()

    @property
    def url(self):
        return "odafs+shm://" + str(self.socket).replace("/", "%2F")


@pytest.fixture
def server(tmp_path):
    directory = tmp_path / "served"
    directory.mkdir()
    server = Server(tmp_path, directory)
    yield server
    server.stop()


@pytest.fixture
def data(server):
    """A file of 3 MiB and 77 bytes, of which no two pages are alike."""
    content = os.urandom((3 << 20) + 77)
    pathlib.Path(server.directory, "data").write_bytes(content)
    return content
