"""Averages of variables over the steps, as states of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.optimizers.train_op import TrainOp

AVERAGE, COUNT = "average", "averaged"
"""The roles of the states: an average, and how many times was averaged."""


class Average(TypedDict):
    """How variables are averaged: the arguments of `WeightAverage`, which has the formulas."""

    decay: float | None
    warm_up: bool
    start: int
    every: int


def averaged(op: TrainOp, average: Average) -> TrainOp:
    """Return a step that averages the variables that it updates."""
    graph = op.graph
    b = graph.scoped("average", Part.UPDATE)
    updated = [graph.states[name] for name in op.updates]
    variables = [state for state in updated if state.role == "variable"]
    averages = {v.name: graph.state(f"{v.name}/{AVERAGE}", v.read(), AVERAGE) for v in variables}
    count = graph.state(COUNT, np.array(0, np.int64), COUNT)
    assert op.global_step is not None, "an optimizer counts its steps"
    share, following = _share(b, average, op.updates[op.global_step], count.value)
    updates = {**op.updates, count.name: following}
    for name, state in averages.items():
        moved = b.mul(b.sub(op.updates[name], state.value), b.cast(share, state.dtype))
        updates[state.name] = b.shaped_like(b.add(state.value, moved), state.value)
    names = {name: state.name for name, state in averages.items()}
    return replace(op, updates=updates, averages={**op.averages, **names})


def _share(
    b: Builder, average: Average, step: ir.Value, count: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return the share of the variables in the averages after a step, and the next count.

    Steps are counted from 1.
    """
    decay, every = average["decay"], average["every"]
    past = b.sub(b.cast(step, ir.DataType.INT64), average["start"])
    begun = counts = b.greater_or_equal(past, 1)
    if every > 1:
        rest = b.sub(past, b.mul(b.div(past, every), every))
        counts = b.logical_and(counts, b.equal(rest, 0))
    done = b.cast(count, ir.DataType.FLOAT)
    if decay is None:
        share: ir.Value | float = b.reciprocal(b.add(done, 1.0))
    elif average["warm_up"]:
        growing = b.div(b.add(done, 1.0), b.add(done, 10.0))
        share = b.sub(1.0, b.minimum(growing, decay))
    else:
        share = 1 - decay
    waiting = b.where(begun, 0.0, b.constant(np.array(1, np.float32)))
    chosen = b.where(counts, share, waiting)
    return chosen, b.add(count, b.cast(counts, ir.DataType.INT64))
