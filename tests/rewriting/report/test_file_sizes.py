"""How large files are, by what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.rewriting.report.file_sizes import size_of, sizes_of


def test_the_size_of_a_model_includes_its_data_files(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    proto = parse("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(weight)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert size_of(path) == path.stat().st_size + (tmp_path / "m.data").stat().st_size


def test_the_planned_size_is_close_to_that_of_the_file(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    proto = parse("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(weight)
    before, after = tmp_path / "m.onnx", tmp_path / "low.onnx"
    onnx.save(proto, before)
    result = amp.rewrite(before)
    result.save(after)
    planned, exact = (
        sizes_of(before, result.flat, result.plan, None),
        sizes_of(before, result.flat, result.plan, after),
    )
    assert not planned.exact
    assert exact.exact
    assert exact.after == after.stat().st_size
    assert abs(planned.after - exact.after) < 1_000
    assert planned.before == exact.before


def test_data_files_that_a_rewrite_writes_are_counted(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    proto = parse("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(weight)
    (tmp_path / "low").mkdir()
    before, after = tmp_path / "m.onnx", tmp_path / "low" / "m.onnx"
    onnx.save(proto, before, save_as_external_data=True, location="m.data", size_threshold=0)
    result = amp.rewrite(before)
    result.save(after)
    written = sum(path.stat().st_size for path in after.parent.iterdir())
    assert sizes_of(before, result.flat, result.plan, after).after == written
