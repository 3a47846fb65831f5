"""Models with constants beside their text, ways to rewrite them, and the types of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp

WAYS: dict[str, dict[str, Any]] = {
    "float16": {"precision": "float16", "target": "cuda"},
    "bfloat16": {"precision": "bfloat16", "target": "cuda"},
    "webgpu": {"precision": "float16", "target": "webgpu"},
}


def model(text: str, opset: int = 22, /, **constants: Any) -> onnx.ModelProto:
    """Parse a graph and give it those of some constants that it reads; floats are float32."""
    opsets = f'opset_import: ["" : {opset}, "com.microsoft" : 1]'
    found = parse(f"<ir_version: 10, {opsets}> {text}")
    bodies = [found.graph.node, *(a.g.node for n in found.graph.node for a in n.attribute)]
    read = {name for nodes in bodies for node in nodes for name in node.input}
    for name, value in constants.items():
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        if name in read:
            found.graph.initializer.append(numpy_helper.from_array(array, name))
    return found


def reasons(result: amp.RewriteResult) -> dict[str, str]:
    """Return, by node with one type variable, why it has its type."""
    nodes = (node for node in result.report.nodes if len(node.variables) == 1)
    return {node.name: next(iter(node.variables.values())).reason for node in nodes}


def low(result: amp.RewriteResult) -> set[str]:
    """Return the nodes that compute in 16 bits."""
    nodes = result.report.nodes
    return {n.name for n in nodes if any(v.dtype != "float32" for v in n.variables.values())}


def types(result: amp.RewriteResult) -> dict[str, str]:
    """Return op -> the type of its last node."""
    nodes = [node for node in result.report.nodes if node.variables]
    return {node.op: next(iter(node.variables.values())).dtype for node in nodes}


def weight(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape) / shape[-2] ** 0.5


def error(
    source: onnx.ModelProto, result: amp.RewriteResult, feeds: Mapping[str, Any], name: str = "y"
) -> float:
    """Return the largest error of an output, relative to its peak, as a share of rtol."""
    wanted, found = (amp.evaluate(m, feeds)[name] for m in (source, result.model))
    is_finite = np.isfinite(wanted)
    worst = np.abs(wanted - found)[is_finite].max() / np.abs(wanted[is_finite]).max()
    return float(worst) / result.options.low.rtol
