"""The ranges of element types, and how they round."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx.helper
from onnx import TensorProto

from amp_rewrite import dtypes
from amp_rewrite.graph import elements
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval

_UNITS = 4
"""How many units in the last place functions of libraries may be off."""


class ElementType(NamedTuple):
    """The range of an element type, and how its operations round.

    Attributes:
        share: The largest relative error of an operation.
        tiny: The smallest normal number; an implementation may take smaller ones for zero.
        end: The largest finite number.
    """

    range: Interval
    is_integer: bool
    share: float = 0.0
    tiny: float = 0.0
    end: float = math.inf
    is_numeric: bool = True

    def fitted(self, interval: Interval) -> Interval:
        """Return what becomes of numbers that are stored in this type: integers wrap around."""
        if self.is_integer:
            within = self.range.low <= interval.low and interval.high <= self.range.high
            return interval if within else self.range
        low, high, away, reach = interval
        return Interval(
            -math.inf if low < -self.end else low,
            math.inf if high > self.end else high,
            away,
            reach,
        )


_UNKNOWN = ElementType(i.ANY, is_integer=False)
_NO_NUMBERS = (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)


@cache
def of(type_string: str | None) -> ElementType:
    """Return what the element type inside an ONNX type string says."""
    number = None if type_string is None else elements.element(type_string)
    if number is None:
        return _UNKNOWN
    if number in _NO_NUMBERS:
        return _UNKNOWN._replace(is_numeric=False)
    dtype = dtypes.of(number)
    if dtype is not None:
        share = _UNITS * dtype.epsilon
        return ElementType(i.ANY, False, share, dtype.smallest_normal, dtype.max)
    numpy = onnx.helper.tensor_dtype_to_np_dtype(number)
    if numpy == np.bool_:
        return ElementType(i.UNIT, is_integer=True)
    if numpy.kind in "iu" or numpy.name.startswith(("int", "uint")):
        info = ml_dtypes.iinfo(numpy)
        return ElementType(i.between(float(info.min), float(info.max)), is_integer=True)
    if numpy == np.float64:
        share = _UNITS * dtypes.FLOAT32.epsilon
        return ElementType(i.ANY, False, share)
    return _UNKNOWN
