"""Add nodes to a graph, one after the other: operators by name, whatever the opset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.known import same_shape
from amp_rewrite.grad.builder.node_builder import NodeBuilder

Operand = ir.Value | float
"""A value, or a number that takes the type of the other operand."""
Axes = ir.Value | Sequence[int] | None
"""Axes; None is all of them."""
Shape = ir.Value | Sequence[int]

_AXES_INPUT = 18
"""The opset from which every reduction takes its axes as an input; ReduceSum has it from 13."""
_ALLOWZERO = 14
_INT64_MAX = int(np.iinfo(np.int64).max)


def _unary(op: str) -> Callable[[Builder, ir.Value], ir.Value]:
    """Return a method that adds a node of an operator with one operand."""
    return lambda self, x: self.op(op, x)


def _binary(op: str) -> Callable[[Builder, Operand, Operand], ir.Value]:
    """Return a method that adds a node of an operator with two operands."""
    return lambda self, x, y: self.op(op, self.operand(x, y), self.operand(y, x))


class Builder(NodeBuilder):
    """Adds nodes at the end of one graph; its methods hide what differs between opsets.

    Here are arithmetic, in which a number takes the type of the other operand, reductions, and what
    reads and changes shapes.
    """

    add, sub, mul, div = _binary("Add"), _binary("Sub"), _binary("Mul"), _binary("Div")
    pow = _binary("Pow")
    maximum, minimum = _binary("Max"), _binary("Min")
    equal = _binary("Equal")
    less, less_or_equal = _binary("Less"), _binary("LessOrEqual")
    greater, greater_or_equal = _binary("Greater"), _binary("GreaterOrEqual")
    logical_and, logical_not = _binary("And"), _unary("Not")
    neg, abs, sign, reciprocal = _unary("Neg"), _unary("Abs"), _unary("Sign"), _unary("Reciprocal")
    sqrt, exp, log = _unary("Sqrt"), _unary("Exp"), _unary("Log")
    tanh, sigmoid = _unary("Tanh"), _unary("Sigmoid")
    matmul = _binary("MatMul")

    def operand(self, value: Operand, like: Operand) -> ir.Value:
        """Return a number as a scalar of the type of `like`; a value as it is."""
        if isinstance(value, ir.Value):
            return value
        dtype = self.type_of(like) if isinstance(like, ir.Value) else None
        return self.constant(value, dtype)

    def square(self, x: ir.Value) -> ir.Value:
        """Return x * x."""
        return self.op("Mul", x, x)

    def where(self, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
        """Return x where the condition holds, else y."""
        return self.op("Where", condition, self.operand(x, y), self.operand(y, x))

    def cast(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return x in another type; x itself if it has that type."""
        return x if x.dtype is dtype else self.op("Cast", x, to=dtype)

    def at_least_float32(self, x: ir.Value) -> ir.Value:
        """Return x in float32 if its type is narrower."""
        return x if self.type_of(x).itemsize >= 4 else self.cast(x, ir.DataType.FLOAT)

    def cast_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x in the type of `like`."""
        return self.cast(x, self.type_of(like))

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
            axes_value = axes if isinstance(axes, ir.Value) else self.constant(list(axes))
            noop = 1 if isinstance(axes, ir.Value) else None
            return self.op(op, x, axes_value, keepdims=keep, noop_with_empty_axes=noop)
        numbers = self.ints(axes) if isinstance(axes, ir.Value) else list(axes)
        if numbers is None:
            raise GradientError(
                f"{op} takes no computed axes before opset {_AXES_INPUT}",
                where=f"value {x.name!r}",
                remedy="convert the model with onnx.version_converter",
            )
        return self.op(op, x, axes=numbers, keepdims=keep) if numbers else x

    def reduce_sum(self, x: ir.Value, axes: Axes = None, *, keepdims: bool = True) -> ir.Value:
        """Return the sum over axes."""
        return self.reduce("ReduceSum", x, axes, keepdims=keepdims)

    def reduce_mean(self, x: ir.Value, axes: Axes = None, *, keepdims: bool = True) -> ir.Value:
        """Return the mean over axes."""
        return self.reduce("ReduceMean", x, axes, keepdims=keepdims)

    def shape(self, x: ir.Value) -> ir.Value:
        """Return the shape of x: 1-D int64; a constant where it is static."""
        dims = self.dims(x)
        if dims is not None and None not in dims:
            return self.constant(np.array(dims, np.int64))
        if x not in self.shapes:
            self.shapes[x] = self.op("Shape", x)
        return self.shapes[x]

    def dim(self, x: ir.Value, axis: int) -> ir.Value:
        """Return the length of one axis, which may be negative: 1-D int64 of one element."""
        dims = self.dims(x)
        if dims is not None and dims[axis] is not None:
            return self.constant([dims[axis]])
        return self.op("Gather", self.shape(x), self.constant([axis]), axis=0)

    def size(self, x: ir.Value) -> ir.Value:
        """Return the number of elements: an int64 scalar."""
        dims = self.dims(x)
        if dims is not None and None not in dims:
            return self.constant(int(np.prod(np.array(dims, np.int64))))
        return self.op("Size", x)

    def vector(self, values: Shape) -> ir.Value:
        """Return a sequence of integers as a 1-D int64 constant; a value as it is."""
        if isinstance(values, ir.Value):
            return values
        return self.constant(np.array(list(values), np.int64))

    def reshape(self, x: ir.Value, shape: Shape) -> ir.Value:
        """Return x in another shape, in which -1 is the remaining length and 0 an axis of x."""
        if not isinstance(shape, ir.Value) and self.dims(x) == tuple(shape):
            return x
        return self.op("Reshape", x, self.vector(shape))

    def reshape_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x in the shape of `like`."""
        if same_shape(x, like):
            return x
        dims = self.dims(like)
        if dims is not None and dims.count(None) <= 1 and 0 not in dims:
            shape = self.vector([-1 if d is None else d for d in dims])
            return self.shaped_like(self.op("Reshape", x, shape), like)
        return self.shaped_like(self.reshape_exactly(x, self.shape(like)), like)

    def reshape_exactly(self, x: ir.Value, shape: ir.Value) -> ir.Value:
        """Return x in a computed shape, in which 0 is a length (from opset 14 on)."""
        return self.op("Reshape", x, shape, allowzero=1 if self.opset >= _ALLOWZERO else None)

    def expand(self, x: ir.Value, shape: Shape) -> ir.Value:
        """Return x broadcast to a shape."""
        return self.op("Expand", x, self.vector(shape))

    def expand_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x broadcast to the shape of `like`, of which it has no axis longer."""
        if same_shape(x, like):
            return x
        if 0 in (self.dims(like) or ()):
            # ONNX Runtime 1.31.1 drops an Expand from length 1 to 0.
            return self.zeros(self.shape(like), self.type_of(x))
        return self.shaped_like(self.expand(x, self.shape(like)), like)

    def unsqueeze(self, x: ir.Value, axes: Shape) -> ir.Value:
        """Return x with new axes of length 1."""
        if not isinstance(axes, ir.Value) and not axes:
            return x
        return self.op("Unsqueeze", x, self.vector(axes))

    def squeeze(self, x: ir.Value, axes: Shape) -> ir.Value:
        """Return x without axes of length 1."""
        if not isinstance(axes, ir.Value) and not axes:
            return x
        return self.op("Squeeze", x, self.vector(axes))

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Return x with its axes in another order; x itself if it is the same."""
        if list(perm) == list(range(len(perm))):
            return x
        return self.op("Transpose", x, perm=list(perm))

    def zeros(self, shape: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return zeros of a computed shape."""
        return self.op("ConstantOfShape", shape, value=np.zeros(1, dtype.numpy()))

    def full_like(self, x: ir.Value, number: float) -> ir.Value:
        """Return a tensor of x's shape and type, filled with a number."""
        fill = np.array([number], self.type_of(x).numpy())
        filled = self.op("ConstantOfShape", self.shape(x), value=fill)
        return self.shaped_like(filled, x)

    def zeros_like(self, x: ir.Value) -> ir.Value:
        """Return zeros of x's shape and type."""
        return self.full_like(x, 0)

    def ones_like(self, x: ir.Value) -> ir.Value:
        """Return ones of x's shape and type."""
        return self.full_like(x, 1)

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return values concatenated along an axis."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis)

    def split(self, x: ir.Value, lengths: Shape, axis: int, outputs: int) -> tuple[ir.Value, ...]:
        """Return pieces of given lengths along an axis."""
        pieces = self.op("Split", x, self.vector(lengths), axis=axis, outputs=outputs)
        return pieces if isinstance(pieces, tuple) else (pieces,)

    def slice(
        self,
        x: ir.Value,
        starts: Shape,
        ends: Shape,
        axes: Shape | None = None,
        steps: Shape | None = None,
    ) -> ir.Value:
        """Return a part of x, as numpy's basic slicing does."""
        optional = [None if v is None else self.vector(v) for v in (axes, steps)]
        while optional and optional[-1] is None:
            optional.pop()
        return self.op("Slice", x, self.vector(starts), self.vector(ends), *optional)

    def gather(self, x: ir.Value, indices: ir.Value, axis: int = 0) -> ir.Value:
        """Return the slices of x at indices along an axis."""
        return self.op("Gather", x, indices, axis=axis)

    def range(self, start: ir.Value | int, limit: ir.Value | int, step: int = 1) -> ir.Value:
        """Return start, start + step, ... below limit: 1-D int64; values are int64 scalars."""
        values = [v if isinstance(v, ir.Value) else self.constant(v) for v in (start, limit, step)]
        return self.op("Range", *values)
