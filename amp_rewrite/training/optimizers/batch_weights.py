"""How much batches count whose gradients are accumulated, where the loss is a weighted mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.compared import compared_by
from amp_rewrite.training.graph.training_graph import State, TrainingGraph


@dataclass(frozen=True)
class BatchWeights:
    """How much the present batch counts, and those so far.

    Attributes:
        batch: What the loss of this batch was divided by.
        state: The sum over the batches before.
        total: The sum over the batches so far.
    """

    batch: ir.Value
    state: State
    total: ir.Value

    def weighted(self, b: Builder, gradient: ir.Value) -> ir.Value:
        """Return the gradient of the sum of the batch's losses, from that of their mean."""
        return b.mul(gradient, b.cast_like(self.batch, gradient))

    def mean(self, b: Builder, total: ir.Value) -> ir.Value:
        """Return the mean of a sum over the batches so far; 0 if nothing counts."""
        divisor = b.where(b.equal(self.total, 0.0), b.ones_like(self.total), self.total)
        return b.div(total, b.cast_like(divisor, total))


def batch_weights(graph: TrainingGraph, b: Builder, name: str, role: str) -> BatchWeights | None:
    """Add up what the loss that was differentiated last is divided by.

    Args:
        graph: The training graph.
        b: Adds the nodes.
        name: What the state is called.
        role: Its role.

    Returns:
        The weights, or None if all batches count alike: the loss is not a weighted mean.
    """
    compared = None if graph.loss is None else compared_by(graph.loss.value)
    if compared is None or compared.denominator is None:
        return None
    batch = compared.denominator
    state = graph.state(name, np.array(0, b.type_of(batch).numpy()), role)
    return BatchWeights(batch, state, b.shaped_like(b.add(state.value, batch), state.value))
