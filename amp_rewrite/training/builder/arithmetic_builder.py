"""Operators that compute element by element, and matrix products."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.training.builder.node_builder import NodeBuilder

Operand = ir.Value | float
"""A value, or a number that takes the type of the other operand."""


class ArithmeticBuilder(NodeBuilder):
    """Adds arithmetic; numbers among the operands take the type of the others."""

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
