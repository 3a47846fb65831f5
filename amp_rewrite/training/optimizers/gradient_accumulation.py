"""Gradients of several batches are added up before they are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.training.graph.compared import compared_by
from amp_rewrite.training.graph.training_graph import State, TrainingGraph
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.apply_updates import check_pairs
from amp_rewrite.training.optimizers.conditional_update import check_mode, conditional
from amp_rewrite.training.optimizers.gradient import (
    Gradient,
    dense,
    unwrap,
    wrap,
)
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import FINITE, NORM, Accumulated, TrainOp

ACCUMULATED = "accumulated"
"""The fetch that says how many batches wait for an update, and the end of the states' names."""
COUNTER, ACCUMULATOR = "accumulated", "accumulator"
"""The roles of the states."""

_SCOPE = "accumulate"
_MOVABLE = (Part.UPDATE, Part.LOSS_SCALE, Part.CLIP, Part.ARITHMETIC)
"""The parts whose nodes an If may hold; a sum over shards is none of them."""


_MOST = 2**24
"""The largest number of batches: float32 counts no further."""


class Accumulation:
    """Adds up the gradients of some batches, each of which is one step, and applies their mean.

    `Optimizer.minimize(loss, accumulate=4)` does what these do:

        accumulation = Accumulation(4)
        pairs = accumulation.add(optimizer.compute_gradients(loss))
        train_op = accumulation.every(optimizer.apply_gradients(pairs))

    What is done to `pairs` in between, such as clipping, is done to the mean. The first steps - 1
    batches add to states and change nothing else, but running statistics of BatchNormalization,
    which move with every batch, as in PyTorch. The mean is that of one large batch, if the loss is
    a mean: over examples, of which every batch has as many, or one of `amp_rewrite.losses` with an
    `ignore_index` or class weights, whose batches count by the labels that count in them. (Values
    computed from such a loss, and sums of several, have lost what they are divided by, and count
    equally.) With shards the mean is summed over them once per update; shards count equally.
    A session can apply what fewer batches have added up, as the mean of these:
    `session.run(feeds, apply=True)`.

    With a loss scale the mean is what is checked, so that one batch whose gradients are not finite
    skips the update of the whole group, and the scale changes once per update: the rule of PyTorch
    (https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation). Running
    statistics that would not be finite stay as they are. Before the last batch nothing is decided:
    "grads_finite" is true and "gradient_norm" 0 then.
    """

    def __init__(self, steps: int, *, conditional: str = "if") -> None:
        """Begin without a model.

        Args:
            steps: How many batches make one update.
            conditional: "if" or "select"; see `LossScaleOptimizer`.

        Raises:
            OptimizerTypeError: `steps` is not an integer.
            OptimizerValueError: It is below 1, or too large to be a factor of gradients.
            OptionError: `conditional` is neither.
        """
        self.steps = check.whole("number of batches to accumulate", steps, low=1, high=_MOST)
        self._mode = check_mode(conditional)
        self._totals: dict[State, ir.Value] = {}
        self._counter: State | None = None
        self._count: ir.Value | None = None
        self._shares: dict[np.dtype[Any], ir.Value] = {}
        self._weights: BatchWeights | None = None

    def add(self, grads_and_vars: Iterable[tuple[Gradient, Variable]]) -> list[tuple[Any, Any]]:
        """Return each gradient's mean over the batches so far; None stays None.

        A sparse gradient is added to a dense accumulator.

        Args:
            grads_and_vars: What `compute_gradients` has just returned, for it is the loss that was
                differentiated last which says how much a batch counts.

        Raises:
            OptimizerTypeError: They are no pairs.
            OptimizerValueError: There are none, or no gradients; or this was called before.
        """
        graph, pairs = check_pairs(grads_and_vars)
        if self.steps == 1:
            return list(pairs)
        if self._counter is not None:
            raise OptimizerValueError(
                "an Accumulation belongs to one step", remedy="make another one for another step"
            )
        self._counter = graph.state(ACCUMULATED, np.array(0, np.int64), COUNTER)
        self._count = graph.scoped(_SCOPE, Part.ARITHMETIC).add(self._counter.value, 1)
        b = graph.scoped(_SCOPE, Part.ARITHMETIC)
        self._weights = batch_weights(graph, b, f"{_SCOPE}/denominator", ACCUMULATOR)
        if self._weights is not None:
            self._totals[self._weights.state] = self._weights.total
        return [(self._mean(graph, gradient, variable), variable) for gradient, variable in pairs]

    def _mean(self, graph: TrainingGraph, gradient: Gradient, variable: State) -> Any:
        if gradient is None:
            return None
        b = graph.scoped(_SCOPE, Part.ARITHMETIC)
        wide = np.dtype(np.float64 if variable.dtype.itemsize == 8 else np.float32)
        zeros = np.zeros(variable.shape, wide)
        state = graph.state(f"{variable.name}/{ACCUMULATED}", zeros, ACCUMULATOR)
        new = b.cast(dense(b, unwrap(gradient)), ir.DataType.from_numpy(wide))
        weights = self._weights
        total = b.add(state.value, new if weights is None else weights.weighted(b, new))
        total = b.shaped_like(total, state.value)
        self._totals[state] = total
        mean = b.mul(total, self._share(b, wide)) if weights is None else weights.mean(b, total)
        return wrap(graph, b.shaped_like(mean, total))

    def _share(self, b: Builder, dtype: np.dtype[Any]) -> ir.Value:
        """Return 1 / (batches so far): of an update that is applied early they are fewer."""
        assert self._count is not None, "add has begun to count"
        if dtype not in self._shares:
            count = b.cast(self._count, ir.DataType.from_numpy(dtype))
            self._shares[dtype] = b.reciprocal(count)
        return self._shares[dtype]

    def every(self, train_op: TrainOp) -> TrainOp:
        """Return a step that updates with every last batch, and else adds up gradients.

        Args:
            train_op: What was made of the pairs that `add` returned.

        Raises:
            OptimizerTypeError: `train_op` is none.
            OptimizerValueError: `add` was not called.
        """
        if not isinstance(train_op, TrainOp):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptimizerTypeError(
                "not a training step",
                found=f"an object of type {type(train_op).__name__}",
                remedy="pass what apply_gradients returned",
            )
        if self.steps == 1:
            return train_op
        count = self._count
        if self._counter is None or count is None:
            raise OptimizerValueError(
                "nothing is accumulated", remedy="call add with what compute_gradients returned"
            )
        graph = train_op.graph
        b = graph.scoped(_SCOPE, Part.LOSS_SCALE)
        boundary = b.equal(count, self.steps)
        boundary.name = graph.free_name(f"{_SCOPE}/boundary")
        applied, waiting = self._both(b, train_op, count)
        updates = _either(b, boundary, applied, waiting, self._mode, train_op)
        graph.forget_shapes()
        changed = {value: updates[name] for name, value in train_op.updates.items()}
        fetches = {key: changed.get(v, v) for key, v in train_op.fetches.items()}
        if NORM in fetches:
            fetches[NORM] = b.where(boundary, fetches[NORM], 0.0)
        if FINITE in fetches:
            fetches[FINITE] = b.op("Or", b.logical_not(boundary), fetches[FINITE])
        fetches[ACCUMULATED] = updates[self._counter.name]
        accumulated = Accumulated(self.steps, boundary, self._counter)
        return replace(train_op, updates=updates, fetches=fetches, accumulated=accumulated)

    def _both(
        self, b: Builder, op: TrainOp, count: ir.Value
    ) -> tuple[dict[str, ir.Value], dict[str, ir.Value]]:
        """Return what states are after the last batch, and after any other one."""
        assert self._counter is not None, "checked before"
        graph = op.graph
        waiting = {name: graph.states[name].value for name in op.updates}
        waiting |= self._moved_statistics(b, op)
        applied = dict(op.updates)
        for state, total in self._totals.items():
            waiting[state.name], applied[state.name] = total, b.zeros_like(total)
        waiting[self._counter.name], applied[self._counter.name] = count, b.constant(0)
        for name, value in op.updates.items():
            if str(value.name).endswith(":next"):  # what the choice will be called
                value.name = graph.free_name(f"{name}:applied")
        return applied, waiting

    @staticmethod
    def _moved_statistics(b: Builder, op: TrainOp) -> dict[str, ir.Value]:
        """Return the running statistics after a batch that is not the last one."""
        graph, moved = op.graph, dict[str, ir.Value]()
        for name, value in graph.statistics(None if op.loss is None else op.loss.value).items():
            if name not in op.updates:
                continue
            moved[name] = value
            if FINITE in op.fetches:
                total = b.reduce_sum(value, keepdims=False)
                is_finite = b.equal(b.sub(total, total), 0.0)
                moved[name] = b.where(is_finite, value, graph.states[name].value)
        return moved


def _either(
    b: Builder,
    boundary: ir.Value,
    applied: Mapping[str, ir.Value],
    waiting: Mapping[str, ir.Value],
    mode: str,
    op: TrainOp,
) -> dict[str, ir.Value]:
    """Return each value after this batch: `applied` if it is the last one, else `waiting`."""
    changed = set(op.updates.values())
    return conditional(
        b,
        boundary,
        applied,
        waiting,
        mode,
        keep={*waiting.values(), *(v for v in op.fetches.values() if v not in changed)},
        movable=lambda node: part_of(node) in _MOVABLE,
    )


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

    Returns:
        The weights, or None if all batches count equally: the loss is not a weighted mean.
    """
    compared = None if graph.loss is None else compared_by(graph.loss.value)
    if compared is None or compared.denominator is None:
        return None
    batch = compared.denominator
    state = graph.state(name, np.array(0, b.type_of(batch).numpy()), role)
    return BatchWeights(batch, state, b.shaped_like(b.add(state.value, batch), state.value))
