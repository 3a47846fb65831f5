"""A group that the target computes as one operator has one type.

It becomes low only where the target fuses it in the low type and has a kernel for that. The core of
a normalization, in front of scale and bias (its tail), sums squares and stays float32: low x ->
Cast to float32 -> core -> Cast to low -> tail is a normalization in the low type, of which a
runtime takes the Casts into the group.

Evidence: minilm_l3 in bfloat16: without the pass its Gelus are low, which ONNX Runtime fuses in
float32 alone; 131 low nodes and 113.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.flat import Array
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.groups import FusedGroup
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason

Marks = dict[int, Mark]


@paints("keep-groups", Place(Stage.KEEPING, 10), Place(Stage.JUDGING, 10))
def keep_groups(context: PaintContext, painting: Painting) -> Marks:
    """Give every group of the target one type: marks are low or float32."""
    marks: Marks = {}
    for fused in context.groups:
        if context.given is not None and not _has_lost(context.given, painting, fused):
            continue
        judge = _Judge(context, painting, fused)
        marks |= judge.marks()
    return marks


def _has_lost(low_before: Array, painting: Painting, fused: FusedGroup) -> bool:
    """Tell whether something of a group was low and is to be no more."""
    return any(low_before[v] and not painting.is_allow(v) for v in (*fused.core, *fused.tail))


@dataclass(frozen=True)
class _Judge:
    """The outcome for one group in one painting."""

    context: PaintContext
    painting: Painting
    fused: FusedGroup

    def marks(self) -> Marks:
        """Return the marks of the group."""
        return self.with_tail() if self.fused.tail else self.without_tail()

    def without_tail(self) -> Marks:
        """Return the marks of a group whose members all have one type."""
        members, results = self.fused.core, self.fused.results
        low = self._low_among(results)
        if self.context.force_all or not (low or self._reads_low()):
            return {}
        if (low or self._gives_low()) and self._may_become_low(members):
            return {} if len(low) == len(results) else self._low(members)
        return self._float32(members if low else ()) | self._float32(self._front(), "the input of")

    def with_tail(self) -> Marks:
        """Return the marks of a group whose tail may be low while its core is float32."""
        if self.context.only_low:
            return {}
        results, tail = self.fused.results, self.fused.tail
        low_core, low_tail = self._low_among(results), self._low_among(tail)
        if low_core:
            is_low = len(low_core) + len(low_tail) == len(results) + len(tail)
            return {} if is_low and self._reads_low() else self._float32(self.fused.core)
        if not self._has_low_input():
            return self._float32(tail) if low_tail and not self._runs(FLOAT32, low_tail) else {}
        if len(low_tail) == len(tail):
            return {} if self._may_become_low(tail) else self._float32(tail)
        if not low_tail and self._runs(self.context.low, low_tail):
            return {}
        if self._may_become_low(tail):
            return self._low(tail)
        return self._float32(tail) if low_tail else self._float32(self.fused.makers, "the input of")

    def _low_among(self, vertices: Iterable[int]) -> list[int]:
        return [v for v in vertices if self.painting.is_allow(v)]

    def _has_low_input(self) -> bool:
        """Tell whether the operator's input is low: seen through the group's own Cast."""
        fused = self.fused
        return (
            fused.is_local
            and all(self.painting.is_allow(v) and self._is_low(x) for v, x in fused.rivals)
            and self.context.low_ends.issuperset(fused.ends)
            and self._reads_low()
        )

    def _is_low(self, value: int) -> bool:
        maker = self.context.type_graph.source[value]
        return value in self.context.low_ends or self.painting.is_allow(maker)

    def _reads_low(self) -> bool:
        """Tell whether what the group reads is low, before any Cast."""
        is_low_end = not self.context.low_ends.isdisjoint(self.fused.inputs)
        return is_low_end or bool(self._low_among(self.fused.makers))

    def _gives_low(self) -> bool:
        """Tell whether something low reads the result of a group without tail."""
        result = self.fused.results[-1]
        return bool(self._low_among(self.context.type_graph.successors(result)))

    def _front(self) -> tuple[int, ...]:
        """Return what makes the input, where a float32 group must not read it from a Cast."""
        makers, list_of = self.fused.makers, self.context.list_of
        stays_low = any(list_of(vertex) is ListName.ALLOW for vertex in makers)
        return () if self.fused.fusion.behind_cast or stays_low else makers

    def _may_become_low(self, vertices: Iterable[int]) -> bool:
        """Tell whether the target fuses the low group, and can run its nodes alone as well."""
        context, low = self.context, self.context.low
        can = (context.processable, context.supported)
        can += () if context.given is None else (context.given,)
        return context.fuses(self.fused, low, low) and all(
            mask[v] for v in vertices for mask in can
        )

    def _runs(self, operand_type: DType, low_tail: list[int]) -> bool:
        result = self.context.low if low_tail else FLOAT32
        return self.context.fuses(self.fused, operand_type, result)

    def _low(self, vertices: Iterable[int]) -> Marks:
        mark = Mark(Color.ALLOW, Reason.FUSED, None, f"part of {self.fused.words}")
        return dict.fromkeys(vertices, mark)

    def _float32(self, vertices: Iterable[int], role: str = "part of") -> Marks:
        mark = Mark(Color.NONE, Reason.FUSED_GROUP_FLOAT32, None, f"{role} {self.fused.words}")
        return dict.fromkeys(vertices, mark)
