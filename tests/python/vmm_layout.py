# SPDX-License-Identifier: MIT
"""Maps memory of cuMemCreate in every way that a snapshot must tell apart.  As a program: maps it, and prints the layout as JSON."""
import json

import gpu
from gpu import MIB


class Told:
    """segments: address -> sizes of blocks.  handles: numbers that are no addresses.  ranges: the reservations."""

    def __init__(self, segments, handles, ranges):
        self.segments = {int(address): sizes for address, sizes in segments.items()}
        self.handles, self.ranges = handles, ranges

    def holds(self, address):
        return any(begin <= address < begin + size for begin, size in self.ranges)


class Layout(Told):
    def __init__(self):
        base, exact, alias = gpu.reserve(64 * MIB), gpu.reserve(4 * MIB), gpu.reserve(8 * MIB)
        super().__init__({}, [], [(base, 64 * MIB), (exact, 4 * MIB), (alias, 8 * MIB)])
        self.mapped = []
        for offset, size in ((0, 2), (2, 4), (6, 2), (20, 6)):
            self._map(base + offset * MIB, size * MIB)
        self._map(base + 26 * MIB, 2 * MIB)
        gpu.unmap(base + 6 * MIB, 2 * MIB)  # the end of the first run
        self.mapped.remove((base + 6 * MIB, 2 * MIB))
        self._map(exact, 4 * MIB)  # a reservation that is full: its neighbour is another segment
        twice = self._map(alias, 2 * MIB)
        gpu.map_at(alias + 4 * MIB, 2 * MIB, twice)  # the same memory again
        self.mapped.append((alias + 4 * MIB, 2 * MIB))
        self.handles.append(gpu.create(6 * MIB))  # never mapped
        self.segments = {base: [2 * MIB, 4 * MIB], base + 20 * MIB: [6 * MIB, 2 * MIB], exact: [4 * MIB], alias: [2 * MIB]}

    def _map(self, address, size):
        handle = gpu.create(size)
        gpu.map_at(address, size, handle)
        self.handles.append(handle)
        self.mapped.append((address, size))
        return handle

    def end(self):
        for address, size in self.mapped:
            gpu.unmap(address, size)
        for handle in self.handles:
            gpu.release(handle)
        for address, size in self.ranges:
            gpu.unreserve(address, size)


if __name__ == "__main__":
    gpu.use(0)
    layout = Layout()
    print(json.dumps({"segments": layout.segments, "handles": layout.handles, "ranges": layout.ranges}))
