"""The gradient of a pooling of 2 x 2 is the same by DepthToSpace, and without Concat."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.step.dropout import COUNTER, replace_dropouts
from amp_rewrite.training.step.faster_forms import (
    compute_random_in_32_bits,
    move_blocks,
    separate_factors,
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


RANDOM_TEXT = """<ir_version: 8, opset_import: ["": {opset}]>
    g (float[{shape}] x) => (float[{shape}] y, bool[{shape}] a, bool[{shape}] b)
    <float ratio = {{0.3}}, float other = {{0.7}}, bool training = {{1}}> {{
        h, a = Dropout (x, ratio, training)
        y, b = Dropout (h, other, training) }}"""


def masks(shape: str, opset: int = 17) -> tuple[ir.Model, ir.Model]:
    """Return a model with two masks as it is, and in 32 bits."""
    model = load(parser.parse_model(RANDOM_TEXT.format(shape=shape, opset=opset)))
    replace_dropouts(model, 5)
    record_types(model)
    narrow = clone(model)
    compute_random_in_32_bits(narrow)
    return model, narrow


def compare(shape: str, sizes: list[tuple[int, ...]], counters: Any, opset: int = 17) -> None:
    sessions = [Session(model) for model in masks(shape, opset)]
    for size in sizes:
        for counter in counters:
            feeds = {"x": np.ones(size, np.float32), COUNTER: np.array(counter, np.int64)}
            wide, narrow = (session.run(feeds, ["a", "b"]) for session in sessions)
            for one, other in zip(wide, narrow, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"{size} at {counter}")


@pytest.mark.share(3)
@pytest.mark.parametrize("opset", [13, 22])
@pytest.mark.parametrize("shape", ["N, M", "40, 100"])
def test_masks_are_the_same(shape: str, opset: int) -> None:
    sizes = [(1, 1), (3, 256), (40, 1000)] if shape == "N, M" else [(40, 100)]
    counters = [0, 1, 2**31 - 1, 2**31, 2**32 + 7, 2**53 + 3]
    compare(shape, sizes, counters, opset)


@pytest.mark.slow
def test_masks_are_the_same_over_1000_steps() -> None:
    compare("N, M", [(300, 1000)], range(2**31 - 500, 2**31 + 500))


def test_no_product_of_rows_has_more_than_32_bits() -> None:
    _, narrow = masks("40, 100")
    remove_unused_nodes(narrow.graph)
    products = [node.outputs[0] for node in narrow.graph if node.op_type == "Mul"]
    rows = [v for v in products if v.shape is not None and len(v.shape)]
    assert {v.dtype for v in rows} == {ir.DataType.INT32, ir.DataType.FLOAT}
