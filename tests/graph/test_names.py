"""Which names are free."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.graph.added import AddedNames, origin
from amp_rewrite.graph.names import FreeNames, names_in

_NESTED = """
<ir_version: 10, opset_import: ["" : 21]>
nested (float[2] x, bool chosen) => (float[2] y) {
    [outer] y = If (chosen) <
        then_branch = then () => (float[2] t) { [inner] t = Exp (x) },
        else_branch = else () => (float[2] e) { e = Identity (x) }
    >
}
"""


def test_a_free_name_is_taken_as_it_is_and_then_numbered() -> None:
    names = FreeNames({"b", "b_1"})
    assert [names.take("a") for _ in range(3)] == ["a", "a_1", "a_2"]
    assert names.take("b") == "b_2"
    assert names.take("c", first=2) == "c"
    assert names.take("c", first=2) == "c_2"


def test_a_number_that_is_taken_is_left_out() -> None:
    names = FreeNames({"a_1"})
    assert [names.number("a") for _ in range(3)] == ["a_0", "a_2", "a_3"]


def test_the_form_says_how_a_number_is_appended() -> None:
    names = FreeNames(["a", None], form="{}/again_{}")
    assert [names.take("a"), names.take("a")] == ["a/again_1", "a/again_2"]


def test_the_names_of_a_graph_are_those_inside_it_too() -> None:
    graph = ir.from_onnx_text(_NESTED).graph
    assert set(names_in(graph)) == {"x", "chosen", "y", "t", "e"}


def test_what_is_added_has_a_name_that_no_node_and_no_value_has() -> None:
    graph = ir.from_onnx_text(_NESTED).graph
    names = AddedNames.of(graph)
    first = names.cast("x", FLOAT16)
    assert (first, origin(first)) == ("x-CastToFp16-0-AutoMixedPrecision", "x")
    inner = next(n for n in graph.all_nodes() if n.name == "inner")
    inner.name = names.cast("x", FLOAT16)
    assert AddedNames.of(graph).number("x-CastToFp16") == first
    assert AddedNames.of(graph).part("x", "CastToFp16") == first
    assert names.inner("x", FLOAT32) == "x-Fp32-0-AutoMixedPrecision"
    names = AddedNames.of(graph)
    assert [names.cast("x", FLOAT16) for _ in range(2)][1] == "x-CastToFp16-2-AutoMixedPrecision"
