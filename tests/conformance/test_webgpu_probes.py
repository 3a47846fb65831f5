"""Sums that float16 adds up wrong, converted for WebGPU: right on the device all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import amp_rewrite as amp

Array = np.ndarray[Any, Any]

SIGNS = np.repeat([40000, -40000], 1024).astype(np.float32)

PROBES: dict[str, tuple[str, dict[str, Array]]] = {
    "MatMul of 4,096 ones": (
        "g (float[2,4096] x, float[4096,3] w) => (float[2,3] y) { y = MatMul(x, w) }",
        {"x": np.ones((2, 4096)), "w": np.ones((4096, 3))},
    ),
    "Gemm of 4,096 ones": (
        "g (float[2,4096] x, float[3,4096] w) => (float[2,3] y){ y = Gemm<transB: int = 1>(x, w) }",
        {"x": np.ones((2, 4096)), "w": np.ones((3, 4096))},
    ),
    "Conv 1x1 over 4,096 channels": (
        "g (float[1,4096,2,2] x, float[4,4096,1,1] w) => (float[1,4,2,2] y) { y = Conv(x, w) }",
        {"x": np.ones((1, 4096, 2, 2)), "w": np.ones((4, 4096, 1, 1))},
    ),
    "Conv 3x3 over 9,216 ones": (
        "g (float[1,1024,3,3] x, float[4,1024,3,3] w) => (float[1,4,1,1] y) { y = Conv(x, w) }",
        {"x": np.ones((1, 1024, 3, 3)), "w": np.ones((4, 1024, 3, 3))},
    ),
    "CumSum of 4,096 ones": (
        "g (float[1,4096] x, int64 axis) => (float[1,4096] y) { y = CumSum(x, axis) }",
        {"x": np.ones((1, 4096)), "axis": np.array(1)},
    ),
    "MatMul of 1,024 times 40,000 and then -40,000": (
        "g (float[2,2048] x, float[2048,3] w) => (float[2,3] y) { y = MatMul(x, w) }",
        {"x": np.stack([SIGNS, SIGNS + 32]), "w": np.ones((2048, 3))},
    ),
    "ReduceSum of 1,024 times 40,000 and then -40,000": (
        "g (float[2,2048] x, int64[1] axes) => (float[2,1] y) { y = ReduceSum(x, axes) }",
        {"x": np.stack([SIGNS, SIGNS + 32]), "axes": np.array([1])},
    ),
    "ReduceMean of 1,024 times 300": (
        "g (float[2,1024] x) => (float[2,1] y) { y = ReduceMean<axes: ints = [1]>(x) }",
        {"x": np.full((2, 1024), 300)},
    ),
    "ReduceL2 of 1,024 times 300": (
        "g (float[2,1024] x) => (float[2,1] y) { y = ReduceL2<axes: ints = [1]>(x) }",
        {"x": np.full((2, 1024), 300)},
    ),
    "GlobalAveragePool of 128 x 128 tens": (
        "g (float[1,4,128,128] x) => (float[1,4,1,1] y) { y = GlobalAveragePool(x) }",
        {"x": np.full((1, 4, 128, 128), 10)},
    ),
}


@pytest.mark.webgpu
@pytest.mark.parametrize("name", PROBES)
def test_a_long_sum_comes_out_right(name: str, webgpu: str) -> None:
    text, given = PROBES[name]
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    feeds = {k: a.astype(np.int64 if a.dtype.kind == "i" else np.float32) for k, a in given.items()}
    feeds["x"] = feeds["x"].astype(np.float32)
    low = amp.rewrite(model, target="webgpu").model
    found = amp.Evaluator(low, emulate=False, providers=[webgpu]).run(feeds)["y"]
    expected = amp.evaluate(model, feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.webgpu
def test_in_float16_they_would_not(webgpu: str) -> None:
    text, feeds = PROBES["MatMul of 4,096 ones"]
    low = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> {text.replace("float", "float16")}'
    )
    halves = {name: array.astype(np.float16) for name, array in feeds.items()}
    found = amp.Evaluator(low, emulate=False, providers=[webgpu]).run(halves)["y"]
    np.testing.assert_array_equal(found, 2048)


FUSED = {
    "SkipSimplifiedLayerNormalization": "(x, t, one)",
    "SkipLayerNormalization": "(x, t, one, zero)",
    "SimplifiedLayerNormalization": "(x, one)",
}


@pytest.mark.webgpu
@pytest.mark.parametrize("name", FUSED)
def test_the_sum_inside_a_fused_normalization_is_none_of_float16(name: str, webgpu: str) -> None:
    domain = "" if name.startswith("Simplified") else "com.microsoft."
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]> g (float16[1,8192] x, '
        "float16[1,8192] t, float16[8192] one, float16[8192] zero) => (float16[1,8192] y) "
        f"{{ y = {domain}{name}{FUSED[name]} }}"
    )
    x = np.repeat([-300, 300], 4096).astype(np.float16)[None]  # 8,192 squares are 7e8
    one = np.ones(8192, np.float16)
    feeds = {"x": x, "t": np.zeros_like(x), "one": one, "zero": 0 * one}
    found = amp.Evaluator(model, emulate=False, providers=[webgpu]).run(feeds)["y"]
    np.testing.assert_allclose(found, np.sign(x), rtol=1e-3)
