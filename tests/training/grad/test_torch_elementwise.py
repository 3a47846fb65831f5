from __future__ import annotations

import numpy as np
import pytest
from gradient_table import NEWEST, Constant, Row, normal, positive, spread, unit
from torch_table import TorchRow, check_torch

MASK = np.array([[True, False, True], [False, True, True]])


def positive_first(rng, shape):
    return rng.uniform(1.5, 3.0, shape)


ROWS = [
    TorchRow(Row("Add", ((2, 3), (3,))), lambda t, x, y: x + y),
    TorchRow(Row("Add", ((2, 1, 3), (4, 1))), lambda t, x, y: x + y),
    TorchRow(Row("Sub", ((3,), (2, 3))), lambda t, x, y: x - y),
    TorchRow(Row("Mul", ((4, 2, 3), (1, 3))), lambda t, x, y: x * y),
    TorchRow(Row("Div", ((2, 3), (2, 1)), generate=positive), lambda t, x, y: x / y),
    TorchRow(
        Row("Mod", ((3, 4), (4,)), {"fmod": 1}, generate=(normal, positive)),
        lambda t, x, y: t.fmod(x, y),
    ),
    TorchRow(Row("Neg", ((2, 3),)), lambda t, x: -x),
    TorchRow(Row("Abs", ((2, 3),)), lambda t, x: x.abs()),
    TorchRow(Row("Pow", ((2, 3), (3,)), generate=positive), lambda t, x, y: x**y),
    TorchRow(Row("Pow", ((2, 3), Constant(2.0))), lambda t, x: x**2),
    TorchRow(Row("Sqrt", ((2, 3),), generate=positive), lambda t, x: x.sqrt()),
    TorchRow(Row("Reciprocal", ((2, 3),), generate=positive), lambda t, x: x.reciprocal()),
    TorchRow(Row("Exp", ((2, 3),)), lambda t, x: x.exp()),
    TorchRow(Row("Log", ((2, 3),), generate=positive), lambda t, x: x.log()),
    TorchRow(Row("Sum", ((2, 3), (3,), (2, 1))), lambda t, x, y, z: x + y + z),
    TorchRow(Row("Mean", ((2, 3), (3,), ())), lambda t, x, y, z: (x + y + z) / 3),
    TorchRow(Row("Max", ((3, 4), (4,))), lambda t, x, y: t.maximum(x, y)),
    TorchRow(Row("Min", ((3, 4), (3, 1))), lambda t, x, y: t.minimum(x, y)),
    TorchRow(
        Row("Max", ((2, 2), (2, 2)), generate=lambda r, s: np.ones(s), note="ties"),
        lambda t, x, y: t.maximum(x, y),
    ),
    TorchRow(
        Row("Clip", ((4, 4), Constant(-0.4), Constant(0.6)), generate=spread),
        lambda t, x: x.clamp(-0.4, 0.6),
    ),
    TorchRow(
        Row("Where", (Constant(MASK), (2, 3), (2, 1))),
        lambda t, x, y: t.where(t.tensor(MASK), x, y),
    ),
    TorchRow(Row("Sin", ((2, 3),)), lambda t, x: x.sin()),
    TorchRow(Row("Cos", ((2, 3),)), lambda t, x: x.cos()),
    TorchRow(Row("Tan", ((2, 3),), generate=unit), lambda t, x: x.tan()),
    TorchRow(Row("Asin", ((2, 3),), generate=unit), lambda t, x: x.asin()),
    TorchRow(Row("Acos", ((2, 3),), generate=unit), lambda t, x: x.acos()),
    TorchRow(Row("Atan", ((2, 3),)), lambda t, x: x.atan()),
    TorchRow(Row("Sinh", ((2, 3),)), lambda t, x: x.sinh()),
    TorchRow(Row("Cosh", ((2, 3),)), lambda t, x: x.cosh()),
    TorchRow(Row("Tanh", ((2, 3),)), lambda t, x: x.tanh()),
    TorchRow(Row("Asinh", ((2, 3),)), lambda t, x: x.asinh()),
    TorchRow(Row("Acosh", ((2, 3),), generate=positive_first), lambda t, x: x.acosh()),
    TorchRow(Row("Atanh", ((2, 3),), generate=unit), lambda t, x: x.atanh()),
    TorchRow(Row("Erf", ((2, 3),)), lambda t, x: t.erf(x)),
    TorchRow(Row("Sigmoid", ((3, 4),)), lambda t, x: x.sigmoid()),
    TorchRow(Row("Relu", ((3, 4),)), lambda t, x: x.relu()),
    TorchRow(
        Row("Relu", ((3, 4),), generate=lambda r, s: np.zeros(s), note="at the kink"),
        lambda t, x: x.relu(),
    ),
    TorchRow(
        Row("LeakyRelu", ((3, 4),), {"alpha": 0.25}),
        lambda t, x: t.nn.functional.leaky_relu(x, 0.25),
    ),
    TorchRow(
        Row("PRelu", ((2, 3, 4), (3, 1))),
        lambda t, x, s: t.nn.functional.prelu(x, s.reshape(3)),
    ),
    TorchRow(
        Row("ThresholdedRelu", ((4, 4),), {"alpha": 0.25}, generate=spread),
        lambda t, x: t.nn.functional.threshold(x, 0.25, 0.0),
    ),
    TorchRow(Row("Elu", ((3, 4),), {"alpha": 0.75}), lambda t, x: t.nn.functional.elu(x, 0.75)),
    TorchRow(Row("Selu", ((3, 4),)), lambda t, x: t.nn.functional.selu(x)),
    TorchRow(
        Row("Celu", ((3, 4),), {"alpha": 1.5}, reference=True),
        lambda t, x: t.nn.functional.celu(x, 1.5),
    ),
    TorchRow(Row("Softplus", ((3, 4),)), lambda t, x: t.nn.functional.softplus(x, threshold=100)),
    TorchRow(Row("Softsign", ((3, 4),)), lambda t, x: t.nn.functional.softsign(x)),
    TorchRow(
        Row("HardSwish", ((10, 10),), generate=spread), lambda t, x: t.nn.functional.hardswish(x)
    ),
    TorchRow(
        Row("HardSigmoid", ((10, 10),), {"alpha": 1 / 6}, generate=spread),
        lambda t, x: t.nn.functional.hardsigmoid(x),
    ),
    TorchRow(Row("Gelu", ((3, 4),), opset=20), lambda t, x: t.nn.functional.gelu(x)),
    TorchRow(
        Row("Gelu", ((3, 4),), {"approximate": "tanh"}, opset=20),
        lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    ),
    TorchRow(Row("Mish", ((3, 4),)), lambda t, x: t.nn.functional.mish(x)),
    TorchRow(Row("Swish", ((3, 4),), opset=NEWEST), lambda t, x: t.nn.functional.silu(x)),
    TorchRow(
        Row("Shrink", ((4, 4),), {"lambd": 0.25, "bias": 0.25}, generate=spread, reference=True),
        lambda t, x: t.nn.functional.softshrink(x, 0.25),
    ),
]


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_an_elementwise_gradient_equals_that_of_torch(case: TorchRow):
    check_torch(case)
