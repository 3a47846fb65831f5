"""The gradient of a pooling of 2 x 2 is the same by DepthToSpace, and without Concat."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.metadata_keys import PREPARED_KEY
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.optimizers import Adam, GradientDescent, Momentum, WeightAverage
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.faster_forms import (
    move_blocks,
    separate_factors,
    separate_updates,
    spell_out_gemms,
)
from amp_rewrite.training.step.step import whole_step

TEXT = """<ir_version: 8, opset_import: ["": {opset}]>
    g (float[3, 5, 6, 8] x) => (float loss)
    <float[5, 1, 1] w = {{1., -2., 0.5, 3., -0.25}}> {{
        a = Mul(x, w)
        b = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)
        c = Mul(b, b)
        loss = ReduceMean<keepdims = 0>(c) }}"""


def counts(model: ir.Model) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in model.graph)


@pytest.mark.parametrize("opset", [12, 17, 22])
def test_it_is_the_same(opset: int) -> None:
    model = amp.load(parser.parse_model(TEXT.format(opset=opset)))
    step = whole_step(GradientDescent(0.1).minimize(amp.value(model, "loss")))
    joined, _ = step.cut(["loss"])
    record_types(joined)
    moved = clone(joined)
    move_blocks(moved)
    assert counts(joined)["DepthToSpace"] == 0
    assert counts(moved)["DepthToSpace"] == 1
    assert counts(moved)["Concat"] == counts(joined)["Concat"] - 2
    x = np.random.default_rng(0).integers(-2, 3, (3, 5, 6, 8)).astype(np.float32)  # with ties
    found, expected = (Session(m).run({"x": x}, ["loss", "w:next"]) for m in (moved, joined))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


GEMMS = """<ir_version: 8, opset_import: ["": 17]>
    g (float[4, 3] x) => (float loss)
    <float[3, 2] w = {{1., -2., 0.5, 3., -0.25, 2.}}, float[2] c = {{1., -1.}}> {{
        y = Gemm<{scaled}>(x, w, c)
        a = Tanh(y)
        loss = ReduceMean<keepdims = 0>(a) }}"""


@pytest.mark.parametrize(("scaled", "left"), [("alpha = 1.0", 0), ("alpha = 0.5", 2)])
def test_they_are_the_same(scaled: str, left: int) -> None:
    model = amp.load(parser.parse_model(GEMMS.format(scaled=scaled)))
    step = whole_step(GradientDescent(0.1).minimize(amp.value(model, "loss")))
    scaling, _ = step.cut(["loss"])
    record_types(scaling)
    plain = clone(scaling)
    spell_out_gemms(plain)
    assert [node.op_type for node in scaling.graph].count("Gemm") == 2
    assert [node.op_type for node in plain.graph].count("Gemm") == left
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    found, expected = (Session(m).run({"x": x}, ["loss", "w:next"]) for m in (plain, scaling))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


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
def test_it_is_the_same_of_factors(case: str) -> None:
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


STATES = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, {size}] x) => (float loss) {{
        y = MatMul(x, w)
        a = Tanh(y)
        loss = ReduceMean<keepdims = 0>(a) }}"""


def models(optimizer: Any, size: int = 64) -> tuple[ir.Model, ir.Model, tuple[str, ...]]:
    """Return a step, the same with updates apart, and the names of the weight's next states."""
    proto = parser.parse_model(STATES.format(size=size))
    weight = np.random.default_rng(0).normal(size=(size, 64)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model = amp.load(proto)
    step = whole_step(optimizer.minimize(amp.value(model, "loss")))
    joined, info = step.cut(["loss"])
    inline(joined)
    joined.meta.pop(PREPARED_KEY)
    record_types(joined)
    apart = clone(joined)
    separate_updates(apart, info.names)
    large = [s.output for s in info.states if s.name == "w" or s.name.startswith("w/")]
    return joined, apart, tuple(large)


def shared(model: ir.Model, names: tuple[str, ...]) -> set[str]:
    """Return the operators of one element that compute two of the outputs."""
    outputs = [value for value in model.graph.outputs if value.name in names]
    found: set[str] = set()
    for output in outputs:
        others = ancestors([value for value in outputs if value is not output])
        both = ancestors([output]) & others
        found |= {n.op_type for n in both if n.outputs[0].shape == output.shape}
    return found - {"Gemm", "MatMul"}


@pytest.mark.parametrize(
    ("make", "states"),
    [
        (lambda: Adam(0.01), 3),
        (lambda: Momentum(0.1), 2),
        (lambda: WeightAverage(Adam(0.01)), 4),
    ],
)
def test_they_share_nothing_and_are_the_same(make: Callable[[], Any], states: int) -> None:
    joined, apart, names = models(make())
    assert len(names) == states
    assert shared(joined, names)
    assert not shared(apart, names)
    x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)
    feeds = {"x": x}
    found, expected = (Session(m).run(feeds, ["loss", *names]) for m in (apart, joined))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
