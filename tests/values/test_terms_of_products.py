"""One table says how many terms a sum has: it is held against what operators compute of ones."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from runs import run

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.rewriting.report.arithmetic_share import multiply_accumulates
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.scales import rules as scales
from amp_rewrite.values.sum_lengths import PRODUCTS, count_terms

PRODUCTS_OF_ONES = {
    "MatMul(a, b)": ((2, 3, 7), (7, 5)),
    "Gemm(a, b)": ((3, 7), (7, 5)),
    "Gemm<transA = 1>(a, b)": ((7, 3), (7, 5)),
    "Gemm<transA = 1, transB = 1>(a, b)": ((7, 3), (5, 7)),
    "Conv<group = 2>(a, b)": ((1, 6, 9), (8, 3, 5)),
    "ConvTranspose(a, b)": ((1, 6, 9), (6, 4, 3)),
    "ConvTranspose<group = 2>(a, b)": ((1, 6, 9), (6, 4, 3)),
    "ConvTranspose<strides = [2, 2]>(a, b)": ((1, 6, 4, 4), (6, 2, 2, 2)),
    'Einsum<equation = "bk,kd->bd">(a, b)': ((3, 7), (7, 5)),
    'Einsum<equation = "bik,bjk->bij">(a, b)': ((2, 3, 7), (2, 4, 7)),
}


def model_of(node: str, shapes: tuple[tuple[int, ...], ...], *, known: bool) -> onnx.ModelProto:
    """Return a model with one node; of what it reads only the ranks are known, or the shapes."""
    inputs = ", ".join(
        f"float[{','.join(str(d) if known else f'{name}{d}x{i}' for i, d in enumerate(shape))}] "
        f"{name}"
        for name, shape in zip("ab", shapes, strict=False)
    )
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g ({inputs}) => (float[r] y) {{ y = {node} }}'
    )


@pytest.mark.parametrize("node", PRODUCTS_OF_ONES)
def test_products_of_ones_are_as_large_as_sums_have_terms(node: str) -> None:
    shapes = PRODUCTS_OF_ONES[node]
    model = model_of(node, shapes, known=True)
    ones = {n: np.ones(s, np.float32) for n, s in zip("ab", shapes, strict=True)}
    result = run(model.SerializeToString(), ones)["y"]
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.shape.dim.extend(
        onnx.TensorShapeProto.Dimension(dim_value=d) for d in result.shape
    )
    flat = read_flat(model)
    terms = count_terms(flat, 0)
    strided = "strides" in node  # an element meets some places of a window only
    assert terms is not None
    assert result.max() <= terms if strided else result.max() == terms
    assert multiply_accumulates(flat, 0) == result.sum()
    facts = ValueFacts(build_type_graph(flat), FLOAT16)
    assert Operation(facts.intervals, 0, flat.inputs_of(0)).terms == terms


@pytest.mark.parametrize("node", ["MatMul(a, b)", "Gemm(a, b)", "Gemm<transA = 1>(a, b)"])
def test_either_operand_tells_the_terms(node: str) -> None:
    shapes = PRODUCTS_OF_ONES[node]
    for hidden in "ab":
        model = model_of(node, shapes, known=True)
        (value,) = (v for v in model.graph.input if v.name == hidden)
        value.type.tensor_type.ClearField("shape")
        assert count_terms(read_flat(model), 0) == 7
    assert count_terms(read_flat(model_of(node, shapes, known=False)), 0) is None


def test_products_are_one_family() -> None:
    assert having(Trait.CONTRACTS) <= PRODUCTS.keys() <= scales.RULES.keys()


@pytest.mark.parametrize(
    ("node", "shapes", "terms"),
    [
        ("FusedMatMul(a, b)", "float[2,3,7] a, float[7,5] b", 7),
        ("FusedMatMul<transA = 1>(a, b)", "float[7,3] a, float[k,5] b", 7),
        ("FusedMatMul<transB = 1>(a, b)", "float[3,k] a, float[5,7] b", 7),
        ("FusedMatMul<transBatchA = 1>(a, b)", "float[2,3,7] a, float[2,7,5] b", None),
        ("FusedGemm<transA = 1>(a, b)", "float[7,3] a, float[7,5] b", 7),
        ("FusedConv(a, b)", "float[1,6,9] a, float[8,6,5] b", 30),
        ("MatMulNBits<K = 32, N = 8>(a, b, s)", "float[2,32] a, uint8[8,1,16] b, float[8] s", 32),
    ],
)
def test_operators_of_onnx_runtime_count_as_well(node: str, shapes: str, terms: int | None) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
        g ({shapes}) => (float[r] y) {{ y = com.microsoft.{node} }}"""
    assert count_terms(read_flat(onnx.parser.parse_model(text)), 0) == terms
