"""What nodes read, what values depend on, and the removal of what nothing needs."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from amp_rewrite.graph.traverse import (
    ancestors,
    inputs_of,
    remove_unused_nodes,
)

_BRANCHED = """
<ir_version: 10, opset_import: ["" : 21]>
branched (float[2] x, bool chosen) => (float[2] y, float[2] z) {
    a = Exp (x)
    b = Abs (x)
    c = Neg (a)
    y = If (chosen) <
        then_branch = then () => (float[2] t) {
            t = If (chosen) <
                then_branch = inner () => (float[2] i) { i = Add (a, x) },
                else_branch = other () => (float[2] o) { o = Identity (x) }
            >
        },
        else_branch = else () => (float[2] e) { e = Identity (b) }
    >
    z = Neg (x)
}
"""


@pytest.fixture
def graph() -> ir.Graph:
    return ir.from_onnx_text(_BRANCHED).graph


def _node(graph: ir.Graph, output: str) -> ir.Node:
    return next(node for node in graph if node.outputs[0].name == output)


def test_a_node_reads_what_graphs_at_any_depth_inside_it_capture(graph: ir.Graph) -> None:
    assert {v.name for v in inputs_of(_node(graph, "y"))} == {"chosen", "a", "b", "x"}


@pytest.mark.parametrize(
    ("of", "found"),
    [("y", {"y", "a", "b"}), ("c", {"c", "a"}), ("z", {"z"}), ("x", set[str]())],
)
def test_a_value_depends_on_what_graphs_inside_nodes_capture(
    graph: ir.Graph, of: str, found: set[str]
) -> None:
    values = [*graph.inputs, *(node.outputs[0] for node in graph)]
    value = next(value for value in values if value.name == of)
    assert {node.outputs[0].name for node in ancestors([value])} == found


def test_what_only_a_removed_if_captured_is_removed_too(graph: ir.Graph) -> None:
    graph.outputs.pop(0)
    remove_unused_nodes(graph)
    assert [node.outputs[0].name for node in graph] == ["z"]


def test_what_an_if_captures_stays_with_it(graph: ir.Graph) -> None:
    remove_unused_nodes(graph)
    assert [node.outputs[0].name for node in graph] == ["a", "b", "y", "z"]


def test_unused_nodes_are_removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every removal goes through the outputs of the graph: one by one would be quadratic."""
    body = "".join(f"unused{i} = Abs (x)\n" for i in range(50))
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    wide (float[2] x) => (float[2] y) {{ {body} y = Neg (x) }}"""
    graph = ir.from_onnx_text(text).graph
    removals: list[int] = []
    remove = ir.Graph.remove

    def counted(self: ir.Graph, nodes: list[ir.Node]) -> None:
        removals.append(len(nodes))
        remove(self, nodes)

    monkeypatch.setattr(ir.Graph, "remove", counted)
    remove_unused_nodes(graph)
    assert removals == [50]
    assert [node.op_type for node in graph] == ["Neg"]
