"""Sums too long for float16 stay float32 where the kernels add in float16."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from pass_marks import context_of, marks_of, model_of

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.oplists import load_lists
from amp_rewrite.rewriting.paint.node_rules import Findings
from amp_rewrite.rewriting.paint.passes.keep_long_sums import keep_long_sums

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def reasons(text: str, target: str = "webgpu", **options: object) -> dict[str, str]:
    """Rewrite a graph; return the reason of each node's T."""
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    result = amp.rewrite(model, target=target, **options)  # pyright: ignore[reportArgumentType]
    nodes = [n for n in result.report.nodes if "T" in n.variables and n.op != "Constant"]
    return {n.name: n.variables["T"].reason for n in nodes}


def product(length: int | str) -> str:
    return (
        f"g (float[2,{length}] x, float[{length},3] w) => (float[2,3] y) {{ [n] y = MatMul(x, w) }}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (product(1024), "allow-list"),
        (product(1025), "long-sum"),
        (product("K"), "long-sum"),
        (product(0), "allow-list"),
        (
            "g (float[1025,M] x, float[1025,3] w) => (float[M,3] y)"
            "{ [n] y = Gemm<transA: int = 1>(x, w) }",
            "long-sum",
        ),
        (
            "g (float[1,C,9,9] x, float[4,114,3,3] w) => (float[1,4,7,7] y) { [n] y = Conv(x, w) }",
            "long-sum",
        ),
        (
            "g (float[B,8] x, float[8,N] w) => (float[B,N] y)"
            '{ [n] y = Einsum<equation: string = "...i,ij->...j">(x, w) }',
            "long-sum",
        ),
        (
            "g (float[M,K] x) => (float[M,3] y) <int64[2] s = {8, 3}>"
            "{ w = ConstantOfShape(s) [n] y = MatMul(x, w) }",
            "allow-list",
        ),
        (
            "g (float[M,K] x) => (float[M,3] y) { s = Constant<value_ints: ints = [2000, 3]>()"
            "w = ConstantOfShape(s) [n] y = MatMul(x, w) }",
            "long-sum",
        ),
        (
            "g (float[M,K] x) => (float[M,2] y) { w = Constant<value: tensor = float[1,2] {1, 2}>()"
            "[n] y = MatMul(x, w) }",
            "allow-list",
        ),
        (
            "g (float[M,K] x, int64[2] s) => (float[M,3] y)"
            "{ w = ConstantOfShape(s) [n] y = MatMul(x, w) }",
            "long-sum",
        ),
    ],
)
def test_a_product_of_at_most_1024_known_terms_becomes_low(text: str, expected: str) -> None:
    assert reasons(text) == {"n": expected}


@pytest.mark.parametrize(
    ("pool", "side", "expected"),
    [
        ("AveragePool<kernel_shape: ints = [8, 8]>", "H", "follows-allow"),
        ("AveragePool<kernel_shape: ints = [8, 9]>", "H", "long-sum"),
        ("GlobalAveragePool", "8", "follows-allow"),
        ("GlobalAveragePool", "9", "long-sum"),
        ("GlobalAveragePool", "H", "long-sum"),
    ],
)
def test_a_mean_of_at_most_64_known_elements_may_become_low(
    pool: str, side: str, expected: str
) -> None:
    text = (
        f"g (float[1,2,{side},{side}] x, float[4,2,1,1] w) => (float[1,4,P,Q] y)"
        f"<float[1,4,{side},{side}] h> {{ [conv] h = Conv(x, w) [pool] y = {pool}(h) }}"
    )
    assert reasons(text) == {"conv": "allow-list", "pool": expected}


def test_kernels_that_add_in_float32_take_any_length() -> None:
    for target in ("cuda", "schema"):
        assert reasons(product(70000), target)["n"] != "long-sum"


def test_a_node_that_the_user_allows_is_left_alone() -> None:
    assert reasons(product(4096), allow_nodes=["n"]) == {"n": "allow-list"}


def test_the_report_says_how_many_terms_there_are() -> None:
    model = onnx.parser.parse_model(f"{HEADER} {product(4096)}")
    result = amp.rewrite(model, target="webgpu")
    assert not result.changed
    said = amp.explain(result, "n")
    assert "its sums are too long for target webgpu" in said
    assert "4,096 terms, added in float16, which holds 1,024 of them safely" in said


def test_webgpu_has_no_bfloat16() -> None:
    expected = "target webgpu does not compute in bfloat16; expected float16; use precision float16"
    with pytest.raises(OptionError, match=expected):
        amp.RewriteOptions(precision="bfloat16", target="webgpu")
    with pytest.raises(OptionError, match=expected):
        load_lists(precision="bfloat16", target="webgpu")


