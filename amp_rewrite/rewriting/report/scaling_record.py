"""The report's record of values that were multiplied by powers of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amp_rewrite.base.printable import counted
from amp_rewrite.rewriting.scaling.scaling import Border, ScaledSet, Scaling, Unscaled

_MOST = 3
"""How many sets of values, and values that are not scaled, the text names."""


@dataclass(frozen=True, slots=True)
class ScalingRecord:
    """The values that were scaled.

    Attributes:
        sets: The sets that are each scaled together.
        unscaled: Values that leave the range and are not scaled.
        subnormal: How many constants have elements that lose digits because of it.
        casts_saved: How many fewer Casts are added than without it.
        variables_saved: How many fewer type variables stay float32.
        nodes_added: How many Mul nodes were added where a set that is scaled ends.
        difference: The largest difference of the scaled model from the original, both in float32,
            relative to the largest magnitude of an output; None if they were not run.
        batches: On how many batches they were run.
        borders: The Mul nodes that were added.
    """

    sets: tuple[ScaledSet, ...]
    unscaled: tuple[Unscaled, ...]
    subnormal: int
    casts_saved: int
    variables_saved: int
    nodes_added: int = 0
    difference: float | None = None
    batches: int = 0
    borders: tuple[Border, ...] = ()

    def of_node(self, node: str) -> str:
        """Return what scaling does to a node, in words; nothing if it is not concerned."""
        border = next((b for b in self.borders if b.node == node), None)
        if border is not None:
            named, more = ", ".join(border.readers[:_MOST]), len(border.readers) - _MOST
            return (
                f"scaling added it: {border.value} is computed times 2^{border.made}, and read "
                f"times 2^{border.read} by {named}{f' and {more} more' if more > 0 else ''}"
            )
        scaled = next((s for s in self.sets if s.nodes.get(node)), None)
        if scaled is not None:
            return (
                f"its result is computed times 2^{scaled.nodes[node]}, to stay in range, with the "
                f"set of {counted(len(scaled.values), 'value')} from {scaled.first} on"
            )
        left = next((u for u in self.unscaled if node in u.nodes), None)
        told = "it belongs to values that leave the range and are not scaled"
        return "" if left is None else f"{told}: {left.why}"

    def lines(self) -> Iterator[str]:
        """Yield what was scaled and what was not, in words; a few of them."""
        yield from (_set_line(scaled_set) for scaled_set in self.sets[:_MOST])
        if len(self.sets) > _MOST:
            yield f"scaled: {len(self.sets) - _MOST} more sets of values"
        casts = counted(abs(self.casts_saved), "cast")
        variables = counted(self.variables_saved, "float32 type variable")
        if self.sets and self.casts_saved < 0:
            yield f"scaling saves {variables} and adds {casts}"
        elif self.sets:
            yield f"scaling saves {casts} and {variables}"
        if self.nodes_added:
            yield f"scaling adds {counted(self.nodes_added, 'Mul node')} where scaled values end"
        if self.subnormal:
            what = "constant has" if self.subnormal == 1 else "constants have"
            yield f"scaling: {self.subnormal} {what} elements below the normal numbers for it"
        if self.difference is not None:
            feeds = counted(self.batches, "feed")
            said = "in float32 the same bits as the original on "
            if self.difference:
                said = f"in float32 within {self.difference:.1e} of the largest magnitude of an "
                said += "output of the original on "
            yield f"scaling proved: {said}{feeds}"
        for other in self.unscaled[:_MOST]:
            yield f"not scaled: {other.value}, which reaches {other.largest:.4g}: {other.why}"


def _set_line(scaled: ScaledSet) -> str:
    """Return what is scaled, by how much, and what that saves."""
    peak = f"the largest magnitude is {scaled.after:.4g} instead of {scaled.largest:.4g}; "
    saves = [
        counted(count, noun)
        for count, noun in ((scaled.casts_saved, "cast"), (scaled.nodes_saved, "float32 node"))
        if count > 0
    ]
    return (
        f"scaled: {counted(len(scaled.values), 'value')} from {scaled.first} on by "
        f"2^{scaled.exponent}: {peak if scaled.largest else ''}"
        f"{counted(scaled.constants, 'constant')} changed"
        f"{', ' + ' and '.join(saves) + ' saved' if saves else ''}"
    )


def scaling_record(
    scaling: Scaling | None, refused: Sequence[Unscaled] = ()
) -> ScalingRecord | None:
    """Return what a report says of a scaling, or of what none was made of; None without either."""
    if scaling is None:
        return ScalingRecord((), tuple(refused), 0, 0, 0) if refused else None
    proof = scaling.proof
    return ScalingRecord(
        scaling.sets,
        scaling.unscaled,
        scaling.subnormal,
        scaling.casts_saved,
        scaling.nodes_saved,
        scaling.added,
        *((None, 0) if proof is None else (proof.difference, proof.batches)),
        scaling.borders,
    )
