"""The painting: an immutable value that says the color of every vertex and the reason for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from amp_rewrite.rewriting.reasons import PassReason as PassReason
from amp_rewrite.rewriting.reasons import Reason as Reason

if TYPE_CHECKING:
    from amp_rewrite.graph.dataflow import TypeGraph
    from amp_rewrite.graph.flat import Array


class Color(StrEnum):
    """The sets that a vertex can be in; one that is in neither stays float32 as well."""

    ALLOW = "allow"
    DENY = "deny"
    NONE = "none"


class Mark(NamedTuple):
    """The statement of a pass about one vertex.

    Attributes:
        color: The color.
        reason: Why.
        because: The vertex from which the mark spread, or None for an origin.
        detail: A sentence for the user: a list entry's `why`, a range, an option's name.
        constant: The value, a constant, that keeps the vertex float32, or None.
    """

    color: Color
    reason: PassReason
    because: int | None = None
    detail: str | None = None
    constant: int | None = None


Marks = Mapping[int, Mark]
"""The result of a pass: vertex -> mark."""


@dataclass(frozen=True)
class Painting:
    """Vertex -> mark, of `size` vertices; one without a mark was decided by no pass."""

    size: int
    marks: Mapping[int, Mark] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def blank(cls, type_graph: TypeGraph) -> Painting:
        """Return a painting without any mark."""
        return cls(len(type_graph))

    @cached_property
    def allow(self) -> Array:
        """A mask of the vertices that become low precision."""
        return self._mask(Color.ALLOW)

    @cached_property
    def deny(self) -> Array:
        """A mask of the denied vertices."""
        return self._mask(Color.DENY)

    @cached_property
    def marked(self) -> Array:
        """A mask of the vertices that have a mark."""
        return _mask(self.size, self.marks)

    def _mask(self, color: Color) -> Array:
        return _mask(self.size, [v for v, m in self.marks.items() if m.color is color])

    def color(self, vertex: int) -> Color:
        """Return the color of a vertex."""
        mark = self.marks.get(vertex)
        return Color.NONE if mark is None else mark.color

    def is_allow(self, vertex: int) -> bool:
        """Tell whether a vertex becomes low precision; ABSENT does not."""
        return self.color(vertex) is Color.ALLOW

    def is_deny(self, vertex: int) -> bool:
        """Tell whether a vertex is denied."""
        return self.color(vertex) is Color.DENY

    def allowed(self) -> Iterator[int]:
        """Yield the vertices that become low precision."""
        return (v for v, m in self.marks.items() if m.color is Color.ALLOW)

    def low_readers(self, graph: TypeGraph, value: int) -> list[int]:
        """Return the vertices that read a value in the low type."""
        return [v for v in graph.readers(value) if self.is_allow(v)]

    def changes(self, before: Painting) -> dict[int, Mark]:
        """Return the marks that this painting has and an earlier one had not."""
        if self is before:
            return {}
        return {v: m for v, m in self.marks.items() if before.marks.get(v) is not m}

    def with_marks(self, marks: Mapping[int, Mark]) -> Painting:
        """Return a painting in which `marks` replace or extend this one's."""
        if not marks:
            return self
        return Painting(self.size, MappingProxyType({**self.marks, **marks}))


def _mask(size: int, vertices: Iterable[int]) -> Array:
    chosen = np.zeros(size, np.bool_)
    chosen[list(vertices)] = True
    return chosen


OVERFLOWS = frozenset({Reason.CERTAIN_OVERFLOW, Reason.CONSTANT_OVERFLOW})
"""The reasons for float32 that scaling may take away. An estimate is none: where it is too large,
what was scaled by it would become subnormal."""


def overflows(painting: Painting) -> bool:
    """Tell whether something stays float32 because it leaves the range."""
    return any(mark.reason in OVERFLOWS for mark in painting.marks.values())
