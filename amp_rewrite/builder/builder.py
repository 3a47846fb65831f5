"""Operators by name, whatever the opset: shapes, layout and indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.builder.nodes import Dim
from amp_rewrite.builder.operators import Operators

Shape = ir.Value | Sequence[int]

_ALLOWZERO = 14
_INT64_MIN = int(np.iinfo(np.int64).min)


class Builder(Operators):
    """Adds nodes to a graph; its methods hide what differs between opsets."""

    def reset(self) -> None:
        """Forget the shapes computed so far."""
        self._shapes: dict[ir.Value, ir.Value] = {}

    def shape(self, x: ir.Value) -> ir.Value:
        """Return the shape of x: 1-D int64; a constant where it is static."""
        dims = self.dims(x)
        if dims is not None and None not in dims:
            return self.constant(np.array(dims, np.int64))
        if x not in self._shapes:
            self._shapes[x] = self.op("Shape", x)
        return self._shapes[x]

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
        """Return x in another shape, in which -1 stands for what is left and 0 for an axis of x."""
        if not isinstance(shape, ir.Value) and self.dims(x) == tuple(shape):
            return x
        return self.op("Reshape", x, self.vector(shape))

    def same_shape(self, x: ir.Value, y: ir.Value) -> bool:
        """Return whether two values are known to have one shape."""
        dims = self.symbolic_dims(x)
        return dims is not None and None not in dims and dims == self.symbolic_dims(y)

    def reshape_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x in the shape of `like`."""
        if self.same_shape(x, like):
            return x
        dims = self.dims(like)
        if dims is not None and dims.count(None) <= 1 and 0 not in dims:
            shape = self.vector([-1 if d is None else d for d in dims])
            return self.shaped_like(self.op("Reshape", x, shape), like)
        return self.shaped_like(self.reshape_exactly(x, self.shape(like)), like)

    def reshape_exactly(self, x: ir.Value, shape: ir.Value) -> ir.Value:
        """Return x in a computed shape, in which 0 is a length (from opset 14 on)."""
        return self.op("Reshape", x, shape, allowzero=1 if self.opset >= _ALLOWZERO else None)

    def size_from(self, x: ir.Value, axis: int) -> ir.Value:
        """Return the product of the lengths from an axis on: 1-D int64 of one element."""
        dims = self.dims(x)
        if dims is not None and None not in dims[axis:]:
            return self.constant([int(np.prod(np.array(dims[axis:], np.int64)))])
        lengths = self.slice(self.shape(x), [axis], [int(np.iinfo(np.int64).max)])
        return self.op("ReduceProd", lengths, keepdims=1)

    def expand(self, x: ir.Value, shape: Shape) -> ir.Value:
        """Return x broadcast to a shape."""
        return self.op("Expand", x, self.vector(shape))

    def expand_like(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x broadcast to the shape of `like`, of which it has no axis longer."""
        if self.same_shape(x, like):
            return x
        if 0 in (self.dims(like) or ()):
            # ONNX Runtime 1.31.1 drops an Expand from length 1 to 0.
            nothing = np.zeros(1, self.type_of(x).numpy())
            return self.op("ConstantOfShape", self.shape(like), value=nothing)
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
        """Return values one behind the other along an axis."""
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

    def flip(self, x: ir.Value, axis: int) -> ir.Value:
        """Return x in reverse order along an axis."""
        return self.shaped_like(self.slice(x, [-1], [_INT64_MIN], [axis], [-1]), x)

    def gather(self, x: ir.Value, indices: ir.Value, axis: int = 0) -> ir.Value:
        """Return the slices of x at indices along an axis."""
        return self.op("Gather", x, indices, axis=axis)

    def range(self, start: ir.Value | int, limit: ir.Value | int, step: int = 1) -> ir.Value:
        """Return start, start + step, ... below limit: 1-D int64; values are int64 scalars."""
        values = [v if isinstance(v, ir.Value) else self.constant(v) for v in (start, limit, step)]
        return self.op("Range", *values)

    def sum_to(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Return x summed to the shape of `like`, which broadcasts to that of x.

        One reduction at most. What lengths tell is decided now; where a length of `like` might
        turn out to be 1, the axes are computed when the graph runs.
        """
        outer, inner = self.symbolic_dims(x), self.symbolic_dims(like)
        if outer is None or inner is None:
            return self._sum_to_computed(x, like)
        lead = len(outer) - len(inner)
        axes = list(range(lead))
        for axis, length in enumerate(inner, lead):
            if length == 1 and outer[axis] != 1:
                axes.append(axis)
            elif _may_be_one(length, outer[axis]):
                return self._sum_to_computed(x, like)
        if len(axes) == lead:
            return self.shaped_like(self.reduce_sum(x, axes, keepdims=False), like)
        total = self.reduce_sum(x, axes)
        if lead:
            total = self.squeeze(total, range(lead))
        return self.shaped_like(total, like)

    def _sum_to_computed(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """Sum over the axes at which the shape of `like`, padded to the rank of x, is 1."""
        target, lead = self.shape(like), self._missing_axes(x, like)
        padded = target if lead is None else self.op("Concat", lead, target, axis=0)
        axes = self.squeeze(self.op("NonZero", self.equal(padded, self.constant([1]))), [0])
        total = self.op("ReduceSum", x, axes, keepdims=1, noop_with_empty_axes=1)
        if lead is not None:
            total = self.reshape_exactly(total, target)
        return self.shaped_like(total, like)

    def _missing_axes(self, x: ir.Value, like: ir.Value) -> ir.Value | None:
        """Return a 1 for each axis that x has more than `like`; None if it has no more."""
        outer, inner = self.rank(x), self.rank(like)
        if outer is not None and inner is not None:
            return self.constant([1] * (outer - inner)) if outer > inner else None
        missing = self.op("Sub", self.op("Size", self.shape(x)), self.op("Size", self.shape(like)))
        return self.expand(self.constant([1]), self.op("Reshape", missing, self.constant([1])))


def _may_be_one(length: Dim, outer: Dim) -> bool:
    """Return whether an axis may be 1 where the other is longer, for all that is known."""
    if isinstance(length, int) or outer == 1:
        return False
    return length is None or length != outer
