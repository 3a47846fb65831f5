"""Folders of the page: prefixes of names, graphs inside nodes, runs of what is too many."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.page.grouping import MOST, Group, group_nodes


def chain(names: list[str]) -> onnx.ModelProto:
    """Return Relus behind each other, with names."""
    nodes = [
        onnx.helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name)
        for i, name in enumerate(names)
    ]
    ends = [
        onnx.helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, [2])
        for v in ("v0", f"v{len(names)}")
    ]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opset = onnx.helper.make_opsetid("", 17)
    return onnx.helper.make_model(graph, ir_version=8, opset_imports=[opset])


def tree(model: onnx.ModelProto) -> Group:
    flat = amp.rewrite(model).flat
    return group_nodes(flat, [True] * flat.n_nodes)


def shape(group: Group) -> list[object]:
    """Return folders as {label: members} and nodes as numbers."""
    return [{m.label: shape(m)} if isinstance(m, Group) else m for m in group.members]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], [0, 1]),
        (
            ["/enc/0/a", "/enc/0/b", "/enc/1/a", "/enc/1/b"],
            [{"enc": [{"0": [0, 1]}, {"1": [2, 3]}]}],
        ),
        (["x.0.a", "x.0.b", "c"], [{"x/0": [0, 1]}, 2]),
        (["alone/a", "b"], [0, 1]),
        (["p/a", "b", "p/c"], [{"p": [0, 2]}, 1]),
        (["/", "//", "a/"], [0, 1, 2]),
        (["Add.0", "Add.1", "m.Add.2", "m.Add.3"], [0, 1, {"m": [2, 3]}]),
    ],
)
def test_nodes_are_grouped_by_the_prefixes_of_their_names(
    names: list[str], expected: list[object]
) -> None:
    assert shape(tree(chain(names))) == expected


def nodes_in(group: Group) -> Iterator[int]:
    for member in group.members:
        if isinstance(member, Group):
            yield from nodes_in(member)
        else:
            yield member


@pytest.mark.share(2)
@pytest.mark.parametrize("count", [MOST, MOST + 1, 3 * MOST + 1, MOST * MOST + 1])
def test_no_folder_holds_more_than_a_reader_takes_in_and_no_node_is_lost(count: int) -> None:
    root = tree(chain([f"n{i}" for i in range(count)]))
    waiting = [root]
    while waiting:
        group = waiting.pop()
        assert len(group.members) <= MOST
        waiting += [m for m in group.members if isinstance(m, Group)]
    assert list(nodes_in(root)) == list(range(count))


def test_a_node_with_graphs_inside_is_a_folder_with_one_for_each_branch() -> None:
    model = parse("""g (float[2] x, bool b) => (float[2] y) {
      [branch] y = If(b) <then_branch = t () => (float[2] p) { [one] p = Relu(x) },
                          else_branch = e () => (float[2] q) { [two] q = Exp(x) }> }""")
    (branch,) = tree(model).members
    assert isinstance(branch, Group)
    assert (branch.label, branch.owner) == ("branch", 0)
    assert shape(branch) == [{"then_branch": [1]}, {"else_branch": [2]}]
