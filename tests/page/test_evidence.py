"""Evidence: sizes of files, and whether a file is what the options make of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from page_models import BRANCHES
from rewriting import parse

import amp_rewrite as amp
from amp_rewrite.page.evidence import differing, measured, size_of, sizes_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(parse(BRANCHES), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


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
    planned, exact = sizes_of(before, result, None), sizes_of(before, result, after)
    assert not planned.exact
    assert exact.exact
    assert exact.after == after.stat().st_size
    assert abs(planned.after - exact.after) < 1_000
    assert planned.before == exact.before


def test_a_file_that_the_options_make_does_not_differ(model: Path, tmp_path: Path) -> None:
    result = amp.rewrite(model)
    result.save(tmp_path / "low.onnx")
    assert differing(result, tmp_path / "low.onnx") == ()


def test_a_file_that_other_options_make_differs_where_the_types_do(
    model: Path, tmp_path: Path
) -> None:
    amp.rewrite(model, deny_nodes=["last"]).save(tmp_path / "low.onnx")
    assert differing(amp.rewrite(model), tmp_path / "low.onnx") == ("last",)


def test_without_data_inputs_are_made_up(model: Path) -> None:
    result = amp.rewrite(model)
    found = measured(model, result, None)
    assert found["h"].largest > 0
    assert "m" in found
