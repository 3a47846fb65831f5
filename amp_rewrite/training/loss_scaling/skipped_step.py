"""A step that is skipped if gradients are not finite, with its loss scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.metadata_keys import SCALED_KEY
from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.training.graph.training_graph import TrainingGraph
from amp_rewrite.training.loss_scaling.get import serialize
from amp_rewrite.training.loss_scaling.loss_scale import LossScale, LossScaleState
from amp_rewrite.training.optimizers.conditional_update import conditional
from amp_rewrite.training.optimizers.train_op import FINITE, NORM, TrainOp


def present_state(b: Builder, graph: TrainingGraph, scale: LossScale) -> LossScaleState:
    """Return the state of a loss scale in a graph: values, some of which are constants."""
    states, initial = scale.states_in(graph), scale.initial_state()
    return LossScaleState(
        *(
            states[field].value if field in states else b.constant(array)
            for field, array in initial._asdict().items()
        )
    )


def always_applied(op: TrainOp, scale: LossScale, present: LossScaleState) -> TrainOp:
    """Return a step whose gradients are not checked, with the fetches of its loss scale."""
    return _with_scale(op, op.fetches, scale, present, present)


def skipped_unless_finite(
    b: Builder,
    op: TrainOp,
    scale: LossScale,
    present: LossScaleState,
    *,
    finite: ir.Value,
    norm: ir.Value,
    mode: str,
) -> TrainOp:
    """Return a step that changes only its loss scale if gradients are not finite."""
    graph = op.graph
    applied, skipped = dict(op.updates), {n: s.value for n, s in graph.states.items()}
    names = {field: state.name for field, state in scale.states_in(graph).items()}
    good, bad = scale.applied(b, present), scale.skipped(b, present)
    applied |= {name: getattr(good, field) for field, name in names.items()}
    skipped |= {name: getattr(bad, field) for field, name in names.items()}
    changed = set(op.updates.values())
    updates = conditional(
        b,
        finite,
        applied,
        skipped,
        mode,
        keep={norm, *(value for value in op.fetches.values() if value not in changed)},
        movable=lambda node: part_of(node) in (Part.UPDATE, Part.LOSS_SCALE),
    )
    graph.forget_shapes()
    for name in names.values():
        if updates[name].producer() is not None:
            updates[name].name = graph.free_name(f"{name}:next")
    following = present._replace(**{field: updates[name] for field, name in names.items()})
    now = {op.updates[key]: value for key, value in updates.items() if key in op.updates}
    fetches = {key: now.get(value, value) for key, value in op.fetches.items()}
    fetches |= {FINITE: finite, NORM: norm}
    return _with_scale(replace(op, updates=updates), fetches, scale, present, following)


def _with_scale(
    op: TrainOp,
    fetches: Mapping[str, ir.Value],
    scale: LossScale,
    present: LossScaleState,
    following: LossScaleState,
) -> TrainOp:
    """Return a step with the fetches of its scale and of the counters after it; loss unscaled."""
    shown = {key: value.meta.get(SCALED_KEY, value) for key, value in fetches.items()}
    shown |= {
        "loss_scale": present.current_loss_scale,
        "good_steps": following.good_steps,
        "skipped_steps": following.skipped_steps,
        "consecutive_skips": following.consecutive_skips,
    }
    return replace(op, fetches=shown, loss_scale=serialize(scale))
