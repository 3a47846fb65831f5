"""Scales of Resize that a converter stored in float16, given back what they were.

A scale of 1/20 is 0.04998779 in float16, and 600 positions become 29 instead of 30: the lengths no
longer fit, or pictures come out a row short. The simplest fraction that rounds to the stored number
is what was meant, where it is much simpler than that number itself: 7/3 instead of 1195/512.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.rewriting.plan.casts import PlannedWeight, Use

_SIMPLER = 4
"""How many times smaller the denominator has to be: 65/64 stays, though 64/63 rounds to it."""

_ENDS = (np.float16(0), np.finfo(np.float16).max)
"""Exponents below and above every scale."""

_AXES = 16
"""No more scales are looked at: there is one for each axis."""

_FIRST_WITH_ROI = 11
"""Since this opset, Resize has its scales behind a region of interest."""


@dataclass(frozen=True, slots=True)
class RoundedScales:
    """Scales that float16 does not hold.

    Attributes:
        node: The Resize or Upsample that reads them.
        weight: The constant in float16, and what it was in float32.
        told: The first of them, as a user reads it: "2.33398 instead of 7/3".
    """

    node: int
    weight: PlannedWeight
    told: str


def rounded_scales(flat: FlatGraph) -> list[RoundedScales]:
    """Return the scales that were rounded to float16, in execution order."""
    scales = [(*place, *_restored(place[-1])) for place in _stored_scales(flat)]
    names = AddedNames((*flat.value_names, *flat.node_names) if scales else ())
    return [
        RoundedScales(node, _weight(flat, source, array, Use(node, index), names), told)
        for node, index, source, _, array, told in scales
        if told
    ]


def simplest_within(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction with the smallest denominator in 0 <= low <= x <= high.

    By continued fractions: the whole part is shared, and the rest is the same question upside down.
    """
    whole = floor(low)
    if whole == low:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / simplest_within(1 / (high - whole), 1 / (low - whole))


def _stored_scales(flat: FlatGraph) -> Iterator[tuple[int, int, int, Array]]:
    """Yield nodes, the input that is scales, the float16 constant behind it and its elements."""
    for node in flat.nodes_of("Resize", "Upsample"):
        is_new = flat.called(node).op_type == "Resize" and flat.opset_of(node) >= _FIRST_WITH_ROI
        index, inputs = (2 if is_new else 1), flat.inputs_of(node)
        value = inputs[index] if index < len(inputs) else ABSENT
        while value != ABSENT and (maker := flat.producer[value]) != ABSENT:
            called = flat.called(maker)
            # operators: those behind which a constant is the same number.
            if called.domain or called.op_type not in ("Cast", "Identity"):
                break
            value = flat.inputs_of(maker)[0]
        tensor = None if value == ABSENT else stored_tensor(flat, value)
        if tensor is not None and tensor.dtype == FLOAT16.number and 0 < tensor.size <= _AXES:
            yield node, index, value, tensor.numpy()


def _restored(stored: Array) -> tuple[Array, str]:
    """Return scales in float32, and the first that changed in words; "" if none did."""
    restored, told = stored.astype(np.float32), ""
    for place, number in np.ndenumerate(stored):
        meant = _meant(number)
        if meant is not None:
            restored[place] = np.float32(float(meant))
            told = told or f"{float(number):.6g} instead of {meant}"
    return restored, told


def _meant(number: Any) -> Fraction | None:
    """Return the fraction that a float16 number was; None if it is as simple itself."""
    if not (np.isfinite(number) and number > 0):
        return None
    exact = Fraction(float(number))
    below, above = (Fraction(float(np.nextafter(number, end))) for end in _ENDS)
    fraction = simplest_within((exact + below) / 2, (exact + above) / 2)
    return fraction if exact.denominator >= _SIMPLER * fraction.denominator else None


def _weight(
    flat: FlatGraph, value: int, array: Array, use: Use, names: AddedNames
) -> PlannedWeight:
    """Return how a node is given other scales; the constant stays for what else reads it."""
    name = names.cast(flat.value_names[value], FLOAT32)
    return PlannedWeight(value, StoredTensor.of(array), FLOAT32, (use,), True, 0.0, name)
