"""The painting: an immutable value that says the color of every vertex and the reason for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from amp_rewrite.graph.dataflow import TypeGraph
    from amp_rewrite.graph.flat import Array


class Color(StrEnum):
    """The sets that a vertex can be in; one that is in neither stays float32 as well."""

    ALLOW = "allow"
    DENY = "deny"
    NONE = "none"


class Reason(StrEnum):
    """Why a vertex has its type: the documented words of the report.

    The first group makes a vertex low, the second keeps it float32.
    """

    ALLOW_LIST = "allow-list"
    FORCED = "forced"
    CONVERTED = "converted-constant"
    FUSED = "fused-group"
    STORED = "stored-constant"
    GIVEN = "given"

    FLOAT32_PART = "float32-part"
    COUNT = "count"
    DEMAND = "demand"
    DENY_LIST = "deny-list"
    DOWNSTREAM_OF_DENY = "downstream-of-deny"
    SQUARE = "square-before-reduction"
    SEQUENCE_DENIED = "sequence-denied"
    PRESERVED = "preserved"
    NODE_RULE = "node-rule"
    UNLISTED = "unlisted"
    UNKNOWN_OPERATOR = "unknown-operator"
    FIXED_TYPE = "fixed-type"
    TYPE_UNSUPPORTED = "type-unsupported"
    OPSET_TOO_OLD = "opset-too-old"
    NO_KERNEL = "no-kernel"
    QUANTIZED = "quantized"
    CONSTANT_OVERFLOW = "constant-overflow"
    CONSTANT_UNDERFLOW = "constant-underflow"
    CERTAIN_OVERFLOW = "certain-overflow"
    LIKELY_OVERFLOW = "likely-overflow"
    VARIABLE_READ = "variable-read"
    NOT_BETWEEN = "not-between-allow"
    NOT_NEXT = "not-next-to-allow"
    NO_ALLOW = "no-allow-operator"
    CONSTANT = "constant"


class PassReason(str):
    """A reason that one pass alone gives, with what is said of it.

    Attributes:
        phrase: What reports say to readers who know lists and passes; `{precision}` and `{target}`
            stand for those of the rewrite.
        plain: The same for other readers; it follows the name of a node.
        row: What docs/painting.md says.
        danger: Whether it is about right and wrong, not about speed, kernels or rules.
    """

    __slots__ = ("danger", "phrase", "plain", "row")

    def __new__(
        cls, word: str, phrase: str = "", plain: str = "", row: str = "", *, danger: bool = False
    ) -> Self:
        """Make a reason of its word in reports."""
        reason = super().__new__(cls, word)
        reason.phrase, reason.plain, reason.row, reason.danger = phrase, plain, row, danger
        return reason


class Mark(NamedTuple):
    """What a pass says of one vertex.

    Attributes:
        color: The color.
        reason: Why.
        because: The vertex from which the mark spread, or None for an origin.
        detail: A sentence for the user: a list entry's `why`, a range, an option's name.
        constant: The value, a constant, that keeps the vertex float32, or None.
    """

    color: Color
    reason: Reason | PassReason
    because: int | None = None
    detail: str | None = None
    constant: int | None = None


Marks = Mapping[int, Mark]
"""What a pass says: vertex -> mark."""


@dataclass(frozen=True)
class Painting:
    """Vertex -> mark; a vertex without a mark has not been decided by any pass.

    Attributes:
        size: How many vertices there are.
        marks: The marks.
    """

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
