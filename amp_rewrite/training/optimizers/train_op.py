"""What apply_gradients returns: the updates of one training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from amp_rewrite.base.printable import one_line
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph


@dataclass(frozen=True)
class TrainOp:
    """One training step inside a training graph.

    Attributes:
        graph: The training graph.
        loss: What is minimized, or None if gradients were not computed by an optimizer.
        updates: Name of a state -> the value that it has after the step.
        global_step: The name of the state that counts the steps.
        fetches: Names that a session knows besides those of values: "loss", "gradient_norm",
            "learning_rate" (the one used in this step) and "global_step" (after the step). With
            a loss scale also "grads_finite", "loss_scale", "good_steps", "skipped_steps" and
            "consecutive_skips".
        loss_scale: The configuration of the loss scale, or None; of the first of several.
        loss_scales: The configuration of each loss's own loss scale, if there are several. Each of
            the five fetches above is one of every loss too then, as "loss_scale_0", "loss_scale_1",
            ...: without a number "grads_finite" is that of all, the others are the first loss's.
        accumulated: How gradients are accumulated, or None. "accumulated" is fetched then: how many
            batches wait for an update.
        averages: Variable -> the state that holds its average.
    """

    graph: TrainingGraph = field(repr=False)
    loss: GraphValue | None
    updates: Mapping[str, ir.Value]
    global_step: str | None
    fetches: Mapping[str, ir.Value]
    loss_scale: Mapping[str, Any] | None = None
    loss_scales: Sequence[Mapping[str, Any]] = ()
    accumulated: Accumulated | None = None
    averages: Mapping[str, str] = field(default_factory=dict[str, str])

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        loss = "no loss" if self.loss is None else f"loss {self.loss.name}"
        return one_line(self, f"{loss}, {len(self.updates)} states are updated")


@dataclass(frozen=True)
class Accumulated:
    """How a step accumulates gradients.

    Attributes:
        steps: How many batches make one update.
        boundary: Whether this batch is the last one of an update: bool, shape ().
        counter: The state that counts the batches since the last update.
    """

    steps: int
    boundary: ir.Value
    counter: State
