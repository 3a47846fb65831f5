"""What patterns ask of nodes and values, beyond their place in the expression."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from group_models import scaled_model
from interval_models import model_of
from rewrite_text import parse

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.patterns import library
from amp_rewrite.values.patterns.library import scaled_operands
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


def found(body: str) -> list[tuple[str, str]]:
    """Return the names of the factors in a body, each with that of its product."""
    type_graph = build_type_graph(read_flat(scaled_model(body)))
    names = type_graph.flat.node_names
    return [(names[scale], names[product]) for scale, product in scaled_operands(type_graph)]


@pytest.mark.parametrize(
    "body",
    [
        "q = Mul(h, half) s = MatMul(q, t)",
        "q = Mul(half, h) s = MatMul(q, t)",
        "q = Div(h, half) s = MatMul(q, t)",
        "q = Mul(t, half) s = MatMul(h, q)",
        "q = Mul(h, half) i = Identity(q) s = MatMul(i, t)",
        "i = Identity(half) q = Mul(h, i) s = MatMul(q, t)",
        "q = Mul(h, half) i = Transpose<perm = [0, 2, 1]>(q) s = MatMul(h, i)",
        "q = Mul(h, half) i = Transpose(q) j = Identity(i) k = Transpose(j) s = MatMul(h, k)",
        "q = Mul(h, half) s = MatMul(q, q)",
    ],
)
def test_a_factor_is_found(body: str) -> None:
    assert found(body) == [("q", "s")]


def test_both_operands_may_have_one() -> None:
    assert found("q = Mul(h, half) k = Mul(t, half) s = MatMul(q, k)") == [("q", "s"), ("k", "s")]


@pytest.mark.parametrize(
    "body",
    [
        "q = Div(half, h) s = MatMul(q, t)",
        "q = Mul(h, row) s = MatMul(q, t)",
        "q = Mul(h, h) s = MatMul(q, t)",
        "q = Mul(h, half) p = Exp(q) n = MatMul(q, t) s = Add(n, p)",
        "q = Mul(h, half) p = MatMul(q, t) n = MatMul(q, t) s = Add(n, p)",
        "q = Mul(h, half) i = Relu(q) s = MatMul(i, t)",
        "q = custom.Mul(h, half) s = MatMul(q, t)",
        "q = Mul(h, half) i = custom.Transpose(q) s = MatMul(i, t)",
        "q = Mul(h, half) i = Transpose(q) p = Exp(i) n = MatMul(h, i) s = Add(n, p)",
        "q = Mul(h, half) i = Transpose(q) p = Exp(q) n = MatMul(h, i) s = Add(n, p)",
        "q = Add(h, half) s = MatMul(q, t)",
        "q = Add(half, h) s = MatMul(q, t)",
        "q = Div(h, row) s = MatMul(q, t)",
        "q = Mul(h, half) s = Gemm(q, t)",
        "s = MatMul(h, t)",
    ],
)
def test_what_is_not_a_factor_of_one_product_alone_is_not_found(body: str) -> None:
    assert found(body) == []


def test_a_factor_whose_result_is_an_output_is_not_found() -> None:
    model = scaled_model("q = Mul(h, half) s = MatMul(q, t)")
    model.graph.output.append(onnx.helper.make_tensor_value_info("q", 1, None))
    assert [*scaled_operands(build_type_graph(read_flat(model)))] == []


def test_a_model_without_factors_has_none() -> None:
    for nodes in ("a = Abs(x) y = MatMul(a, x)", "a = MatMul(x, x) y = Mul(a, half)"):
        model = parse(f"g (float[2,2] x) => (float[2,2] y) <float half = {{0.5}}> {{ {nodes} }}")
        assert [*scaled_operands(build_type_graph(read_flat(model)))] == []
