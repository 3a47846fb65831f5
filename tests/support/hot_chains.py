"""Chains of products, some of which overflow in float16."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
import onnx.parser


def square(value: float, name: str = "w") -> str:
    return f"float[4,4] {name} = {{{','.join([f'{value:g}'] * 16)}}}"


def chain(hot_at: Collection[int]) -> onnx.ModelProto:
    """Return ten products in a row, some of which overflow."""
    lines, value = [], "x"
    for i in range(10):
        weight = "hot" if i in hot_at else "cold" if i - 1 in hot_at else "w"
        lines.append(f"[n{i}] h{i} = MatMul({value}, {weight})")
        value = f"h{i}"
    weights = f"{square(0.25)}, {square(250, 'hot')}, {square(2.5e-4, 'cold')}"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] h9)'
    return onnx.parser.parse_model(f"{text} <{weights}> {{{' '.join(lines)}}}")


def data(batches: int = 2) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.uniform(50, 150, (2, 4)).astype(np.float32)} for _ in range(batches)]
