"""Cheap arithmetic in front of float32 outputs stays float32 where the cast only moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import model_of

import amp_rewrite as amp

NUMBERS = {
    "w": np.linspace(-1, 1, 64).reshape(8, 8),
    "k": np.linspace(-1, 1, 72).reshape(8, 1, 3, 3),
    "std": np.full(8, 0.5),
    "mean": np.full(8, 3.0),
    "low": 0.0,
    "high": 400.0,
    "flat": np.array([-1, 4, 2]),
    "ones": np.ones(8),
}
ROWS = "g (float[B,8] x, float[B,8] last) => (float[A,C] y)"


def low(text: str, opset: int = 17, **options: Any) -> tuple[set[str], int]:
    """Return the nodes that are low, by what they make, and how many casts were added."""
    source = model_of(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}', **NUMBERS)
    for node in source.graph.node:
        node.name = node.output[0]
    asked: dict[str, Any] = {"target": "cuda", **options}
    report = amp.rewrite(source, **asked).report
    made = {n.name for n in report.nodes if "float16" in {v.dtype for v in n.variables.values()}}
    return made, report.summary.casts_added


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ROWS} {{ h = MatMul(x, w) s = Mul(h, std) y = Add(s, mean) }}", {"h"}),
        (f"{ROWS} {{ h = MatMul(x, w) s = Div(h, std) y = Sub(s, mean) }}", {"h"}),
        (f"{ROWS} {{ h = MatMul(x, w) y = Add(h, mean) }}", {"h"}),
        (f"{ROWS} {{ h = MatMul(x, w) y = Add(last, h) }}", {"h"}),
        (f"{ROWS} {{ h = MatMul(x, w) y = Sum(last, h, mean) }}", {"h"}),
        (f"{ROWS} {{ h = MatMul(x, w) s = Add(h, mean) y = Clip(s, low, high) }}", {"h"}),
        (f"{ROWS} {{ h = MatMul(x, w) s = Mul(h, std) a = Add(s, mean) y = Exp(a) }}", {"h"}),
        (
            "g (float[B,8] x) => (float[A,C,D] y) { h = MatMul(x, w) s = Add(h, mean) "
            "y = Reshape(s, flat) }",
            {"h"},
        ),
        (
            "g (float[N,1,H,W] x) => (float[N,8,I,J] y) { h = Conv(x, k) "
            "y = BatchNormalization(h, std, mean, mean, ones) }",
            {"h"},
        ),
        # boxes: what was split is joined again
        (
            "g (float[B,8] x) => (float[A,C] y) { h = MatMul(x, w) p, q = Split<axis=1>(h) "
            "s = Sigmoid(p) a = Mul(s, high) b = Mul(q, q) y = Concat<axis=1>(a, b) }",
            {"h"},
        ),
    ],
)
@pytest.mark.parametrize("opset", [13, 17])
def test_the_end_is_float32(text: str, expected: set[str], opset: int) -> None:
    made, casts = low(text, opset)
    assert made == expected
    assert casts == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # no sums or products, nothing to lose but the rounding of the output
        (f"{ROWS} {{ h = MatMul(x, w) y = Relu(h) }}", {"h", "y"}),
        (f"{ROWS} {{ h = MatMul(x, w) y = Sigmoid(h) }}", {"h", "y"}),
        # two casts in place of one
        (f"{ROWS} {{ h = MatMul(x, w) i = MatMul(last, w) y = Mul(h, i) }}", {"h", "i", "y"}),
        # it is not at the end
        (f"{ROWS} {{ h = MatMul(x, w) s = Add(h, mean) y = MatMul(s, w) }}", {"h", "s", "y"}),
    ],
)
def test_nothing_else_is(text: str, expected: set[str]) -> None:
    assert low(text)[0] == expected


@pytest.mark.parametrize("options", [{"move_casts": False}, {"keep_io_types": False}])
def test_it_is_low_where_no_cast_may_move_or_is_there(options: dict[str, Any]) -> None:
    text = f"{ROWS} {{ h = MatMul(x, w) y = Add(h, mean) }}"
    assert low(text, **options)[0] == {"h", "y"}


def test_a_year_keeps_its_digits() -> None:
    numbers = {**NUMBERS, "std": np.array(0.5), "mean": np.array(2024.0)}
    source = model_of(
        f"{ROWS} {{ h = MatMul(x, w) t = Tanh(h) e = MatMul(t, w) s = Mul(e, std) "
        "y = Add(s, mean) }",
        **numbers,
    )
    feeds = {"x": np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)}
    feeds["last"] = feeds["x"]
    want = np.asarray(amp.evaluate(source, feeds)["y"])
    got = np.asarray(amp.evaluate(amp.rewrite(source, target="cuda"), feeds)["y"])
    assert np.abs(got - want).max() < 0.01 * want.std()
