"""The user's rules about single nodes."""

from __future__ import annotations

from dataclasses import dataclass

from amp_rewrite.base.name_patterns import NamePattern


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

    def denied_by(self, name: str) -> str | None:
        """Return the deny pattern that matches a node name, or None."""
        return next((p.text for p in self.deny if p.matches(name)), None)

    def allowed_by(self, name: str) -> str | None:
        """Return the allow pattern that matches a node name, or None."""
        return next((p.text for p in self.allow if p.matches(name)), None)
