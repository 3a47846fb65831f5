"""Outputs that go back in as inputs stay float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of

from amp_rewrite.rewriting.paint.passes.keep_carried import keep_carried

NUMBERS: dict[str, Any] = {
    "k": 0.999,
    "j": 0.001,
    "one": 1.0,
    "w": np.arange(64.0).reshape(8, 8) - 30,
}
NUMBERS["near"] = np.eye(8) * 0.99 + np.eye(8, k=1) * 0.01


def kept(text: str, **constants: Any) -> set[str]:
    """Return what the nodes make that the pass keeps in float32."""
    return set(marks_of(keep_carried, context_of(model_of(text, **NUMBERS, **constants))))


def signature(state: str = "m", after: str = "n", shape: str = "1,8") -> str:
    """Return that of a step with one state."""
    return f"g (float[B,8] x, float[{shape}] {state}) => (float[B,8] y, float[{shape}] {after})"


LAYER = "h = MatMul(x, w) y = MatMul(h, w)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{signature()} {{ {LAYER} a = Mul(m, k) b = Mul(h, j) n = Add(a, b) }}", {"a", "n"}),
        (
            f"{signature()} {{ {LAYER} d = Sub(h, m) e = Mul(d, j) n = Add(m, e) }}",
            {"d", "e", "n"},
        ),
        (f"{signature(shape='1')} {{ {LAYER} i = Identity(m) n = Add(i, one) }}", {"i", "n"}),
        (f"{signature(shape='B,8')} {{ {LAYER} q = Mul(h, h) n = Sum(m, q) }}", {"n"}),
        (
            f"{signature()} {{ {LAYER} s = Sigmoid(h) a = Add(m, s) f = Floor(a) n = Sub(a, f) }}",
            {"a", "f", "n"},
        ),
        (f"{signature()} {{ {LAYER} a = Mul(m, k) b = Abs(h) n = Max(a, b) }}", {"a", "n"}),
        (
            f"{signature('s_in', 's_out')} {{ {LAYER} a = MatMul(s_in, w) s_out = Add(a, h) }}",
            {"a", "s_out"},
        ),
        # a state-space model
        (f"{signature()} {{ {LAYER} a = MatMul(m, near) n = Add(a, h) }}", {"a", "n"}),
        (f"{signature()} {{ {LAYER} n = Gemm<transB = 1>(m, near, h) }}", {"n"}),
        (
            f"{signature()} {{ {LAYER} c = Cast<to = 9>(x) d = ReduceSum(x) q = Cast<to = 9>(d) "
            "n = If(q) <then_branch = t () => (float[1,8] o) { a = Mul(m, k) o = Add(a, h) }, "
            "else_branch = e () => (float[1,8] p) { p = Identity(m) }> }",
            {"a", "o", "p", "n"},
        ),
        (
            f'<ir_version: 7, opset_import: ["" : 11]> {signature(shape="1,8,1")} {{ {LAYER} '
            "r = Unsqueeze<axes=[2]>(h) a = Mul(m, k) n = Add(a, r) }",
            {"a", "n"},
        ),
    ],
)
def test_a_state_is_float32_from_input_to_output(text: str, expected: set[str]) -> None:
    assert kept(text) == expected


@pytest.mark.parametrize(
    "body",
    [
        # what a layer takes from its input, as a denoiser does
        "h = MatMul(m, w) e = Relu(h) n = Sub(m, e) y = Identity(x)",
        # a gated unit
        "h = MatMul(m, w) z = Sigmoid(h) a = Mul(z, m) b = Tanh(x) n = Add(a, b) y = Identity(x)",
        # a gate of data alone
        "h = MatMul(x, w) z = Sigmoid(h) a = Mul(z, m) n = Add(a, h) y = Identity(x)",
        # a mask that is added to scores, which are an output
        "h = MatMul(x, w) n = Add(h, m) i = Identity(n) y = Softmax(i)",
        # a layer of an input, and one more
        "a = MatMul(m, w) b = MatMul(x, w) n = Add(a, b) y = Identity(x)",
        # one layer
        "n = MatMul(m, w) y = Identity(x)",
        # a cache
        "c = Concat<axis=0>(x, m) n = Slice(c, one_, two_) y = Identity(x)",
    ],
)
def test_other_outputs_are_left_alone(body: str) -> None:
    ends = {"one_": np.array([1]), "two_": np.array([2])}
    assert not kept(f"{signature(shape='B,8')} {{ {body} }}", **ends)


def test_an_output_of_another_shape_is_no_state() -> None:
    text = "g (float[1,8] x, float[1,8] m) => (float[4,8] n)"
    assert not kept(f"{text} {{ n = Add(m, b) }}", b=np.zeros((4, 8)))
