"""Branches that all batches take stand in place of their If nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.numerics.budget.taken_branches import put_taken_branches

NESTED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x, int64 rate, bool flag) => (float[M,4] y, bool long)
<int64 fast = {16000}, int64 two = {2}> {
  s = Shape(x)  n = Size(x)  is_fast = Equal(rate, fast)  long = Greater(n, two)
  y = If(is_fast) <
    then_branch = t () => (float[K,4] a2) <float[4] w = {1, 2, 3, 4}> {
      a = Mul(x, w)
      a1 = If(long) <then_branch = tt () => (float[K,4] b) { b = Abs(a) },
                     else_branch = te () => (float[K,4] c) { c = Neg(a) }>
      a2 = Concat<axis = 0>(a1, x) },
    else_branch = e () => (float[K,4] d) {
      d = If(flag) <then_branch = et () => (float[K,4] f) { f = Identity(x) },
                    else_branch = ee () => (float[K,4] h) { h = Sqrt(x) }> }> }"""


def feeds(rate: int, flag: bool = False, rows: int = 2) -> dict[str, Any]:
    x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
    return {"x": x, "rate": np.array(rate), "flag": np.array(flag)}


def settled(*fed: dict[str, Any], text: str = NESTED) -> tuple[Any, Any]:
    """Return the model before, and with the branches that batches take."""
    model = onnx.parser.parse_model(text)
    taken = amp.load(model)
    put_taken_branches(taken, fed)
    return model, taken


def operators(model: Any) -> list[str]:
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize("fed", [feeds(16000), feeds(8000), feeds(8000, True)])
def test_nested_branches_stand_in_the_graph_and_compute_the_same(fed: dict[str, Any]) -> None:
    model, taken = settled(fed)
    assert "If" not in operators(taken)
    expected, found = (amp.evaluate(m, fed) for m in (model, taken))
    assert [*found] == [*expected]
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_values_keep_their_names() -> None:
    _, taken = settled(feeds(16000))
    names = {value.name for node in taken.graph for value in node.outputs}
    assert {"a", "a1", "a2", "b", "y"} <= names
    assert names.isdisjoint({"c", "d", "f"})
    assert "w" in taken.graph.initializers


def test_an_if_that_batches_decide_otherwise_stays() -> None:
    model, taken = settled(feeds(16000), feeds(8000))
    assert operators(taken).count("If") == 1
    for fed in (feeds(16000), feeds(8000, True)):
        np.testing.assert_array_equal(amp.evaluate(taken, fed)["y"], amp.evaluate(model, fed)["y"])


def test_an_inner_if_stays_where_only_the_outer_one_is_decided() -> None:
    _, taken = settled(feeds(8000, True), feeds(8000))
    assert operators(taken).count("If") == 1
    for flag in (True, False):
        fed = feeds(8000, flag)
        expected = fed["x"] if flag else np.sqrt(fed["x"])
        np.testing.assert_array_equal(amp.evaluate(taken, fed)["y"], expected)


def test_a_branch_with_a_name_that_stands_elsewhere_is_left_alone() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x, bool c) => (float[2] y, float[2] z) {
      y = If(c) <then_branch = t () => (float[2] a) { a = Neg(x) },
                 else_branch = e () => (float[2] b) { b = Abs(x) }>
      z = If(c) <then_branch = u () => (float[2] a) { a = Exp(x) },
                 else_branch = v () => (float[2] d) { d = Sqrt(x) }> }"""
    x = np.ones(2, np.float32)
    model, taken = settled({"x": x, "c": np.array(True)}, text=text)
    assert operators(taken).count("If") == 2
    _, other = settled({"x": x, "c": np.array(False)}, text=text)
    assert operators(other).count("If") == 0
    fed = {"x": x, "c": np.array(True)}
    assert amp.evaluate(taken, fed)["z"] == pytest.approx(amp.evaluate(model, fed)["z"])


def test_a_branch_that_returns_a_constant() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x, bool c) => (float[2] y, float[2] x2) {
      h = Neg(x)
      y, x2 = If(c) <then_branch = t () => (float[2] o, float[2] k) <float[2] k = {1, 2}> {
                       o = Identity(h) },
                     else_branch = e () => (float[2] b, float[2] d) { b = Abs(x) d = Exp(x) }> }"""
    fed = {"x": np.ones(2, np.float32), "c": np.array(True)}
    model, taken = settled(fed, text=text)
    found, expected = amp.evaluate(taken, fed), amp.evaluate(model, fed)
    assert all(np.array_equal(found[name], array) for name, array in expected.items())


def test_nothing_is_put_where_a_condition_cannot_be_computed() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N] x, float[M] z) => (float[N] y) {
      d = Sub(x, z) k = ReduceMax<keepdims = 0>(d) zero = Sub(k, k) c = Greater(k, zero)
      y = If(c) <then_branch = t () => (float[N] a) { a = Neg(x) },
                 else_branch = e () => (float[N] b) { b = Abs(x) }> }"""
    fits = {"x": np.ones(2, np.float32), "z": np.zeros(2, np.float32)}
    _, taken = settled(fits, text=text)
    assert "If" not in operators(taken)
    _, taken = settled(fits, fits | {"z": np.zeros(3, np.float32)}, text=text)
    assert "If" in operators(taken)
