"""Round float32 arrays to a low-precision type, bit for bit as IEEE 754 asks.

`ndarray.astype(float16)` is correct, but takes forty times as long on values that become subnormal
(15 s a GiB: each one raises a floating-point flag). The bit arithmetic here has one speed for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT16, DType

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 1 << 16
"""How many elements are worked on at once: they and the scratch arrays fit a core's second-level
cache, and a call of numpy costs a twentieth of what it does."""

_ABS = np.uint32(0x7FFFFFFF)
_EXPONENT = np.uint32(0x7F800000)  # also the bits of infinity: what is larger is not a number
_MANTISSA_BITS = 23
_HALF_MANTISSA_BITS = 10
_DROPPED_BITS = np.uint32(_MANTISSA_BITS - _HALF_MANTISSA_BITS)
_SIGN_SHIFT = np.uint32(16)
_SIGN = np.uint32(0x8000)
_TOO_LARGE = np.float32(1 << 16).view(np.uint32)  # rounds to infinity, as all that is larger
# From the exponent of x to a number that is 2^13 times as large, plus 2048 units of its last place.
_TO_MAGIC = np.uint32(((_MANTISSA_BITS - _HALF_MANTISSA_BITS) << _MANTISSA_BITS) + 2048)
# An array, because numpy's maximum with a single number takes three times as long.
_SMALLEST_NORMAL = np.full(BLOCK, np.float32(FLOAT16.smallest_normal).view(np.uint32))


_FEW = 1 << 9
"""Up to here numpy's own conversion is done before a dozen calls of it would be."""


def to_low(values: Array, dtype: DType, *, saturate: float = 0.0) -> Array:
    """Return values of any shape, rounded to nearest, ties to even.

    With `saturate`, finite values that would become infinite get this magnitude instead. Infinities
    stay infinities and NaN stays NaN either way.
    """
    if saturate:
        values = _saturate(values, dtype, saturate)
    if dtype is FLOAT16 and values.dtype == np.float32 and values.size > _FEW:
        flat = np.ascontiguousarray(values).reshape(-1)
        return _to_float16(flat).reshape(values.shape)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def _saturate(values: Array, dtype: DType, magnitude: float) -> Array:
    beyond = (np.abs(values) >= dtype.overflow) & np.isfinite(values)
    return np.where(beyond, np.copysign(magnitude, values), values).astype(values.dtype)


def _to_float16(values: Array) -> Array:
    result = np.empty(values.size, np.uint16)
    scratch = np.empty((2, min(BLOCK, values.size)), np.uint32)
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        _round_block(block, result[start : start + BLOCK], scratch[:, : block.size])
    return result.view(np.float16)


def _round_block(block: Array, out: Array, scratch: Array) -> None:
    """Write the float16 bits of `block` into `out`.

    With e the exponent of |x|, at least float16's smallest, |x| + 2^(e+13) rounds |x| to a multiple
    of 2^(e-10), which is float16's spacing there: the low bits of the sum are the quotient q. The
    bits of x in float16 are (e + 14) 2^10 + q; of these, only the lowest 16 count. The biased
    exponent of the sum is e + 140, and 2^10 (e + 140) + 2048 is the same as 2^10 (e + 14) there,
    for 140 + 2 - 14 is 128. The 2048 is added to q together with 2^(e+13): it changes no rounding.
    """
    bits = block.view(np.uint32)
    quotient, magic = scratch
    np.bitwise_and(bits, _ABS, out=quotient)
    largest = quotient.max()
    if largest > _TOO_LARGE:
        np.minimum(quotient, _TOO_LARGE, out=quotient)
    np.bitwise_and(quotient, _EXPONENT, out=magic)
    np.maximum(magic, _SMALLEST_NORMAL[: block.size], out=magic)
    np.add(magic, _TO_MAGIC, out=magic)
    np.add(quotient.view(np.float32), magic.view(np.float32), out=quotient.view(np.float32))
    np.right_shift(magic, _DROPPED_BITS, out=magic)
    np.add(quotient, magic, out=quotient)
    np.right_shift(bits, _SIGN_SHIFT, out=magic)
    np.bitwise_and(magic, _SIGN, out=magic)
    np.bitwise_or(quotient, magic, out=quotient)
    np.copyto(out, quotient, casting="unsafe")
    if largest > _EXPONENT:
        where = np.isnan(block)
        out[where] = block[where].astype(np.float16).view(np.uint16)
