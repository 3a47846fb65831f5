"""Which parts of a forward pass gradients compute again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.errors import OptionError
from amp_rewrite.training.grad.blocks import blocks_of


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
        """Return the segments of a forward pass.

        Args:
            nodes: Its nodes, sorted.
            varying: The values that depend on what is trained.

        Raises:
            OptionError: The forward pass has fewer blocks than make two segments.
        """
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
        found: list[list[ir.Node]] = [[]]
        for node in nodes:
            if self.chosen(node):
                found[-1].append(node)
            elif found[-1]:
                found.append([])
        return [run for run in found if run]
