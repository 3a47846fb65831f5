"""A search judges outputs of several scales by their slices, as `verify` does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.numerics.search.tolerance import SliceLosses, Tolerance

DATA = [{"s": np.array([1000, 1.1], np.float32), "z": np.array([1001.3], np.float32)}]
"""A place of 1000 and a speed of 1, and where it is seen."""


def tracker() -> onnx.ModelProto:
    """Return a Kalman filter's update: in 8 bits the difference of two places is 0 or 8."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]> g (float[2] s, float[1] z) => (float[2] out)
        <int64[1] first = {0}> {
          p = MatMul(F, s) place = Gather(p, first) r = Sub(z, place)
          c = MatMul(K, r) out = Add(p, c) }"""
    )
    for name, weight in {"F": [[1.0, 0.1], [0.0, 1.0]], "K": [[0.3], [0.4]]}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(weight, np.float32), name))
    return model


@pytest.mark.parametrize("rtol", [None, 0.01])
def test_convert_keeps_what_a_small_slice_needs(rtol: float | None) -> None:
    made = amp.convert(tracker(), DATA, precision="bfloat16", rtol=rtol, budget=30)
    assert (made.ok, made.is_low, made.nothing_left) == (True, True, None)
    assert made.tuning is not None
    assert made.tuning.keep


@pytest.mark.parametrize("metric", ["cosine", "max-relative"])
def test_tune_counts_slices(metric: str) -> None:
    found = amp.tune(tracker(), DATA, Tolerance(metric, 0.01), precision="bfloat16", budget=30)
    assert found.before > 0.01 >= found.loss
    assert found.keep


def losses(tolerance: Tolerance, before: Any, noise: Any) -> SliceLosses:
    return SliceLosses.of(tolerance, FLOAT16, [{"y": before}], lambda: [[{"y": noise}]])


def test_a_slice_at_its_limit_has_the_limit_as_its_loss() -> None:
    before = np.array([1000.0, 1.0], np.float32)
    found = losses(Tolerance("max-relative", 0.01), before, before)
    after = before + np.array([0, 0.01], np.float32)
    assert found.loss([{"y": before}], [{"y": after}]) == pytest.approx(0.01, rel=1e-3)


def test_what_a_slice_moves_by_itself_is_allowed() -> None:
    before = np.array([1000.0, 1.0], np.float32)
    found = losses(Tolerance("max-relative", 0.01), before, before + np.float32(0.1))
    after = before + np.array([0, 0.2], np.float32)
    assert found.loss([{"y": before}], [{"y": after}]) < 0.01


@pytest.mark.parametrize(
    ("metric", "before"), [("top1", [1000.0, 1.0]), ("cosine", [1.0, 2.0]), ("cosine", [])]
)
def test_other_outputs_have_no_slices(metric: str, before: list[float]) -> None:
    array = np.array(before, np.float32)
    found = losses(Tolerance(metric, 0.01), array, array)
    assert found.names == ()
    assert found.loss([{"y": array}], [{"y": array}]) == 0.0
