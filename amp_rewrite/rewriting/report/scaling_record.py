"""What a report says of values that were multiplied by powers of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from amp_rewrite.base.printable import counted
from amp_rewrite.rewriting.report.records import Record
from amp_rewrite.rewriting.scaling.scaling import Scaling, Unscaled

_MOST = 3
"""How many sets of values, and values that are not scaled, the text names."""


@dataclass(frozen=True, slots=True)
class ScaledSetRecord(Record):
    """Values that are scaled together.

    Attributes:
        first: The first of them in execution order.
        top: The one with the largest magnitude.
        values: Name of a value -> its exponent: the file computes it times 2^exponent.
        nodes: Name of a node that makes one -> the exponent of its first result.
        exponent: The exponent of the value with the largest magnitude.
        largest: Its largest magnitude before, as measured, or as bounds tell; 0 where a constant
            is what does not fit.
        after: The same in the rewritten model.
        constants: How many constants take a factor for it; attributes do not count.
        casts_saved: How many Casts less are added of its values, and of what is computed of them.
        nodes_saved: How many nodes that make them are low with it only.
    """

    first: str
    top: str
    values: Mapping[str, int]
    nodes: Mapping[str, int]
    exponent: int
    largest: float
    after: float
    constants: int
    casts_saved: int
    nodes_saved: int

    def phrase(self, node: str) -> str:
        """Return how the first result of a node is scaled, and with what."""
        others = counted(len(self.values), "value")
        return (
            f"its result is computed times 2^{self.nodes[node]}, to stay in range, "
            f"with the set of {others} from {self.first} on"
        )

    def line(self) -> str:
        """Return what is scaled, by how much, and what that saves."""
        peak = f"the largest magnitude is {self.after:.4g} instead of {self.largest:.4g}; "
        saves = [
            counted(count, noun)
            for count, noun in ((self.casts_saved, "cast"), (self.nodes_saved, "float32 node"))
            if count > 0
        ]
        return (
            f"scaled: {counted(len(self.values), 'value')} from {self.first} on by "
            f"2^{self.exponent}: {peak if self.largest else ''}"
            f"{counted(self.constants, 'constant')} changed"
            f"{', ' + ' and '.join(saves) + ' saved' if saves else ''}"
        )


@dataclass(frozen=True, slots=True)
class BorderRecord(Record):
    """A Mul that stands where a set that is scaled ends, or begins.

    Attributes:
        node: Its name.
        value: What it multiplies.
        made: The exponent with which that is made.
        read: The exponent with which it is read behind the Mul.
        readers: The nodes that read it so.
    """

    node: str
    value: str
    made: int
    read: int
    readers: tuple[str, ...]

    def phrase(self) -> str:
        """Return what the Mul is for."""
        named, more = ", ".join(self.readers[:_MOST]), len(self.readers) - _MOST
        readers = f"{named} and {more} more" if more > 0 else named
        return (
            f"scaling added it: {self.value} is computed times 2^{self.made}, and read times "
            f"2^{self.read} by {readers}"
        )


@dataclass(frozen=True, slots=True)
class UnscaledRecord(Record):
    """Values that leave the range and are not scaled.

    Attributes:
        value: The one with the largest magnitude.
        largest: Its largest magnitude.
        why: What speaks against it.
        nodes: The nodes that make such values.
    """

    value: str
    largest: float
    why: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalingRecord(Record):
    """What was scaled.

    Attributes:
        sets: What is scaled together; empty if nothing is.
        unscaled: What leaves the range and is not.
        subnormal: How many constants have elements that lose digits because of it.
        casts_saved: How many Casts less are added than without it.
        variables_saved: How many type variables less stay float32.
        nodes_added: How many Mul nodes stand where a set that is scaled ends.
        difference: How far the scaled model is from the original at most, both in float32, relative
            to the largest magnitude of an output; None if they were not run.
        batches: On how many batches they were run.
        borders: The Mul nodes that were added.
    """

    sets: tuple[ScaledSetRecord, ...]
    unscaled: tuple[UnscaledRecord, ...]
    subnormal: int
    casts_saved: int
    variables_saved: int
    nodes_added: int = 0
    difference: float | None = None
    batches: int = 0
    borders: tuple[BorderRecord, ...] = ()

    def of_node(self, node: str) -> str:
        """Return what scaling does to a node, in words; nothing if it is not concerned."""
        border = next((b for b in self.borders if b.node == node), None)
        if border is not None:
            return border.phrase()
        found = next((s for s in self.sets if s.nodes.get(node)), None)
        if found is not None:
            return found.phrase(node)
        left = next((u for u in self.unscaled if node in u.nodes), None)
        told = "it belongs to values that leave the range and are not scaled"
        return "" if left is None else f"{told}: {left.why}"

    def lines(self, *, every: bool = False) -> Iterator[str]:
        """Yield what was scaled and what was not, in words; a few of them, or every one."""
        most = max(len(self.sets), len(self.unscaled)) if every else _MOST
        yield from (found.line() for found in self.sets[:most])
        if len(self.sets) > most:
            yield f"scaled: {len(self.sets) - most} more sets of values"
        saved = counted(self.casts_saved, "cast")
        variables = counted(self.variables_saved, "float32 type variable")
        if self.sets:
            yield f"scaling saves {saved} and {variables}"
        if self.nodes_added:
            yield f"scaling adds {counted(self.nodes_added, 'Mul node')} where scaled values end"
        if self.subnormal:
            what = "constant has" if self.subnormal == 1 else "constants have"
            yield f"scaling: {self.subnormal} {what} elements below the normal numbers for it"
        if self.difference is not None:
            yield self._proof(self.difference)
        for other in self.unscaled[:most]:
            yield f"not scaled: {other.value}, which reaches {other.largest:.4g}: {other.why}"

    def _proof(self, difference: float) -> str:
        feeds = counted(self.batches, "feed")
        if not difference:
            return f"scaling proved: in float32 the same bits as the original on {feeds}"
        return (
            f"scaling proved: in float32 within {difference:.1e} of the largest magnitude of an "
            f"output of the original on {feeds}"
        )


def scaling_record(
    scaling: Scaling | None, refused: Sequence[Unscaled] = ()
) -> ScalingRecord | None:
    """Return what a report says of a scaling, or of what none was made of; None without either."""
    left = tuple(UnscaledRecord(u.value, u.largest, u.why, u.nodes) for u in refused)
    if scaling is None:
        return ScalingRecord((), left, 0, 0, 0) if left else None
    sets = (
        ScaledSetRecord(**{field.name: getattr(s, field.name) for field in fields(s)})
        for s in scaling.sets
    )
    unscaled = (UnscaledRecord(u.value, u.largest, u.why, u.nodes) for u in scaling.unscaled)
    return ScalingRecord(
        tuple(sets),
        tuple(unscaled),
        scaling.subnormal,
        scaling.casts_saved,
        scaling.nodes_saved,
        scaling.added,
        *(
            (None, 0)
            if scaling.proof is None
            else (scaling.proof.difference, scaling.proof.batches)
        ),
        tuple(BorderRecord(b.node, b.value, b.made, b.read, b.readers) for b in scaling.borders),
    )
