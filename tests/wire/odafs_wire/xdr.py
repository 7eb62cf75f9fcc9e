"""XDR (RFC 4506), as far as it is needed."""

import struct


class Packer:
    def __init__(self):
        self.data = bytearray()

    def u32(self, *values):
        self.data += struct.pack(">%dI" % len(values), *values)
        return self

    def u64(self, *values):
        self.data += struct.pack(">%dQ" % len(values), *values)
        return self

    def fixed(self, data):
        self.data += data + bytes(-len(data) % 4)
        return self

    def opaque(self, data):
        return self.u32(len(data)).fixed(data)


class Unpacker:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, count):
        taken = bytes(self.data[self.at : self.at + count])
        assert len(taken) == count, "a result is cut off"
        self.at += count
        return taken

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.take(8))[0]

    def boolean(self):
        value = self.u32()
        assert value in (0, 1), "no boolean"
        return value == 1

    def fixed(self, count):
        data = self.take(count)
        self.take(-count % 4)
        return data

    def opaque(self):
        return self.fixed(self.u32())

    def optional(self, item):
        return item() if self.boolean() else None

    def array(self, item):
        return [item() for _ in range(self.u32())]

    def end(self):
        assert self.at == len(self.data), "bytes behind a result"
