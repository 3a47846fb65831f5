"""Elementwise operators and reductions by name, whatever the opset."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.builder.nodes import NodeBuilder
from amp_rewrite.errors import GradientError

Operand = ir.Value | float
"""A value, or a number that takes the type of the other operand."""
Axes = ir.Value | Sequence[int] | None
"""Axes; None is all of them."""

_AXES_INPUT = 18
"""The opset from which every reduction takes its axes as an input; ReduceSum has it from 13."""


class Operators(NodeBuilder):
    """Elementwise operators and reductions."""

    def operand(self, value: Operand, like: Operand) -> ir.Value:
        """Return a number as a scalar of the type of `like`; a value as it is."""
        if isinstance(value, ir.Value):
            return value
        dtype = self.type_of(like) if isinstance(like, ir.Value) else None
        return self.constant(value, dtype)

    def _binary(self, op: str, x: Operand, y: Operand) -> ir.Value:
        return self.op(op, self.operand(x, y), self.operand(y, x))

    def add(self, x: Operand, y: Operand) -> ir.Value:
        """Return x + y."""
        return self._binary("Add", x, y)

    def sub(self, x: Operand, y: Operand) -> ir.Value:
        """Return x - y."""
        return self._binary("Sub", x, y)

    def mul(self, x: Operand, y: Operand) -> ir.Value:
        """Return x * y."""
        return self._binary("Mul", x, y)

    def div(self, x: Operand, y: Operand) -> ir.Value:
        """Return x / y."""
        return self._binary("Div", x, y)

    def pow(self, x: Operand, y: Operand) -> ir.Value:
        """Return x ** y."""
        return self._binary("Pow", x, y)

    def maximum(self, x: Operand, y: Operand) -> ir.Value:
        """Return the larger of x and y, element by element."""
        return self._binary("Max", x, y)

    def minimum(self, x: Operand, y: Operand) -> ir.Value:
        """Return the smaller of x and y, element by element."""
        return self._binary("Min", x, y)

    def equal(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x == y."""
        return self._binary("Equal", x, y)

    def less(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x < y."""
        return self._binary("Less", x, y)

    def less_or_equal(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x <= y."""
        return self._binary("LessOrEqual", x, y)

    def greater(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x > y."""
        return self._binary("Greater", x, y)

    def greater_or_equal(self, x: Operand, y: Operand) -> ir.Value:
        """Return whether x >= y."""
        return self._binary("GreaterOrEqual", x, y)

    def logical_and(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return x and y."""
        return self.op("And", x, y)

    def logical_or(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return x or y."""
        return self.op("Or", x, y)

    def logical_not(self, x: ir.Value) -> ir.Value:
        """Return not x."""
        return self.op("Not", x)

    def neg(self, x: ir.Value) -> ir.Value:
        """Return -x."""
        return self.op("Neg", x)

    def abs(self, x: ir.Value) -> ir.Value:
        """Return the absolute value."""
        return self.op("Abs", x)

    def sign(self, x: ir.Value) -> ir.Value:
        """Return -1, 0 or 1."""
        return self.op("Sign", x)

    def sqrt(self, x: ir.Value) -> ir.Value:
        """Return the square root."""
        return self.op("Sqrt", x)

    def exp(self, x: ir.Value) -> ir.Value:
        """Return e ** x."""
        return self.op("Exp", x)

    def log(self, x: ir.Value) -> ir.Value:
        """Return the natural logarithm."""
        return self.op("Log", x)

    def tanh(self, x: ir.Value) -> ir.Value:
        """Return the hyperbolic tangent."""
        return self.op("Tanh", x)

    def sigmoid(self, x: ir.Value) -> ir.Value:
        """Return 1 / (1 + e ** -x)."""
        return self.op("Sigmoid", x)

    def reciprocal(self, x: ir.Value) -> ir.Value:
        """Return 1 / x."""
        return self.op("Reciprocal", x)

    def square(self, x: ir.Value) -> ir.Value:
        """Return x * x."""
        return self.op("Mul", x, x)

    def where(self, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
        """Return x where the condition holds, else y."""
        return self.op("Where", condition, self.operand(x, y), self.operand(y, x))

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return x in another type; x itself if it has that type."""
        return x if x.dtype is dtype else self.op("Cast", x, to=dtype)

    def cast_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x in the type of `like`."""
        return self.cast(x, self.type_of(like))

    def matmul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return the (batched) matrix product."""
        return self.op("MatMul", x, y)

    def reduce(self, op: str, x: ir.Value, axes: Axes, *, keepdims: bool = True) -> ir.Value:
        """Return a reduction over `axes`; over nothing if they are an empty sequence.

        Raises:
            GradientError: The axes are known at run time only, and the opset admits no such axes.
        """
        if isinstance(axes, Sequence) and not axes:
            return x
        keep = int(keepdims)
        if axes is None:
            return self.op(op, x, keepdims=keep)
        if self.opset >= _AXES_INPUT or op == "ReduceSum":
            given = axes if isinstance(axes, ir.Value) else self.constant(list(axes))
            noop = 1 if isinstance(axes, ir.Value) else None
            return self.op(op, x, given, keepdims=keep, noop_with_empty_axes=noop)
        known = self.ints(axes) if isinstance(axes, ir.Value) else list(axes)
        if known is None:
            raise GradientError(
                f"{op} takes no computed axes before opset {_AXES_INPUT}",
                where=f"value {x.name!r}",
                remedy="convert the model with onnx.version_converter",
            )
        return self.op(op, x, axes=known, keepdims=keep) if known else x

    def reduce_sum(self, x: ir.Value, axes: Axes = None, *, keepdims: bool = True) -> ir.Value:
        """Return the sum over axes."""
        return self.reduce("ReduceSum", x, axes, keepdims=keepdims)

    def reduce_mean(self, x: ir.Value, axes: Axes = None, *, keepdims: bool = True) -> ir.Value:
        """Return the mean over axes."""
        return self.reduce("ReduceMean", x, axes, keepdims=keepdims)

    def reduce_max(self, x: ir.Value, axes: Axes = None, *, keepdims: bool = True) -> ir.Value:
        """Return the maximum over axes."""
        return self.reduce("ReduceMax", x, axes, keepdims=keepdims)
