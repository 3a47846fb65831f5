"""Which parts of a forward pass gradients compute again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.errors import OptionError
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import inputs_of


@dataclass(frozen=True)
class Recomputed:
    """A choice of nodes.

    Attributes:
        every: So many blocks are one segment; the last one is kept. 0 goes by `chosen`.
        chosen: Whether a node is chosen; neighbours that are make one segment.
    """

    every: int
    chosen: Callable[[ir.Node], bool]

    def segments(
        self, nodes: Sequence[ir.Node], varying: Collection[ir.Value]
    ) -> list[list[ir.Node]]:
        """Return the segments of a forward pass."""
        if not self.every:
            return self._runs([n for n in nodes if any(v in varying for v in n.outputs)])
        blocks = blocks_of(nodes, varying)
        starts = range(0, len(blocks), self.every)
        groups = [[n for b in blocks[i : i + self.every] for n in b] for i in starts]
        if len(groups) < 2:
            raise OptionError(
                "there is nothing to compute again: the last segment is kept",
                where="recompute",
                found=f"{len(blocks)} blocks, {self.every} of which are a segment",
                remedy="take fewer blocks, or name the nodes",
            )
        return groups[:-1]

    def _runs(self, nodes: Sequence[ir.Node]) -> list[list[ir.Node]]:
        """Return the runs of chosen nodes."""
        runs: list[list[ir.Node]] = [[]]
        for node in nodes:
            if self.chosen(node):
                runs[-1].append(node)
            elif runs[-1]:
                runs.append([])
        return [run for run in runs if run]


_Placed = tuple[int, ir.Node]

_BRANCH = 4
"""A stretch of more blocks than that, all of which read what entered it, is not a branch of a
network but a network of its own: a decoder that reads the encoder's result, what a U-Net's
skip spans."""


def blocks_of(nodes: Sequence[ir.Node], varying: Collection[ir.Value]) -> list[list[ir.Node]]:
    """Return the forward nodes that gradients go through, cut into blocks.

    A block ends where all that follows depends on what came before through one value alone, and has
    a product in it: a branch of a transformer with the sum that ends it, a convolution, a dense
    layer. What comes behind the last cut is the last block. The nodes are sorted; `varying` values
    depend on what is trained.
    """
    passed = [node for node in nodes if any(v in varying for v in node.outputs)]
    last = {v: i for i, node in enumerate(passed) for v in inputs_of(node) if v in varying}
    blocks = _cut(list(enumerate(passed)), last, frozenset())
    return [[node for _, node in block] for block in blocks]


def _cut(
    nodes: Sequence[_Placed], last: Mapping[ir.Value, int], outside: frozenset[ir.Value]
) -> list[list[_Placed]]:
    """Return blocks of nodes.

    Args:
        nodes: Nodes with their places in the network.
        last: Value -> the place of its last reader.
        outside: Values that are there anyway.
    """
    blocks: list[list[_Placed]] = []
    block: list[_Placed] = []
    entered = outside
    waiting: set[ir.Value] = set()
    for place, node in nodes:
        block.append((place, node))
        waiting.update(v for v in node.outputs if v not in outside)
        waiting = {v for v in waiting if last.get(v, -1) > place}
        if len(waiting) == 1 and any(has(n, Trait.CONTRACTS) for _, n in block):
            blocks += _as_network(block, last, outside, entered)
            block, entered = [], outside | waiting
    return blocks + (_as_network(block, last, outside, entered) if block else [])


def _as_network(
    block: list[_Placed],
    last: Mapping[ir.Value, int],
    outside: frozenset[ir.Value],
    entered: frozenset[ir.Value],
) -> list[list[_Placed]]:
    """Return a block, or the blocks in it if they are more than a branch has."""
    inner = _cut(block, last, entered) if entered > outside else [block]
    return inner if len(inner) > _BRANCH else [block]
