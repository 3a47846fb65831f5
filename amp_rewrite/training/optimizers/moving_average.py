"""Averages of variables over the steps, as states of a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.training_graph import TRAINED_ROLES
from amp_rewrite.training.optimizers.train_op import TrainOp

AVERAGE, COUNT = "average", "averaged"
"""The roles of the states: an average, and the number of steps in it."""


def averaged(
    op: TrainOp, *, decay: float | None, warm_up: bool = False, start: int = 0, every: int = 1
) -> TrainOp:
    """Return a step that averages the variables that it updates; see `WeightAverage`."""
    graph = op.graph
    b = graph.scoped("average", Part.UPDATE)
    updated = [graph.states[name] for name in op.updates]
    variables = [state for state in updated if state.role in TRAINED_ROLES]
    averages = {v.name: graph.state(f"{v.name}/{AVERAGE}", v.read(), AVERAGE) for v in variables}
    count = graph.state(COUNT, np.array(0, np.int64), COUNT)
    assert op.global_step is not None, "an optimizer counts its steps"
    # Steps are counted from 1; `done` averages were made before this one.
    past = b.sub(b.cast(op.updates[op.global_step], ir.DataType.INT64), start)
    begun = counts = b.greater_or_equal(past, 1)
    if every > 1:
        rest = b.sub(past, b.mul(b.div(past, every), every))
        counts = b.logical_and(counts, b.equal(rest, 0))
    done = b.cast(count.value, ir.DataType.FLOAT)
    if decay is None:
        share: ir.Value | float = b.reciprocal(b.add(done, 1.0))
    elif warm_up:
        growing = b.div(b.add(done, 1.0), b.add(done, 10.0))
        share = b.sub(1.0, b.minimum(growing, decay))
    else:
        share = 1 - decay
    share = b.where(counts, share, b.where(begun, 0.0, b.constant(np.array(1, np.float32))))
    updates = {**op.updates, count.name: b.add(count.value, b.cast(counts, ir.DataType.INT64))}
    for name, state in averages.items():
        moved = b.mul(b.sub(op.updates[name], state.value), b.cast(share, state.dtype))
        updates[state.name] = b.shaped_like(b.add(state.value, moved), state.value)
    names = {name: state.name for name, state in averages.items()}
    return replace(op, updates=updates, averages={**op.averages, **names})
