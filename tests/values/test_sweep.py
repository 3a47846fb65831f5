"""The walk over a model's values: in order, through the graphs inside nodes, until loops settle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.load import load
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.sweep import LoopEnds, Sweep, loop_ends, rules_of, table_of

Fact = frozenset[str]


class Callers(Sweep[Fact]):
    """Of each value the operators behind it; `walked` are the results of swept nodes, in order."""

    def __init__(self, body: str, inputs: str = "float[2] x, float[2] z") -> None:
        super().__init__(build_type_graph(load(model_of(body, inputs))))
        self.facts: dict[int, Fact] = {}
        self.walked: list[str] = []

    def __getitem__(self, value: int) -> Fact:
        return self.facts.get(value, frozenset())

    def sweep(self, nodes: Iterable[int]) -> None:
        flat = self.flat
        for node in nodes:
            outputs = flat.outputs_of(node)
            self.walked.append(flat.value_names[outputs[0]])
            if flat.bodies_in(node):
                self.control(node)
                continue
            read = [self[value] for value in flat.inputs_of(node) if value != ABSENT]
            for value in outputs:
                self.learn(value, self.joined([*read, frozenset({flat.called(node).op_type})]))

    def learn(self, value: int, fact: Fact) -> None:
        self.facts[value] = fact

    def joined(self, parts: Sequence[Fact]) -> Fact:
        return frozenset[str]().union(*parts)

    def of(self, name: str) -> set[str]:
        """Sweep as far as a value, and return what is known of it."""
        value = self.flat.value_names.index(name)
        self.sweep_up_to(value)
        return set(self[value])


class Patient(Callers):
    """Sweeps a loop until a turn adds nothing."""

    def is_settled(self, inner: int, end: int) -> bool:
        return self[end] <= self[inner]


def test_the_main_graph_is_swept_as_far_as_what_is_asked_for() -> None:
    walk = Callers("a = Abs(x) b = Exp(a) c = Sin(z) y = Add(b, c)")
    assert walk.of("x") == set()
    assert walk.walked == []
    assert walk.of("b") == {"Abs", "Exp"}
    assert walk.walked == ["a", "b"]
    assert walk.of("a") == {"Abs"}
    assert walk.walked == ["a", "b"]
    assert walk.of("y") == {"Abs", "Exp", "Sin", "Add"}
    assert walk.walked == ["a", "b", "c", "y"]


CHOOSING = """k = Neg(x)
    y = If(b) <then_branch = t () => (float[2] ty) { ty = Abs(k) },
               else_branch = e () => (float[2] ey) { q = Exp(x) ey = Sin(q) }>
    w = Cos(y)"""


def test_what_an_if_gives_comes_from_either_branch() -> None:
    walk = Callers(CHOOSING, "float[2] x, bool b")
    assert walk.of("w") == {"Neg", "Abs", "Exp", "Sin", "Cos"}
    assert walk.walked == ["k", "y", "ty", "q", "ey", "w"]


@pytest.mark.parametrize("name", ["ty", "q", "y"])
def test_what_is_inside_a_node_is_swept_with_it(name: str) -> None:
    walk = Callers(CHOOSING, "float[2] x, bool b")
    walk.of(name)
    assert walk.walked == ["k", "y", "ty", "q", "ey"]


def test_what_is_inside_a_node_inside_a_node_is_swept_with_the_outermost() -> None:
    walk = Callers(
        """k = Neg(x)
        y = If(b) <then_branch = t () => (float[2] ty) {
                ty = If(b) <then_branch = tt () => (float[2] tty) { tty = Abs(k) },
                            else_branch = te () => (float[2] tey) { tey = Exp(k) }> },
            else_branch = e () => (float[2] ey) { ey = Sin(k) }>
        w = Cos(y)""",
        "float[2] x, bool b",
    )
    assert walk.of("tey") == {"Neg", "Exp"}
    assert walk.walked == ["k", "y", "ty", "tty", "tey", "ey"]
    assert walk.of("y") == {"Neg", "Abs", "Exp", "Sin"}


def test_what_a_loop_carries_is_what_it_was_or_what_a_turn_makes_of_it() -> None:
    body = loop("s1 = Abs(s) u = Sin(s1)", more="u", begin="x0")
    walk = Callers(f"x0 = Neg(z) {body}", LOOPED)
    assert walk.of("s") == {"Neg"}
    assert walk.of("s2") == {"Neg", "Abs"}
    assert walk.of("u2") == {"Neg", "Abs", "Sin"}
    assert walk.of("y") == {"Neg", "Abs", "Cos"}
    assert walk.walked == ["x0", "s2", "o", "s1", "u", "y"]


def test_a_loop_is_swept_until_it_is_settled() -> None:
    walk = Patient(loop("s1 = Abs(t) t1 = Exp(s)", states="s, t"), LOOPED)
    assert walk.of("s2") == {"Abs", "Exp"}
    assert walk.walked == ["s2", *["o", "s1", "t1"] * 3]


def test_a_loop_may_give_less_than_its_body() -> None:
    body = loop("s1 = Abs(s) u = Sin(s1)", more="u").replace("s2, u2 =", "s2 =")
    assert Callers(body, LOOPED).of("s2") == {"Abs"}


def test_a_domain_says_how_its_facts_are_held_and_joined() -> None:
    assert Callers("y = Abs(x)").of("y") == {"Abs"}
    assert Sweep.__abstractmethods__ == {"__getitem__", "sweep", "learn", "joined"}


def ends_by_name(body: str, inputs: str, opset: int = 21) -> tuple[object, ...]:
    flat = build_type_graph(load(model_of(body, inputs, opset=opset))).flat

    def name(value: int) -> str:
        return "" if value == ABSENT else flat.value_names[value]

    node = flat.nodes_of("Loop", "Scan")[0]
    found: LoopEnds = loop_ends(flat, node, flat.bodies_in(node)[0])
    return (
        [tuple(map(name, row)) for row in found.states],
        [tuple(map(name, row)) for row in found.elements],
        [name(value) for value in found.stacked],
        None if found.limit is None else name(found.limit),
    )


def test_the_ends_of_a_loop() -> None:
    body = loop("s1 = Abs(t) t1 = Exp(s) u = Sin(s) v = Cos(s)", states="s, t", more="u v")
    states = [("s", "x", "s1"), ("t", "x", "t1")]
    assert ends_by_name(body, LOOPED) == (states, [], ["u", "v"], "n")
    endless = body.replace("Loop(n, ,", "Loop(, c0,")
    assert ends_by_name(endless, f"{LOOPED}, bool c0") == (states, [], ["u", "v"], "")


SCAN = """y, u2 = Scan({lengths}x, z, w) <num_scan_inputs = 2, body = b
    (float[2] s, float[2] e, float[2] f) => (float[2] s1, float[2] u) {{
        s1 = Tanh(s) u = Add(e, f) }}>"""


@pytest.mark.parametrize(("lengths", "opset"), [("", 21), ("n, ", 8), (", ", 8)])
def test_the_ends_of_a_scan(lengths: str, opset: int) -> None:
    inputs = "float[2] x, float[3,2] z, float[3,2] w, int64[1] n"
    found = ends_by_name(SCAN.format(lengths=lengths), inputs, opset)
    assert found == ([("s", "x", "s1")], [("e", "z"), ("f", "w")], ["u"], None)


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


def test_a_node_may_have_no_more_inputs_than_its_operator_asks_for() -> None:
    assert bounds_of("y = Clip(x)", given={"x": 1}) == near(1)
    assert bounds_of("y = Clip(x, x)", given={"x": 1}) == near(1)
    assert bounds_of("y = Sum(x, x, x)", given={"x": 1}) == near(3)


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
    flat = build_type_graph(load(onnx.parser.parse_model(FUNCTIONS))).flat
    rules, holds_graphs = rules_of(flat, {"": {"Abs": 1, "G": 2}, "custom": {"F": 3, "G": 4}})
    found = {o.op_type: (rules[k], holds_graphs[k]) for k, o in enumerate(flat.operators)}
    assert found == {"F": (None, False), "G": (4, False), "If": (None, True), "Abs": (1, False)}


def test_one_operator_has_one_rule() -> None:
    assert table_of([("A", 1), ("B", 2)]) == {"A": 1, "B": 2}
    with pytest.raises(ValueError, match=r"two rules for one operator: B, C$"):
        table_of([("A", 1), ("B", 2), ("C", 3), ("B", 2), ("C", 4)])
