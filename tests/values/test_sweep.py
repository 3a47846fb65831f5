"""The walk over a model's values: in order, through the graphs inside nodes, until loops settle."""

from __future__ import annotations

import onnx.parser
import pytest
from interval_models import (
    LOOPED,
    NOTHING,
    bounds_of,
    ends,
    known_of,
    loop,
    model_of,
    named,
    near,
)
from rewrite_text import parse

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.sweep import behind_identities, node_kinds, rules_of, table_of

CHOOSING = """k = Neg(x)
    y = If(b) <then_branch = t () => (float[2] ty) { ty = Abs(k) },
               else_branch = e () => (float[2] ey) { q = Exp(x) ey = Sin(q) }>
    w = Cos(y)"""


SCAN = """y, u2 = Scan({lengths}x, z, w) <num_scan_inputs = 2, body = b
    (float[2] s, float[2] e, float[2] f) => (float[2] s1, float[2] u) {{
        s1 = Tanh(s) u = Add(e, f) }}>"""


def test_slices_of_a_scan_are_some_of_the_elements() -> None:
    given = {"x": (-0.5, 0.75), "z": Interval(1, 5, 1, 5), "w": 10}
    inputs = "float[2] x, float[3,2] z, float[3,2] w"
    found = known_of(model_of(SCAN.format(lengths=""), inputs), given)
    assert named(found, "e") == near(Interval(1, 5, 1, 1))
    assert named(found)[:2] == ends(-0.5, 0.75)
    assert named(found, "u2")[:2] == ends(11, 15)


def test_branches_of_an_if_are_united() -> None:
    found = bounds_of(CHOOSING, "float[2] x, bool b", {"x": Interval(2, 3, 2, 3)})
    assert found == near(Interval(-1, 3, 0, 0))


def test_graphs_of_operators_of_other_domains_are_their_own() -> None:
    body = CHOOSING.replace("If(b)", "custom.If(b)")
    found = known_of(model_of(body, "float[2] x, bool b"), {"x": (2, 3)})
    assert named(found, "ty") == near((2, 3))
    assert tuple(named(found, "y")) == NOTHING
    looped = loop("s1 = Identity(s)").replace("Loop(", "custom.Loop(")
    assert tuple(bounds_of(looped, LOOPED, {"x": (2, 3)}, value="s2")) == NOTHING


def test_an_operator_that_its_opset_does_not_have_is_not_known() -> None:
    assert tuple(bounds_of("y = Gelu(x)", given={"x": 1}, opset=19)) == NOTHING
    assert bounds_of("y = Gelu(x)", given={"x": 1}, opset=20).is_bounded


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>
    g (float[2] x, bool b) => (float[2] y) {
        a = custom.F(x) c = custom.G(a)
        y = If(b) <then_branch = t () => (float[2] ty) { ty = Abs(c) },
                   else_branch = e () => (float[2] ey) { ey = Abs(a) }> }
    <domain: "custom", opset_import: ["" : 21]> F (p) => (q) { q = Exp(p) }"""


def test_a_function_has_no_rule_and_an_operator_that_of_its_domain() -> None:
    flat = build_type_graph(read_flat(onnx.parser.parse_model(FUNCTIONS))).flat
    rules, holds_graphs = rules_of(flat, {"": {"Abs": 1, "G": 2}, "custom": {"F": 3, "G": 4}})
    found = {o.op_type: (rules[k], holds_graphs[k]) for k, o in enumerate(flat.operators)}
    assert found == {"F": (None, False), "G": (4, False), "If": (None, True), "Abs": (1, False)}


def test_one_operator_has_one_rule() -> None:
    assert table_of([("A", 1), ("B", 2)]) == {"A": 1, "B": 2}
    with pytest.raises(ValueError, match=r"two rules for one operator: B, C$"):
        table_of([("A", 1), ("B", 2), ("C", 3), ("B", 2), ("C", 4)])


def kinds(text: str, *operators: str) -> list[int]:
    """Return the kinds of a model's nodes, of some operators only, or of all."""
    flat = read_flat(parse(text))
    called = enumerate(flat.operators)
    chosen = [i for i, o in called if not operators or o.op_type in operators]
    return node_kinds(build_type_graph(flat), chosen, behind_identities(flat))


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
def test_what_differs_in_a_call_makes_another_kind(first: str, second: str) -> None:
    inputs = "float[2] x, float[2] z, bool[2] c, int64[2] n, float u"
    text = f"g ({inputs}) => (float[2] a, float[2] b) {{ a = {first} b = {second} }}"
    one, other = kinds(text)
    assert one != other
    again = f"g ({inputs}) => (float[2] a, float[2] b) {{ a = {first} b = {first} }}"
    one, other = kinds(again)
    assert one == other


def test_recorded_shapes_of_outputs_make_another_kind() -> None:
    text = "g (float[2] x, float[N] z) => (float[2] a, float[N] b) { a = Relu(x) b = Relu(z) }"
    one, other = kinds(text)
    assert one != other


def test_other_operators_have_no_kind() -> None:
    text = "g (float[2] x) => (float[2] a, float[2] b) { a = Relu(x) b = Exp(x) }"
    assert kinds(text, "Exp") == [ABSENT, 0]


def test_equal_tensors_make_one_kind() -> None:
    fill = "ConstantOfShape<value = float[1] {3}>(s)"
    text = f"g (int64[1] s) => (float[2] a, float[2] b) {{ a = {fill} b = {fill} }}"
    assert kinds(text) == [0, 0]


def test_where_values_are_read_twice_is_told_apart() -> None:
    text = """g (bool[2] q, bool[2] r, bool[2] s) => (bool[2] a, bool[2] b, bool[2] c, bool[2] d) {
        a = Where(q, r, r) b = Where(q, q, r) c = Where(q, r, q) d = Where(r, s, s) }"""
    a, b, c, d = kinds(text)
    assert len({a, b, c}) == 3
    assert a == d
