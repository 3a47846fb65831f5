"""The kind of number that an operator makes of its operands: one rule for each way to compute.

Counts stay counts where they are moved, added, scaled by constants or summed up. They end where
they are divided by one another (a ratio), under a root or a logarithm (100,000 becomes 316 or
11.5), where they are a factor or divisor of data (a mean), and in whatever has no rule: bounded
functions, normalizations, layers.

Evidence: without Add's rule a grid in front of GridSample becomes float16
(tests/conformance/test_constant_places.py; keep_demands.py has the error).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.flat import Array, Operator
from amp_rewrite.graph.traits import Trait, has


class Kind(IntEnum):
    """The meaning of a number; of several that are mixed, the largest kind is that of the result.

    Plain data have no kind: some of their relative precision is given up.
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
    """The knowledge of a value.

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
    """One input of an operator."""

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
        whole=old.whole and new.whole, ramp=old.ramp or new.ramp, mixed=old.mixed or new.mixed
    )


Rule = Callable[[Sequence[Operand]], Fact | None]

FEW = 3
"""The longest sum of products that is arithmetic on coordinates: x, y, z. A longer one is a
layer, whose result is data."""

HOMOGENEOUS = FEW + 1
"""The same where one operand is a constant that runs through places: x, y, z and 1."""

EXACT = 256
"""Whole numbers up to here are exact in every type, and so are sums of as many flags."""


def rule_of(called: Operator, terms: int | None) -> Rule | None:
    """Return the rule of an operator, or None if its result is data."""
    if called.domain != "" or has(called, Trait.SCALE_INVARIANT):
        return None
    rule = _BY_NAME.get(called.op_type)
    if rule is not None:
        return rule
    if has(called, Trait.CONTRACTS):
        return lambda operands: _contracted(operands, terms)
    if has(called, Trait.SUMS_UP):
        return _accumulated if has(called, Trait.ACCUMULATES) else _averaged
    if has(called, Trait.MOVES, Trait.EXACT, Trait.CASTS):
        return _mixed
    if has(called, Trait.AVERAGES):
        return _averaged
    return _handed_on if has(called, Trait.HANDS_ON) else None


def _mixed(operands: Sequence[Operand]) -> Fact | None:
    """Some of the elements of all operands, or their sum."""
    main, plain = strongest(operands), any(o.is_plain for o in operands)
    if main is None or (plain and main.kind <= Kind.INPUT):
        return None
    if main.kind is Kind.FLAG and not all(o.is_flag for o in operands):
        return None
    return combined(operands, main.kind, whole=all(o.whole for o in operands))


def _handed_on(operands: Sequence[Operand]) -> Fact | None:
    """Some of the elements of all operands, or what is computed of them: it need not be whole."""
    fact = None if any(o.is_plain for o in operands) else _mixed(operands)
    return None if fact is None else fact.of_kind(fact.kind)


def _multiplied(operands: Sequence[Operand]) -> Fact | None:
    """A product; what a flag multiplies stays what it is, and zero."""
    if any(o.is_plain for o in operands):
        return _placed(operands)
    main = strongest(operands)
    if main is None or (main.kind is Kind.FLAG and any(o.fact is None for o in operands)):
        return None
    return combined(operands, main.kind, whole=all(o.whole for o in operands))


def _placed(operands: Sequence[Operand]) -> Fact | None:
    """A product of data with places that no data have a part in yet."""
    if not any(o.fact is not None and o.fact.is_place for o in operands):
        return None
    return combined(operands, Kind.COORDINATE)


def _divided(operands: Sequence[Operand]) -> Fact | None:
    """A quotient: one count divided by another is normalised, a constant divided by one is not."""
    if len(operands) != 2:
        return None
    dividend, divisor = operands
    if any(o.is_plain for o in operands):
        return None if dividend.is_plain else _placed(operands)
    main = strongest(operands)
    if main is None or main.kind is Kind.FLAG or dividend.kind is Kind.FLAG:
        return None
    if divisor.kind is Kind.COUNT and dividend.fact is not None:
        return combined(operands, Kind.COORDINATE)
    return combined(operands, main.kind)


def _raised(operands: Sequence[Operand]) -> Fact | None:
    """A power: of a count it is one; a count as exponent gives something else."""
    if any(o.is_plain for o in operands):
        return None
    base, main = operands[0], next((o.fact for o in operands if o.fact is not None), None)
    if main is None or main.kind is Kind.FLAG:
        return None
    return main.of_kind(main.kind if base.fact else min(main.kind, Kind.COORDINATE))


def _compressed(operands: Sequence[Operand]) -> Fact | None:
    """A root, a logarithm, an exponential: no count any more."""
    main = strongest(operands)
    if main is None or main.kind is Kind.FLAG:
        return None
    return main.of_kind(min(main.kind, Kind.COORDINATE))


def _clipped(operands: Sequence[Operand]) -> Fact | None:
    """Values between bounds."""
    data = operands[0].fact
    return None if data is None else data.of_kind(data.kind)


def _accumulated(operands: Sequence[Operand]) -> Fact | None:
    """A sum over elements: that of flags counts them."""
    summed = operands[0].fact
    if summed is None:
        return None
    kind = Kind.COUNT if summed.kind is Kind.FLAG else summed.kind
    return Fact(kind, summed.origin, summed.whole)


def _averaged(operands: Sequence[Operand]) -> Fact | None:
    """A mean or a norm over elements."""
    averaged = operands[0].fact
    return (
        None if averaged is None or averaged.kind is Kind.FLAG else averaged.of_kind(averaged.kind)
    )


def _contracted(operands: Sequence[Operand], terms: int | None) -> Fact | None:
    """A product or convolution: a sum of a few products is arithmetic, a long one a layer."""
    factors = operands[:2]
    product = _multiplied(factors)
    if terms == 1:
        return product
    main = strongest(factors)
    if main is None or any(o.is_plain for o in factors):
        few = terms is not None and terms <= HOMOGENEOUS
        return product if few or any(o.is_constant_place for o in factors) else None
    if main.kind is Kind.FLAG and terms is not None and terms <= EXACT:
        return None
    if all(o.whole for o in factors) and main.kind in (Kind.FLAG, Kind.COUNT):
        return combined(factors, Kind.COUNT, whole=True)
    is_count = main.kind is Kind.COUNT
    few = terms <= FEW if terms is not None else is_count
    return combined(factors, main.kind) if few and main.kind is not Kind.FLAG else None


_BY_NAME: Mapping[str, Rule] = {
    "Add": _mixed,
    "Clip": _clipped,
    "Div": _divided,
    "Exp": _compressed,
    "Log": _compressed,
    "Mean": _handed_on,
    "Mod": _mixed,
    "Mul": _multiplied,
    "Pow": _raised,
    "Reciprocal": _handed_on,
    "Sqrt": _compressed,
    "Sub": _mixed,
    "Sum": _mixed,
}
