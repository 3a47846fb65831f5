"""Collect new nodes in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.added import AddedNames


class NodeCollector:
    """Collects nodes of ai.onnx that are not in any graph yet, in order, in `made`."""

    def __init__(self, stem: str, names: AddedNames) -> None:
        """Begin every name with `stem`."""
        self.made: list[ir.Node] = []
        self.names = names
        self._stem = stem
        self._ints: dict[tuple[int, ...], ir.Value] = {}

    def add(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr] = (),
        type_: ir.DataType | None = None,
    ) -> ir.Value:
        """Add a node with one output and return the output."""
        name = self.names.inner(f"{self._stem}/{op}", FLOAT32)
        output = ir.Value(name=name, type=None if type_ is None else ir.TensorType(type_))
        node = ir.Node("", op, inputs, attributes, outputs=[output], name=self.names.part(name, op))
        self.made.append(node)
        return output

    def nested(self, name: str) -> NodeCollector:
        """Return a collector for a body."""
        return NodeCollector(f"{self._stem}/{name}", self.names)

    def value(self, name: str, type_: ir.DataType, shape: ir.Shape | None = None) -> ir.Value:
        """Return an input of a body."""
        name = self.names.inner(f"{self._stem}/{name}", FLOAT32)
        return ir.Value(name=name, type=ir.TensorType(type_), shape=shape)

    def ints(self, *values: int) -> ir.Value:
        """Return a constant 1-D int64 tensor, which is added once."""
        if values not in self._ints:
            self._ints[values] = self._constant(np.array(values, np.int64), ir.DataType.INT64)
        return self._ints[values]

    def number(self, value: float | np.ndarray, dtype: DType = FLOAT32) -> ir.Value:
        """Add a constant scalar, or tensor."""
        return self._constant(np.array(value, dtype.numpy, order="C"), dtype.ir)

    def round(self, value: ir.Value, dtype: DType) -> ir.Value:
        """Add a rounding pair."""
        return self.cast(self.cast(value, dtype.ir), FLOAT32.ir)

    def cast(self, value: ir.Value, to: ir.DataType) -> ir.Value:
        """Add a Cast."""
        return self.add("Cast", [value], [ir.AttrInt64("to", to.value)], to)

    def _constant(self, array: np.ndarray, type_: ir.DataType) -> ir.Value:
        return self.add("Constant", [], [ir.AttrTensor("value", ir.Tensor(array))], type_)
