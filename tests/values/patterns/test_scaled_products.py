"""Factors of matrix products are found through what moves nothing, and near misses are not."""

from __future__ import annotations

import onnx
import pytest
from group_models import scaled_model
from rewrite_text import parse

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.patterns.scaled_products import scaled_operands


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
