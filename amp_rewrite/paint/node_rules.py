"""The user's rules about single nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeRules:
    """The user's rules about single nodes; patterns match a whole node name.

    Attributes:
        preserve: Names of nodes that the pass must not touch.
        deny: Patterns of nodes to keep out of low precision.
        allow: Patterns of nodes to treat as if on the allow list.
    """

    preserve: frozenset[str] = frozenset()
    deny: tuple[re.Pattern[str], ...] = ()
    allow: tuple[re.Pattern[str], ...] = ()

    def denied_by(self, name: str) -> str | None:
        """Return the deny pattern that matches a node name, or None."""
        return next((p.pattern for p in self.deny if p.fullmatch(name)), None)

    def allowed_by(self, name: str) -> str | None:
        """Return the allow pattern that matches a node name, or None."""
        return next((p.pattern for p in self.allow if p.fullmatch(name)), None)
