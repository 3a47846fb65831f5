"""`RewriteResult.save` replaces model and data file together, tells of progress, leaves nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, parser

import amp_rewrite as amp
from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.model_files import Meter, Parts, Written, replace_model

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,4] x) => (float[2,4] y) <float[4,4] small = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
        h = MatMul (x, small)
        y = MatMul (h, big)
    }"""


def external_model(folder: Path, columns: int = 4) -> Path:
    """Write a model whose initializer `big` lies in w.data; return the model's path."""
    proto = parser.parse_model(TEXT)
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = columns
    tensor = proto.graph.initializer.add(name="big", data_type=TensorProto.FLOAT)
    tensor.dims.extend([4, columns])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.data")
    (folder / "w.data").write_bytes(np.ones((4, columns), np.float32).tobytes())
    path = folder / "in.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def rewritten(path: Path) -> amp.RewriteResult:
    return amp.rewrite(path, target="schema")


def files(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def test_progress_grows_to_all_there_is(tmp_path: Path) -> None:
    found: list[Written] = []
    columns = 1 << 18
    path = external_model(tmp_path, columns)
    rewritten(path).save(tmp_path / "m.onnx", progress=found.append)
    weights = 2 * (4 * columns + 16)
    assert {entry.total for entry in found} == {weights}
    assert found[-1].done == weights
    assert [entry.done for entry in found] == sorted(entry.done for entry in found)
    assert found[0].done < weights


def test_a_model_that_protobuf_cannot_hold_is_not_written(tmp_path: Path) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    def parts(_: object) -> Parts:
        return Parts(b"", Huge(), [])

    with pytest.raises(SaveError, match="too many for a protobuf message"):
        replace_model(str(tmp_path / "m.onnx"), [], parts, Meter(0, None), set())
    assert files(tmp_path) == {}