def convolution(weights: np.ndarray[Any, Any]) -> str:
    """Return the reason of a Conv with constant weights."""
    text = (
        f"g (float[1,{weights.shape[1]},9,9] x) => (float[1,{len(weights)},7,7] y)"
        "{ [n] y = Conv(x, w) }"
    )
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), "w"))
    (node,) = amp.rewrite(model, target="webgpu").report.nodes
    return node.variables["T"].reason


def test_a_conv_may_have_more_terms_if_its_weights_nearly_cancel() -> None:
    rng = np.random.default_rng(0)
    assert convolution(rng.standard_normal((4, 512, 3, 3))) == "allow-list"
    assert convolution(rng.standard_normal((4, 513, 3, 3))) == "long-sum"
    assert convolution(np.abs(rng.standard_normal((4, 128, 3, 3)))) == "long-sum"
    halves = np.ones((4, 512, 3, 3))
    halves[:, :, 2] = -1
    halves[:, :256, 1] = -1
    assert halves.sum() == 0
    assert convolution(halves) == "long-sum"  # a third of the terms has one sign


@pytest.mark.parametrize("form", ["initializer", "Constant"])
def test_weights_behind_a_cast_are_weighed_as_they_are_without(form: str) -> None:
    weights = np.random.default_rng(0).standard_normal((4, 160, 3, 3)).astype(np.float32)
    text = "g (float[2,160,9,9] x) => (float[2,4,7,7] y) { [n] y = Conv(x, w) }"
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    tensor = numpy_helper.from_array(weights, "w")
    if form == "initializer":
        model.graph.initializer.append(tensor)
    else:
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    low = amp.rewrite(model, target="webgpu", weights="cast")
    assert low.report.summary.nodes_converted == 1
    assert amp.check(low.model, target="webgpu", run=False).ok
    assert not amp.repair(low.model, target="webgpu", keep_io="given").changed


def of_matrix(weights: np.ndarray[Any, Any], nodes: str, target: str = "cpu-arm64") -> str:
    """Return the reason of a product of x with a constant matrix."""
    terms = max(weights.shape)
    text = f"g (float[2,{terms}] x) => (float[2,N] y) {{ [n] y = {nodes} }}"
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), "w"))
    (node,) = amp.rewrite(model, target=target).report.nodes
    return node.variables["T"].reason


def test_a_fused_product_may_have_more_terms_if_its_columns_nearly_cancel() -> None:
    rng = np.random.default_rng(0)
    mixed, long = rng.standard_normal((1536, 4)), rng.standard_normal((4609, 4))
    assert of_matrix(mixed, "MatMul(x, w)") == "allow-list"
    assert of_matrix(mixed, "Gemm(x, w)") == "allow-list"
    assert of_matrix(mixed.T, "Gemm<transB = 1>(x, w)") == "allow-list"
    assert of_matrix(mixed, "MatMul(x, w)", "webgpu") == "long-sum"  # rounds products as well
    assert of_matrix(mixed, "Gemm(x, w)", "cpu-arm64,webgpu") == "long-sum"
    assert of_matrix(long, "MatMul(x, w)") == "long-sum"
    assert of_matrix(np.abs(mixed), "MatMul(x, w)") == "long-sum"
    one = mixed.copy()
    one[:, 2] = np.abs(one[:, 2])
    assert of_matrix(one, "MatMul(x, w)") == "long-sum"  # a column of one sign
    assert of_matrix(one.T, "Gemm<transB = 1>(x, w)") == "long-sum"


PRODUCTS = ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
MEANS = ("AveragePool", "GlobalAveragePool")
ADDS_LOW = frozenset(("", op) for op in (*PRODUCTS, *MEANS))


def details(model: onnx.ModelProto, **fields: Any) -> dict[str, str]:
    """Return what nodes make that the pass keeps in float32, and why."""
    context = context_of(model, **{"adds_low": ADDS_LOW, "adds_fused": ADDS_LOW, **fields})
    found = marks_of(keep_long_sums, context)
    return {value: str(mark.detail) for value, mark in found.items()}


def test_where_nothing_may_be_float32_a_mean_has_an_end_too() -> None:
    fields = {"only_low": True, "found": Findings(measured=True)}
    for side, is_kept in ((32, False), (33, True), ("N", True)):
        text = f"g (float[1,2,{side},{side}] x) => (float[M] y) {{ y = GlobalAveragePool(x) }}"
        assert bool(details(model_of(text), **fields)) is is_kept
