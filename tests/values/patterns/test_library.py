"""What patterns ask of nodes and values, beyond their place in the expression."""

from __future__ import annotations

from typing import Any

import pytest
from interval_models import model_of

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.patterns import library
from amp_rewrite.values.patterns.plain_view import PlainView


def last_node(body: str, inputs: str, opset: int = 21, **options: Any) -> tuple[PlainView, int]:
    """Return a model, and the node that makes y."""
    view = PlainView(build_type_graph(read_flat(model_of(body, inputs, opset=opset, **options))))
    return view, view.maker(view.type_graph.flat.value_names.index("y"))


@pytest.mark.parametrize(
    ("node", "opset", "inputs", "is_over_last"),
    [
        ("ReduceMean<axes = [-1]>(x)", 17, "float[2,3,4] x", True),
        ("ReduceMean<axes = [2]>(x)", 17, "float[2,3,4] x", True),
        ("ReduceMean<axes = [2]>(x)", 17, "float[] x", True),
        ("ReduceMean<axes = [1]>(x)", 17, "float[] x", True),
        ("ReduceMean<axes = [0]>(x)", 17, "float[] x", False),
        ("ReduceMean<axes = [-2]>(x)", 17, "float[] x", False),
        ("ReduceMean<axes = [1]>(x)", 17, "float[2,3,4] x", False),
        ("ReduceMean<axes = [0]>(x)", 17, "float[2,3,4] x", False),
        ("ReduceMean<axes = [-2]>(x)", 17, "float[2,3,4] x", False),
        ("ReduceMean<axes = [3]>(x)", 17, "float[2,3,N,4] x", True),
        ("ReduceMean<axes = [3]>(x)", 17, "float[2,3,4] x", False),
        ("ReduceMean<axes = [-1, -2]>(x)", 17, "float[2,3,4] x", False),
        ("ReduceMean<axes = [-2, -1]>(x)", 17, "float[2,3,4] x", False),
        ("ReduceMean(x)", 17, "float[2,3,4] x", False),
        ("ReduceMean(x)", 21, "float[2,3,4] x", False),
        ("ReduceMean(x, last)", 21, "float[2,3,4] x", True),
        ("ReduceMean(x, first)", 21, "float[2,3,4] x", False),
        ("ReduceMean(x, both)", 21, "float[2,3,4] x", False),
        ("ReduceMean(x, made)", 21, "float[2,3,4] x", True),
        ("ReduceMean(x, same)", 21, "float[2,3,4] x", True),
        ("ReduceMean(x, n)", 21, "float[2,3,4] x, int64[1] n", False),
        ("ReduceMean(x, computed)", 21, "float[2,3,4] x", False),
        ("ReduceMean(x, )", 21, "float[2,3,4] x", False),
    ],
)
def test_a_reduction_over_the_last_axis(
    node: str, opset: int, inputs: str, is_over_last: bool
) -> None:
    body = f"""made = Constant<value = int64[1] {{-1}}>() same = Identity(made)
        computed = Neg(first) y = {node} z = Constant<value = int64[1] {{-1}}>()"""
    constants = "int64[1] last = {-1}, int64[1] first = {1}, int64[2] both = {-1, -2}"
    view, found = last_node(body, inputs, opset, constants=constants)
    assert library.over_last_axis(view, found) is is_over_last


@pytest.mark.parametrize(
    ("body", "made", "stays"),
    [
        ("p = MatMul(x, w) y = Add(p, b)", "float[N,4] y", False),
        ("p = MatMul(x, w) y = Add(b, p)", "float[N,4] y", False),
        ("p = MatMul(x, w) i = Identity(p) y = Add(i, b)", "float[N,4] y", False),
        ("p = MatMul(x, w) y = Add(p, b)", "float[2,3,4] y", False),
        ("p = MatMul(x, w) y = Add(p, b)", "float[N,3,4] y", True),
        ("p = MatMul(x, w) y = Add(p, b)", "float[] y", True),
        ("p = MatMul(x, w) q = Abs(p) y = Add(q, b)", "float[N,4] y", True),
        ("y = Add(x, b)", "float[2,4] y", True),
    ],
)
def test_an_add_behind_a_product_of_matrices_is_part_of_it(
    body: str, made: str, stays: bool
) -> None:
    view, node = last_node(body, "float[] x, float[] w, float[4] b", made=made)
    assert library.stays_an_add(view, node) is stays
