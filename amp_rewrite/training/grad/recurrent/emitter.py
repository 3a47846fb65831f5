"""Nodes of a function that is being made, in order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

Length = int | ir.SymbolicDim | None


class Emitter:
    """Makes the nodes of one graph.

    Attributes:
        nodes: Those made so far.
    """

    def __init__(self, numbers: count[int] | None = None) -> None:
        """Begin without nodes; emitters of one function share the `numbers` of names."""
        self.nodes: list[ir.Node] = []
        self._numbers = count() if numbers is None else numbers

    def inside(self) -> Emitter:
        """Return an emitter for a graph inside this one."""
        return Emitter(self._numbers)

    def op(
        self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, **attributes: Any
    ) -> Any:
        """Append a node; return its output, or a tuple of them."""
        number = next(self._numbers)
        node = ir.Node(
            "",
            op_type,
            inputs,
            ir.convenience.convert_attributes(attributes),
            outputs=[ir.Value(name=f"v{number}_{k}") for k in range(outputs)],
            name=f"{op_type}_{number}",
        )
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def value(self, stem: str, dtype: ir.DataType, shape: Sequence[Length] = ()) -> ir.Value:
        """Return an input for the graph."""
        name = f"{stem}_{next(self._numbers)}"
        return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))

    def constant(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """Return a constant."""
        return self.op("Constant", value=ir.Tensor(np.array(value, dtype.numpy())))

    def split(self, x: ir.Value, axis: int, parts: int, length: int) -> list[ir.Value]:
        """Return equal parts along an axis."""
        if parts == 1:
            return [x]
        lengths = self.constant([length] * parts)
        return list(self.op("Split", x, lengths, axis=axis, outputs=parts))

    def stack(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return values along a new axis."""
        axes = self.constant([axis])
        return self.op("Concat", *(self.op("Unsqueeze", v, axes) for v in values), axis=axis)

    def reversed(self, x: ir.Value) -> ir.Value:
        """Return x with its first axis turned around."""
        first, end, axis, step = ([-1], [int(np.iinfo(np.int64).min)], [0], [-1])
        return self.op("Slice", x, *map(self.constant, (first, end, axis, step)))
