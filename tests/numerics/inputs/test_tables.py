"""Inputs that meet a constant table are made up near its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
ROWS = np.random.default_rng(0).normal(40, 3, (50, 2)).astype(np.float32)
"""No normal number is near any of them."""

CONSTANTS = """<int64[3] shape = {-1, 1, 2}, int64[1] second = {1}, int64[1] last = {2},
  float two = {2},
  float minus = {-2}, float[2] mean = {7, 8}, float[2] std = {2, 4}>"""


def model_of(body: str, inputs: str = "float[B,2] x", table: Any = ROWS) -> Any:
    model = onnx.parser.parse_model(f"{HEADER} g ({inputs}) => (float y) {CONSTANTS} {{ {body} }}")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(table), "table"))
    return amp.load(model)


def made(model: Any) -> Any:
    """Return the input on which the model runs."""
    return PlausibleInputs.of(model).runnable(Evaluator(model).run)[1]["x"]


def nearest(found: Any, rows: Any) -> Any:
    """Return how far each row of an input is from the table, in deviations of it."""
    distances = np.sqrt(np.square(found.reshape(-1, 1, rows.shape[1]) - rows).sum(2)).min(1)
    return distances / rows.std()


SQUARED = "m = Mul(d, d) y = ReduceSum(m, last)"


@pytest.mark.parametrize(
    ("body", "table"),
    [
        (f"r = Reshape(x, shape) d = Sub(r, table) {SQUARED}", ROWS[None]),
        (f"r = Unsqueeze(x, second) d = Sub(table, r) {SQUARED}", ROWS),
        (f"r = Unsqueeze(x, second) d = Sub(r, table) {SQUARED}", ROWS),
        (
            "r = Unsqueeze(x, second) d = Add(r, table) p = Pow(d, two) y = ReduceSum(p, last)",
            -ROWS,
        ),
        ("r = Unsqueeze(x, second) d = Sub(r, table) y = ReduceL2 <axes = [2]> (d)", ROWS),
        (
            "r = Unsqueeze(x, second) d = Sub(r, table) s = Div(d, std) m = Mul(s, s) y = Exp(m)",
            ROWS,
        ),
        ('y = com.microsoft.CDist <metric = "euclidean"> (x, table)', ROWS),
        (
            "s = ReduceSumSquare <axes = [1]> (x) p = MatMul(x, table) t = Mul(p, minus)"
            " y = Add(s, t)",
            ROWS.T,
        ),
        (
            "q = Mul(x, x) s = ReduceSum(q, second) p = Gemm <transB = 1, alpha = -2.0> (x, table)"
            " y = Add(p, s)",
            ROWS,
        ),
    ],
)
def test_inputs_that_meet_a_table_are_near_its_rows(body: str, table: Any) -> None:
    found = made(model_of(body, table=table))
    distances = nearest(found, ROWS)
    assert found.dtype == np.float32
    assert found.shape[1] == 2
    assert distances.max() < 8
    assert len(np.unique(found)) == found.size


def test_arithmetic_in_front_of_the_table_is_undone() -> None:
    body = f"c = Sub(x, mean) n = Div(c, std) r = Unsqueeze(n, second) d = Sub(r, table) {SQUARED}"
    found = made(model_of(body))
    assert nearest((found - [7, 8]) / [2, 4], ROWS).max() < 8


@pytest.mark.parametrize(
    "body",
    [
        "r = Unsqueeze(x, second) d = Add(r, table) y = Tanh(d)",  # embeddings of positions
        "p = MatMul(x, turned) y = Tanh(p)",  # a layer
        "s = ReduceSumSquare <axes = [1]> (x) p = MatMul(x, turned) y = Tanh(p) z = Tanh(s)",
        "d = Sub(x, mean) m = Mul(d, d) y = Tanh(m)",  # one row, a mean
    ],
)
def test_other_constants_are_no_tables(body: str) -> None:
    turn = "turned = Transpose(table)" if "turned" in body else ""
    model = model_of(f"{turn} {body}")
    found = PlausibleInputs.of(model)
    assert found.scaling("x", (1, 2)) is None or "mean" in body
    assert "x" not in found.tables or "mean" in body


def test_a_table_tells_in_which_numbers_the_input_comes() -> None:
    model = model_of(f"r = Unsqueeze(x, second) d = Sub(r, table) {SQUARED}")
    scaling = PlausibleInputs.of(model).scaling("x", (1, 2))
    assert scaling is not None
    assert float(scaling.offset) == pytest.approx(ROWS.mean(), rel=1e-3)
    assert float(scaling.spread) == pytest.approx(ROWS.std(), rel=1e-3)
