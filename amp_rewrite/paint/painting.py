"""The painting: an immutable value that says the color of every vertex and the reason for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir

    from amp_rewrite.graph.dataflow import Vertex


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
    BETWEEN = "between-allow"
    FOLLOWS = "follows-allow"
    CLEAR = "clear-next-to-allow"
    SEQUENCE = "sequence-cluster"
    RETARGETED = "retargeted-cast"
    CONVERTED = "converted-constant"

    FLOAT32_PART = "float32-part"
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
    VARIABLE_READ = "variable-read"
    ISOLATED = "isolated"
    CAST_MOVED = "cast-moved"
    NOT_BETWEEN = "not-between-allow"
    NOT_NEXT = "not-next-to-allow"
    NO_ALLOW = "no-allow-operator"
    CONSTANT = "constant"


class Mark(NamedTuple):
    """What a pass says of one vertex.

    Attributes:
        color: The color.
        reason: Why.
        because: The vertex from which the mark spread, or None for an origin.
        detail: A sentence for the user: a list entry's `why`, a range, an option's name.
        constant: The constant that keeps the vertex float32, or None.
    """

    color: Color
    reason: Reason
    because: Vertex | None = None
    detail: str | None = None
    constant: ir.Value | None = None


@dataclass(frozen=True, slots=True)
class Painting:
    """Vertex -> mark; a vertex without a mark has not been decided by any pass."""

    marks: Mapping[Vertex, Mark] = field(default_factory=lambda: MappingProxyType({}))

    def color(self, vertex: Vertex) -> Color:
        """Return the color of a vertex."""
        mark = self.marks.get(vertex)
        return Color.NONE if mark is None else mark.color

    def is_allow(self, vertex: Vertex | None) -> bool:
        """Tell whether a vertex becomes low precision."""
        mark = self.marks.get(vertex) if vertex is not None else None
        return mark is not None and mark.color is Color.ALLOW

    def is_deny(self, vertex: Vertex) -> bool:
        """Tell whether a vertex is denied."""
        mark = self.marks.get(vertex)
        return mark is not None and mark.color is Color.DENY

    def allowed(self) -> Iterator[Vertex]:
        """Yield the vertices that become low precision."""
        return (v for v, m in self.marks.items() if m.color is Color.ALLOW)

    def denied(self) -> Iterator[Vertex]:
        """Yield the denied vertices."""
        return (v for v, m in self.marks.items() if m.color is Color.DENY)

    def changes(self, before: Painting) -> dict[Vertex, Mark]:
        """Return the marks that this painting has and an earlier one had not."""
        return {v: m for v, m in self.marks.items() if before.marks.get(v) is not m}

    def with_marks(self, marks: Mapping[Vertex, Mark]) -> Painting:
        """Return a painting in which `marks` replace or extend this one's."""
        return Painting(MappingProxyType({**self.marks, **marks})) if marks else self
