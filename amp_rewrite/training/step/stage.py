"""A part of a step that an engine runs without interruption, as a model of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.clone import clone
from amp_rewrite.training.step.cut_step import remove_inputs, remove_unused, values_by_name


@dataclass(frozen=True)
class Stage:
    """A part of a step.

    Attributes:
        model: Its inputs are the states, the data and the values that it reads; its outputs are
            what others read of it.
        enters: The names of values of earlier stages, and of sums over shards, that it reads.
        leaves: The names of its outputs.
    """

    model: ir.Model
    enters: tuple[str, ...]
    leaves: tuple[str, ...]


def stage_of(model: ir.Model, enters: Iterable[ir.Value], leaves: Sequence[ir.Value]) -> Stage:
    """Return the part of a step of known types that computes some values from others."""
    part = clone(model)
    graph = part.graph
    values = values_by_name(graph)
    graph.outputs.clear()
    graph.outputs.extend(values[str(v.name)] for v in leaves)
    names = [str(v.name) for v in enters]
    for name in names:
        old = values[name]
        new = ir.Value(name=name, type=old.type, shape=old.shape)
        old.name = f"{name}:outside"
        graph.inputs.append(new)
        ir.convenience.replace_all_uses_with(old, new)
    remove_unused(graph)
    remove_inputs(graph)
    return Stage(part, tuple(names), tuple(str(v.name) for v in leaves))
