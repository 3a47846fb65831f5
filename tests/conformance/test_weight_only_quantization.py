"""Weights of 4 and 8 bits, activations in floating point: the product is low, without a Cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16

Array = np.ndarray[Any, Any]

SIZE, BLOCK = 128, 32
RANGES = {4: (-8, 7), 8: (-128, 127)}


def _model(bits: int, scale: float = 1.0, *, also_read: bool = False) -> onnx.ModelProto:
    """Return two layers with quantised weights; the first is an output as well if asked for."""
    rng = np.random.default_rng(0)
    least, most = RANGES[bits]
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    x = "x"
    for i in range(2):
        weights = scale * rng.standard_normal((SIZE, SIZE)) / SIZE**0.5
        blocks = weights.reshape(SIZE // BLOCK, BLOCK, SIZE)
        scales = (np.abs(blocks).max(1) / most).astype(np.float32)
        stored = np.clip(np.round(weights / np.repeat(scales, BLOCK, 0)), least, most)
        type_ = TensorProto.INT4 if bits == 4 else TensorProto.INT8
        numbers = stored.astype(np.int8).ravel().tolist()
        constants.append(helper.make_tensor(f"w{i}", type_, (SIZE, SIZE), numbers))
        constants.append(numpy_helper.from_array(scales, f"s{i}"))
        nodes += [
            helper.make_node(
                "DequantizeLinear",
                [f"w{i}", f"s{i}"],
                [f"d{i}"],
                f"dq{i}",
                axis=0,
                block_size=BLOCK,
            ),
            helper.make_node("MatMul", [x, f"d{i}"], [f"m{i}"], f"mm{i}"),
            helper.make_node("Relu", [f"m{i}"], [f"r{i}"], f"relu{i}"),
        ]
        x = f"r{i}"
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [4, SIZE])]
    if also_read:
        outputs.append(helper.make_tensor_value_info("d0", TensorProto.FLOAT, [SIZE, SIZE]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, SIZE])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _types(result: amp.RewriteResult) -> dict[str, str]:
    nodes = [node for node in result.report.nodes if node.variables]
    return {node.name: next(iter(node.variables.values())).dtype for node in nodes}


@pytest.mark.parametrize("target", ["cuda", "webgpu", "tensorrt", "schema"])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_a_few_bits_are_multiplied_in_float16(bits: int, target: str) -> None:
    model = _model(bits)
    result = amp.rewrite(model, target=target)
    assert set(_types(result).values()) == {"float16"}
    assert {cast.value for cast in result.report.casts} == {"x", "r1"}
    # No Cast between a weight and its product: with one, the runtime would not fuse the two.
    scales = {i.name: i.data_type for i in amp.to_proto(result.model).graph.initializer}
    assert TensorProto.FLOAT not in scales.values()
    feeds = {"x": np.random.default_rng(1).standard_normal((4, SIZE)).astype(np.float32)}
    expected, found = amp.evaluate(model, feeds)["r1"], amp.evaluate(result.model, feeds)["r1"]
    np.testing.assert_allclose(found, expected, atol=2 * FLOAT16.rtol * expected.max(), rtol=0)


def test_weights_of_four_bits_stay_float32_in_bfloat16_where_nothing_fuses_them() -> None:
    model = _model(4)
    result = amp.rewrite(model, precision="bfloat16")
    assert {_types(result)[name] for name in ("dq0", "mm0", "dq1", "mm1")} == {"float32"}


def test_weights_of_eight_bits_are_right_in_bfloat16() -> None:
    model = _model(8)
    result = amp.rewrite(model, precision="bfloat16")
    feeds = {"x": np.random.default_rng(1).standard_normal((4, SIZE)).astype(np.float32)}
    expected, found = amp.evaluate(model, feeds)["r1"], amp.evaluate(result.model, feeds)["r1"]
    np.testing.assert_allclose(found, expected, atol=BFLOAT16.rtol * expected.max(), rtol=0)


def test_scales_that_float16_loses_keep_the_product_float32() -> None:
    result = amp.rewrite(_model(4, scale=1e-6))
    assert set(_types(result).values()) == {"float32"}


def test_weights_that_are_read_as_float32_too_keep_their_product_float32() -> None:
    types = _types(amp.rewrite(_model(4, also_read=True)))
    assert types["dq0"] == types["mm0"] == "float32"
    assert types["dq1"] == types["mm1"] == "float16"
