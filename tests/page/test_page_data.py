"""The data of the page: plain JSON, in which every name is printable."""

from __future__ import annotations

import json

import onnx
from page_models import BRANCHES, bare_evidence, result_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.page.node_table import Columns, Strings
from amp_rewrite.page.page_data import (
    PLAIN,
    TO_FLOAT32,
    TO_LOW,
    page_data,
    tabulate_edges,
    tabulate_ends,
    types_of,
)


def test_a_folder_comes_behind_the_one_that_it_is_in_and_every_drawn_node_has_one() -> None:
    result = result_of(BRANCHES)
    data = page_data(result, result.report, bare_evidence())
    parents = data["groups"]["parent"]
    assert parents[0] == -1
    assert all(0 <= parent < number for number, parent in enumerate(parents) if number)
    ops = [data["strings"][op] for op in data["nodes"]["op"]]
    undrawn = [op for op, group in zip(ops, data["nodes"]["group"], strict=True) if group == -1]
    assert undrawn == ["Constant"]
    owners = [owner for owner in data["groups"]["owner"] if owner != -1]
    assert [ops[owner] for owner in owners] == ["If"]


def test_names_are_printable_in_the_data() -> None:
    hostile = "\x1b[31m\u202e\x00<b>"
    model = parse(BRANCHES)
    model.graph.node[0].name = hostile
    result = result_of(model)
    data = page_data(result, result.report, bare_evidence())
    text = json.dumps(data, ensure_ascii=False)
    assert r"\\x1b[31m\\u202e\\x00<b>" in text
    assert not {"\x1b", "\u202e", "\x00"} & set(text)


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


def test_types_after_are_those_of_the_rewritten_model() -> None:
    result = result_of(BRANCHES)
    before, after = types_of(result)
    model = onnx.shape_inference.infer_shapes(amp.to_proto(result.model))
    found = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
    names = {int(onnx.TensorProto.FLOAT): "float32", int(onnx.TensorProto.FLOAT16): "float16"}
    checked = 0
    for value, name in enumerate(result.flat.value_names):
        if found.get(name) in names and before[value] == "float32":
            assert after[value] == names[found[name]], name
            checked += 1
    assert checked >= 5
    assert {"float16", "float32"} <= set(after)
