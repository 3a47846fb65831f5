"""A model as numbers: nodes in execution order, graphs inside nodes, who reads what."""

from __future__ import annotations

from collections.abc import Iterable

import onnx.parser
import pytest

from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph, Operator
from amp_rewrite.graph.io.read_flat import read_flat

HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 3]>'

NESTED = f"""{HEAD}
g (float[2] x, bool b, int64 n) => (float[2] y, float[2] z) <float[2] w = {{1, 2}}> {{
    [add] h = Add(x, w)
    [choose] y = If(b) <
        then_branch = t () => (p) {{
            [loop] p = Loop(n, b, h) <
                body = body (int64 i, bool c, float[2] v) => (d, o) <float[2] w2 = {{3, 4}}> {{
                    [go_on] d = Identity(c)
                    [sum] o = Sum(v, h, w2)
                }}
            >
        }},
        else_branch = e () => (q) {{ [double] q = Add(h, h) }}
    >
    [clip] z = Clip(h, "", w)
}}"""
"""A Loop inside a branch of an If, both of which read `h` of the main graph."""


def flat_of(text: str) -> FlatGraph:
    return read_flat(onnx.parser.parse_model(text))


@pytest.fixture(scope="module")
def nested() -> FlatGraph:
    return flat_of(NESTED)


def node(flat: FlatGraph, name: str) -> int:
    return flat.node_names.index(name)


def names(flat: FlatGraph, values: Iterable[int]) -> list[str]:
    return ["" if v == ABSENT else flat.value_names[v] for v in values]


def test_a_graph_knows_its_owner_its_own_nodes_and_where_it_ends(nested: FlatGraph) -> None:
    found = [
        (b.name, b.owner, [nested.node_names[n] for n in b.nodes], b.end) for b in nested.bodies
    ]
    choose, loop = node(nested, "choose"), node(nested, "loop")
    assert found == [
        ("", ABSENT, ["add", "choose", "clip"], 7),
        ("then_branch", choose, ["loop"], node(nested, "double")),
        ("body", loop, ["go_on", "sum"], node(nested, "double")),
        ("else_branch", choose, ["double"], node(nested, "clip")),
    ]
    assert nested.main is nested.bodies[MAIN]
    assert nested.bodies_in(choose) == [1, 3]
    assert nested.bodies_in(loop) == [2]
    assert nested.bodies_in(node(nested, "add")) == []
    assert nested.body_of == [0, 0, 1, 2, 2, 3, 0]


def test_an_input_that_is_left_out_is_absent_and_no_use_of_any_value(nested: FlatGraph) -> None:
    clip = node(nested, "clip")
    assert names(nested, nested.inputs_of(clip)) == ["h", "", "w"]
    assert nested.inputs_of(clip)[1] == ABSENT
    uses = [slot for v in range(nested.n_values) for slot in nested.uses(v)]
    assert sorted(uses) == [slot for slot, v in enumerate(nested.inputs) if v != ABSENT]


def test_graphs_beside_each_other_may_repeat_a_name() -> None:
    flat = flat_of(
        f"""{HEAD} g (float[2] x, bool b) => (float[2] y) {{
            y = If(b) <then_branch = t () => (p) {{ [one] p = Exp(x) }},
                       else_branch = e () => (p) {{ [other] p = Abs(x) }}> }}"""
    )
    one, other = flat.values_called("p")
    assert [flat.node_names[flat.producer[v]] for v in (one, other)] == ["one", "other"]
    assert list(flat.values_called("nothing")) == []


FUNCTION = f"""{HEAD}
g (float[2] x) => (float[2] y) {{ [call] h = local.Twice(x) [relu] y = Relu(h) }}
<domain: "local", opset_import: ["" : 17]>
Twice (a) => (c) {{ [first] b = Relu(a) [second] c = Relu(b) }}"""


def test_a_function_has_a_flat_graph_of_its_own() -> None:
    flat = flat_of(FUNCTION)
    call, relu = range(flat.n_nodes)
    assert (flat.is_call(call), flat.is_call(relu)) == (True, False)
    assert flat.called(call) == Operator("local", "Twice")
    inner = flat.functions[flat.called(call)].graph
    assert inner.node_names == ["first", "second"]
    assert names(inner, [*inner.main.inputs, *inner.main.outputs]) == ["a", "c"]
    assert inner.opset_of(0) == 17


def test_the_opset_of_a_node_is_that_of_its_domain() -> None:
    flat = flat_of(FUNCTION)
    assert [flat.opset_of(n) for n in range(flat.n_nodes)] == [3, 21]
    flat.opsets = {"": 21}
    assert flat.opset_of(0) == 1


def test_a_function_of_the_name_of_an_operator_is_the_operator_but_not_in_another_domain() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[2] x) => (float[2] y) {{ h = {call}Relu(x) y = Neg(h) }}
        <domain: "{domain}", opset_import: ["" : 21]> Relu (a) => (b) {{ b = Abs(a) }}"""
    assert flat_of(text.format(call="", domain="")).nodes_of("Relu", "Neg") == [0, 1]
    assert flat_of(text.format(call="own.", domain="own")).nodes_of("Relu", "Neg") == [1]
