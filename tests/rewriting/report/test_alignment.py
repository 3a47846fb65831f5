"""Advice on lengths that tensor cores like: multiples of 16 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto

import amp_rewrite as amp

Found = list[tuple[str, str, int]]


def report_of(text: str, weights: dict[str, tuple[int, ...]], **options: Any) -> amp.Report:
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 22]> {text}""")
    for name, shape in weights.items():
        array = np.ones(shape, np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    options = {"target": "schema", **options}
    return amp.rewrite(proto, **options).report


def found(report: amp.Report) -> Found:
    return [(a.node, a.dimension, a.length) for a in report.alignment]


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("text", "weights", "expected"),
    [
        (
            "g (float[N, 64] x) => (float[N, 10] y) { [last] y = MatMul(x, w) }",
            {"w": (64, 10)},
            [("last", "columns", 10)],
        ),
        (
            "g (float[12, 30] x) => (float[12, 16] y) { [all] y = MatMul(x, w) }",
            {"w": (30, 16)},
            [("all", "inner length", 30), ("all", "rows", 12)],
        ),
        (
            "g (float[N, 3, 30] x) => (float[N, 3, 16] y) { [flat] y = MatMul(x, w) }",
            {"w": (30, 16)},
            [("flat", "inner length", 30)],
        ),
        (
            "g (float[N, 3, 16] x, float[N, 16, 9] z) => (float[N, 3, 9] y) {"
            "[batched] y = MatMul(x, z) }",
            {},
            [("batched", "columns", 9), ("batched", "rows", 3)],
        ),
        (
            "g (float[8, N] x) => (float[N, 10] y) { [gemm] y = Gemm<transA=1, transB=1>(x, w) }",
            {"w": (10, 8)},
            [("gemm", "columns", 10)],
        ),
        (
            "g (float[N, 3, 8, 8] x) => (float[N, 20, 8, 8] y) {"
            "[conv] y = Conv<kernel_shape=[1, 1]>(x, w) }",
            {"w": (20, 3, 1, 1)},
            [("conv", "output channels", 20), ("conv", "input channels", 3)],
        ),
        (
            "g (float[N, 12, 8, 8] x) => (float[N, 12, 8, 8] y) {"
            "[deep] y = Conv<group=12, kernel_shape=[1, 1]>(x, w) }",
            {"w": (12, 1, 1, 1)},
            [],
        ),
        (
            "g (float[N, 12, 8, 8] x) => (float[N, 16, 8, 8] y) {"
            "[up] y = ConvTranspose<kernel_shape=[1, 1]>(x, w) }",
            {"w": (12, 16, 1, 1)},
            [("up", "input channels", 12)],
        ),
        (
            "g (float[N, K] x, float[K, M] z) => (float[N, M] y) { [open] y = MatMul(x, z) }",
            {},
            [],
        ),
        (
            "g (float[N, 64] x) => (float[N, 128] y) { [fits] y = MatMul(x, w) }",
            {"w": (64, 128)},
            [],
        ),
        (
            "g (float[7] x) => (float[16] y) { [vector] y = MatMul(x, w) }",
            {"w": (7, 16)},
            [("vector", "inner length", 7)],
        ),
        (
            "g (float[0, 8] x) => (float[0, 8] y) { [empty] y = MatMul(x, w) }",
            {"w": (8, 8)},
            [],
        ),
    ],
)
def test_static_lengths_that_fill_no_rows_are_named(
    text: str, weights: dict[str, tuple[int, ...]], expected: Found, precision: str
) -> None:
    report = report_of(text, weights, precision=precision)
    assert report.summary.nodes_converted == 1
    assert found(report) == expected
    assert all(a.multiple == 8 for a in report.alignment)


DENIED = """g (float[N, 10] x) => (float[N, 10] y) {
    [kept] a = MatMul(x, w) [low] y = MatMul(a, w) }"""


def test_products_that_stay_float32_are_left_out() -> None:
    report = report_of(DENIED, {"w": (10, 10)}, deny_nodes=["kept"])
    assert {a.node for a in report.alignment} == {"low"}


@pytest.mark.parametrize(("target", "count"), [("cuda", 2), ("schema", 2), ("cpu", 0)])
def test_advice_is_for_targets_with_tensor_cores(target: str, count: int) -> None:
    report = report_of(
        DENIED.replace("[low] y = MatMul(a, w)", "y = Relu(a)"), {"w": (10, 10)}, target=target
    )
    assert len(report.alignment) == count


def test_products_in_branches_are_named_too() -> None:
    report = report_of(
        """g (float[N, 8] x, bool b) => (float[N, 9] y) {
            y = If(b) <then_branch = t () => (float[N, 9] p) { [inner] p = MatMul(x, w) },
                       else_branch = e () => (float[N, 9] q) { [other] q = MatMul(x, w) }> }""",
        {"w": (8, 9)},
    )
    assert found(report) == [("inner", "columns", 9), ("other", "columns", 9)]


def test_the_text_shows_the_first_and_json_all() -> None:
    nodes = " ".join(f"[n{i}] h{i + 1} = MatMul(h{i}, w)" for i in range(6))
    report = report_of(f"g (float[N, 9] h0) => (float[N, 9] h6) {{ {nodes} }}", {"w": (9, 9)})
    line = "12 layers miss tensor-core alignment (multiples of 8): n0 (inner length 9),"
    assert line in report.to_text().replace("\n", " ")
    assert "n2" not in report.to_text()
    assert len(report.to_dict()["alignment"]) == 12
    assert report.to_dict()["alignment"][0] == {
        "node": "n0", "dimension": "inner length", "length": 9, "multiple": 8,
    }  # fmt: skip


@pytest.mark.parametrize("kind", [AttributeProto.TENSORS, AttributeProto.STRING])
def test_an_attribute_that_is_not_an_integer_counts_as_left_out(
    kind: AttributeProto.AttributeType,
) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>
        g (float[N, 64] x, float[64, 9] w) => (float[N, 9] y) {
            [last] y = com.microsoft.FusedMatMul(x, w) }"""
    )
    attribute = model.graph.node[0].attribute.add(name="transB", i=1)
    attribute.type = kind
    report = amp.rewrite(model, target="schema").report
    assert found(report) == [("last", "columns", 9)]
