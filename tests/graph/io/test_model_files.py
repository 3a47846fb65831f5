"""`RewriteResult.save` replaces model and data file together, tells of progress, leaves nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
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


def test_external_weights_are_converted_on_their_way(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    rewritten(external_model(tmp_path)).save(out / "m.onnx")
    (data,) = out.glob("m.onnx.*.data")
    assert data.read_bytes() == np.ones((4, 4), np.float16).tobytes()
    tensors = {t.name: t for t in onnx.load(out / "m.onnx").graph.initializer}
    assert {t.data_type for t in tensors.values()} == {TensorProto.FLOAT16}


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


@pytest.mark.parametrize("moment", ["pwrite", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_model_and_nothing_else(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    rewritten(external_model(tmp_path)).save(out / "m.onnx")
    before, calls, real = files(out), [0], getattr(os, moment)
    result = rewritten(external_model(tmp_path, columns=8))

    def second_time(*args: object, **kwargs: object) -> object:
        calls[0] += 1
        if calls[0] > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, moment, second_time)
    with pytest.raises(SaveError, match="the model cannot be written; found No space left"):
        result.save(out / "m.onnx")
    monkeypatch.undo()
    assert calls[0] > 1
    assert files(out) == before
    result.save(out / "m.onnx")
    assert files(out) != before


def test_a_data_file_that_is_still_read_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    amp.save(amp.load(external_model(tmp_path)), path)
    (old,) = tmp_path.glob("m.onnx.*.data")
    result = rewritten(path)
    result.save(path)
    assert len(set(tmp_path.glob("m.onnx.*.data")) - {old}) == 1
    assert old.exists()
    result.save(tmp_path / "again.onnx")
    (new,) = tmp_path.glob("again.onnx.*.data")
    assert new.read_bytes() == np.ones((4, 4), np.float16).tobytes()


def test_a_model_that_protobuf_cannot_hold_is_not_written(tmp_path: Path) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    def parts(_: object) -> Parts:
        return Parts(b"", Huge(), [])

    with pytest.raises(SaveError, match="too many for a protobuf message"):
        replace_model(str(tmp_path / "m.onnx"), [], parts, Meter(0, None), set())
    assert files(tmp_path) == {}
