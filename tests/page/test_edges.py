"""The page's edges: what feeds what, where casts lie, and the ends of a model."""

from __future__ import annotations

import pytest
from page_models import BRANCHES, result_of

import amp_rewrite as amp
from amp_rewrite.page.columns import Columns, Strings
from amp_rewrite.page.edges import PLAIN, TO_FLOAT32, TO_LOW, tabulate_edges, tabulate_ends


def edges_of(result: amp.RewriteResult) -> dict[tuple[str, str], int]:
    """Return (maker, reader) -> the kind of cast, by names."""
    flat, strings = result.flat, Strings()
    groups: Columns = {"label": [], "parent": [], "owner": []}
    ends = [strings.texts[n] for n in tabulate_ends(flat, groups, strings)["name"]]
    names = [*flat.node_names, *ends]
    drawn = [flat.called(node).op_type != "Constant" for node in range(flat.n_nodes)]
    table = tabulate_edges(result, drawn)
    rows = zip(table["from"], table["to"], table["cast"], strict=True)
    return {(names[a], names[b]): cast for a, b, cast in rows}


def test_edges_join_makers_and_readers_also_into_graphs_inside() -> None:
    edges = edges_of(result_of(BRANCHES))
    assert {("x", "enc/dot"), ("enc/dot", "enc/act"), ("enc/dot", "norm/add")} <= set(edges)
    assert {("scale", "inner"), ("b", "branch"), ("branch", "last"), ("last", "y")} <= set(edges)
    assert not any("Constant" in name for edge in edges for name in edge)


def test_casts_lie_on_the_edges_where_types_change() -> None:
    edges = edges_of(result_of(BRANCHES))
    assert edges["x", "enc/dot"] == TO_LOW
    assert edges["last", "y"] == TO_FLOAT32
    assert edges["enc/dot", "norm/add"] == TO_FLOAT32
    assert edges["norm/mean", "norm/add"] == PLAIN


@pytest.mark.parametrize(("count", "folders"), [(24, []), (25, ["inputs"])])
def test_many_inputs_are_in_a_folder_of_their_own(count: int, folders: list[str]) -> None:
    inputs = ", ".join(f"float[2] x{i}" for i in range(count))
    model = (
        f"g ({inputs}) => (float[2] y) {{ y = Sum({', '.join(f'x{i}' for i in range(count))}) }}"
    )
    strings, groups = Strings(), {"label": [0], "parent": [-1], "owner": [-1]}
    ends = tabulate_ends(result_of(model).flat, groups, strings)
    assert [strings.texts[n] for n in groups["label"][1:]] == folders
    assert ends["group"] == [len(folders)] * count + [0]
    assert ends["output"] == [0] * count + [1]


def test_an_initializer_is_no_input_even_if_it_is_listed_as_one() -> None:
    model = """g (float[2] x, float[2] c) => (float[2] y) <float[2] c = {1, 2}> { y = Add(x, c) }"""
    assert ("x", "y") not in edges_of(result_of(model))
    assert all("c" not in edge for edge in edges_of(result_of(model)))
