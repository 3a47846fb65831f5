"""An average of the weights over the steps, beside the weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.graph.part import Part
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import TRAINED_ROLES, State, TrainingGraph
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.gradient import Gradient
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper

AVERAGE, COUNT = "average", "averaged"
"""The roles of the states: an average, and how many times was averaged."""

_SCOPE = "average"


class WeightAverage(OptimizerWrapper):
    """Keeps an average of each variable as a state, for evaluation and export.

        average += share * (variable after the step - average)

    Exponential (`decay` is a number), share = 1 - decay, with the usual warm-up by which the first
    steps count for more: the decay of the n-th average, n from 0, is at most (1 + n) / (10 + n), as
    in TensorFlow's ExponentialMovingAverage. Stochastic weight averaging (`decay` is None), share =
    1 / (n + 1), all averaged steps alike (P. Izmailov et al., "Averaging Weights Leads to Wider
    Optima and Better Generalization", 2018, https://arxiv.org/abs/1803.05407). Up to the step
    `start` the average is the variable.

    `TrainingSession.evaluate` and `export` use the averages with `averaged=True`; the variables are
    trained as they are without. A step that a loss scale skips averages nothing: put the
    LossScaleOptimizer around this. Running statistics of BatchNormalization are not averaged; they
    are those of the variables, which an average over many steps may not fit (PyTorch has update_bn
    for it): train the exported averages for some batches with a rate of 0, which moves nothing but
    running statistics.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        decay: float | None = 0.999,
        *,
        warm_up: bool = True,
        start: int = 0,
        every: int = 1,
    ) -> None:
        """Wrap an optimizer.

        Args:
            optimizer: What trains the variables.
            decay: At least 0, below 1; None averages all steps alike.
            warm_up: Whether the decay grows at first.
            start: The number of the step after which averaging begins.
            every: Between how many steps is averaged, such as those of an epoch.

        Raises:
            OptimizerTypeError: An argument is of a type that it cannot be.
            OptimizerValueError: One is impossible, or the optimizer scales the loss.
        """
        if not isinstance(optimizer, Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptimizerTypeError(
                "not an optimizer", where="WeightAverage", found=type(optimizer).__name__
            )
        if optimizer.scales_loss:
            raise OptimizerValueError(
                "a step that a loss scale skips must not be averaged",
                where="WeightAverage",
                found=type(optimizer).__name__,
                remedy="put the LossScaleOptimizer around the WeightAverage",
            )
        super().__init__(optimizer)
        self._decay = None if decay is None else check.number("decay", decay, high=1)
        self._warm_up = check.flag("warm_up", warm_up)
        self._start = check.whole("start", start, low=0)
        self._every = check.whole("every", every, low=1)

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Let the inner optimizer apply gradients, and average what it makes of the variables."""
        op = super().apply_reduced(grads_and_vars, global_step, name)
        graph = op.graph
        b = graph.scoped(_SCOPE, Part.UPDATE)
        updated = [graph.states[name] for name in op.updates]
        variables = [state for state in updated if state.role in TRAINED_ROLES]
        averages = {v.name: _average_of(graph, v) for v in variables}
        count = graph.state(COUNT, np.array(0, np.int64), COUNT)
        assert op.global_step is not None, "an optimizer counts its steps"
        share, following = self._share(b, op.updates[op.global_step], count.value)
        updates = {**op.updates, count.name: following}
        for name_, average in averages.items():
            new = b.cast(op.updates[name_], average.dtype)
            moved = b.mul(b.sub(new, average.value), b.cast(share, average.dtype))
            updates[average.name] = b.shaped_like(b.add(average.value, moved), average.value)
        names = {name_: average.name for name_, average in averages.items()}
        return replace(op, updates=updates, averages={**op.averages, **names})

    def _share(self, b: Builder, step: ir.Value, count: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the share of the variables in the averages after a step, and the next count.

        Steps are counted from 1.
        """
        past = b.sub(b.cast(step, ir.DataType.INT64), self._start)
        counts = b.greater_or_equal(past, 1)
        if self._every > 1:
            rest = b.sub(past, b.mul(b.div(past, self._every), self._every))
            counts = b.logical_and(counts, b.equal(rest, 0))
        done = b.cast(count, ir.DataType.FLOAT)
        if self._decay is None:
            share: ir.Value | float = b.reciprocal(b.add(done, 1.0))
        elif self._warm_up:
            growing = b.div(b.add(done, 1.0), b.add(done, 10.0))
            share = b.sub(1.0, b.minimum(growing, self._decay))
        else:
            share = 1 - self._decay
        waiting = b.where(b.greater_or_equal(past, 1), 0.0, b.constant(np.array(1, np.float32)))
        chosen = b.where(counts, share, waiting)
        return chosen, b.add(count, b.cast(counts, ir.DataType.INT64))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        return {
            **super().get_config(),
            "decay": self._decay,
            "warm_up": self._warm_up,
            "start": self._start,
            "every": self._every,
        }


def _average_of(graph: TrainingGraph, variable: State) -> State:
    """Return a new state that begins with the value of a variable, in float32 at least."""
    wide = np.dtype(np.float64 if variable.dtype.itemsize == 8 else np.float32)
    initial = np.asarray(variable.read()).astype(wide)
    return graph.state(f"{variable.name}/{AVERAGE}", initial, AVERAGE)
