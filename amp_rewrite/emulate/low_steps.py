"""Operators of one element at a time that kernels compute in several steps, rounding after each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.emulate.node_collector import NodeCollector

_EPSILON, _ALPHA = 1e-5, 0.01
"""The defaults of the operators' attributes."""

Steps = Callable[[NodeCollector, ir.Node, DType], ir.Value]


def _batch_normalization(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    """(x - mean) * (1 / sqrt(var + epsilon)) * scale + bias."""
    data, *parameters = (value for value in node.inputs if value is not None)
    rank = nodes.add("Shape", [nodes.add("Shape", [data])])
    ones = nodes.add("Expand", [nodes.ints(1), nodes.add("Sub", [rank, nodes.ints(2)])])
    column = nodes.add("Concat", [nodes.ints(-1), ones], [ir.AttrInt64("axis", 0)])
    scale, bias, mean, var = (nodes.add("Reshape", [value, column]) for value in parameters)
    epsilon = nodes.round(nodes.number(node.attributes.get_float("epsilon", _EPSILON)), dtype)

    def step(op: str, *operands: ir.Value) -> ir.Value:
        return nodes.round(nodes.add(op, operands), dtype)

    over = step("Reciprocal", step("Sqrt", step("Add", var, epsilon)))
    return step("Add", step("Mul", step("Mul", step("Sub", data, mean), over), scale), bias)


def _leaky_relu(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    """x, or x times alpha where it is negative; alpha has the low type."""
    alpha = np.float32(node.attributes.get_float("alpha", _ALPHA)).astype(dtype.numpy)
    made = nodes.add("LeakyRelu", [node.inputs[0]], [ir.AttrFloat32("alpha", float(alpha))])
    return nodes.round(made, dtype)


STEPS: dict[str, Steps] = {
    "BatchNormalization": _batch_normalization,
    "LeakyRelu": _leaky_relu,
}
