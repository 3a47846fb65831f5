"""A stream gives any part of its elements, converted, a block at a time."""

import os

import numpy as np
import pytest

from amp_rewrite.errors import LoadError
from amp_rewrite.graph.streams import FileRange, Stream

VALUES = np.linspace(-3, 70_000, 1000, dtype=np.float32)


def in_file(folder, offset: int = 0) -> Stream:
    path = folder / f"weights{offset}"
    path.write_bytes(bytes(offset) + VALUES.tobytes())
    return Stream(VALUES.size, VALUES.dtype, FileRange(str(path), offset), name="w")


def in_memory() -> Stream:
    return Stream(VALUES.size, VALUES.dtype, VALUES)


def all_of(stream: Stream, first: int = 0, count: int | None = None) -> np.ndarray:
    return np.concatenate(list(stream.blocks(first, count, block=64)))


def test_any_part_can_be_read_from_a_file_and_from_memory(tmp_path):
    for stream in (in_file(tmp_path), in_file(tmp_path, offset=3), in_memory()):
        np.testing.assert_array_equal(all_of(stream), VALUES)
        np.testing.assert_array_equal(all_of(stream, 100, 300), VALUES[100:400])
        np.testing.assert_array_equal(all_of(stream, 990), VALUES[990:])
        assert [block.size for block in stream.blocks(0, 130, block=64)] == [64, 64, 2]
        assert list(stream.blocks(7, 0)) == []


def test_a_file_that_ends_early_or_is_missing_is_named(tmp_path):
    stream = in_file(tmp_path, offset=8)
    os.truncate(tmp_path / "weights8", 4000)
    assert all_of(stream, 0, 998).size == 998
    expected = "tensor 'w' is too short; found 8 bytes missing; expected 4000 bytes from offset 8"
    with pytest.raises(LoadError, match=expected):
        all_of(stream, 960)
    gone = Stream(4, VALUES.dtype, FileRange(str(tmp_path / "none"), 0), name="w")
    with pytest.raises(LoadError, match="tensor 'w' cannot be read; found No such file"):
        all_of(gone)
