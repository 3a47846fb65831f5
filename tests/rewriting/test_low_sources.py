"""Models in 16 bits that are given to `rewrite`: their ends, and what is said of them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp

TEXT = """g (T[2,4] x, int64[1] k) => (T[2,4] y, float[2,4] z) <T[4,4] w = {0}> {
  p = MatMul(x, w) y = Relu(p) z = Cast<to = 1>(p) }"""

FLOAT, FLOAT16, BFLOAT16 = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)


def model(type_: str) -> onnx.ModelProto:
    made = parse(TEXT.replace("T[", f"{type_}[").replace(f"<{type_}[4,4] w = {{0}}>", ""))
    number = {"float16": FLOAT16, "bfloat16": BFLOAT16, "double": onnx.TensorProto.DOUBLE}[type_]
    made.graph.initializer.append(onnx.helper.make_tensor("w", number, [4, 4], [0.5] * 16))
    return made


def ends(made: onnx.ModelProto, **options: Any) -> list[int]:
    result = amp.to_proto(amp.rewrite(made, **options).model)
    onnx.checker.check_model(result, full_check=True)
    graph = result.graph
    return [info.type.tensor_type.elem_type for info in (*graph.input, *graph.output)]


INT64 = onnx.TensorProto.INT64


@pytest.mark.parametrize("given", ["bfloat16", "double"])
def test_ends_in_another_type_follow_the_precision(given: str) -> None:
    assert ends(model(given), keep_io_types=False) == [FLOAT16, INT64, FLOAT16, FLOAT16]


def test_ends_that_are_named_keep_their_type() -> None:
    assert ends(model("bfloat16"), keep_io_types=["y"]) == [FLOAT16, INT64, BFLOAT16, FLOAT16]


def test_ends_keep_their_types_by_default() -> None:
    assert ends(model("bfloat16")) == [BFLOAT16, INT64, BFLOAT16, FLOAT]


@pytest.mark.parametrize("given", ["bfloat16", "float16"])
def test_ends_in_16_bits_can_become_float32(given: str) -> None:
    assert ends(model(given), keep_io_types=["float32"]) == [FLOAT, INT64, FLOAT, FLOAT]


def test_a_float32_form_can_have_float32_ends() -> None:
    widened = amp.to_proto(amp.widen(model("bfloat16"), keep_io_types=["float32"]).model)
    infos = (*widened.graph.input, *widened.graph.output)
    found = {info.type.tensor_type.elem_type for info in infos}
    assert found == {FLOAT, INT64}


def test_a_model_that_is_low_already_is_named_so() -> None:
    text = amp.rewrite(model("float16")).report.to_text()
    assert "2 nodes are float16 already; `convert` leaves them." in text
    assert "Use `check` and `repair` for 16-bit files" in text
    assert "no part of the model" not in text


def test_a_float32_model_without_anything_to_convert_is_not() -> None:
    text = amp.rewrite(parse("g (float[4] x) => (float[4] y) { y = Exp(x) }")).report.to_text()
    assert "nothing changed: no part of the model can compute in float16" in text


def test_casts_at_ends_that_become_float32_are_counted() -> None:
    low = parse("g (float16[2,4] x, float16[4,4] w) => (float16[2,4] y) { y = MatMul(x, w) }")
    made = amp.rewrite(low, keep_io_types=["float32"])
    assert made.changed
    assert made.report.summary.casts_added == 3
    text = " ".join(made.report.to_text().split())
    assert "1 node is float16 already;" in text
    assert "for 16-bit files; 3 casts added" in text
    assert "3 casts added, 0 removed" in text
    again = amp.rewrite(amp.to_proto(made.model), keep_io_types=["float32"])
    assert not again.changed
    assert again.report.summary.casts_added == 0
