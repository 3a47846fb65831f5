"""How many products are added up."""

from __future__ import annotations

import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.values.sum_lengths import count_terms


@pytest.mark.parametrize(
    ("inputs", "node", "terms"),
    [
        ("float[b,4,7] a, float[7,3] w", "MatMul(a, w)", 7),
        ("float[b,4,k] a, float[7,3] w", "MatMul(a, w)", 7),
        ("float[b,4,k] a, float[k,3] w", "MatMul(a, w)", None),
        ("float[4,7] a, float[7] w", "MatMul(a, w)", 7),
        ("float[7] a, float[7] w", "MatMul(a, w)", 7),
        ("float[7,4] a, float[3,7] w", "Gemm<transA = 1, transB = 1>(a, w)", 7),
        ("float[m,k] a, float[7,3] w", "Gemm(a, w)", 7),
        ("float[1,6,9] a, float[8,3,5] w", "Conv<group = 2>(a, w)", 15),
        ("float[1,6,9] a, float[6,4,5] w", "ConvTranspose(a, w)", 30),
        ("float[b,s] a, float[d] w", 'Einsum<equation = "bs,d->bsd">(a, w)', 1),
        ("float[b,7] a, float[7,d] w", 'Einsum<equation = "bk,kd->bd">(a, w)', 7),
        ("float[b,7] a, float[7,d] w", 'Einsum<equation = "bk, kd">(a, w)', 7),
        ("float[b,k] a, float[k,d] w", 'Einsum<equation = "bk,kd->bd">(a, w)', None),
        ("float[b,7] a, float[7,d] w", 'Einsum<equation = "...k,kd->...d">(a, w)', None),
        ("float[b,7] a, float[b,7] w", "Mul(a, w)", None),
        ("float[4,7] a", "ReduceSum(a)", 28),
        ("float[4,7] a", "ReduceSum<noop_with_empty_axes = 1>(a)", 1),
        ("float[4,7] a, int64[1] axes", "ReduceSum(a, axes)", None),
    ],
)
def test_shapes_tell_the_number_of_terms(inputs: str, node: str, terms: int | None) -> None:
    source = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> g ({inputs}) => (float[a] y) {{ y = {node} }}'
    )
    assert count_terms(FlatModel.of(amp.load(source)), 0) == terms


@pytest.mark.parametrize(
    ("axes", "chosen", "terms"), [("-1", "", 2), ("-1", "<axis = 0>", None), ("0", "", None)]
)
def test_a_sum_of_what_topk_chooses_has_as_many_terms(
    axes: str, chosen: str, terms: int | None
) -> None:
    source = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> g (float[b,n] x) => (float[a] y)
        <int64[1] k = {{2}}, int64[1] axes = {{{axes}}}> {{
            a = Relu(x) t, i = TopK{chosen}(a, k) y = ReduceSum(t, axes) }}"""
    )
    flat = FlatModel.of(amp.load(source))
    assert count_terms(flat, flat.nodes_of("ReduceSum")[0]) == terms


@pytest.mark.parametrize(("axes", "terms"), [([-1], 7), ([1, 2], 28), ([0], None), ([5], None)])
def test_axes_may_be_an_attribute(axes: list[int], terms: int | None) -> None:
    source = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 13]> g (float[b,4,7] x) => (float[a] y) {{
            y = ReduceMean<axes = {axes}>(x) }}"""
    )
    assert count_terms(FlatModel.of(amp.load(source)), 0) == terms
