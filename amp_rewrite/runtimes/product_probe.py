"""Whether an engine multiplies matrices of a low type right on this machine.

OpenVINO 2026.4 was reported to give products in bfloat16 that are several times too large on a
processor with AVX512-BF16 (https://github.com/openvinotoolkit/openvino/issues/38256), and drivers
of GPUs to give NaN for large products. No check of a model says that the device is to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load

_ROWS, _DEPTH, _COLUMNS = 40, 1024, 512
"""The shapes of the operands: reports say that small products are right."""

_MOST = 0.05
"""The largest error of a right product, relative to its norm. Sums of 1,024 products in float16, as
WebGPU makes them, are off by less than 1 %."""

_MODEL = """<ir_version: 10, opset_import: ["" : 17]>
g (float[{rows},{depth}] x) => (float[{rows},{columns}] y) {{
    a = Cast<to = {number}>(x) b = Cast<to = {number}>(w) c = MatMul(a, b) y = Cast<to = 1>(c) }}"""


def product_note(provider: str, low: DType, run: Callable[[ir.Model, Any], Any]) -> str | None:
    """Return a line about products in a low type that are wrong on a provider; None if none are.

    A provider that cannot run the product says so elsewhere.

    Args:
        provider: The provider, for the line.
        low: The type of the operands.
        run: Runs a model with the input x, and returns its output.
    """
    error = product_error(low, run)
    if error is None or error <= _MOST:
        return None
    by = f"{error:.0%} of its norm" if np.isfinite(error) else "infinity or NaN"
    return (
        f"{provider} computes wrong {low.name} matrix products on this machine: {_ROWS} x {_DEPTH} "
        f"times {_DEPTH} x {_COLUMNS} has an error of {by}; update the engine or its driver, or "
        "use another precision"
    )


def product_error(low: DType, run: Callable[[ir.Model, Any], Any]) -> float | None:
    """Return how far a product is from that of the same rounded operands, relative to its norm.

    None if the provider cannot run it.
    """
    model, x, exact = _case(low)
    try:
        product = np.asarray(run(model, x), np.float64)
    except AmpError:
        return None
    if not np.isfinite(product).all():
        return float("inf")
    return float(np.linalg.norm(product - exact) / np.linalg.norm(exact))


@cache
def _case(low: DType) -> tuple[ir.Model, Any, Any]:
    """Return a model of one product, its input, and what it has to give, in float64."""
    draw = np.random.default_rng(38256)
    x = draw.normal(0, 1, (_ROWS, _DEPTH)).astype(low.numpy).astype(np.float32)
    w = draw.normal(0, 1, (_DEPTH, _COLUMNS)).astype(low.numpy).astype(np.float32)
    sizes = {"rows": _ROWS, "depth": _DEPTH, "columns": _COLUMNS}
    model = onnx.parser.parse_model(_MODEL.format(**sizes, number=low.number))
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return load(model), x, x.astype(np.float64) @ w.astype(np.float64)
