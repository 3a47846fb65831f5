"""The record of what was scaled in a model, and what could not be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_rewrite.graph.flat import FlatGraph


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
    casts_saved: int = 0
    nodes_saved: int = 0


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
        proof: What running it beside the original showed; None if it was not run.
    """

    flat: FlatGraph = field(repr=False)
    sets: tuple[ScaledSet, ...]
    unscaled: tuple[Unscaled, ...] = ()
    subnormal: int = 0
    casts_saved: int = 0
    nodes_saved: int = 0
    borders: tuple[Border, ...] = ()
    proof: Proof | None = None

    @property
    def added(self) -> int:
        """How many Mul nodes stand where a set that is scaled ends."""
        return len(self.borders)

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
