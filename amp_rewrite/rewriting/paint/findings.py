"""What data or a search have shown of a model: an argument of its painting, beside the lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from amp_rewrite.oplists import NodeRule


@dataclass(frozen=True)
class Findings:
    """What is known of a model because somebody ran it.

    Attributes:
        rules: The nodes, or type variables of nodes, that have to stay float32, with reasons.
        measured: Whether data have shown what all values reach, so that no estimate of that keeps
            anything in float32 where everything has to be in 16 bits.
    """

    rules: tuple[NodeRule, ...] = ()
    measured: bool = False

    def with_rules(self, rules: Iterable[NodeRule]) -> Findings:
        """Return these findings and more rules."""
        return replace(self, rules=(*self.rules, *rules))


NOTHING_FOUND = Findings()
"""What is known of a model that nobody ran."""
