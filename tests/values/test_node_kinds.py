"""Nodes are of one kind where nothing but their inputs tells them apart."""

from __future__ import annotations

import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.node_kinds import behind_identities, node_kinds


def kinds(text: str, objects: bool, *operators: str) -> list[int]:
    """Return the kinds of a model's nodes, of some operators only, or of all."""
    model = parse(text)
    flat = FlatModel.of(amp.load(model)) if objects else read_flat(model.SerializeToString())
    called = enumerate(flat.operators)
    chosen = [i for i, o in called if not operators or o.op_type in operators]
    return node_kinds(build_type_graph(flat), chosen, behind_identities(flat))


@pytest.mark.parametrize("objects", [False, True], ids=["messages", "objects"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Relu(x)", "Sigmoid(x)"),
        ("LeakyRelu<alpha = 0.1>(x)", "LeakyRelu<alpha = 0.2>(x)"),
        ("LeakyRelu<alpha = 0.0>(x)", "LeakyRelu<alpha = -0.0>(x)"),
        ("LeakyRelu(x)", "LeakyRelu<alpha = 0.1>(x)"),
        ("Softmax<axis = 1>(x)", "Softmax<axis = -1>(x)"),
        ("Sub(x, x)", "Sub(x, z)"),
        ("Where(c, x, x)", "Where(c, x, z)"),
        ("Cast<to = 1>(x)", "Cast<to = 1>(n)"),
        ("Clip(x, u)", "Clip(x, , u)"),
    ],
)
def test_what_differs_in_a_call_makes_another_kind(first: str, second: str, objects: bool) -> None:
    inputs = "float[2] x, float[2] z, bool[2] c, int64[2] n, float u"
    text = f"g ({inputs}) => (float[2] a, float[2] b) {{ a = {first} b = {second} }}"
    one, other = kinds(text, objects)
    assert one != other
    again = f"g ({inputs}) => (float[2] a, float[2] b) {{ a = {first} b = {first} }}"
    one, other = kinds(again, objects)
    assert one == other


def test_recorded_shapes_of_outputs_make_another_kind() -> None:
    text = "g (float[2] x, float[N] z) => (float[2] a, float[N] b) { a = Relu(x) b = Relu(z) }"
    one, other = kinds(text, False)
    assert one != other


@pytest.mark.parametrize("objects", [False, True], ids=["messages", "objects"])
def test_other_operators_have_no_kind(objects: bool) -> None:
    text = "g (float[2] x) => (float[2] a, float[2] b) { a = Relu(x) b = Exp(x) }"
    assert kinds(text, objects, "Exp") == [ABSENT, 0]


def test_objects_with_tensors_are_not_compared() -> None:
    fill = "ConstantOfShape<value = float[1] {3}>(s)"
    text = f"g (int64[1] s) => (float[2] a, float[2] b) {{ a = {fill} b = {fill} }}"
    assert kinds(text, True) == [0, 1]
    assert kinds(text, False) == [0, 0]


def test_where_values_are_read_twice_is_told_apart() -> None:
    text = """g (bool[2] q, bool[2] r, bool[2] s) => (bool[2] a, bool[2] b, bool[2] c, bool[2] d) {
        a = Where(q, r, r) b = Where(q, q, r) c = Where(q, r, q) d = Where(r, s, s) }"""
    a, b, c, d = kinds(text, False)
    assert len({a, b, c}) == 3
    assert a == d
