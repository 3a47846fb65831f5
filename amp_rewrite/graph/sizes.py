"""How large values are, as far as shapes are known: what is not known is None, never a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from amp_rewrite.graph.flat import ABSENT, FlatGraph

Shape = Sequence[int | None]


class Sizes:
    """Shapes and numbers of elements of a model's values, and of the arithmetic on them."""

    def __init__(self, flat: FlatGraph, inferred: Mapping[int, Shape] | None = None) -> None:
        """Take the shapes that the file records.

        Args:
            flat: The model.
            inferred: By value, shapes that are known besides, which count instead.
        """
        self._flat, self._inferred = flat, inferred or {}
        self._elements: dict[int, int | None] = {}

    def shape(self, value: int) -> Shape | None:
        """Return a value's shape, None for a free dimension; None if it is not known."""
        if value == ABSENT:
            return None
        lengths = self._inferred.get(value)
        return self._flat.recorded_shape(value) if lengths is None else lengths

    def elements(self, value: int) -> int | None:
        """Return how many elements a value has; None if that is not known."""
        if value not in self._elements:
            self._elements[value] = self._count_elements(value)
        return self._elements[value]

    def _count_elements(self, value: int) -> int | None:
        shape = self.shape(value)
        if shape is None:
            node = ABSENT if value == ABSENT else self._flat.producer[value]
            held = None if node == ABSENT else self._flat.held(node)
            return None if held is None else held.size
        return product_of(shape)

    def multiply_accumulates(self, node: int) -> int | None:
        """Return the multiply-accumulates of a matrix product or convolution.

        The elements of the output times the length of the sum behind each: for a Conv, the elements
        of the weight over its output channels.

        Returns:
            Their number; None for any other operator, and if shapes do not tell.
        """
        inputs, outputs = self._flat.inputs_of(node), self._flat.outputs_of(node)
        op_type = self._flat.called(node).op_type
        operand, at = _SUMMED.get(op_type, (0, None))
        if (
            op_type not in _SUMMED
            or len(inputs) <= operand
            or ABSENT in (*inputs[:2], *outputs[:1])
        ):
            return None
        counted = inputs[0] if op_type == "ConvTranspose" else outputs[0]
        elements, length = self.elements(counted), self._count_terms(node, inputs[operand], at)
        return None if elements is None or length is None else elements * length

    def _count_terms(self, node: int, operand: int, at: int | None) -> int | None:
        """Return how many products are added up for one element."""
        shape = self.shape(operand)
        if not shape and self._flat.called(node).op_type == "MatMul":
            shape, at = self.shape(self._flat.inputs_of(node)[1]), -2
        if not shape or (at == -2 and len(shape) < 2):
            return None
        if at is None:
            return product_of(shape[1:])
        if self._flat.called(node).op_type == "MatMul":
            return shape[at]
        transposed = self._flat.attributes(node).get("transA")
        return shape[-2 if transposed is not None and transposed.value else at]


# operators: where each has the length of its sums.
_SUMMED: Mapping[str, tuple[int, int | None]] = {
    "Conv": (1, None),
    "ConvTranspose": (1, None),
    "FusedConv": (1, None),
    "FusedMatMul": (0, -1),
    "Gemm": (0, -1),
    "MatMul": (0, -1),
}
"""Operator -> the operand that says how long its sums are, and at which axis; None: all but one."""


def product_of(lengths: Shape | None) -> int | None:
    """Return the product of lengths; None if one of them is not known, or none is."""
    static = [length for length in lengths or () if length is not None]
    return None if lengths is None or len(static) < len(lengths) else math.prod(static)
