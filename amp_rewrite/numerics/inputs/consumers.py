"""Where the numbers of a value go: every use of it, and of what is made of it.

Evidence: that of input_roles.py and linked_sizes.py, which follow inputs so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.graph.traverse import subgraphs

Passes = Callable[[ir.Node, int], bool]
"""Tells whether the numbers of an input of a node go on in its outputs."""


class Consumers:
    """Follows values of a model, into the bodies of If, Loop and Scan and out of them again."""

    def __init__(self, model: ir.Model) -> None:
        """Find which node each body belongs to."""
        self._owners = {b: node for node in model.graph.all_nodes() for b in subgraphs(node)}

    def uses(self, start: ir.Value, passes: Passes) -> Iterator[tuple[ir.Node, int]]:
        """Yield, once each, the uses of a value and of what is made of it, as (node, index).

        `passes` says for every use whether to follow the outputs; bodies are always entered.
        """
        waiting, seen = [start], {start}
        while waiting:
            value = waiting.pop()
            following = self._out_of_body(value)
            for node, index in value.uses():
                yield node, index
                following += _into_bodies(node, index)
                if passes(node, index):
                    following += node.outputs
            waiting += [v for v in following if v not in seen]
            seen.update(following)

    def _out_of_body(self, value: ir.Value) -> list[ir.Value]:
        """Return the outputs of a node that a value of its body becomes."""
        graph = value.graph
        if not isinstance(graph, ir.Graph) or graph not in self._owners:
            return []
        owner = self._owners[graph]
        shift = 1 if owner.op_type == "Loop" else 0  # its condition is not an output of the node
        places = [i - shift for i, v in enumerate(graph.outputs) if v is value]
        return [owner.outputs[i] for i in places if 0 <= i < len(owner.outputs)]


def moves(node: ir.Node, index: int) -> bool:
    """Tell whether the outputs hold the numbers of an input: moved, repeated, of another type."""
    data = row_of(node).data
    return has(node, Trait.MOVES, Trait.CASTS) and (data is None or index in data)


def _into_bodies(node: ir.Node, index: int) -> list[ir.Value]:
    """Return what an input of a Loop or Scan is in its body; the first of a Loop is not a value."""
    if not has(node, Trait.LOOPS):
        return []
    skipped = 1 if node.op_type == "Loop" else 0
    bodies = [b for b in subgraphs(node) if skipped <= index < len(b.inputs)]
    return [body.inputs[index] for body in bodies]
