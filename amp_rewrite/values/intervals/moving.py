"""Operators that move elements, put new ones among them, or give lengths, indices and counts.

Evidence: without ConstantOfShape's rule the paintings of light_bvlc_alexnet and seven more models
change; without DequantizeLinear's, products with weights of a few bits stay float32; without that
of Shape, so does a quotient by a length (tests/rewriting/paint/passes/test_keep_demands.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.sizes import product_of
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule, within


def _pad(op: Operation) -> Interval:
    """Add the padding, which is an input since opset 11; some elements may be cut off."""
    filled = i.point(op.attribute("value", 0.0)) if op.opset < 11 else i.ZERO
    if op.has(2):
        filled = op.of(2)
    constant = op.attribute("mode", "constant") == "constant"
    return (op.of(0) | filled if constant else op.of(0)).scattered()


def _scattered(op: Operation) -> Interval:
    """Put updates into data, or reduce them there."""
    if op.attribute("reduction", "none") in ("add", "mul"):
        return i.ANY
    return (op.of(0) | op.of(2)).scattered()


def _cast(op: Operation) -> Interval:
    """Round; what becomes an integer loses its fraction, and a truth value is 0 or 1."""
    operand, output = op.of(0), op.output
    if op.known.type_of(output).range is i.UNIT:
        return i.point(1.0) if operand.away else i.point(0.0) if operand == i.ZERO else i.UNIT
    if not op.known.type_of(output).is_integer:
        return operand
    if not operand.is_bounded:
        return i.ANY
    if op.known.type_of(op.inputs[0]).is_integer:
        return operand
    return i.increasing(math.trunc, operand)


def _dropout(op: Operation) -> Interval:
    """Return the data where nothing is dropped: outside training."""
    if op.has(2):  # since opset 12
        return op.of(0) if op.of(2) == i.ZERO else i.ANY
    in_use = op.opset >= 7 or op.attribute("is_test", 0)
    return op.of(0) if in_use else i.ANY


def _resize(op: Operation) -> Interval:
    """Select or average neighbours; a region may be left."""
    if op.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        return i.ANY
    if op.attribute("mode", "nearest") == "cubic":
        return i.ANY  # weights have both signs
    return op.of(0).scattered()


def _filled(op: Operation) -> Interval:
    """Repeat the one element that an attribute holds, zero where there is none."""
    tensor = op.attribute("value")
    return i.ZERO if tensor is None else numbers(np.asarray(tensor.numpy()))


def numbers(array: Array) -> Interval:
    """Return the interval of the elements of an array; NaN does not count."""
    if array.dtype.kind in "cOUS":
        return i.ANY
    may_be_nan = array.dtype.kind in "fV"  # V: bfloat16 and others of ml_dtypes
    elements = array[~np.isnan(array)] if may_be_nan and np.isnan(array).any() else array
    if not elements.size:
        return i.ANY if array.size else i.ZERO
    interval = i.between(float(elements.min()), float(elements.max()))
    away = interval.away or min(_nearest(elements[elements >= 0]), _nearest(elements[elements < 0]))
    return interval._replace(away=away, reach=interval.magnitude)


def _nearest(elements: Array) -> float:
    """Return the smallest magnitude of elements of one sign; infinity for none.

    The magnitude of the least integer of a type is no integer of that type.
    """
    return (
        min(abs(float(elements.min())), abs(float(elements.max()))) if elements.size else math.inf
    )


def _dequantized(op: Operation) -> Interval:
    """Bound (x - zero point) x scale; each element meets a scale of its own."""
    steps = i.subtract(op.of(0), op.of(2)) if op.has(2) else op.of(0)
    return i.multiply(steps, op.of(1)).scattered()


def _shape(op: Operation) -> Interval:
    """Bound the lengths of axes; free ones are any number."""
    shape = op.shape(0)
    if shape is None:
        return i.NOT_NEGATIVE
    lengths = shape[slice(op.attribute("start", 0), op.attribute("end"))]
    return i.union(*map(_number, lengths)) if lengths else i.ZERO


def _number(length: int | None) -> Interval:
    return i.NOT_NEGATIVE if length is None else i.point(float(length))


def _range(op: Operation) -> Interval:
    """Bound start + k x delta, which stays between start and limit."""
    start, limit, delta = op.of(0), op.of(1), op.of(2)
    span = i.between(min(start.low, limit.low), max(start.high, limit.high))
    if not (start.is_point and limit.is_point and delta.is_point and delta.low):
        return span
    steps = (limit.low - start.low) / delta.low
    if not math.isfinite(steps):
        return span
    count = math.ceil(steps)
    if count <= 0:
        return i.ZERO
    last = start.low + (count - 1) * delta.low
    ends = i.between(min(start.low, last), max(start.low, last))
    return ends._replace(reach=ends.magnitude)


def _index(op: Operation) -> Interval:
    """Bound an index along an axis."""
    shape, axis = op.shape(0), op.attribute("axis", 0)
    length = shape[axis] if shape and -len(shape) <= axis < len(shape) else None
    return i.NOT_NEGATIVE if length is None else i.between(0.0, float(max(length - 1, 0)))


# operators: those that put all elements elsewhere, and those that take some.
_REARRANGED = (
    "DepthToSpace Expand Flatten Identity Reshape SpaceToDepth Squeeze Tile Transpose Unsqueeze"
)
_SOME = "Gather GatherElements GatherND Slice Upsample"  # operators: those that take some

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_REARRANGED.split(), lambda op: op.of(0)),
    **dict.fromkeys(_SOME.split(), lambda op: op.of(0).scattered()),
    "Cast": _cast,
    "CastLike": _cast,
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scattered),  # operators: scatters
    "Concat": lambda op: i.union(*op.of_all()),
    "ConstantOfShape": _filled,
    "DequantizeLinear": _dequantized,
    "Dropout": _dropout,
    "Pad": _pad,
    "Resize": _resize,
    "Split": lambda op: [op.of(0).scattered()] * op.n_outputs,
    "ArgMax": _index,
    "ArgMin": _index,
    "NonZero": within(i.NOT_NEGATIVE),
    "Range": _range,
    "Shape": _shape,
    "Size": lambda op: _number(product_of(op.shape(0))),
    "TopK": lambda op: [op.of(0).scattered(), i.NOT_NEGATIVE][: op.n_outputs],
}
"""Operator -> what its result is bound to be."""
