"""Streams are written on all cores as if one after the other, in bounded memory, or not at all."""

import hashlib
import os

import numpy as np
import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.errors import LoadError
from amp_rewrite.graph import threads
from amp_rewrite.graph.io import write_streams as module
from amp_rewrite.graph.io.write_streams import write_streams
from amp_rewrite.graph.streams import FileRange, Stream

CORES = 4


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: CORES)


@pytest.fixture
def output(tmp_path):
    with open(tmp_path / "out", "w+b", buffering=0) as file:
        yield file


def zeros(folder, mebibytes: int) -> Stream:
    """Return a stream of a file that takes no space on the disk."""
    path = folder / "zeros"
    with open(path, "wb") as file:
        file.truncate(mebibytes << 20)
    return Stream(mebibytes << 18, np.dtype(np.float32), FileRange(str(path), 0), name="zeros")


def test_streams_of_all_kinds_follow_each_other_without_gaps(tmp_path, output, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT", 64)
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    path = tmp_path / "weights"
    path.write_bytes(values.tobytes())
    file = Stream(1000, values.dtype, FileRange(str(path), 0))
    memory = Stream(1000, values.dtype, values)
    streams = [
        Stream.of_bytes(b"odd"),
        file.converted(FLOAT16),
        Stream.of_bytes(b""),
        memory,
        *(Stream.of_bytes(bytes([n])) for n in range(200)),
        memory.converted(BFLOAT16),
    ]
    digest, seen = hashlib.sha256(), bytearray()
    write_streams(iter(streams), output.fileno(), digest.update, seen.extend)
    expected = (
        b"odd"
        + values.astype(np.float16).tobytes()
        + values.tobytes()
        + bytes(range(200))
        + values.astype(BFLOAT16.numpy).tobytes()
    )
    assert output.read() == expected
    assert seen == expected
    assert digest.digest() == hashlib.sha256(expected).digest()


def test_a_write_that_is_cut_short_is_continued(output, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: real(file, data[:7], offset))
    write_streams([Stream.of_bytes(bytes(range(100)))], output.fileno())
    assert output.read() == bytes(range(100))


def test_a_source_that_ends_early_is_named(tmp_path, output):
    stream = zeros(tmp_path, 64)
    os.truncate(tmp_path / "zeros", (64 << 20) - 100)
    with pytest.raises(LoadError, match="'zeros' is too short; found 100 bytes missing"):
        write_streams([stream], output.fileno())
