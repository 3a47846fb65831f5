"""Tensors in messages and files: what is malformed is refused, what is not is read as onnx does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.graph.proto.external import ExternalFiles, Location
from amp_rewrite.graph.proto.stored import check_tensor

NO_FILES = ExternalFiles(None)
ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(6).reshape(2, 3),
    np.array([1.5, 2], np.float16),
    np.array([1.5, 2], ml_dtypes.bfloat16),
    np.array([1 + 2j, 3], np.complex64),
    np.array([1, 2], ml_dtypes.int4),
    np.array([True, False]),
    np.float64(3.0),
    np.zeros((0, 4), np.float32),
]


def read(stream: Any) -> np.ndarray:
    return np.concatenate([np.asarray(block) for block in stream.blocks()])


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_a_tensor_reads_as_onnx_reads_it(array: Any) -> None:
    proto = numpy_helper.from_array(np.asarray(array), "t")
    tensor = check_tensor(proto, NO_FILES, "here")
    assert (tensor.dtype, tensor.dims, tensor.size) == (proto.data_type, array.shape, array.size)
    assert tensor.nbytes == len(proto.raw_data)
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_numbers_in_typed_fields_stream_as_elements(kind: int) -> None:
    proto = helper.make_tensor("t", kind, [2, 2], [1.0, 2.0, -3.0, 0.5])
    assert not proto.HasField("raw_data")
    tensor = check_tensor(proto, NO_FILES, "here")
    np.testing.assert_array_equal(read(tensor.stream), tensor.numpy().reshape(-1))


def external(folder: Path, dims: list[int], **entries: object) -> TensorProto:
    (folder / "w.data").write_bytes(b"head" + np.arange(4, dtype=np.float32).tobytes())
    proto = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=dims)
    proto.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.data", "offset": 4, **entries}.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def test_a_tensor_in_a_file_is_located_and_streamed(tmp_path: Path) -> None:
    tensor = check_tensor(external(tmp_path, [2, 2]), ExternalFiles(str(tmp_path)), "here")
    assert tensor.location == Location(str(tmp_path), "w.data", 4, 16)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(4, dtype=np.float32).reshape(2, 2))
    np.testing.assert_array_equal(read(tensor.stream), np.arange(4, dtype=np.float32))
    assert read(tensor.stored).tobytes() == np.arange(4, dtype=np.float32).tobytes()
