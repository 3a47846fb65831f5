"""What a runtime computes as one is rounded once, and what it folds is rounded as it folds it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.parser
import pytest

from amp_rewrite import targets
from amp_rewrite.kernels.rounding_table import of_target
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.folded_weights import cut_half

TABLE = of_target(targets.find("openvino"))
BFLOAT16 = ml_dtypes.bfloat16
HEADER = '<ir_version: 10, opset_import: ["" : 22, "com.microsoft" : 1]>'

CASES = {
    "a product, its bias and what follows": (
        "g (bfloat16[1,64,256] x) => (bfloat16[1,64,256] y)"
        "{ a = MatMul(x, w) b = Add(a, c) y = Tanh(b) }",
        {"w": (256, 256), "c": (256,)},
    ),
    "a factor of weights": (
        "g (bfloat16[1,64,256] x) => (bfloat16[1,64,256] y)"
        "{ a = MatMul(x, w) b = Add(a, c) d = Mul(b, s) y = Sigmoid(d) }",
        {"w": (256, 256), "c": (256,), "s": (256,)},
    ),
    "a convolution and its normalization": (
        "g (bfloat16[1,64,16,16] x) => (bfloat16[1,64,16,16] y)"
        "{ a = Conv(x, w, c) b = BatchNormalization(a, s, t, m, v) y = Relu(b) }",
        {"w": (64, 64, 1, 1), **dict.fromkeys("cstmv", (64,))},
    ),
    "a residual": (
        "g (bfloat16[1,64,16,16] x, bfloat16[1,64,16,16] z) => (bfloat16[1,64,16,16] y)"
        "{ a = Conv(x, w, c) b = Add(a, z) y = Relu(b) }",
        {"w": (64, 64, 1, 1), "c": (64,)},
    ),
    "elementwise operators, two of which read one value": (
        "g (bfloat16[64,256] x, bfloat16[64,256] z) => (bfloat16[64,256] y)"
        "{ a = Add(x, z) b = Mul(a, z) t = Tanh(a) y = Mul(b, t) }",
        {},
    ),
    "a value that is read outside as well": (
        "g (bfloat16[64,256] x, bfloat16[64,256] z) => (bfloat16[64,256] y, bfloat16[64,256] a)"
        "{ a = Add(x, z) b = Mul(a, z) y = Mul(b, x) }",
        {},
    ),
    "a bias and GELU in one operator": (
        "g (bfloat16[1,64,256] x) => (bfloat16[1,64,256] y)"
        "{ a = MatMul(x, w) y = com.microsoft.BiasGelu (a, c) }",
        {"w": (256, 256), "c": (256,)},
    ),
    "casts, which round": (
        "g (float[64,256] x, bfloat16[64,256] z) => (float[64,256] y)"
        "{ c = Cast <to = 16> (x) a = Add(c, z) b = Mul(a, z) y = Cast <to = 1> (b) }",
        {},
    ),
}


def model_of(text: str, weights: dict[str, tuple[int, ...] | float]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER + text)
    random = np.random.default_rng(0)
    for name, given in weights.items():
        shape = given if isinstance(given, tuple) else ()
        numbers = random.standard_normal(shape) / 16  # sums of one or so: nothing saturates
        if not isinstance(given, tuple):
            numbers = np.array(given)
        elif len(shape) == 1:
            numbers = 8 * np.abs(numbers) + 0.5
        content = numbers.astype(np.float32).astype(BFLOAT16).tobytes()
        number = onnx.TensorProto.BFLOAT16
        model.graph.initializer.append(
            onnx.helper.make_tensor(name, number, shape, content, raw=True)
        )
    return model


def feeds_of(model: onnx.ModelProto) -> dict[str, Any]:
    random = np.random.default_rng(1)
    found: dict[str, Any] = {}
    for value in model.graph.input:
        given = value.type.tensor_type
        shape = [dim.dim_value for dim in given.shape.dim]
        numbers = random.standard_normal(shape).astype(np.float32)
        found[value.name] = numbers.astype(onnx.helper.tensor_dtype_to_np_dtype(given.elem_type))
    return found


@pytest.mark.openvino
@pytest.mark.usefixtures("measured_processor")
@pytest.mark.parametrize("case", CASES)
def test_the_emulation_gives_the_numbers_of_the_runtime(case: str) -> None:
    model = model_of(*CASES[case])
    feeds = feeds_of(model)
    real = Evaluator(model, emulate=False, providers=["OpenVINO"]).run(feeds)
    once = Evaluator(model, rounding=TABLE).run(feeds)
    each = Evaluator(model).run(feeds)
    for name, value in real.items():  # sums in another order fall on the other side of a half
        assert np.mean(once[name] != value) < 5e-3
    assert any(np.mean(each[name] != value) > 0.1 for name, value in real.items())


def test_between_elementwise_operators_nothing_is_rounded() -> None:
    model = model_of(
        "g (bfloat16[64,256] x, bfloat16[64,256] z) => (bfloat16[64,256] y)"
        "{ a = Add(x, z) b = Mul(a, z) y = Mul(b, x) }",
        {},
    )
    feeds = feeds_of(model)
    x, z = (feeds[name].astype(np.float32) for name in "xz")
    found = Evaluator(model, rounding=TABLE).run(feeds)["y"]
    np.testing.assert_array_equal(found, ((x + z) * z * x).astype(BFLOAT16))


def test_constants_are_rounded_up_where_the_last_digit_is_odd_only() -> None:
    even, odd = np.float32(1 + 2 / 128), np.float32(1 + 1 / 128)
    step = np.float32(1 / 128)
    numbers = np.array([even + 0.75 * step, odd + 0.75 * step, odd + 0.25 * step, -even])
    expected = np.array([even, odd + step, odd, -even])
    np.testing.assert_array_equal(cut_half(numbers.astype(np.float32)), expected)


def test_other_targets_round_every_result() -> None:
    for name in ("cuda", "webgpu", "schema", "openvino,schema"):
        assert of_target(targets.find(name)) is None
