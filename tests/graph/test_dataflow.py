"""The type graph: vertices per type variable, edges per value, subgraphs joined to their owners."""

from collections.abc import Iterable

import onnx.parser

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.traits import Trait
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.rewriting.paint.ties import variable_ties


def graph_of(body: str, inputs: str = "float[2] x", tie=None, opset: int = 21) -> TypeGraph:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => (y) {{ {body} }}'
    return build_type_graph(read_flat(onnx.parser.parse_model(text)), tie)


def edges(graph: TypeGraph) -> set[tuple[str, str]]:
    return {(graph.name(a), graph.name(b)) for a, b in graph.edges.tolist()}


def vertices(graph: TypeGraph) -> list[str]:
    return named(graph, range(len(graph)))


def named(graph: TypeGraph, numbers: Iterable[int]) -> list[str]:
    return [graph.name(v) for v in numbers]


def test_a_vertex_stands_for_a_float32_variable_and_an_edge_for_a_value() -> None:
    found = graph_of("[a] h = Relu(x) [s] n = Shape(h) [c] i = Cast<to = 7>(h) [b] y = Exp(h)")
    assert vertices(found) == ["a/T", "s/T", "c/T1", "b/T"]
    assert edges(found) == {("a/T", "s/T"), ("a/T", "c/T1"), ("a/T", "b/T")}


def test_an_if_output_is_fed_by_both_branches() -> None:
    found = graph_of(
        "[i] h = If(b) <then_branch = t () => (p) { [p] p = Relu(x) },"
        " else_branch = e () => (q) { [q] q = Exp(x) }> [r] y = Abs(h)",
        "float[2] x, bool b",
    )
    assert edges(found) == {("p/T", "i/V[0]"), ("q/T", "i/V[0]"), ("i/V[0]", "r/T")}


def test_a_loop_carried_value_is_one_variable_and_a_scan_output_another() -> None:
    found = graph_of(
        "[z] k = Relu(x) [l] a, h = Loop(n, b, k) <body = g2 (int64 i, bool c, float[2] v)"
        " => (d, o, s) { [d] d = Identity(c) [o] o = Exp(v) [s] s = Abs(v) }>"
        " [r] q = Neg(a) [u] y = Sqrt(h)",
        "float[2] x, bool b, int64 n",
    )
    assert edges(found) == {
        *{("z/T", "l/V[0]"), ("l/V[0]", "o/T"), ("o/T", "l/V[0]"), ("l/V[0]", "s/T")},
        *{("s/T", "l/V[1]"), ("l/V[0]", "r/T"), ("l/V[1]", "u/T")},
    }


def test_a_scan_of_opset_8_joins_behind_the_sequence_lengths() -> None:
    nodes = "[o] o = Add(s, e) [r] r = Abs(e)"
    body = f"<num_scan_inputs = 1, body = g2 (float[2] s, float[2] e) => (o, r) {{ {nodes} }}>"
    for opset, call in ((8, '("", x, k)'), (9, "(x, k)")):
        found = graph_of(
            f"[c] a, y = Scan{body}{call}", "float[2,2] x, float[2,2,2] k", opset=opset
        )
        loops = {(a, b) for a, b in edges(found) if b.startswith("c/")}
        state = next(b for a, b in loops if a == "o/T")
        assert (state, "o/T") in edges(found)
        assert ("o/T", state) in edges(found)
        assert next(b for a, b in loops if a == "r/T") != state


def test_a_captured_outer_value_is_an_ordinary_use() -> None:
    found = graph_of(
        "[a] h = Relu(x) [i] y = If(b) <then_branch = t () => (p) { [p] p = Exp(h) },"
        " else_branch = e () => (q) { [q] q = Abs(h) }>",
        "float[2] x, bool b",
    )
    assert {("a/T", "p/T"), ("a/T", "q/T")} <= edges(found)


def test_a_sequence_joins_its_writers_and_readers() -> None:
    found = graph_of(
        "[a] h = Relu(x) [s] s = SequenceConstruct(h) [i] t = Identity(s) [r] y = SequenceAt(t, k)",
        "float[2] x, int64 k",
    )
    assert ("s/S", "r/S") in edges(found)
    assert {(found.name(a), found.name(b)) for a, b in found.handles} == {
        ("s/S", "i/V"),
        ("i/V", "r/S"),
    }


def test_a_target_ties_variables_into_one_vertex() -> None:
    body = "[n] y = BatchNormalization(x, s, s, s, s)"
    inputs = "float[1,2,4,4] x, float[2] s"
    assert vertices(graph_of(body, inputs)) == ["n/T", "n/T1", "n/T2"]
    tied = graph_of(body, inputs, variable_ties(KernelTable.load(), FLOAT16))
    assert [tied.kind_of(v).variables for v in range(len(tied))] == [("T", "T1", "T2")]


def test_a_model_without_float32_has_no_vertices() -> None:
    found = graph_of("[a] h = Neg(x) [b] y = Abs(h)", "int64[2] x")
    assert (len(found), len(found.edges)) == (0, 0)
    assert [list(found.vertices_of(node)) for node in range(2)] == [[], []]
    assert vertices_in(found.having(Trait.MOVES)) == []


def test_an_output_of_a_branch_has_the_owners_vertex_as_its_sink() -> None:
    found = graph_of(
        "[i] h, k = If(b) <then_branch = t () => (p, n) { [p] p = Relu(x) n = Shape(x) },"
        " else_branch = e () => (q, m) { [q] q = Exp(x) m = Shape(x) }> [r] y = Abs(h)",
        "float[2] x, bool b",
    )
    (owner,) = found.vertices_of(found.flat.node_names.index("i"))
    assert found.sinks == {number: [owner, ABSENT] for number in found.flat.finished}


def test_an_input_of_a_loop_body_comes_from_the_owner() -> None:
    found = graph_of(
        "[l] y = Loop(n, b, x) <body = g2 (int64 i, bool c, float[2] v) => (d, o)"
        " { d = Identity(c) [o] o = Exp(v) }>",
        "float[2] x, bool b, int64 n",
    )
    sources = {name: found.source[found.flat.value_names.index(name)] for name in ("i", "c", "v")}
    (owner,) = found.vertices_of(found.flat.node_names.index("l"))
    assert sources == {"i": ABSENT, "c": ABSENT, "v": owner}


def test_a_sequence_at_the_end_of_the_model_is_opaque() -> None:
    body = "[s] s = SequenceConstruct(x) [i] y = Identity(s)"
    found = graph_of(body)
    assert {found.flat.value_names[v] for v in found.opaque_ends} == {"y"}
    inside = graph_of(
        "[s] s = SequenceConstruct(x) [a] y = SequenceAt(s, k)", "float[2] x, int64 k"
    )
    assert inside.opaque_ends == frozenset()
