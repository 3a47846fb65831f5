"""What localise found: frozen records with a JSON form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amp_rewrite import targets
from amp_rewrite.base.printable import one_line


@dataclass(frozen=True, slots=True)
class NodeError:
    """What localise found of one node.

    Attributes:
        node: Its name.
        op: Its operator.
        distance: The distance of its output in the mixed model; NaN inside loop bodies.
        growth: How much larger that is than the largest distance among its inputs.
        contribution: The distance at the model's outputs if this node alone is low; NaN if the
            node is float32 or the budget ended before.
        absorbed: Whether its output is infinite or NaN where float32 is not.
    """

    node: str
    op: str
    distance: float
    growth: float
    contribution: float = math.nan
    absorbed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; what is not finite is text."""
        numbers = {k: getattr(self, k) for k in ("distance", "growth", "contribution")}
        plain = {k: v if math.isfinite(v) else str(v) for k, v in numbers.items()}
        return {"node": self.node, "op": self.op, **plain, "absorbed": self.absorbed}


@dataclass(frozen=True)
class Localisation:
    """Where a mixed model differs from its float32 original.

    Attributes:
        first: The first node in topological order, of those that were tried alone, whose output
            exceeds its tolerance, or None.
        most: The node that contributes most, or None if nothing is low.
        ranking: The low nodes, the one that contributes most first.
        absorbed: Nodes with an infinite or NaN output although the model's outputs are finite.
        outputs: Output name -> its distance.
        tolerance: The largest distance of an output that passes.
        tried: How many nodes were tried alone.
        target: Whose arithmetic was emulated.
    """

    first: NodeError | None
    most: NodeError | None
    ranking: tuple[NodeError, ...]
    absorbed: tuple[str, ...]
    outputs: Mapping[str, float]
    tolerance: float
    tried: int
    target: str = targets.DEFAULT

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        nodes_found = [f"first {self.first.node}"] if self.first is not None else []
        nodes_found += [f"most {self.most.node}"] if self.most is not None else []
        verdict = "passed" if self.holds else "failed"
        return one_line(self, "; ".join([verdict, *nodes_found, f"{self.tried} nodes tried"]))

    @property
    def holds(self) -> bool:
        """Whether every output is within the tolerance and no infinity was absorbed."""
        return not self.absorbed and all(d <= self.tolerance for d in self.outputs.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "version": 1,
            "holds": self.holds,
            "target": self.target,
            "tolerance": self.tolerance,
            "outputs": {k: v if math.isfinite(v) else str(v) for k, v in self.outputs.items()},
            "first": None if self.first is None else self.first.to_dict(),
            "most": None if self.most is None else self.most.to_dict(),
            "absorbed": [*self.absorbed],
            "tried": self.tried,
            "ranking": [error.to_dict() for error in self.ranking],
        }
