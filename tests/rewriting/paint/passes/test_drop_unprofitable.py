"""Regions whose casts cost more than they save stay float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse, rewritten

import amp_rewrite as amp


def product(rows: int, size: int, rest: str = "y = Exp(h)") -> onnx.ModelProto:
    """Return Exp, [rows, size] times [size, size], and what follows, with recorded shapes."""
    shape = f"[{rows},{size}]"
    model = parse(
        f"g (float{shape} x) => (float{shape} y) <float{shape} a, float{shape} h>"
        f" {{ a = Exp(x) h = MatMul(a, w) {rest} }}"
    )
    weight = np.full((size, size), 1 / size, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def converted(model: onnx.ModelProto, **options: Any) -> list[str]:
    """Return the operators that become low for the target cuda."""
    report = rewritten(model, **{"target": "cuda", **options}).report
    return [n.op for n in report.nodes for v in n.variables.values() if v.dtype != "float32"]


def reason(model: onnx.ModelProto, **options: Any) -> tuple[str, str | None]:
    report = rewritten(model, **{"target": "cuda", **options}).report
    record = next(n for n in report.nodes if n.op == "MatMul").variables["T"]
    return record.reason, record.detail


def test_a_thin_product_between_float32_operators_stays_float32() -> None:
    # Casts: 2 x 2048 elements, 6 bytes each. Gain: 2 bytes for each of 2 x 2048 + 64 elements, and
    # 0.2 for each of 2048 x 8 multiply-accumulates.
    assert reason(product(256, 8)) == (
        "unprofitable",
        "its casts move 24,576 bytes a run, it saves 11,597",
    )


@pytest.mark.parametrize(("rows", "size"), [(256, 64), (4096, 64), (8, 8), (1, 1024)])
def test_products_that_pay_are_converted(rows: int, size: int) -> None:
    assert converted(product(rows, size)) == ["MatMul"]


def test_a_region_is_weighed_as_a_whole() -> None:
    behind = "b = Relu(h) c = Relu(b) d = Relu(c) y = Exp(d)"
    model = product(256, 8, behind)
    for name in "bcd":
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, [256, 8]))
    assert converted(model) == ["MatMul", "Relu", "Relu", "Relu"]


def test_what_is_not_known_is_not_dropped() -> None:
    model = product(256, 8)
    del model.graph.value_info[:]
    assert converted(model) == ["MatMul"]
    assert converted(product(256, 8), target="schema") == ["MatMul"]


def test_a_free_dimension_is_not_known() -> None:
    model = product(256, 8)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    assert converted(model) == ["MatMul"]


def test_what_the_user_asked_for_is_not_dropped() -> None:
    model = product(256, 8)
    model.graph.node[1].name = "mine"
    assert converted(model, allow_nodes=["mine"]) == ["MatMul"]
    assert "MatMul" in converted(model, level="UNSAFE_FORCE_ALL")


def test_casts_that_are_there_anyway_cost_nothing() -> None:
    wide = "g = MatMul(a, v) z = Exp(g) y = Exp(h)"
    model = product(256, 8, wide)
    model.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("z", 1, [256, 512]))
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("g", 1, [256, 512]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 512), np.float32), "v"))
    assert converted(model) == ["MatMul", "MatMul"]


def test_inputs_and_outputs_that_give_up_their_type_cost_nothing() -> None:
    model = parse("g (float[256,8] a) => (float[256,8] h) { h = MatMul(a, w) }")
    weight = np.ones((8, 8), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    assert converted(model) == []
    assert converted(model, keep_io_types=False) == ["MatMul"]


def test_a_region_that_the_user_asked_for_does_not_hide_the_next_one() -> None:
    model = product(256, 8, "e = Exp(h) y = MatMul(e, w)")
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("e", 1, [256, 8]))
    for node in model.graph.node:
        node.name = node.output[0]
    for name, other in (("h", "y"), ("y", "h")):
        report = rewritten(model, target="cuda", allow_nodes=[name]).report
        reasons = {n.name: n.variables["T"].reason for n in report.nodes if n.op == "MatMul"}
        assert reasons == {name: "allow-list", other: "unprofitable"}


def test_one_region_goes_and_another_stays() -> None:
    model = product(256, 8, "e = Exp(h) y = MatMul(e, w) z = MatMul(y, u)")
    model.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("z", 1, [256, 256]))
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("e", 1, [256, 8]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 256), np.float32), "u"))
    result = rewritten(model, target="cuda")
    found = [n.variables["T"].reason for n in result.report.nodes if n.op == "MatMul"]
    assert found == ["unprofitable", "allow-list", "allow-list"]
    feeds = {"x": np.full((256, 8), 0.1, np.float32)}
    assert np.isfinite(amp.evaluate(result.model, feeds)["z"]).all()
