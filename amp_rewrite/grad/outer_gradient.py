"""The gradient of a value that all turns of a loop read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.builder.dimensions import is_vague
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad.backward_loop import BackwardLoop, Carried, Stacked, settled
from amp_rewrite.grad.indexed_slices import IndexedSlices
from amp_rewrite.grad.rule import Gradient


@dataclass(frozen=True)
class _Rows:
    """The rows of a table that turns have gathered, and their indices."""

    values: Stacked
    indices: Stacked


@dataclass(frozen=True)
class _Product:
    """The factors of alpha A^T B, of which the sum over the turns is one product of all rows."""

    a: Stacked
    b: Stacked
    alpha: float


class OuterGradient:
    """The gradient of an outer value: the sum of those of the turns.

    Rows that turns gather, and factors of a product, are given out by the turns and put together
    once. All else is carried from turn to turn and added up, in float32 at least.

    Attributes:
        value: The outer value.
    """

    def __init__(self, b: Builder, loop: BackwardLoop, value: ir.Value, gradient: Gradient) -> None:
        """Take the gradient of one turn into the loop."""
        self._b, self.value = b, value
        self._found: _Rows | _Product | Carried
        if isinstance(gradient, IndexedSlices):
            self._found = _Rows(loop.stack(gradient.values), loop.stack(gradient.indices))
        elif (product := _product(gradient)) is not None:
            alpha = product.attributes.get_float("alpha", 1.0)
            one, other = (loop.stack(settled(factor)) for factor in product.inputs)
            self._found = _Product(one, other, alpha)
        else:
            dtype = b.type_of(value)
            wide = FLOAT32.ir if dtype.itemsize < FLOAT32.ir.itemsize else dtype
            zeros = b.shaped_like(b.zeros(b.shape(value), wide), value)
            self._found = loop.add_up(zeros, gradient, f"{value.name}/gradient")

    def result(self) -> Gradient:
        """Return the gradient, once the loop is finished."""
        found = self._found
        if isinstance(found, Carried):
            return settled(found.last)
        if isinstance(found, _Rows):
            return self._rows(settled(found.values.whole), settled(found.indices.whole))
        b = self._b
        rows = [b.op("Flatten", settled(part.whole), axis=2) for part in (found.a, found.b)]
        product = b.op("Gemm", *rows, transA=1, alpha=found.alpha)
        return b.shaped_like(product, self.value)

    def _rows(self, values: ir.Value, indices: ir.Value) -> IndexedSlices:
        b, shape = self._b, self._b.shape(self.value)
        row = b.slice(shape, [1], [int(np.iinfo(np.int64).max)])
        lengths = b.concat([b.unsqueeze(b.op("Size", indices), [0]), row], 0)
        rows = b.reshape_exactly(values, lengths)
        return IndexedSlices(rows, b.reshape(indices, [-1]), shape)


def _product(gradient: ir.Value) -> ir.Node | None:
    """Return the Gemm that computes a gradient as A^T B, if A and B are alike in all turns.

    The lengths of the gradient are to be known, since a loop without turns does not tell them.
    """
    node = gradient.producer()
    if node is None or node.op_type != "Gemm" or len(node.inputs) != 2:
        return None
    attributes = node.attributes
    if not attributes.get_int("transA", 0) or attributes.get_int("transB", 0):
        return None
    return node if all(_has_alike_rows(v) for v in node.inputs) else None


def _has_alike_rows(value: ir.Value | None) -> bool:
    if value is None or value.shape is None or is_vague(value.shape):
        return False
    return isinstance(value.shape.dims[-1], int)
