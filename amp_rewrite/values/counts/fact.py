"""The kind of number that a value holds, where that is not plain data."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.flat import Array


class Kind(IntEnum):
    """The meaning of a number; of several that are mixed, the largest kind is that of the result.

    Plain data, such as what a layer computes, have no kind: their relative precision is what mixed
    precision gives up.
    """

    FLAG = 1
    """0 or 1: a mask."""
    INPUT = 2
    """Computed from inputs of the model and constants alone: no layer had a part in it."""
    COORDINATE = 3
    """A place, an angle, a ratio of counts: computed from counts."""
    COUNT = 4
    """A position, a length, an index, or arithmetic on such; nothing has normalised it yet."""


class Fact(NamedTuple):
    """The facts about a value.

    Attributes:
        kind: What its numbers stand for.
        origin: The value from which that spread: an integer, or an input of the model.
        whole: Whether every element is a whole number.
        ramp: Whether it runs through places, as a grid or a range does.
        mixed: Whether data have a part in it.
    """

    kind: Kind
    origin: int
    whole: bool = False
    ramp: bool = False
    mixed: bool = False

    def of_kind(self, kind: Kind) -> Fact:
        """Return a fact about a result that need not be whole."""
        return self._replace(kind=kind, whole=False)

    @property
    def is_place(self) -> bool:
        """Whether it is places alone, whose product with data is a place again."""
        return self.ramp and not self.mixed


class Operand(NamedTuple):
    """One input of an operator.

    Attributes:
        fact: What is known of it, or None.
        constant: Its elements if it is a constant that is not too long, or None.
        is_long: Whether it is a constant that is too long.
        is_constant: Whether it is a constant as the file has it, whatever is known of it.
    """

    fact: Fact | None
    constant: Array | None = None
    is_long: bool = False
    is_constant: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is data: neither a constant nor anything that is known."""
        return self.fact is None and self.constant is None

    @property
    def is_data(self) -> bool:
        """Whether it is data, and no constant of any length."""
        return self.is_plain and not self.is_long

    @property
    def kind(self) -> Kind | None:
        """The meaning of its numbers."""
        return None if self.fact is None else self.fact.kind

    @property
    def is_constant_place(self) -> bool:
        """Whether it is a constant that runs through places: a product with it is their mean."""
        return self.is_constant and self.fact is not None and self.fact.is_place

    @property
    def whole(self) -> bool:
        """Whether every element is a whole number."""
        if self.constant is not None:
            return bool(np.all(self.constant == np.floor(self.constant)))
        return self.fact is not None and self.fact.whole

    @property
    def is_flag(self) -> bool:
        """Whether it is a mask, or a constant that may be one: 0, 1 and -1."""
        if self.constant is not None:
            return bool(np.isin(self.constant, (-1, 0, 1)).all())
        return self.kind is Kind.FLAG


def strongest(operands: Iterable[Operand]) -> Fact | None:
    """Return the fact of the largest kind, or None if nothing is known of any operand."""
    facts = [o.fact for o in operands if o.fact is not None]
    return max(facts, key=lambda f: f.kind, default=None)


def combined(operands: Iterable[Operand], kind: Kind, *, whole: bool = False) -> Fact | None:
    """Return a fact of a kind about a result of all operands; None if nothing is known of any."""
    parts = list(operands)
    main = strongest(parts)
    if main is None:
        return None
    facts = [o.fact for o in parts if o.fact is not None]
    ramp = any(fact.ramp for fact in facts)
    mixed = any(o.is_data for o in parts) or any(fact.mixed for fact in facts)
    return Fact(kind, main.origin, whole, ramp, mixed)


def united(old: Fact, new: Fact) -> Fact:
    """Return what holds of both."""
    kind = max(old, new, key=lambda f: f.kind)
    return kind._replace(
        whole=old.whole and new.whole,
        ramp=old.ramp or new.ramp,
        mixed=old.mixed or new.mixed,
    )
