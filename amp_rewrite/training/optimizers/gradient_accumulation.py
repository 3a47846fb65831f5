"""Add up the gradients of several batches before they are applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.training.graph.compared import compared_by
from amp_rewrite.training.graph.training_graph import State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.apply_updates import check_pairs
from amp_rewrite.training.optimizers.conditional_update import check_mode, conditional
from amp_rewrite.training.optimizers.gradient import Gradient, dense, unwrap, wrap
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import FINITE, NORM, Accumulated, TrainOp

ACCUMULATED = "accumulated"
"""The fetch of the number of batches that wait, and the end of the states' names."""
COUNTER, ACCUMULATOR = "accumulated", "accumulator"
"""The roles of the states."""

_SCOPE = "accumulate"
_MOVABLE = (Part.UPDATE, Part.LOSS_SCALE, Part.CLIP, Part.ARITHMETIC)
"""The parts whose nodes an If may hold: all but sums over shards."""
_MOST = 2**24
"""The largest number of batches that float32 can count."""


class Accumulation:
    """Adds up the gradients of some batches, each of which is one step, and applies their mean.

    `Optimizer.minimize(loss, accumulate=4)` is short for:

        accumulation = Accumulation(4)
        pairs = accumulation.add(optimizer.compute_gradients(loss))
        train_op = accumulation.every(optimizer.apply_gradients(pairs))

    The pairs may be clipped in between. The first steps - 1 batches change only sums, and running
    statistics of BatchNormalization. Batches of a loss of `amp_rewrite.losses` with an
    `ignore_index` or class weights count by their denominators; other batches count equally, and so
    do shards. `session.run(feeds, apply=True)` applies the mean of fewer batches.

    With a loss scale the mean is checked, and the scale changes once per update, as in PyTorch
    (https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation). Running
    statistics stay finite. Before the last batch "grads_finite" is true and "gradient_norm" is 0.
    """

    def __init__(self, steps: int, *, conditional: str = "if") -> None:
        """Begin without a model.

        Args:
            steps: The number of batches of one update, 1 to 2^24.
            conditional: "if" or "select"; see `LossScaleOptimizer`.
        """
        self.steps = check.whole("number of batches to accumulate", steps, low=1, high=_MOST)
        self._mode = check_mode(conditional)
        self._totals: dict[State, ir.Value] = {}
        self._counter: State | None = None

    def add(self, grads_and_vars: Iterable[tuple[Gradient, Variable]]) -> list[tuple[Any, Any]]:
        """Return each gradient's mean over the batches so far; None stays None.

        A sparse gradient is added to a dense accumulator.

        Args:
            grads_and_vars: The last result of `compute_gradients`, whose loss has the denominator.

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
        b = graph.scoped(_SCOPE, Part.ARITHMETIC)
        divisor = self._total(b, self._counter, b.constant(1))
        compared = None if graph.loss is None else compared_by(graph.loss.value)
        weight = None if compared is None else compared.denominator
        if weight is not None:
            zero = np.array(0, b.type_of(weight).numpy())
            state = graph.state(f"{_SCOPE}/denominator", zero, ACCUMULATOR)
            total = self._total(b, state, weight)
            divisor = b.where(b.equal(total, 0.0), b.ones_like(total), total)
        divisors = {dtype: b.cast(divisor, dtype) for dtype in {_wide(v) for _, v in pairs}}
        means: list[tuple[Any, Any]] = []
        for gradient, variable in pairs:
            mean, wide = None, _wide(variable)
            if gradient is not None:
                zeros = np.zeros(variable.shape, wide.numpy())
                state = graph.state(f"{variable.name}/{ACCUMULATED}", zeros, ACCUMULATOR)
                new = b.cast(dense(b, unwrap(gradient)), wide)
                new = new if weight is None else b.mul(new, b.cast(weight, wide))
                total = self._total(b, state, new)
                mean = wrap(graph, b.shaped_like(b.div(total, divisors[wide]), total))
            means.append((mean, variable))
        return means

    def _total(self, b: Builder, state: State, new: ir.Value) -> ir.Value:
        """Return the sum over the batches so far, which a state holds."""
        total = self._totals[state] = b.shaped_like(b.add(state.value, new), state.value)
        return total

    def every(self, train_op: TrainOp) -> TrainOp:
        """Return a step that updates with every last batch.

        Args:
            train_op: The step with the pairs that `add` returned.

        Raises:
            OptimizerTypeError: It is not a TrainOp.
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
        if self._counter is None:
            raise OptimizerValueError(
                "nothing is accumulated", remedy="call add with what compute_gradients returned"
            )
        graph, before = train_op.graph, train_op.updates
        b = graph.scoped(_SCOPE, Part.LOSS_SCALE)
        boundary = b.equal(self._totals[self._counter], self.steps)
        boundary.name = graph.free_name(f"{_SCOPE}/boundary")
        waiting = {name: graph.states[name].value for name in before}
        waiting |= _moved_statistics(b, train_op)
        waiting |= {state.name: total for state, total in self._totals.items()}
        zeros = {state.name: b.zeros_like(total) for state, total in self._totals.items()}
        for name, value in before.items():
            if str(value.name).endswith(":next"):  # the name of the choice
                value.name = graph.free_name(f"{name}:applied")
        changed = set(before.values())
        updates = conditional(
            b,
            boundary,
            {**before, **zeros},
            waiting,
            self._mode,
            keep={*waiting.values(), *(v for v in train_op.fetches.values() if v not in changed)},
            movable=lambda node: part_in(node.metadata_props) in _MOVABLE,
        )
        graph.forget_shapes()
        now = {value: updates[name] for name, value in before.items()}
        fetches = {key: now.get(v, v) for key, v in train_op.fetches.items()}
        if NORM in fetches:
            fetches[NORM] = b.where(boundary, fetches[NORM], 0.0)
        if FINITE in fetches:
            fetches[FINITE] = b.op("Or", b.logical_not(boundary), fetches[FINITE])
        fetches[ACCUMULATED] = updates[self._counter.name]
        accumulated = Accumulated(self.steps, boundary, self._counter)
        return replace(train_op, updates=updates, fetches=fetches, accumulated=accumulated)


def _wide(variable: State) -> ir.DataType:
    """Return the type of the sums of a variable's gradients."""
    return ir.DataType.DOUBLE if variable.dtype.itemsize == 8 else ir.DataType.FLOAT


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
