"""Which part of a finished training graph is what.

All sets are of nodes of the main graph; A -> B means that B depends on A.

    forward   those that the loss depends on
    backward  those that a gradient depends on, less forward
    scaled    backward nodes that depend on the seed: seed -> ... -> a gradient. Where one of them
              uses the seed, the seed is multiplied by the loss scale; other uses are left alone.
    update    those that a next state depends on, less forward and backward

A value that a scaled node computes carries the factor, unless it is a shape or the like. Its uses
by backward nodes accumulate further gradients and stay as they are. Every other use that an output
of the graph depends on is an *exit*: there the factor is taken out. A gradient may have uses of
both kinds. A value that is not a gradient may have an exit to an ordinary output, say the gradient
of an input, which keeps its value this way; an exit towards a next state means that a gradient was
not named, which is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.errors import InjectError
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors, inputs_of, nodes_in
from amp_rewrite.training.inject.linearity import proportional
from amp_rewrite.training.inject.resolve_names import NamedValues


@dataclass(frozen=True)
class Regions:
    """The parts of a training graph, as the module names them.

    `scaled_values` are proportional to the seed, in order, gradients included.
    """

    flow: Dataflow
    backward: frozenset[ir.Node]
    scaled: frozenset[ir.Node]
    update: frozenset[ir.Node]
    scaled_values: tuple[ir.Value, ...]

    def seed_uses(self, seed: ir.Value) -> list[tuple[ir.Node, int]]:
        """Return the uses of the seed that begin the backward pass."""
        return [(n, i) for n, i, owner in self.flow.uses(seed) if owner in self.backward]

    def exits(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """Return the uses of a scaled value outside the backward pass."""
        return [(n, i) for n, i, owner in self.flow.uses(value) if owner not in self.backward]


def regions_of(graph: ir.Graph, step_values: NamedValues) -> Regions:
    """Divide a training graph."""
    flow = Dataflow(graph)
    forward = ancestors([step_values.loss])
    backward = ancestors(step_values.gradients.values()) - forward
    scaled = flow.after([step_values.seed], within=backward)
    update = ancestors(step_values.following.values()) - forward - backward
    values = proportional((node for node in graph if node in scaled), step_values.seed)
    regions = Regions(flow, frozenset(backward), frozenset(scaled), frozenset(update), values)
    _check(regions, step_values)
    return regions


def _check(regions: Regions, step_values: NamedValues) -> None:
    """Check that the seed scales every gradient, and that gradients alone reach the states."""
    scaled = set(regions.scaled_values)
    missing = [name for name, value in step_values.gradients.items() if value not in scaled]
    if missing:
        none = len(missing) == len(step_values.gradients)
        raise InjectError(
            "no gradient depends on the seed"
            if none
            else "a gradient is not on the path from the seed",
            where=step_values.seed.name if none else step_values.gradients[missing[0]].name,
            found=f"the gradients of {', '.join(missing[:5])} do not depend on it",
            remedy="name the value at which the backward pass begins, such as the ones that it "
            "multiplies by, and the gradients that it ends at",
        )
    state_of = {v: state for state, v in step_values.following.items()}
    for value in scaled.difference(step_values.gradients.values()):
        later = (v for node in _behind(regions, value) for v in node.outputs)
        state = next((state_of[v] for v in (value, *later) if v in state_of), None)
        if state is not None:
            raise InjectError(
                "a scaled value that is not among the gradients reaches an update",
                where=value.name,
                found=f"the next value of {state!r} depends on it",
                expected="updates that depend on the named gradients only",
                remedy="name the gradient of every variable as it leaves the backward pass",
            )
    for variable, gradient in step_values.gradients.items():
        following = step_values.following[variable]
        if following is not gradient and following.producer() not in _behind(regions, gradient):
            raise InjectError(
                "an update does not depend on its gradient",
                where=variable,
                found=f"{following.name!r} is computed without {gradient.name!r}",
                remedy="check which gradient belongs to which variable, and updates",
            )


def _behind(regions: Regions, value: ir.Value) -> set[ir.Node]:
    """Return the nodes that a scaled value reaches through its exits."""
    exits = {regions.flow.owner(node) for node, _ in regions.exits(value)}
    return exits | regions.flow.after(v for node in exits for v in node.outputs)


def mark_parts(regions: Regions) -> None:
    """Mark the nodes that bear no mark: a rewrite paints GRADIENT, and keeps UPDATE float32."""
    for nodes, part in ((regions.backward, Part.GRADIENT), (regions.update, Part.UPDATE)):
        for outer in nodes:
            for node in nodes_in(outer):
                node.metadata_props.setdefault(PART_KEY, part)


class Dataflow:
    """The nodes of a main graph and the values between them, as they are now."""

    def __init__(self, graph: ir.Graph) -> None:
        """Read the graph."""
        self._readers: dict[ir.Value, list[ir.Node]] = {}
        self._owner: dict[ir.Node, ir.Node] = {}
        for node in graph:
            for value in inputs_of(node):
                self._readers.setdefault(value, []).append(node)
            for inner in nodes_in(node):
                self._owner[inner] = node

    def owner(self, node: ir.Node) -> ir.Node:
        """Return the node of the main graph that a node is or is inside of."""
        return self._owner.get(node, node)

    def after(self, values: Iterable[ir.Value], within: set[ir.Node] | None = None) -> set[ir.Node]:
        """Return the nodes that depend on any of the values, entering only those `within`."""
        nodes: set[ir.Node] = set()
        left = deque(values)
        while left:
            for node in self._readers.get(left.popleft(), ()):
                if node not in nodes and (within is None or node in within):
                    nodes.add(node)
                    left.extend(node.outputs)
        return nodes

    def uses(self, value: ir.Value) -> list[tuple[ir.Node, int, ir.Node]]:
        """Return (node, input, node of the main graph around it) for each use by a node."""
        return [(use.node, use.idx, self.owner(use.node)) for use in value.uses()]
