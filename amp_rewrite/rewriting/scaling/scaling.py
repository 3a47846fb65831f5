"""The record of what was scaled in a model, and what could not be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from amp_rewrite.base.printable import counted, few
from amp_rewrite.graph.flat import FlatGraph

_MOST = 3
"""How many sets of values, and values that are not scaled, the text names."""


@dataclass(frozen=True, slots=True)
class ScaledSet:
    """Values that are scaled together.

    Attributes:
        first: The first of them in execution order, by name.
        top: The one with the largest magnitude.
        values: Name of a value -> its exponent: the file computes it times 2^exponent.
        nodes: Name of a node that makes one -> the exponent of its first result.
        exponent: The exponent of the value with the largest magnitude.
        largest: Its largest magnitude before, as measured, or as bounds tell; 0 where a constant
            is what does not fit.
        constants: How many constants, attributes included, are multiplied for it.
    """

    first: str
    top: str
    values: Mapping[str, int]
    nodes: Mapping[str, int]
    exponent: int
    largest: float
    after: float
    constants: int

    def __str__(self) -> str:
        """Return what is scaled, and by how much."""
        peak = f"the largest magnitude is {self.after:.4g} instead of {self.largest:.4g}; "
        return (
            f"{counted(len(self.values), 'value')} from {self.first} on by 2^{self.exponent}: "
            f"{peak if self.largest else ''}{counted(self.constants, 'constant')} changed"
        )


@dataclass(frozen=True, slots=True)
class Border:
    """A Mul that stands where a set that is scaled ends, or begins.

    Attributes:
        made: The exponent with which that is made.
        read: The exponent with which it is read behind the Mul.
        readers: The nodes that read it so.
    """

    node: str
    value: str
    made: int
    read: int
    readers: tuple[str, ...]

    def __str__(self) -> str:
        """Return what is read how, and where."""
        made, read = f"computed times 2^{self.made}", f"read times 2^{self.read}"
        return f"{self.value} is {made}, and {read} by {few(self.readers)}"


@dataclass(frozen=True, slots=True)
class Unscaled:
    """Values that leave the range and are not scaled.

    Attributes:
        value: The one with the largest magnitude.
    """

    value: str
    largest: float
    why: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """How far a scaled model was from the original when both were run in float32.

    Attributes:
        difference: Of an output at most, relative to its largest magnitude; 0: the same bits.
    """

    difference: float
    batches: int

    def __str__(self) -> str:
        """Return how far outputs were apart, and on how many feeds."""
        feeds = counted(self.batches, "feed")
        if not self.difference:
            return f"in float32 the same bits as the original on {feeds}"
        return (
            f"in float32 within {self.difference:.1e} of the largest magnitude of an output of the "
            f"original on {feeds}"
        )


@dataclass(frozen=True)
class Scaling:
    """The record of what was scaled in a model.

    Attributes:
        flat: The scaled model: the same nodes with other constants, and Muls where sets end. Its
            metadata note the exponents (noted_exponents.py).
        sets: What is scaled together; empty if nothing can be, and then the model is the one given.
        unscaled: What leaves the range and is not.
        subnormal: How many constants have elements that lose digits because of it.
        casts_saved: How many Casts less are added than without it.
        variables_saved: How many type variables less stay float32.
        borders: The Mul nodes that were added where a set that is scaled ends.
        proof: What running it beside the original showed; None if it was not run.
    """

    flat: FlatGraph = field(repr=False, compare=False)
    sets: tuple[ScaledSet, ...]
    unscaled: tuple[Unscaled, ...] = ()
    subnormal: int = 0
    casts_saved: int = 0
    variables_saved: int = 0
    borders: tuple[Border, ...] = ()
    proof: Proof | None = None

    def of_node(self, node: str) -> str:
        """Return what scaling does to a node, in words; nothing if it is not concerned."""
        border = next((b for b in self.borders if b.node == node), None)
        if border is not None:
            return f"scaling added it: {border}"
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
        yield from (f"scaled: {scaled_set}" for scaled_set in self.sets[:_MOST])
        if len(self.sets) > _MOST:
            yield f"scaled: {counted(len(self.sets) - _MOST, 'more set')} of values"
        if self.sets:
            casts = counted(abs(self.casts_saved), "cast")
            variables = counted(self.variables_saved, "float32 type variable")
            adds = "adds " if self.casts_saved < 0 else ""
            yield f"scaling saves {variables} and {adds}{casts}"
        if self.borders:
            count = counted(len(self.borders), "Mul node")
            yield f"scaling adds {count} where scaled values end"
        if self.subnormal:
            what = "constant has" if self.subnormal == 1 else "constants have"
            yield f"scaling: {self.subnormal} {what} elements below the normal numbers for it"
        if self.proof is not None:
            yield f"scaling proved: {self.proof}"
        for other in self.unscaled[:_MOST]:
            yield f"not scaled: {other.value}, which reaches {other.largest:.4g}: {other.why}"

    @property
    def nodes_left(self) -> int:
        """How many nodes make what leaves the range and is not scaled."""
        return sum(len(left.nodes) for left in self.unscaled)

    def refused(self, why: str) -> tuple[Unscaled, ...]:
        """Return all that leaves the range as not scaled, its sets for a reason."""
        left = (
            Unscaled(each.top, each.largest, why, (*each.nodes,))
            for each in self.sets
            if each.largest
        )
        return (*left, *self.unscaled)
