"""The transfer rules of all operators, by operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from amp_rewrite.graph.intervals import (
    attention,
    contributed,
    counting,
    curves,
    elementwise,
    moving,
    normalizing,
    products,
    summing,
)
from amp_rewrite.graph.intervals.operation import Rule


def _merged() -> Mapping[str, Rule]:
    """Merge the tables of the families.

    Raises:
        ValueError: An operator is in two of them.
    """
    families = (attention, counting, curves, elementwise, moving, normalizing, products, summing)
    merged: dict[str, Rule] = {}
    for family in families:
        twice = merged.keys() & family.RULES.keys()
        if twice:
            raise ValueError(f"two transfer rules for one operator, among {sorted(twice)}")
        merged |= family.RULES
    return MappingProxyType(merged)


RULES: Mapping[str, Mapping[str, Rule]] = {"": _merged(), "com.microsoft": contributed.RULES}
"""Domain -> operator -> its rule; of any other nothing but its type is known."""
