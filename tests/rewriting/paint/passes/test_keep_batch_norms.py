"""What ONNX Runtime would fuse into a product of another type stays float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from pass_marks import LOW, context_of, made, marks_of, model_of, painting_of

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.graph.metadata_keys import GIVEN_KEY
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.rewriting.paint.passes.keep_batch_norms import keep_batch_norms
from amp_rewrite.rewriting.reasons import Reason

BEHIND = {
    "product": "a = MatMul(x, w) y = BatchNormalization(a, b, b, b, b)",
    "moved": "a = MatMul(x, w) c = Reshape(a, s) d = BatchNormalization(c, b, b, b, b) "
    "e = Reshape(d, t) y = MatMul(e, v)",
    "identity": "a = MatMul(x, w) c = Identity(a) y = BatchNormalization(c, b, b, b, b)",
}
APART = {
    "convolution": "c = Reshape(x, r) a = Conv(c, k) y = BatchNormalization(a, b, b, b, b)",
    "sum": "a = MatMul(x, w) c = Add(a, b) y = BatchNormalization(c, b, b, b, b)",
}


def model(body: str) -> onnx.ModelProto:
    eight = ", ".join("12345678")
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[7,4] x, float[8,4] v) => (float[?,?,?] '
        f"y) <float[4,8] w = {{{', '.join(['0.5'] * 32)}}}, float[8] b = {{{eight}}}, int64[3] s = "
        "{7, 8, 1}, int64[2] t = {7, 8}, int64[3] r = {1, 4, 7}, float[8,4,1] k = "
        f"{{{', '.join(['0.5'] * 32)}}}> {{ {body} }}"
    )
    made = onnx.parser.parse_model(text)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def rewritten(body: str, **options: Any) -> amp.RewriteResult:
    return amp.rewrite(model(body), target="tensorrt", precision="float16", **options)


def is_kept(result: amp.RewriteResult) -> bool:
    (node,) = (n for n in result.report.nodes if n.op == "BatchNormalization")
    variable = node.variables["T"]
    if variable.dtype == "float16":
        return False
    assert variable.reason == Reason.RUNTIME_FUSION
    return True


@pytest.mark.parametrize("name", BEHIND)
def test_it_stays_float32_behind_a_product_and_the_file_loads(name: str, tmp_path: Path) -> None:
    result = rewritten(BEHIND[name])
    assert is_kept(result)
    result.save(tmp_path / "result.onnx")
    onnxruntime.InferenceSession(tmp_path / "result.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", BEHIND)
def test_repair_raises_it_where_it_is_low_already(name: str, tmp_path: Path) -> None:
    given = model(BEHIND[name])
    (weight,) = (tensor for tensor in given.graph.initializer if tensor.name == "w")
    weight.CopyFrom(onnx.numpy_helper.from_array(np.full((4, 8), 0.5, np.float16), "w"))
    for end in (*given.graph.input, *given.graph.output):
        end.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    repaired = amp.repair(given, target="tensorrt")
    assert [danger.op for danger in repaired.dangers] == ["BatchNormalization"]
    amp.save(repaired, tmp_path / "result.onnx")
    onnxruntime.InferenceSession(tmp_path / "result.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", APART)
def test_it_is_low_where_the_runtime_fuses_nothing(name: str) -> None:
    assert not is_kept(rewritten(APART[name], move_casts=False))


def test_it_is_low_where_the_engine_is_another() -> None:
    options: dict[str, Any] = {"target": "openvino", "precision": "bfloat16"}
    result = amp.rewrite(model(BEHIND["product"]), **options)
    reasons = {v.reason for n in result.report.nodes for v in n.variables.values()}
    assert Reason.RUNTIME_FUSION not in reasons


STATISTICS = {"b": np.ones(4), "w": np.full((4, 4), 0.5)}
NORM = "[product] a = MatMul(x, w) y = BatchNormalization(a, b, b, b, b)"


def marked(
    body: str, low: str, note: str | None = None, target: str | None = "tensorrt"
) -> dict[str, tuple[str | None, bool]]:
    """Return what nodes make that stay float32: behind what, and whether a vertex is named.

    Args:
        body: The nodes.
        low: The vertices that are low: what its node makes, and the variable, such as "a/T".
        note: What BatchNormalization notes of a model that was given, where one was.
        target: The target, if there is one.
    """
    held = model_of(f"g (float[4,4] x, float16[4,4] l) => (float[N] y) {{ {body} }}", **STATISTICS)
    if note is not None:
        held.graph.node[-1].metadata_props.add(key=GIVEN_KEY, value=note)
    context = context_of(held, target=None if target is None else targets.find(target))
    if note is not None:
        context = context_of(held, target=context.target, given=painting_of(context).allow)
    graph = context.type_graph
    kinds = [graph.kind_of(v).variables[0] for v in range(len(graph))]
    chosen = [v for v, kind in enumerate(kinds) if f"{made(graph, v)}/{kind}" in low.split()]
    painting = Painting.blank(graph).with_marks(dict.fromkeys(chosen, LOW))
    found = marks_of(keep_batch_norms, context, painting)
    assert {mark.reason for mark in found.values()} <= {Reason.RUNTIME_FUSION}
    return {value: (mark.detail, mark.because is not None) for value, mark in found.items()}


def test_a_product_that_came_in_the_low_type_is_low() -> None:
    body = """v = Cast<to = 10>(w) [product] h = MatMul(l, v) a = Cast<to = 1>(h)
        y = BatchNormalization(a, b, b, b, b)"""
    assert marked(body, "y/T") == {"y": ("product", False)}
    wide = body.replace("to = 10", "to = 11").replace("MatMul(l, v)", "MatMul(d, v)")
    assert marked(f"d = Cast<to = 11>(l) {wide}", "y/T") == {}


@pytest.mark.parametrize(
    ("note", "is_kept"), [("1 T", True), ("1 T T1", True), ("1 T T1 T2", False), (None, False)]
)
def test_one_that_was_given_with_two_types_is_kept_though_all_would_be_low(
    note: str | None, is_kept: bool
) -> None:
    found = marked(NORM, "a/T y/T y/T1 y/T2", note)
    assert found == ({"y": ("product", True)} if is_kept else {})
