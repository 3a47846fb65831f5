"""Add the nodes of a loss scale to a training graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.inject.added_states import add_scale
from amp_rewrite.training.inject.regions import Regions
from amp_rewrite.training.inject.resolve_names import NamedValues
from amp_rewrite.training.loss_scaling.finite import finite_and_norm
from amp_rewrite.training.loss_scaling.gradients import unscaled
from amp_rewrite.training.loss_scaling.loss_scale import LossScale, LossScaleState
from amp_rewrite.training.optimizers.conditional_update import conditional


@dataclass(frozen=True)
class Injected:
    """What a loss scale added to a training graph.

    Attributes:
        scale: Its states; constants if they never change.
        next_scale: Their next values.
        finite: Whether all gradients are finite: bool, shape (); None if that is not checked.
        norm: The global norm of the unscaled gradients; None if nothing is checked.
        following: State -> its next value, conditional if gradients are checked.
        fetched: Name of a graph output -> its value, unscaled.
    """

    scale: LossScaleState
    next_scale: LossScaleState
    finite: ir.Value | None
    norm: ir.Value | None
    following: dict[str, ir.Value]
    fetched: dict[str, ir.Value]


def add_loss_scale(
    b: Builder, step_values: NamedValues, regions: Regions, loss_scale: LossScale, mode: str
) -> Injected:
    """Scale the seed, unscale the gradients, and make the updates conditional.

    The graph has no outputs afterwards. `mode` is "if" or "select".
    """
    scale = add_scale(b, loss_scale)
    _rewire(regions.seed_uses(step_values.seed), b.mul(step_values.seed, scale.current_loss_scale))
    without = _unscale(b, step_values, regions, scale.current_loss_scale)
    following = {name: without.get(v, v) for name, v in step_values.following.items()}
    fetched = {name: without.get(v, v) for name, v in step_values.outputs.items()}
    b.graph.outputs.clear()  # a value that is an output cannot move into an If
    b.graph.sort()
    if not loss_scale.checks:
        return Injected(scale, scale, None, None, following, fetched)
    gradients = [without[v] for v in dict.fromkeys(step_values.gradients.values())]
    finite, norm = finite_and_norm(b, gradients)
    state_of = {_original(v): name for name, v in reversed(following.items())}
    state_of |= {v: name for name, v in reversed(following.items())}
    keep = {step_values.loss, norm, *fetched.values()} - state_of.keys()
    after = _make_conditional(b, step_values, regions, following, finite, mode, keep)
    next_scale = loss_scale.update(b, scale, finite)
    fetched = {k: after[state_of[v]] if v in state_of else v for k, v in fetched.items()}
    return Injected(scale, next_scale, finite, norm, after, fetched)


def _rewire(uses: Iterable[tuple[ir.Node, int]], value: ir.Value) -> None:
    for node, index in uses:
        node.replace_input_with(index, value)


def _unscale(
    b: Builder, step_values: NamedValues, regions: Regions, scale: ir.Value
) -> dict[ir.Value, ir.Value]:
    """Take the scale out where values leave the backward pass.

    Returns:
        Scaled value -> what is used in its place outside: all gradients, and what outputs need.
    """
    graph, flow = b.graph, regions.flow
    live = ancestors([*graph.outputs, *step_values.following.values()])
    wanted = {*step_values.gradients.values(), *step_values.following.values(), *graph.outputs}
    reciprocal = b.reciprocal(scale)
    without: dict[ir.Value, ir.Value] = {}
    for value in regions.scaled_values:
        uses = [use for use in regions.exits(value) if flow.owner(use[0]) in live]
        if uses or value in wanted:
            without[value] = _unscaled(b, value, reciprocal)
            _rewire(uses, without[value])
    return without


def _unscaled(b: Builder, value: ir.Value, reciprocal: ir.Value) -> ir.Value:
    result = unscaled(b, value, reciprocal)
    assert isinstance(result, ir.Value), "a dense value stays one"
    return b.cast_like(result, value)


def _make_conditional(
    b: Builder,
    step_values: NamedValues,
    regions: Regions,
    following: dict[str, ir.Value],
    finite: ir.Value,
    mode: str,
    keep: set[ir.Value],
) -> dict[str, ir.Value]:
    """Return state -> its next value: the present one if not all gradients are finite.

    What reads a next state without being part of the update, say a norm of the new weights, reads
    the conditional value.
    """
    readers = {
        name: _later_uses(b, regions, value)
        for name, value in following.items()
        if value.producer() in regions.update
    }
    for name, uses in readers.items():
        _rewire(uses, step_values.states[name])  # for now, so that nothing keeps the value outside
    # The next value of a constant learning rate, say, is a copy of the present one in any case.
    changed = {k: v for k, v in following.items() if _original(v) is not step_values.states[k]}
    after = {**following, **conditional(b, finite, changed, step_values.states, mode, keep=keep)}
    for name, uses in readers.items():
        _rewire(uses, after[name])
    return after


def _original(value: ir.Value) -> ir.Value:
    """Return what a value is a copy of, or itself."""
    node = value.producer()
    if node is None or node.op_type != "Identity" or node.inputs[0] is None:
        return value
    return node.inputs[0]


def _later_uses(b: Builder, regions: Regions, value: ir.Value) -> list[tuple[ir.Node, int]]:
    """Return the uses of a next state by nodes that no next state and no gradient needs."""
    added, needed = set(b.added), regions.update | regions.backward
    uses = regions.flow.uses(value)
    return [(n, i) for n, i, owner in uses if owner not in needed and owner not in added]
