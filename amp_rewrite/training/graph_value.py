"""A value of a training graph, as users hold it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx_ir as ir

from amp_rewrite.errors import OptionError
from amp_rewrite.graph.part import Part

if TYPE_CHECKING:
    from amp_rewrite.builder.builder import Builder
    from amp_rewrite.training.training_graph import TrainingGraph


@dataclass(frozen=True, eq=False)
class GraphValue:
    """A value of a graph on which a training step is being built.

    Arithmetic with another value of the graph or with a number adds a node to the graph.

    Attributes:
        graph: The training graph.
        value: The value inside its model.
    """

    graph: TrainingGraph = field(repr=False)
    value: ir.Value

    @property
    def name(self) -> str:
        """The value's name in the graph."""
        return str(self.value.name)

    @property
    def dtype(self) -> ir.DataType:
        """The element type."""
        return self.graph.builder.type_of(self.value)

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The lengths of the axes, None where unknown; None if the rank is unknown."""
        return self.graph.builder.dims(self.value)

    def __add__(self, other: GraphValue | float) -> GraphValue:
        """Return self + other."""
        return self._with(self._builder.add(self.value, self._operand(other)))

    def __radd__(self, other: float) -> GraphValue:
        """Return other + self."""
        return self._with(self._builder.add(other, self.value))

    def __sub__(self, other: GraphValue | float) -> GraphValue:
        """Return self - other."""
        return self._with(self._builder.sub(self.value, self._operand(other)))

    def __rsub__(self, other: float) -> GraphValue:
        """Return other - self."""
        return self._with(self._builder.sub(other, self.value))

    def __mul__(self, other: GraphValue | float) -> GraphValue:
        """Return self * other."""
        return self._with(self._builder.mul(self.value, self._operand(other)))

    def __rmul__(self, other: float) -> GraphValue:
        """Return other * self."""
        return self._with(self._builder.mul(other, self.value))

    def __truediv__(self, other: GraphValue | float) -> GraphValue:
        """Return self / other."""
        return self._with(self._builder.div(self.value, self._operand(other)))

    def __rtruediv__(self, other: float) -> GraphValue:
        """Return other / self."""
        return self._with(self._builder.div(other, self.value))

    def __neg__(self) -> GraphValue:
        """Return -self."""
        return self._with(self._builder.neg(self.value))

    @property
    def _builder(self) -> Builder:
        return self.graph.scoped("arithmetic", Part.ARITHMETIC)

    def _with(self, value: ir.Value) -> GraphValue:
        return GraphValue(self.graph, value)

    def _operand(self, other: GraphValue | float) -> ir.Value | float:
        if not isinstance(other, GraphValue):
            return other
        if other.graph is not self.graph:
            raise OptionError(
                "values of two models cannot meet in one operation",
                where=self.name,
                found=f"a value {other.name!r} of another model",
            )
        return other.value
