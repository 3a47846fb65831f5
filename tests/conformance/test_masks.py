"""Masks in front of a Softmax: every row comes out as in float32, those masked as a whole too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, Precision

Array = np.ndarray[Any, Any]

TARGETS = [("float16", "cuda"), ("bfloat16", "cuda"), ("float16", "webgpu")]
FILLS = [-1e4, -65504.0, -7e4, -1e9, -3.4e38]

ONE_MASK = "m = Where(keep, zero, fill) s = Add(scores, m)"
TWO_MASKS = """m = Where(keep, zero, fill) n = Where(causal, zero, fill)
               r = Add(scores, n) s = Add(r, m)"""
SUM_OF_MASKS = """m = Where(keep, zero, fill) n = Where(causal, zero, fill) o = Add(m, n)
                  s = Add(scores, o)"""
PRODUCT = "f = Cast<to = 1>(keep) g = Sub(one, f) m = Mul(g, fill) s = Add(scores, m)"
DIFFERENCE = """f = Cast<to = 1>(keep) g = Sub(one, f) c = Neg(fill) m = Mul(g, c)
                s = Sub(scores, m)"""
INSTEAD = "s = Where(keep, scores, fill)"

KEEP = np.tril(np.ones((8, 8), np.bool_))
KEEP[:, :4] = False  # four tokens of padding on the left: their rows are masked as a whole


def _model(mask: str, fill: float, constants: str = "") -> onnx.ModelProto:
    text = f"""<ir_version: 10, opset_import: ["" : 22]>
    g (float[1,8,64] x, bool[8,8] keep, bool[8,8] causal) => (float[1,8,64] y)
    <float zero = {{0}}, float one = {{1}}, float fill = {{{fill}}}, float scale = {{0.125}}
    {constants}> {{
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        t = Transpose<perm = [0, 2, 1]>(k)
        a = MatMul(q, t)
        scores = Mul(a, scale)
        {mask}
        p = Softmax(s)
        y = MatMul(p, v)
    }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(
            (rng.standard_normal((64, 64)) / 8).astype(np.float32), f"w{name}"
        )
        for name in "qkv"
    )
    return onnx.shape_inference.infer_shapes(model)


def _feeds() -> dict[str, Array]:
    rng = np.random.default_rng(1)
    x = 2 * rng.standard_normal((1, 8, 64)).astype(np.float32)
    return {"x": x, "keep": KEEP, "causal": np.tril(np.ones((8, 8), np.bool_))}


def _low(result: amp.RewriteResult, op: str) -> bool:
    (node,) = [node for node in result.report.nodes if node.op == op]
    return node.variables["T"].dtype != "float32"


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("mask", [ONE_MASK, TWO_MASKS, SUM_OF_MASKS, PRODUCT, DIFFERENCE, INSTEAD])
@pytest.mark.parametrize(("precision", "target"), TARGETS)
def test_rows_masked_as_a_whole_come_out_as_in_float32(
    precision: Precision, target: str, mask: str, fill: float
) -> None:
    model, feeds = _model(mask, fill), _feeds()
    scores = amp.evaluate(model, feeds, outputs=["scores"])["scores"]
    assert np.abs(scores).max() > 8
    result = amp.rewrite(model, precision=precision, target=target)
    assert result.report.summary.compute_converted == 1.0
    expected, found = amp.evaluate(model, feeds)["y"], amp.evaluate(result.model, feeds)["y"]
    is_finite = np.isfinite(expected)
    dtype = BFLOAT16 if precision == "bfloat16" else FLOAT16
    atol = 2 * dtype.rtol * np.abs(expected[is_finite]).max()
    np.testing.assert_allclose(found[is_finite], expected[is_finite], atol=atol, rtol=0)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_fill_in_place_of_scores_stays_low(precision: Precision) -> None:
    result = amp.rewrite(_model(INSTEAD, -3.4e38), precision=precision)
    assert _low(result, "Softmax")
    assert _low(result, "Where")


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_causal_mask_in_the_file_stays_low(precision: Precision) -> None:
    rows = [0.0 if column <= row else -1e9 for row in range(8) for column in range(8)]
    constants = f", float[8,8] m = {{{','.join(map(str, rows))}}}"
    result = amp.rewrite(_model("s = Add(scores, m)", -1.0, constants), precision=precision)
    assert _low(result, "Softmax")
    assert _low(result, "Add")


def test_a_mask_in_the_file_with_a_row_masked_as_a_whole_keeps_the_sum_float32() -> None:
    rows = [0.0 if column < row else -1e9 for row in range(8) for column in range(8)]
    constants = f", float[8,8] m = {{{','.join(map(str, rows))}}}"
    result = amp.rewrite(_model("s = Add(scores, m)", -1.0, constants))
    assert not _low(result, "Softmax")
    assert "adds 1e+09 where nothing is to be seen" in amp.explain(result, "Add_6")


def test_a_bias_that_is_no_mask_stays_low() -> None:
    assert _low(amp.rewrite(_model(ONE_MASK, -100.0)), "Softmax")


def test_a_fill_that_swallows_every_score_stays_low_in_bfloat16() -> None:
    assert _low(amp.rewrite(_model(ONE_MASK, -3.4e38), precision="bfloat16"), "Softmax")
    assert not _low(amp.rewrite(_model(ONE_MASK, -1e9), precision="bfloat16"), "Softmax")
