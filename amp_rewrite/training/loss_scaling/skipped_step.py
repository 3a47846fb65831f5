"""A step that is skipped if gradients are not finite, and loss scales that move in any case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.metadata_keys import SCALED_KEY
from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.training.graph.training_graph import TrainingGraph
from amp_rewrite.training.loss_scaling.get import serialize
from amp_rewrite.training.loss_scaling.loss_scale import AnyState, LossScale, fetches_of
from amp_rewrite.training.optimizers.conditional_update import conditional
from amp_rewrite.training.optimizers.train_op import TrainOp


@dataclass(frozen=True)
class ScaledLoss:
    """The loss scale of a loss, in a step.

    Attributes:
        scale: The loss scale.
        present: Its state before the step: values, which are constants if it never changes.
        finite: Whether the gradients of this loss are finite: bool, shape (). None if it is the
            only loss; so for the next.
        spared: Whether they are, while those of another loss are not.
    """

    scale: LossScale
    present: AnyState
    finite: ir.Value | None = None
    spared: ir.Value | None = None

    def names(self, graph: TrainingGraph) -> dict[str, str]:
        """Return field -> name, of the fields that are states."""
        return {field: state.name for field, state in self.scale.states_in(graph).items()}

    def skipped(self, b: Builder) -> AnyState:
        """Return the state after a step that was skipped.

        A loss that another one has skipped the step of moves its scale as after a finite step; it
        counts the skipped step anyway.
        """
        after = self.scale.skipped(b, self.present)
        if self.spared is None:
            return after
        own = self.scale.update(b, self.present, self.spared)
        return own._replace(skipped_steps=after.skipped_steps)


def present_state(b: Builder, graph: TrainingGraph, scale: LossScale) -> AnyState:
    """Return the state of a loss scale as nodes read it; what never changes is a constant."""
    states, initial = scale.states_in(graph), scale.initial_state()
    return type(initial)(
        *(
            states[field].value if field in states else b.constant(array)
            for field, array in initial._asdict().items()
        )
    )


def always_applied(op: TrainOp, losses: Sequence[ScaledLoss]) -> TrainOp:
    """Return a step whose gradients are not checked, with the fetches of its loss scales."""
    following = [loss.present for loss in losses]
    return _told(op, {**op.fetches, **_fetches(losses, following, None)}, losses)


def skipped_unless_finite(
    b: Builder,
    op: TrainOp,
    losses: Sequence[ScaledLoss],
    finite: ir.Value,
    norm: ir.Value,
    mode: str,
) -> TrainOp:
    """Return a step that changes nothing but loss scales if gradients are not finite.

    At least one of the loss scales changes; with mode "if" the updates move into an If.
    """
    graph = op.graph
    applied, skipped = dict(op.updates), {n: s.value for n, s in graph.states.items()}
    names = [loss.names(graph) for loss in losses]
    for loss, own in zip(losses, names, strict=True):
        if own:
            good, bad = loss.scale.applied(b, loss.present), loss.skipped(b)
            applied |= {name: getattr(good, field) for field, name in own.items()}
            skipped |= {name: getattr(bad, field) for field, name in own.items()}
    changed = set(op.updates.values())
    updates = conditional(
        b,
        finite,
        applied,
        skipped,
        mode,
        keep={
            norm,
            *(loss.finite for loss in losses if loss.finite is not None),
            *(value for value in op.fetches.values() if value not in changed),
        },
        movable=lambda node: part_of(node) in (Part.UPDATE, Part.LOSS_SCALE),
    )
    graph.forget_shapes()
    for name in (name for own in names for name in own.values()):
        if updates[name].producer() is not None:
            updates[name].name = graph.free_name(f"{name}:next")
    following = [
        loss.present._replace(**{field: updates[name] for field, name in own.items()})
        for loss, own in zip(losses, names, strict=True)
    ]
    now = {op.updates[key]: value for key, value in updates.items() if key in op.updates}
    fetches = {key: now.get(value, value) for key, value in op.fetches.items()}
    fetches |= {**_fetches(losses, following, finite), "gradient_norm": norm}
    return _told(replace(op, updates=updates), fetches, losses)


def _fetches(
    losses: Sequence[ScaledLoss], following: Sequence[AnyState], finite: ir.Value | None
) -> dict[str, ir.Value]:
    """Return what can be fetched: of the first loss, and if there are several of each."""
    fetches = fetches_of(losses[0].present, following[0], finite)
    if len(losses) > 1:
        for number, (loss, after) in enumerate(zip(losses, following, strict=True)):
            own = fetches_of(loss.present, after, finite if loss.finite is None else loss.finite)
            fetches |= {f"{name}_{number}": value for name, value in own.items()}
    return fetches


def _told(op: TrainOp, fetches: Mapping[str, ir.Value], losses: Sequence[ScaledLoss]) -> TrainOp:
    """Return a step with fetches and loss scales; its loss is not what `get_scaled_loss` made."""
    configurations = [serialize(loss.scale) for loss in losses]
    return replace(
        op,
        fetches={key: value.meta.get(SCALED_KEY, value) for key, value in fetches.items()},
        loss_scale=configurations[0],
        loss_scales=configurations if len(losses) > 1 else (),
    )
