"""Rows of zeros behind a small guard train in float16 as in float32; distances of zero, too."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 4)).astype(np.float32)
X[5] = 0  # padding
T = RNG.integers(0, 3, 16)

H = "h = MatMul (x, w) "
NORM = "n = ReduceL2 <keepdims = 1> (h, axes) "
SQUARES = "q = Mul (h, h) s = ReduceSum <keepdims = 1> (q, axes) "
CLIPPED = f"{NORM} c = Clip (n, eps) e = Div (h, c)"

GUARDED = {
    "quotient by a clipped norm": H + CLIPPED,
    "quotient by the larger of norm and guard": f"{H}{NORM} c = Max (eps, n) e = Div (h, c)",
    "quotient by a norm and a guard": f"{H}{NORM} c = Add (n, eps) e = Div (h, c)",
    "quotient by a chosen norm": f"{H}{NORM} g = Greater (n, eps) c = Where (g, n, eps) "
    "e = Div (h, c)",
    "quotient by a sum of magnitudes": f"{H} p = Abs (h) s = ReduceSum <keepdims = 1> (p, axes) "
    "c = Add (s, eps) e = Div (h, c)",
    "quotient by a root": f"{H}{SQUARES} a = Add (s, eps) r = Sqrt (a) e = Div (h, r)",
    "quotient by a power": f"{H}{SQUARES} a = Add (s, eps) r = Pow (a, half) e = Div (h, r)",
    "product with a reciprocal root": f"{H}{SQUARES} a = Add (s, eps) r = Sqrt (a) "
    "i = Reciprocal (r) e = Mul (h, i)",
    "product with one over a root": f"{H}{SQUARES} a = Add (s, eps) r = Sqrt (a) "
    "i = Div (one, r) e = Mul (i, h)",
    "product with a negative power": f"{H}{SQUARES} a = Add (s, eps) i = Pow (a, minus) "
    "e = Mul (h, i)",
    "L2 normalization": f"{H} e = LpNormalization <axis = 1> (h)",
    "logarithm": f"{H} p = Abs (h) c = Add (p, seven) e = Log (c)",
    "root": f"{H} p = Mul (h, h) c = Add (p, eps) e = Sqrt (c)",
    "Gemm with a bias": f"h = Gemm (x, w, b) {CLIPPED}",
    "an activation in between": f"k = MatMul (x, w) h = Relu (k) {CLIPPED}",
    "two layers and an activation": f"k = MatMul (x, w) r = Relu (k) h = MatMul (r, u) {CLIPPED}",
    "two layers and one that hands on": f"k = MatMul (x, w) r = Tanh (k) h = MatMul (r, u) "
    f"{CLIPPED}",
}
NUMBERS = {"eps": 1e-12, "seven": 1e-7, "half": 0.5, "minus": -0.5, "one": 1.0}


def model(body: str) -> Any:
    used = [name for name in NUMBERS if re.search(rf"\b{name}\b", body)]
    held = " ".join(f"{n} = Constant <value = float {{{NUMBERS[n]}}}> ()" for n in used)
    made = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[N, 4] x) => (float[N, 3] y) {{ {held} {body} y = MatMul (e, v) }}"""
    )
    generator = np.random.default_rng(1)
    tensors: dict[str, Any] = {
        "w": generator.standard_normal((4, 5)).astype(np.float32),
        "u": generator.standard_normal((5, 5)).astype(np.float32),
        "v": generator.standard_normal((5, 3)).astype(np.float32),
        "b": np.zeros(5, np.float32),
        "axes": np.array([1]),
    }
    made.graph.initializer.extend(
        numpy_helper.from_array(array, name)
        for name, array in tensors.items()
        if re.search(rf"\b{name}\b", body) or name == "v"
    )
    return amp.load(made)


def session(body: str, precision: str = "float16") -> amp.TrainingSession:
    loss = amp.losses.softmax_cross_entropy(model(body), "y", "t")
    optimizer = amp.LossScaleOptimizer(amp.optimizers.SGD(1e-15))
    return amp.TrainingSession(
        optimizer.minimize(loss), precision=precision, emulate=True, threads=1
    )


@pytest.mark.parametrize("kind", GUARDED)
def test_a_step_with_a_row_of_zeros_is_applied_in_float16(kind: str) -> None:
    with session(GUARDED[kind]) as opened:
        assert str(opened.run({"x": X, "t": T}, "outcome")["outcome"]) == "applied"


def low_gradients(body: str) -> list[str]:
    """Return the products of the backward pass that are float16."""
    loss = amp.losses.softmax_cross_entropy(model(body), "y", "t")
    step = amp.build_step(amp.optimizers.SGD(0.1).minimize(loss), precision="float16")
    proto = amp.to_proto(step)
    casts = {
        n.output[0] for n in proto.graph.node if n.op_type == "Cast" and n.attribute[0].i == 10
    }
    return [
        node.name
        for node in proto.graph.node
        if node.op_type in ("Gemm", "MatMul")
        and node.name.startswith("gradient")
        and casts.intersection(node.input)
    ]


CENTRED = (
    "m = ReduceMean <keepdims = 1> (h, axes) d = Sub (h, m) q = Mul (d, d) "
    "s = ReduceMean <keepdims = 1> (q, axes) a = Add (s, eps) r = Sqrt (a) e = Div (d, r)"
)


@pytest.mark.parametrize(
    "body",
    [
        H + CENTRED,
        H + CENTRED.replace("e = Div (d, r)", "i = Reciprocal (r) e = Mul (d, i)"),
        H + CLIPPED.replace("eps", "one"),
        H + "e = Relu (h)",
        H + f"{NORM} c = Add (n, one) e = Div (h, c)",
    ],
    ids=["deviation", "factor", "one", "none", "large"],
)
def test_what_is_not_steep_stays_float16(body: str) -> None:
    assert len(low_gradients(body)) == 3


def test_a_bias_ends_it() -> None:
    layers = f"k = MatMul (x, w) h = Gemm (k, u, b) {CLIPPED}"
    assert len(low_gradients(layers)) == len(low_gradients(layers.replace("u, b", "u"))) + 1


ROOTS = {
    "sum of squares": "q = Mul (d, d) s = ReduceSum <keepdims = 1> (q, axes) n = Sqrt (s)",
    "as a power": "s = ReduceSumSquare <keepdims = 1> (d, axes) n = Pow (s, half)",
    "norm": "n = ReduceL2 <keepdims = 1> (d, axes)",
}


@pytest.mark.parametrize("kind", ROOTS)
def test_the_gradient_of_a_distance_of_zero_is_zero(kind: str) -> None:
    body = f"""<ir_version: 8, opset_import: ["" : 18]> g (float[3, 4] x) => (float[3, 1] n)
        <float[1, 4] c = {{1, 2, 3, 4}}> {{ axes = Constant <value = int64[1] {{1}}> ()
        half = Constant <value = float {{0.5}}> ()
        d = Sub (x, c) {ROOTS[kind]} }}"""
    loaded = amp.load(parser.parse_model(body))
    step = amp.optimizers.SGD(1.0).minimize(amp.value(loaded, "n").sum(), var_list="c")
    x = np.array([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4]], np.float32)
    with amp.TrainingSession(step) as opened:
        before = opened.read_state("c")
        opened.run({"x": x})
        found = before - opened.read_state("c")
    np.testing.assert_array_equal(found[0, :3], 0)
    assert -2 < found[0, 3] < -0.4
