"""Shapes that onnx infers, with free dimensions that are given lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.inferred_shapes import inferred_shapes

TEXT = """g (float[N,300] x) => (y) {
  h = MatMul(x, w) r = Reshape(h, to) c = custom.Own(r) y = Exp(c) }"""


@pytest.fixture
def model(tmp_path: Path) -> ir.Model:
    proto = parse(TEXT)
    tensors = {"w": np.ones((300, 200), np.float32), "to": np.array([-1, 100], np.int64)}
    for name, value in tensors.items():
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    return amp.load(tmp_path / "m.onnx")


def test_shapes_follow_from_inputs_and_small_constants(model: ir.Model) -> None:
    assert inferred_shapes(model, {}) == {"x": [None, 300], "h": [None, 200], "r": [None, 100]} | {
        "w": [300, 200]
    }
    assert inferred_shapes(model, {"N": 3})["r"] == [6, 100]


def test_only_free_dimensions_of_inputs_have_lengths(model: ir.Model) -> None:
    with pytest.raises(OptionError, match="found 'M'; expected 'N'"):
        inferred_shapes(model, {"M": 3})
    with pytest.raises(OptionError, match="impossible length of 'N'; found -1"):
        inferred_shapes(model, {"N": -1})


def test_what_stops_inference_is_an_error(model: ir.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise onnx.shape_inference.InferenceError("the graph has cycles")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", fail)
    with pytest.raises(OptionError, match="onnx cannot infer the shapes of this model; found the"):
        inferred_shapes(model, {})
