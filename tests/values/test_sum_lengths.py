"""How many products are added up."""

from __future__ import annotations

import interval_models
import onnx
import onnx.parser
import pytest
from interval_models import known_of

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.sum_lengths import count_terms, einsum_terms, inner_sum, terms_of


def recorded(source: onnx.ModelProto) -> FlatGraph:
    """Return a model without the shapes that it does not record."""
    flat = read_flat(source)
    flat.infer = None
    return flat


@pytest.mark.parametrize(
    ("inputs", "node", "terms"),
    [
        ("float[b,4,7] a, float[7,3] w", "MatMul(a, w)", 7),
        ("float[b,4,k] a, float[7,3] w", "MatMul(a, w)", 7),
        ("float[b,4,k] a, float[k,3] w", "MatMul(a, w)", None),
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
    assert count_terms(recorded(source), 0) == terms


def terms_in(body: str, inputs: str, constants: str = "", opset: int = 22) -> int | None:
    """Return the number of terms of the last node of a body."""
    source = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]>'
        f" g ({inputs}) => (float[a] y) <{constants}> {{ {body} }}"
    )
    flat = recorded(source)
    return count_terms(flat, flat.n_nodes - 1)


@pytest.mark.parametrize(
    ("inputs", "node", "terms"),
    [
        ("float[m,7] a, float[k,3] w", "MatMul(a, w)", 7),
        ("float[4,k] a, float[5,7,3] w", "MatMul(a, w)", 7),
        ("float[] a, float[7,3] w", "MatMul(a, w)", 7),
        ("float[4,7] a, float[] w", "MatMul(a, w)", 7),
        ("float[] a, float[] w", "MatMul(a, w)", None),
        ("float[4,7] a, float[k,3] w", "Gemm(a, w)", 7),
        ("float[7,4] a, float[k,3] w", "Gemm<transA = 1>(a, w)", 7),
        ("float[m,k] a, float[3,7] w", "Gemm<transB = 1>(a, w)", 7),
        ("float[m,k] a, float[k,3] w", "Gemm(a, w)", None),
        ("float[1,6,9] a, float[8,k,5] w", "Conv(a, w)", None),
        ("float[1,6,9] a, float[] w", "Conv(a, w)", None),
        ("float[1,6,9,9] a, float[m,6,5,3] w", "Conv(a, w)", 90),
        ("float[1,6,9] a, float[6,4,5] w", "ConvTranspose<group = 2>(a, w)", 15),
        ("float[1,6,9] a, float[6,n,5] w", "ConvTranspose(a, w)", 30),
        ("float[1,6,9,9] a, float[6,4,5,3] w", "ConvTranspose(a, w)", 90),
        ("float[1,6,9] a, float[m,4,5] w", "ConvTranspose(a, w)", None),
        ("float[1,6,9] a, float[6,4,n] w", "ConvTranspose(a, w)", None),
        ("float[1,6,9] a, float[] w", "ConvTranspose(a, w)", None),
        ("float[1,1,9,9] a", "AveragePool<kernel_shape = [2, 3]>(a)", 6),
        ("float[b,c,4,5] a", "GlobalAveragePool(a)", 20),
        ("float[2,3,4,n] a", "GlobalAveragePool(a)", None),
        ("float[] a", "GlobalAveragePool(a)", None),
        ("float[4,7] a", "ReduceL1(a)", 28),
        ("float[4,7] a", "ReduceL2(a)", 28),
        ("float[4,7] a", "ReduceMax(a)", None),
        ("float[4,n] a", "ReduceSum(a)", None),
        ("float[] a", "ReduceSum(a)", None),
        ("float[4,7] a", "ReduceSum(a, none)", 28),
        ("float[4,7] a", "ReduceSum<noop_with_empty_axes = 1>(a, none)", 1),
        ("float[4,7] a", "ReduceSum<noop_with_empty_axes = 1>(a, last)", 7),
        ("float[4,7] a", "ReduceSum<noop_with_empty_axes = 1>(a, )", 1),
        ("float[4,7] a", "ReduceSum(a, last)", 7),
        ("float[4,7] a", "ReduceSum(a, first)", 4),
        ("float[4,7] a", "ReduceSum(a, beyond)", None),
        ("float[4] a", "ReduceSum(a, front)", None),
        ("float[4,7] a", "CumSum(a, one)", 7),
        ("float[4,7] a", "CumSum(a, zero)", 4),
        ("float[4,7] a, int64 n", "CumSum(a, n)", None),
    ],
)
def test_shapes_and_constant_axes_tell_the_number_of_terms(
    inputs: str, node: str, terms: int | None
) -> None:
    constants = """int64[0] none = {}, int64[1] last = {-1}, int64[1] first = {0},
        int64[1] front = {-2}, int64[2] both = {0, 2}, int64[1] beyond = {2}, int64 one = {1},
        int64 zero = {0}"""
    found = terms_in(f"y = {node}", inputs, constants)
    assert found == terms
    assert type(found) is type(terms)


@pytest.mark.parametrize(
    ("equation", "shapes", "terms"),
    [
        ("bk,kd->bd", [[3, 7], [7, 5]], 7),
        ("bk,kd->bd", [[3, None], [7, 5]], 7),
        ("bk,kd->bd", [None, None], None),
        ("bk,kd", [[3, 7], [7, 5]], 7),
        ("bk,kb", [[3, 7], [7, 3]], 21),
        ("kb,kd->", [[7, 3], [7, 5]], 105),
        ("ii->i", [[7, 7]], 1),
        ("ii", [[7, 7]], 7),
        ("b,d->bd", [[3], [5]], 1),
        ("...d,...d->...d", [[3, 5], [3, 5]], 1),
        ("...d,...d->...", [[3, 5], [3, 5]], None),
    ],
)
def test_an_einsum_adds_up_over_the_letters_that_its_result_lacks(
    equation: str, shapes: list[list[int | None] | None], terms: int | None
) -> None:
    assert einsum_terms(equation, shapes) == terms


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


def added(call: str) -> tuple[list[str], int] | None:
    """Return the inputs that a node adds up and the number of the output that gives the sum."""
    inputs = ", ".join(f"float[2] {name}" for name in "abcdef")
    flat = known_of(interval_models.model_of(f"y = {call}", inputs)).flat
    inner = inner_sum(flat.called(0))
    if inner is None:
        return None
    return [flat.value_names[value] for value in terms_of(flat, 0, inner)], inner.output


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("com.microsoft.SkipGroupNorm(a, b, c, d, e, f)", (["a", "d", "e"], 1)),
        ("com.microsoft.SkipGroupNorm(a, b, c, d)", (["a", "d"], 1)),
        ("com.microsoft.SkipLayerNormalization(a, b, c, d, e, f)", (["a", "b", "e"], 3)),
        ("com.microsoft.SkipLayerNormalization(a, b, c)", (["a", "b"], 3)),
        ("com.microsoft.SkipSimplifiedLayerNormalization(a, b, c, d, e)", (["a", "b", "d"], 3)),
        ("com.microsoft.SkipSimplifiedLayerNormalization(a, b, c, , e)", (["a", "b"], 3)),
        ("com.microsoft.LayerNormalization(a, b)", None),
        ("custom.SkipLayerNormalization(a, b, c)", None),
        ("Add(a, b)", None),
    ],
)
def test_residual_streams_go_through_normalizations(
    call: str, expected: tuple[list[str], int] | None
) -> None:
    assert added(call) == expected
