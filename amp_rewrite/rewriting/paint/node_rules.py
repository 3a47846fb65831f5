"""Rules about single nodes: those of the user, and those that data or a search have shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from amp_rewrite.base.name_patterns import NamePattern
from amp_rewrite.oplists import NodeRule


@dataclass(frozen=True)
class NodeRules:
    """The user's rules about single nodes.

    Attributes:
        preserve: Names of nodes that the pass must not touch.
        deny: Patterns of nodes to keep out of low precision.
        allow: Patterns of nodes to treat as if on the allow list.
    """

    preserve: frozenset[str] = frozenset()
    deny: tuple[NamePattern, ...] = ()
    allow: tuple[NamePattern, ...] = ()

    def denied_by(self, names: Collection[str]) -> str | None:
        """Return the deny pattern that matches a name of a node or of its modules, or None."""
        return next((p.text for p in self.deny if p.matches_any(names)), None)

    def allowed_by(self, names: Collection[str]) -> str | None:
        """Return the allow pattern that matches a name of a node or of its modules, or None."""
        return next((p.text for p in self.allow if p.matches_any(names)), None)


@dataclass(frozen=True)
class Findings:
    """Findings about a model that was run: nodes that have to stay float32, with reasons.

    `measured` tells whether data have shown what all values reach, so that no estimate counts.
    """

    rules: tuple[NodeRule, ...] = ()
    measured: bool = False

    def with_rules(self, rules: Iterable[NodeRule]) -> Findings:
        """Return these findings and more rules."""
        return replace(self, rules=(*self.rules, *rules))


NOTHING_FOUND = Findings()
"""The findings about a model that was not run."""
