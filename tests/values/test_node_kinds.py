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


def test_the_shapes_that_are_asked_for_count() -> None:
    text = "g (float[2] x, float[N] z) => (float[2] a, float[N] b) { a = Relu(x) b = Relu(z) }"
    flat = read_flat(parse(text).SerializeToString())
    graph, same = build_type_graph(flat), behind_identities(flat)
    assert node_kinds(graph, [0], same) == [0, 1]
    assert node_kinds(graph, [0], same, flat.shape) == [0, 1]
    assert node_kinds(graph, [0], same, lambda value: None) == [0, 0]


def test_shapes_of_all_outputs_count() -> None:
    text = """g (float[4] x, float[4] z) => (float[2] a, float[2] b, float[2] c, float[N] d) {
        a, b = Split<num_outputs = 2>(x) c, d = Split<num_outputs = 2>(z) e = Abs(x) }"""
    one, other, _ = kinds(text, False)
    assert one != other
    one, other, _ = kinds(text.replace("float[N] d", "float[2] d"), False)
    assert one == other


def test_an_identity_changes_no_repetition() -> None:
    text = """g (float[2] x, float[2] z) => (float[2] a, float[2] b, float[2] c, float[2] d) {
        i = Identity(x) j = Identity(i) a = Sub(x, x) b = Sub(x, j) c = Sub(j, i) d = Sub(x, z) }"""
    *_, a, b, c, d = kinds(text, False)
    assert a == b == c != d


def test_where_values_are_read_twice_is_told_apart() -> None:
    text = """g (bool[2] q, bool[2] r, bool[2] s) => (bool[2] a, bool[2] b, bool[2] c, bool[2] d) {
        a = Where(q, r, r) b = Where(q, q, r) c = Where(q, r, q) d = Where(r, s, s) }"""
    a, b, c, d = kinds(text, False)
    assert len({a, b, c}) == 3
    assert a == d


def test_an_identity_hands_on_one_value_under_another_name() -> None:
    text = """g (float[2] x) => (float[2] m, float[2] d) {
        d = Abs(x) k = Identity(x) m = Identity(k) c = custom.Identity(x) e = Identity(c) }"""
    flat = read_flat(parse(text).SerializeToString())
    same = behind_identities(flat)
    named = {flat.value_names[v]: flat.value_names[same[v]] for v in range(flat.n_values)}
    assert named == {"x": "x", "d": "d", "k": "x", "m": "x", "c": "c", "e": "c"}
    assert same[ABSENT] == ABSENT


def test_without_identities_every_value_is_itself() -> None:
    text = "g (float[2] x) => (float[2] a, float[2] b) { a = Relu(x) b = Exp(x) }"
    flat = read_flat(parse(text).SerializeToString())
    assert [*behind_identities(flat)] == [0, 1, 2, ABSENT]
