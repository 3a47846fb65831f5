"""What rounding each value brings at the outputs, estimated for all of them in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.numerics.inputs.batches import Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot

Estimate = Callable[[ir.Model, Sequence[Feeds], str], Mapping[str, float]]
"""What estimates what rounding brings: (model, batches, precision) -> name of a value -> the mean
squared relative error of the outputs; `training.diagnosis.rounding_errors`, which no file here may
import.
"""


class Estimates:
    """What rounding each value of a model brings at its outputs."""

    def __init__(self, painter: Repainter, by_name: Mapping[str, float]) -> None:
        """Take the estimates of a painter's model."""
        self._painter, flat = painter, painter.flat
        names = flat.value_names
        self.by_value = np.array([by_name.get(name, 0.0) for name in names], np.float64)

    def contributions(self, low: Collection[Slot]) -> dict[str, float]:
        """Return, by node with a low slot, the relative error that rounding in it alone brings."""
        errors: dict[str, float] = {}
        for node in sorted({slot.node for slot in low}):
            error = sum(float(self.by_value[value]) for value in self._rounded_values(node))
            errors[self._painter.nodes[node].name or ""] = math.sqrt(error)
        return errors

    def _rounded_values(self, node: int) -> Iterator[int]:
        """Yield the values that a low node rounds: its results, and the constants that it reads."""
        flat, graph = self._painter.flat, self._painter.type_graph
        yield from (v for v in flat.outputs_of(node) if v != ABSENT)
        read = {value for value in flat.inputs_of(node) if value != ABSENT}
        yield from (value for value in read if constant_tensor(graph, value) is not None)
