"""The type of a gradient rule."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError
from amp_rewrite.grad.builder.builder import Builder


class IndexedSlices(NamedTuple):
    """The gradient of a table of which only some rows were read (TensorFlow's IndexedSlices).

    The dense gradient is zeros with `dense[indices[i]] += values[i]`; indices may repeat.
    """

    values: ir.Value  # (M, *row), the table's float type
    indices: ir.Value  # (M,) int64, not negative
    dense_shape: ir.Value | None = None  # (1 + rank of a row,) int64; None: that of the variable

    def __mul__(self, factor: Any) -> IndexedSlices:  # pyright: ignore[reportIncompatibleMethodOverride] a tuple's repeats it
        """Return the slices of the gradient times a number, or a scalar value."""
        return self._replace(values=self._computed(operator.mul, factor))

    def __rmul__(self, factor: Any) -> IndexedSlices:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the slices of the gradient times a number, or a scalar value."""
        return self * factor

    def __truediv__(self, divisor: Any) -> IndexedSlices:
        """Return the slices of the gradient divided by a number, or a scalar value."""
        return self._replace(values=self._computed(operator.truediv, divisor))

    def __neg__(self) -> IndexedSlices:
        """Return the slices of the gradient times -1."""
        return self * -1.0

    def __add__(self, other: object) -> NoReturn:  # pyright: ignore[reportIncompatibleMethodOverride] a tuple's joins them
        """Refuse: two gradients may have other rows.

        Raises:
            OptimizerTypeError: Always.
        """
        raise OptimizerTypeError(
            "sparse gradients (IndexedSlices) cannot be added or subtracted",
            found=f"IndexedSlices and {type(other).__name__}",
            remedy="differentiate the sum of the losses: compute_gradients([first, second])",
        )

    __radd__ = __sub__ = __rsub__ = __add__

    def _computed(self, compute: Callable[[Any, Any], Any], operand: Any) -> Any:
        """Return the values after an operation with a number or a scalar value."""
        if getattr(operand, "shape", ()) not in ((), None):
            raise OptimizerTypeError(
                "a sparse gradient (IndexedSlices) is multiplied by a number or a scalar value",
                found=f"shape {list(operand.shape)}",
            )
        return compute(self.values, operand)


Gradient: TypeAlias = ir.Value | IndexedSlices
Gradients: TypeAlias = Sequence[Gradient | None]
Rule: TypeAlias = Callable[[ir.Node, Sequence[ir.Value | None], Builder], Gradients]
"""(node, gradient of each output, builder) -> gradients of the first inputs; None is no gradient.

A rule emits standard operators of the model's opset, reuses forward values, and does not undo
broadcasting: the walk sums every gradient to its input's shape. The first input of an operator that
does not broadcast it (Trait.NOT_BROADCAST) gets its gradient in that shape from the rule. At least
one output has a gradient.
"""
Rules: TypeAlias = Mapping[str, Rule]
"""Operator ("Add", or "domain::Op" outside ai.onnx) -> rule."""
