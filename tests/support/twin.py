"""An engine of one's own: two shards that always have the same data, seen from the first."""

import numpy as np


class Twin:
    """See the module; a sum is twice the own value, exactly."""

    rank, size, local_size = 0, 2, 2

    def __init__(self):
        self.sums = []

    def sum(self, buffer):
        self.sums.append(buffer)
        buffer += buffer

    def gather(self, array):
        return [array, array]

    def broadcast(self, array):
        assert array.flags.c_contiguous

    def split(self, groups):
        return self

    def abort(self, status):
        raise SystemExit(status)

    def close(self):
        self.sums.clear()


def arrays(twin):
    """Return how many buffers were summed, and their bytes in all."""
    return len(twin.sums), sum(np.asarray(b).nbytes for b in twin.sums)
