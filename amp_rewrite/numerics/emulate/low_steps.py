"""Operators of one element at a time that kernels compute in several steps, rounding after each.

Evidence: silero_v6 for webgpu: error .0040 without, .0052 with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

_EPSILON, _ALPHA = 1e-5, 0.01
"""The defaults of the operators' attributes."""

_LOG2_E = 1.4426950408889634
_ROOT_HALF = 0.7071067811865475
_ERF_RATE = 0.3275911
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_CUBIC, _LINEAR = 0.035677408136300125, 0.7978845608028654
"""The constants of the shaders."""

Steps = Callable[[NodeCollector, ir.Node, DType], ir.Value]


def _batch_normalization(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    """(x - mean) * (1 / sqrt(var + epsilon)) * scale + bias."""
    data, *parameters = (value for value in node.inputs if value is not None)
    rank = nodes.add("Shape", [nodes.add("Shape", [data])])
    ones = nodes.add("Expand", [nodes.ints(1), nodes.add("Sub", [rank, nodes.ints(2)])])
    column = nodes.add("Concat", [nodes.ints(-1), ones], [ir.AttrInt64("axis", 0)])
    scale, bias, mean, var = (nodes.add("Reshape", [value, column]) for value in parameters)
    epsilon = nodes.round(nodes.number(node.attributes.get_float("epsilon", _EPSILON)), dtype)
    step = _Rounding(nodes, dtype).op
    over = step("Reciprocal", step("Sqrt", step("Add", var, epsilon)))
    return step("Add", step("Mul", step("Mul", step("Sub", data, mean), over), scale), bias)


def _leaky_relu(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    """x, or x times alpha where it is negative; alpha has the 16-bit type."""
    alpha = np.float32(node.attributes.get_float("alpha", _ALPHA)).astype(dtype.numpy)
    activated = nodes.add("LeakyRelu", [node.inputs[0]], [ir.AttrFloat32("alpha", float(alpha))])
    return nodes.round(activated, dtype)


def _cut(value: float, dtype: DType) -> float:
    """Return a constant cut to the 16-bit type, towards zero, as shaders have it."""
    low = np.array(value, dtype.numpy)
    if abs(float(low)) > abs(value):
        low = (low.view(np.uint16) - np.uint16(1)).view(dtype.numpy)
    return float(low)


@dataclass(frozen=True)
class _Rounding:
    """Adds operators whose results are rounded, and constants that were cut."""

    nodes: NodeCollector
    dtype: DType

    def op(self, op: str, *operands: ir.Value | float) -> ir.Value:
        """Add an operator; numbers among the operands are constants."""
        values = [o if isinstance(o, ir.Value) else self._constant(o) for o in operands]
        return self.nodes.round(self.nodes.add(op, values), self.dtype)

    def _constant(self, value: float) -> ir.Value:
        return self.nodes.number(_cut(value, self.dtype))

    def exp(self, x: ir.Value) -> ir.Value:
        """2^(x log2(e))."""
        return self.op("Pow", 2.0, self.op("Mul", x, _LOG2_E))

    def sigmoid(self, x: ir.Value) -> ir.Value:
        """1 / (1 + exp(-x))."""
        return self.op("Reciprocal", self.op("Add", 1.0, self.exp(self.op("Neg", x))))

    def tanh(self, x: ir.Value) -> ir.Value:
        """sign(x) (1 - exp(-2 |x|)) / (1 + exp(-2 |x|))."""
        power = self.exp(self.op("Mul", -2.0, self.op("Abs", x)))
        above = self.op("Mul", self.op("Sign", x), self.op("Sub", 1.0, power))
        return self.op("Div", above, self.op("Add", 1.0, power))

    def erf(self, x: ir.Value) -> ir.Value:
        """sign(x) (1 - p(t) t exp(-x^2)), t = 1 / (1 + 0.3276 |x|).

        Abramowitz and Stegun, formula 7.1.26; -x^2 log2(e) is multiplied from the left.
        """
        size = self.op("Abs", x)
        t = self.op("Reciprocal", self.op("Add", 1.0, self.op("Mul", _ERF_RATE, size)))
        total = self.op("Mul", t, _ERF[0])
        for coefficient in _ERF[1:-1]:
            total = self.op("Mul", self.op("Add", total, coefficient), t)
        total = self.op("Mul", self.op("Add", total, _ERF[-1]), t)
        power = self.op("Mul", self.op("Mul", self.op("Neg", size), _LOG2_E), size)
        rest = self.op("Sub", 1.0, self.op("Mul", total, self.op("Pow", 2.0, power)))
        return self.op("Mul", self.op("Sign", x), rest)

    def gelu(self, x: ir.Value) -> ir.Value:
        """0.5 x (1 + erf(x / sqrt(2)))."""
        inner = self.erf(self.op("Mul", x, _ROOT_HALF))
        return self.op("Mul", self.op("Mul", 0.5, x), self.op("Add", 1.0, inner))

    def fast_gelu(self, x: ir.Value) -> ir.Value:
        """Return x (0.5 + 0.5 tanh(x (0.0357 x^2 + 0.798)))."""
        cubic = self.op("Mul", self.op("Mul", _CUBIC, x), x)
        inner = self.tanh(self.op("Mul", x, self.op("Add", cubic, _LINEAR)))
        return self.op("Mul", x, self.op("Add", 0.5, self.op("Mul", 0.5, inner)))


def _gelu(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    is_fast = node.attributes.get_string("approximate", "none") == "tanh"
    return _written(_Rounding.fast_gelu if is_fast else _Rounding.gelu)(nodes, node, dtype)


def _written(of: Callable[[_Rounding, ir.Value], ir.Value]) -> Steps:
    """Return the steps of an operator that has one input."""

    def steps(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
        value = node.inputs[0]
        assert value is not None, "the checker has looked"
        return of(_Rounding(nodes, dtype), value)

    return steps


STEPS: dict[str, Steps] = {
    "BatchNormalization": _batch_normalization,
    "Erf": _written(_Rounding.erf),
    "Exp": _written(_Rounding.exp),
    "Gelu": _gelu,
    "LeakyRelu": _leaky_relu,
    "Sigmoid": _written(_Rounding.sigmoid),
    "Tanh": _written(_Rounding.tanh),
}
