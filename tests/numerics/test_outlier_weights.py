"""Plain conversion of models whose weights have outliers: no file gives NaN, though nothing ran."""

from __future__ import annotations

import warnings
from typing import Any

import low_models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import amp_rewrite as amp

MAKE = {"gemma": low_models.gemma_decoder, "nanochat": low_models.nanochat_decoder}


def wide_feeds(name: str) -> dict[str, Any]:
    feeds = low_models.feeds(name)
    return {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in feeds.items()}


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gemma", "cpu-arm64"),
        ("nanochat", "webgpu"),
        *(pytest.param("gemma", target, marks=pytest.mark.slow) for target in ("cuda", "webgpu")),
        *(pytest.param("nanochat", t, marks=pytest.mark.slow) for t in ("cuda", "cpu-arm64")),
    ],
)
def test_a_channel_that_weights_make_large_stays_in_range(name: str, target: str) -> None:
    model = MAKE[name](TensorProto.FLOAT)
    result = amp.rewrite(model, precision="float16", target=target)
    assert "is likely to reach" in (result.report.likely_overflow or "")
    made = amp.verify(model, result.model, [wide_feeds(name)], target=target, intermediates=False)
    assert made.ok, made.to_text()


@pytest.mark.parametrize(
    "target", ["webgpu", *(pytest.param(t, marks=pytest.mark.slow) for t in ("cuda", "cpu-arm64"))]
)
def test_repair_without_data_raises_where_a_channel_leaves_the_range(target: str) -> None:
    with warnings.catch_warnings(action="ignore", category=amp.AmpWarning):
        made = amp.repair(low_models.gemma_decoder(), target=target)
    wide = low_models.gemma_decoder(TensorProto.FLOAT)
    found = amp.verify(wide, made.model, [wide_feeds("gemma")], target=target, intermediates=False)
    assert found.ok, found.to_text()


def cancelling() -> onnx.ModelProto:
    """Two channels of 20,000 that a matrix product takes from each other."""
    rng = np.random.default_rng(0)
    bias, weight = np.zeros(64, np.float32), rng.normal(0, 0.1, (64, 64)).astype(np.float32)
    bias[[3, 40]], weight[3], weight[40] = 2e4, 8, -8
    nodes = [helper.make_node("Add", ["x", "b"], ["h"], "add")]
    nodes.append(helper.make_node("MatMul", ["h", "w"], ["y"], "product"))
    x, y = ([helper.make_tensor_value_info(n, 1, [2, 64])] for n in "xy")
    held = [numpy_helper.from_array(a, n) for n, a in (("b", bias), ("w", weight))]
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(
        helper.make_graph(nodes, "g", x, y, held), opset_imports=opset, ir_version=8
    )


@pytest.mark.parametrize("target", ["webgpu", "cpu-arm64"])
def test_partial_sums_that_leave_the_range_keep_a_product_in_float32(target: str) -> None:
    with pytest.warns(amp.AmpWarning, match=r"a partial sum of product is likely to reach 3\.2e"):
        amp.rewrite(cancelling(), precision="float16", target=target)


def test_they_do_not_where_products_are_added_in_float32(recwarn: pytest.WarningsRecorder) -> None:
    amp.rewrite(cancelling(), precision="float16", target="cuda")
    assert not [w for w in recwarn if "partial sum" in str(w.message)]
