"""Operators of one element that a provider computes in several steps: measure_accumulation.py.

Each is predicted as numpy computes it in float16, which rounds every operation, and compared on all
numbers that float16 has. The formulas are those of the shaders in ONNX Runtime's WebGPU provider;
their constants are cut to float16, towards zero, and exp(x) is 2^(x log2(e)).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.io.load import load
from amp_rewrite.runtimes.engines import open_session
from amp_rewrite.targets import ARM64

Array = np.ndarray[Any, np.dtype[Any]]

_OPSET = 20

_ARM = Path(__file__).resolve().parent / "arm64"


def opened(model: onnx.ModelProto, provider: str) -> Any:
    """Return a session of a model on a provider, or on an Arm processor, if only an emulated one.

    Raises:
        AmpError: There is none, or it cannot load the model.
    """
    if provider != ARM64:
        return open_session(load(model), providers=[provider])
    return arm_processor().open_on_arm(load(model))


def arm_processor() -> Any:
    """Return the module of tools/arm64 that runs models on an Arm processor."""
    if str(_ARM) not in sys.path:
        sys.path.append(str(_ARM))
    return importlib.import_module("arm_processor")


def cut(value: float) -> Any:
    """Return the float16 number next to a number, towards zero."""
    nearest = np.float16(value)
    return nearest if abs(float(nearest)) <= abs(value) else np.nextafter(nearest, np.float16(0))


_LOG2_E = cut(1.4426950408889634)
_ERF = [cut(c) for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)]


def exp(x: Array) -> Array:
    """2^(x log2(e))."""
    return np.exp2(x * _LOG2_E)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + exp(-x))


def tanh(x: Array) -> Array:
    """sign(x) (1 - exp(-2 |x|)) / (1 + exp(-2 |x|))."""
    power = exp(-2 * np.abs(x))
    return np.sign(x) * (1 - power) / (1 + power)


def erf(x: Array) -> Array:
    """Formula 7.1.26 of Abramowitz and Stegun, with -x^2 log2(e) multiplied from the left."""
    size = np.abs(x)
    t = 1 / (1 + cut(0.3275911) * size)
    total = np.full_like(x, _ERF[0])
    for coefficient in _ERF[1:]:
        total = total * t + coefficient
    return np.sign(x) * (1 - total * t * np.exp2(-size * _LOG2_E * size))


def gelu(x: Array) -> Array:
    """0.5 x (1 + erf(x / sqrt(2)))."""
    return np.float16(0.5) * x * (1 + erf(x * cut(0.7071067811865475)))


def fast_gelu(x: Array) -> Array:
    """Return x (0.5 + 0.5 tanh(x (0.0357 x^2 + 0.798)))."""
    inner = x * (cut(0.035677408136300125) * x * x + cut(0.7978845608028654))
    return x * (np.float16(0.5) + np.float16(0.5) * tanh(inner))


def batch_norm(x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
    """(x - mean) * (1 / sqrt(var + epsilon)) * scale + bias, of (N, C, H, W)."""
    columns = (part[:, None, None] for part in (scale, bias, mean, var))
    factor, shift, centre, spread = columns
    over = np.float16(1) / np.sqrt(spread + np.float16(1e-5))
    return (x - centre) * over * factor + shift


def leaky_relu(x: Array) -> Array:
    """Return x, or 0.3 x where it is negative."""
    return np.where(x < 0, x * np.float16(0.3), x)


STEPS: dict[str, dict[str, Callable[..., Array]]] = {
    "BatchNormalization": {"BatchNormalization(x, s, b, m, v)": batch_norm},
    "Erf": {"Erf(x)": erf},
    "Exp": {"Exp(x)": exp},
    "Gelu": {"Gelu(x)": gelu, 'Gelu<approximate = "tanh">(x)': fast_gelu},
    "LeakyRelu": {"LeakyRelu<alpha: float = 0.3>(x)": leaky_relu},
    "Sigmoid": {"Sigmoid(x)": sigmoid},
    "Tanh": {"Tanh(x)": tanh},
}
"""Operator -> its calls, and what each of them is if every step is rounded."""


def measure_steps(op: str, provider: str) -> str | None:
    """Return the type that each step of an operator is rounded to; None if they are not."""
    return FLOAT16.name if _are_predicted(STEPS[op], provider) else None


def _are_predicted(calls: dict[str, Callable[..., Array]], provider: str) -> bool:
    return all(_is_predicted(call, predict, provider) for call, predict in calls.items())


def _is_predicted(call: str, predict: Callable[..., Array], provider: str) -> bool:
    names = call.rpartition("(")[2].rstrip(")").split(", ")
    given = _numbers(len(names) - 1)
    operands = ", ".join(f"float16[] {name}" for name in names)
    graph = f"g ({operands}) => (float16[] y) {{ y = {call} }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {_OPSET}]> {graph}')
    session = opened(model, provider)
    found = session.run(dict(zip(names, given, strict=True)))[0]
    with np.errstate(all="ignore"):
        return np.array_equal(predict(*given), found, equal_nan=True)


def _numbers(parameters: int) -> list[Array]:
    """Return all finite numbers of float16; beside parameters a sample, in channels of its own."""
    if not parameters:
        every = np.arange(2**16, dtype=np.uint16).view(np.float16)
        return [every[np.isfinite(every)]]  # 63,488: kernels take 8 at once
    rng = np.random.default_rng(1)
    data = rng.standard_normal((2, 32, 8, 8)).astype(np.float16)
    return [data, *((rng.random(32) + 0.5).astype(np.float16) for _ in range(parameters))]
