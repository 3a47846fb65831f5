"""A file that is judged before it takes its place: refused, nothing of it is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.model_files import judged_by


def written(folder: Path) -> Path:
    """Write a model with a data file; return it."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[64] x) => (float[64] y) {y = Mul(x, w)}'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones(64, np.float32), "w"))
    folder.mkdir()
    path = folder / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    return path


def test_the_judge_sees_a_whole_model_with_its_data(tmp_path: Path) -> None:
    model, out = amp.load(written(tmp_path / "in")), tmp_path / "out.onnx"
    seen: list[float] = []

    def judge(path: str) -> None:
        assert not out.exists()
        onnx.checker.check_model(path)
        seen.append(float(amp.evaluate(path, {"x": np.ones(64, np.float32)})["y"].sum()))

    with judged_by(judge):
        amp.save(model, out)
    assert seen == [64]
    assert out.exists()
    amp.save(model, tmp_path / "other.onnx")
    assert len(seen) == 1


def test_what_is_refused_leaves_nothing_behind_and_the_old_file_in_place(tmp_path: Path) -> None:
    model = amp.load(written(tmp_path / "in"))
    place = tmp_path / "out"
    place.mkdir()
    (place / "m.onnx").write_bytes(b"old")

    def refuse(path: str) -> None:
        raise SaveError("refused", where=path)

    with judged_by(refuse), pytest.raises(SaveError, match="refused"):
        amp.save(model, place / "m.onnx")
    assert [p.name for p in place.iterdir()] == ["m.onnx"]
    assert (place / "m.onnx").read_bytes() == b"old"
