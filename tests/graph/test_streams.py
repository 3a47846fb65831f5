"""A stream gives any part of its elements, converted, a block at a time."""

import os

import numpy as np
import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32
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


def test_a_function_is_called_when_its_elements_are_needed():
    calls = []

    def make() -> np.ndarray:
        calls.append(1)
        return VALUES

    lazy = Stream(VALUES.size, VALUES.dtype, make).converted(FLOAT16)
    assert (lazy.nbytes, calls) == (2000, [])
    assert all_of(lazy, 5, 2).tolist() == VALUES[5:7].astype(np.float16).tolist()
    at_hand = lazy.at_hand()
    assert len(calls) == 2
    assert all_of(at_hand).size == VALUES.size
    assert len(calls) == 2


def test_conversions_apply_one_after_the_other(tmp_path):
    stream = in_file(tmp_path).converted(FLOAT16, saturate=65504.0).converted(FLOAT32)
    expected = np.minimum(VALUES, 65504).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(all_of(stream), expected)
    assert (stream.itemsize, stream.nbytes) == (4, 4000)
    assert in_memory().converted(BFLOAT16).nbytes == 2000


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


def test_bytes_are_a_stream_as_well():
    stream = Stream.of_bytes(b"abc")
    assert stream.nbytes == 3
    assert all_of(stream, 1).tobytes() == b"bc"
