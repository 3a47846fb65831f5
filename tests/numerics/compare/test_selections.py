"""Selections: values are compared for the original's, if both models select by the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.numerics.compare.verify_report import VerifyReport

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'
RNG = np.random.default_rng

TOP = """s = Squeeze(l, last) v, i = TopK<axis=1>(s, k) j = Unsqueeze(i, last)
         g = GatherND<batch_dims=1>(d, j)"""

SELECTIONS = {
    "the best boxes": f"{TOP} y = Identity(g)",
    "the best scores beside them": f"{TOP} w = Unsqueeze(v, last) y = Concat<axis=2>(g, w)",
    "the boxes of two stages": f"""{TOP} e = ReduceMax<keepdims=0>(g, last)
         u, o = TopK<axis=1>(e, few) p = Unsqueeze(o, last) y = GatherND<batch_dims=1>(g, p)""",
    "the places themselves": f"{TOP} y = Identity(i)",
    "the best one of each group": """q = Reshape(l, groups) a = ArgMax<axis=2, keepdims=0>(q)
         r = Reshape(d, boxes) b = Unsqueeze(a, last) y = GatherND<batch_dims=2>(r, b)""",
    "the worst one of each group": """q = Reshape(l, groups) a = ArgMin<axis=2, keepdims=0>(q)
         r = Reshape(d, boxes) b = Unsqueeze(a, last) y = GatherND<batch_dims=2>(r, b)""",
    "what is above a threshold": """c = Greater(l, zero) n = NonZero(c) t = Transpose(n)
         rows = Slice(t, from, to, last_one) y = GatherND(d, rows)""",
    "what does not overlap": """z = Transpose<perm=[0,2,1]>(l)
         n = NonMaxSuppression(d, z, most, half, limit)
         rows = Gather<axis=1>(n, two) y = Gather<axis=1>(d, rows)""",
}


def detector(kind: str, low: int = 1, scale: float = 1.0, boxes: float = 1.0) -> onnx.ModelProto:
    """Return 400 boxes with scores of near ties, of which a node selects some."""
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[1,400,32] x, float[1,400,4] corners) => (float y)
          <int64[1] last = {{2}}, int64[1] k = {{100}}, int64[1] few = {{20}},
           int64[3] groups = {{1,40,10}}, int64[4] boxes = {{1,40,10,4}}, float zero = {{0}},
           int64[1] from = {{0}}, int64[1] to = {{2}}, int64[1] last_one = {{1}},
           int64[1] most = {{50}}, float half = {{0.5}}, float limit = {{-1}}, int64 two = {{2}},
           float scale = {{{scale}}}, float by = {{{boxes}}}> {{
          h = Cast<to={low}>(x) lw = Cast<to={low}>(weight) m = MatMul(h, lw) f = Cast<to=1>(m)
          l = Mul(f, scale) d = Mul(corners, by)
          {SELECTIONS[kind]} }}"""
    )
    if kind == "the places themselves":
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    weight = RNG(5).standard_normal((32, 1)).astype(np.float32) / 6
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    return model


def fed(seed: int = 0) -> dict[str, Any]:
    rng = RNG(seed)
    place, size = rng.uniform(0, 600, (1, 400, 2)), rng.uniform(10, 90, (1, 400, 2))
    corners = np.concatenate([place, place + size], 2)
    x = rng.standard_normal((1, 400, 32))
    x[:, 1::2] = x[:, ::2] * (1 + 2e-3 * rng.standard_normal((1, 200, 32)))  # near ties
    return {"x": x.astype(np.float32), "corners": corners.astype(np.float32)}


def checked(kind: str, **wrong: float) -> VerifyReport:
    data = [fed(seed) for seed in range(3)]
    return verify(detector(kind), detector(kind, 16, **wrong), data, intermediates=True)


@pytest.mark.parametrize("kind", SELECTIONS)
def test_swapped_near_ties_fail_no_good_model(kind: str) -> None:
    report = checked(kind)
    assert report.ok
    if kind != "the boxes of two stages":  # in any order there
        assert report.selections[0].split()[0] in SELECTIONS[kind] + TOP
        assert ": outputs are compared for the original's choices" in report.to_text()


@pytest.mark.parametrize("kind", SELECTIONS)
def test_a_selection_by_other_numbers_fails(kind: str) -> None:
    report = checked(kind, scale=-1.0)
    assert not report.ok
    assert report.selections == ()


@pytest.mark.parametrize("kind", [k for k in SELECTIONS if k != "the places themselves"])
def test_wrong_values_of_the_right_selection_fail(kind: str) -> None:
    assert not checked(kind, boxes=0.9).ok


def test_ties_that_moved_inputs_swap_excuse_no_wrong_values() -> None:
    data = fed()
    data["x"][:, 1::2] = data["x"][:, ::2] * np.float32(1 + 2e-7)
    kind = "the best boxes"
    report = verify(detector(kind), detector(kind, 16, boxes=0.8), data)
    assert report.selections
    assert [(output.fault, output.excuse) for output in report.outputs] == [("error", "")]


def test_a_selection_of_the_smallest_in_place_of_the_largest_fails() -> None:
    broken = detector("the best boxes", 16)
    (top,) = (node for node in broken.graph.node if node.op_type == "TopK")
    top.attribute.append(onnx.helper.make_attribute("largest", 0))
    assert not verify(detector("the best boxes"), broken, fed()).ok
