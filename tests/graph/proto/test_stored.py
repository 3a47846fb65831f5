"""Tensors in messages and files: what is malformed is refused, what is not is read as onnx does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.errors import GraphError, LoadError
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


@pytest.mark.parametrize(
    ("dims", "entries", "problem"),
    [
        ([5], {}, "the external data file is too short"),
        ([4], {"length": 15}, "the length of external data does not match"),
        ([4], {"offset": "+4"}, "a malformed offset"),
        ([4], {"location": "../w.data"}, "outside the model's folder"),
        ([4], {"location": "missing"}, "cannot be read"),
        ([4], {"location": ""}, "without a location"),
    ],
)
def test_external_data_that_do_not_fit_are_refused(
    dims: list[int], entries: dict[str, object], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=problem):
        check_tensor(external(tmp_path, dims, **entries), ExternalFiles(str(tmp_path)), "here")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"data_type": 99}, "unknown element type"),
        ({"data_type": 0}, "no element type"),
        ({"dims": [-1]}, "a negative dimension"),
        ({"dims": [1] * 65}, "too many dimensions"),
        ({"dims": [1 << 40, 1 << 40]}, "impossibly large"),
        ({"segment": TensorProto.Segment(begin=0)}, "stored in segments"),
        ({"raw_data": b"abc"}, "do not match its dimensions; found 3 bytes"),
        ({"float_data": [1.0]}, "do not match its dimensions; found 1 entries of float_data"),
        ({"int64_data": [1, 2]}, "of another type; found entries of int64_data"),
        ({"data_type": TensorProto.STRING}, "do not match its dimensions; found 0 strings"),
    ],
)
def test_a_malformed_tensor_is_refused(fields: dict[str, Any], problem: str) -> None:
    proto = TensorProto(**{"data_type": TensorProto.FLOAT, "dims": [2], **fields})
    with pytest.raises(GraphError, match=problem):
        check_tensor(proto, NO_FILES, "here")
