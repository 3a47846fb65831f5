"""What is broadcast is computed as a vector first, and means the same."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.load import load
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.separate_factors import separate_factors

HEAD = '<ir_version: 8, opset_import: ["": 18]> g '
CHANNELS = """(float[2, 3, 4, 5] x) => (float[2, 3, 4, 5] y, float[1, 3, 1, 1] root)
    <int64[3] axes = {0, 2, 3}, float[1, 1, 1, 1] two = {2.}, float epsilon = {0.5}> {
        mean = ReduceMean(x, axes)
        centred = Sub(x, mean)
        squares = Mul(centred, centred)
        var = ReduceMean(squares, axes)
        more = Add(var, epsilon)
        root = Sqrt(more)
        r = Reciprocal(root)
        half = Div(r, two)
        total = ReduceSum(half)
        scaled = Mul(centred, half)
        y = Add(scaled, total) }"""
ROWS = """(float[4, 7, 6] x, float[4, 7, 1] t, float[4, 7, 1] c) => (float[4, 7, 6] y)
    <float[1, 1] one = {1.}> {
        positive = Exp(t)
        d = Add(positive, one)
        e = Max(d, c)
        y = Div(x, e) }"""
CASES = {"channels": CHANNELS, "rows": ROWS}


def prepared(text: str) -> ir.Model:
    model = load(parser.parse_model(HEAD + text))
    record_types(model)
    return model


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_same(case: str) -> None:
    model = prepared(CASES[case])
    apart = clone(model)
    separate_factors(apart)
    rng = np.random.default_rng(0)
    given = Session(model).inputs
    shapes = {
        value.name: [d for d in value.shape or () if isinstance(d, int)]
        for value in model.graph.inputs
    }
    feeds = {name: rng.normal(size=shapes[name]).astype(np.float32) for name in given}
    found, expected = (Session(m).run(feeds) for m in (apart, model))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def ranks(model: ir.Model) -> dict[str, int]:
    return {v.name or "": len(v.shape or ()) for n in model.graph for v in n.outputs}


def test_what_is_broadcast_is_a_vector() -> None:
    model = prepared(CHANNELS)
    separate_factors(model)
    found = ranks(model)
    assert [found[name] for name in ("r", "half")] == [1, 1]
    assert found["root"] == 4  # an output
    reshaped = [node for node in model.graph if node.op_type == "Reshape"]
    assert [(r.inputs[0].name, len(r.outputs[0].consumers())) for r in reshaped if r.inputs[0]] == [
        ("root", 1),
        ("two", 1),
        ("half", 2),
    ]  # none between r and half
    assert [found[name] for name in ("centred", "squares", "scaled", "y")] == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("x", "t"),
    [
        ("[4, 7, 6]", "[4, 7, 6]"),
        ("[N, 7, 6]", "[N, 7, 1]"),
        ("[4, 7, 6]", "[1, 1, 1]"),
        ("[0, 7, 6]", "[0, 7, 1]"),
    ],
    ids=["no broadcast", "free", "a number", "empty"],
)
def test_others_stay(x: str, t: str) -> None:
    body = "{ e = Exp(t)\n y = Mul(x, e) }"
    model = prepared(f"(float{x} x, float{t} t) => (float{x} y) {body}")
    separate_factors(model)
    assert [node.op_type for node in model.graph] == ["Exp", "Mul"]
