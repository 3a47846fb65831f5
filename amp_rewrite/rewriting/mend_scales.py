"""Scales of Resize that a converter stored in float16, given back what they were.

A scale of 1/20 is 0.04998779 in float16, and 600 positions become 29 instead of 30: the lengths no
longer fit, or pictures come out a row short. The simplest fraction that rounds to the stored number
is what was meant, where it is much simpler than that number itself: 7/3 instead of 1195/512.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.rewriting.plan.casts import PlannedWeight, Use

_FIRST_WITH_ROI = 11
"""Since this opset, Resize has its scales behind a region of interest."""


_SIMPLER, _LARGEST = 4, 1 << 12
"""How many times smaller the denominator of a scale has to be, and what it is at most."""

_AXES = 16
"""No more scales are looked at: there is one for each axis."""


def rounded_scales(flat: FlatGraph) -> list[tuple[int, PlannedWeight, str]]:
    """Return the nodes whose scales were rounded, float32 ones for them, and what changed."""
    scales = [(*place, *_restored(place[-1])) for place in _stored_scales(flat)]
    names = AddedNames((*flat.value_names, *flat.node_names) if scales else ())
    rounded: list[tuple[int, PlannedWeight, str]] = []
    for node, index, value, _, array, told in scales:
        if told:  # the constant stays for what else reads it
            name, held = names.cast(flat.value_names[value], FLOAT32), StoredTensor.of(array)
            uses = (Use(node, index),)
            rounded.append((node, PlannedWeight(value, held, FLOAT32, uses, True, 0.0, name), told))
    return rounded


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
    """Return scales in float32, and the first that changed in words; "" if none did.

    A scale was the fraction with the smallest denominator that rounds to it in float16.
    """
    restored, told = stored.astype(np.float32), ""
    for place, number in np.ndenumerate(stored):
        if not (np.isfinite(number) and number > 0):
            continue
        most = min(Fraction(float(number)).denominator // _SIMPLER, _LARGEST)
        denominators = np.arange(1, most + 1)
        numerators = np.rint(float(number) * denominators)
        exact = (numerators / denominators).astype(np.float16) == number
        if exact.any():
            top, bottom = int(numerators[exact][0]), int(denominators[exact][0])
            restored[place] = np.float32(top / bottom)
            told = told or f"{float(number):.6g} instead of {Fraction(top, bottom)}"
    return restored, told
