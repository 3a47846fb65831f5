"""Elements out of range: masks end at the lowest value, infinities and NaN stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from rewrite_text import actions, assert_close, initializer, parse, rewritten

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
ROWS = np.array([[-30, -40, -20, -50], [1, 2, 3, 4]], np.float32)
MASK = "bool[2,4] blocked = {1,1,1,1,0,0,1,0}, float least = {-3.4e38}"
LOW = {"float16": FLOAT16, "bfloat16": BFLOAT16}


def model(body: str, extra: str = "", inputs: str = "float[2,4] x") -> str:
    more = f", {extra}" if extra else ""
    return f"g ({inputs}) => (float[2,4] y) <{W}{more}> {{ {body} }}"


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_mask_constant_selected_before_softmax_saturates_at_the_lowest_value(
    precision: str,
) -> None:
    text = model(
        "h = MatMul(x, w) s = Where(blocked, least, h) p = Softmax(s) y = MatMul(p, w)", MASK
    )
    result = rewritten(text, precision=precision)
    assert float(initializer(result, "least")) == -LOW[precision].max
    assert actions(result) == {"least": "saturated"}
    found = assert_close(result, text, {"x": ROWS})
    assert np.isfinite(found["y"]).all()


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_mask_constant_added_before_softmax_leaves_room_for_the_scores(precision: str) -> None:
    mask = "float[2,4] m = {-3.4e38,-3.4e38,-3.4e38,-3.4e38,0,0,-3.4e38,0}"
    text = model("h = MatMul(x, w) s = Add(h, m) p = Softmax(s) y = MatMul(p, w)", mask)
    # Unless they are asked for, float16 keeps a row that is masked as a whole in float32.
    result = rewritten(text, precision=precision, allow_nodes=["Add_1", "Softmax_2"])
    assert initializer(result, "m").min() == -LOW[precision].max / 2
    assert actions(result) == {"m": "saturated"}
    found = amp.evaluate(amp.to_proto(result.model), {"x": ROWS})["y"]
    assert np.isfinite(found).all()  # at the lowest value, -65504 + -30 would be -inf, the row NaN
    expected = amp.evaluate(parse(text), {"x": ROWS})["y"]
    np.testing.assert_allclose(found[1], expected[1], atol=4 * LOW[precision].atol)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=4 * LOW[precision].atol)


def test_a_mask_in_a_constant_node_saturates() -> None:
    text = model(
        "h = MatMul(x, w) m = Constant<value = float {-1e9}>() s = Where(blocked, m, h) "
        "p = Softmax(s) y = MatMul(p, w)",
        MASK,
    )
    result = rewritten(text)
    assert actions(result) == {"m": "saturated"}
    assert_close(result, text, {"x": ROWS})


def test_a_mask_that_a_constant_of_shape_repeats_saturates() -> None:
    text = model(
        "h = MatMul(x, w) m = ConstantOfShape<value = float[1] {-3.4e38}>(shape) "
        "s = Where(blocked, m, h) p = Softmax(s) y = MatMul(p, w)",
        f"{MASK}, int64[2] shape = {{2, 4}}",
    )
    found = assert_close(rewritten(text), text, {"x": ROWS})
    assert np.isfinite(found["y"]).all()


def test_infinities_and_nan_of_a_weight_are_kept_and_what_flushes_is_counted() -> None:
    proto = parse(
        model("h = MatMul(x, w) s = Add(h, c) y = MatMul(s, w)", "float[4] c = {1,2,3,4}")
    )
    values = np.array([np.inf, -np.inf, np.nan, 1e-9], np.float32)
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(values, "c"))
    result = rewritten(proto)
    np.testing.assert_array_equal(
        initializer(result, "c"), np.array([np.inf, -np.inf, np.nan, 0], np.float16)
    )
    assert actions(result) == {}
    (record,) = result.report.weights.underflow
    assert (record.name, record.count, record.action) == ("c", 1, "flushed")
