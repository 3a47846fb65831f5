"""Round float32 arrays to a low-precision type, bit for bit as IEEE 754 asks.

`ndarray.astype(float16)` is correct, but takes forty times as long on values that become subnormal
(15 s a GiB: each one raises a floating-point flag). The bit arithmetic here has one speed for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT16, DType

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 16  # elements; the three scratch arrays then stay in a core's second-level cache
_ABS = np.uint32(0x7FFFFFFF)
_EXPONENT = np.uint32(0x7F800000)  # also the bits of infinity: what is larger is not a number
_MANTISSA_BITS = 23
_HALF_MANTISSA_BITS = 10
_DROPPED_BITS = np.uint32(_MANTISSA_BITS - _HALF_MANTISSA_BITS)
_DROPPED_EXPONENT = np.uint32((_MANTISSA_BITS - _HALF_MANTISSA_BITS) << _MANTISSA_BITS)
_SIGN_SHIFT = np.uint32(16)
_SIGN = np.uint32(0x8000)
# Biases 127 and 15, the dropped bits, and one more for the hidden bit that the quotient carries.
_REBIAS = np.uint32((127 - 15 + 13 + 1) << _HALF_MANTISSA_BITS)


def to_low(values: Array, dtype: DType, *, saturate: float = 0.0) -> Array:
    """Return `values` rounded to nearest, ties to even.

    Args:
        values: Any shape; float32 (any other float type is rounded by numpy).
        dtype: The type to round to.
        saturate: Finite values that would become infinite get this magnitude instead; 0 lets them.
            Infinities stay infinities and NaN stays NaN either way.

    Returns:
        An array of `dtype.numpy` of the same shape.
    """
    if saturate:
        values = _saturated(values, dtype, saturate)
    if dtype is FLOAT16 and values.dtype == np.float32:
        flat = np.ascontiguousarray(values).reshape(-1)
        return _to_float16(flat).reshape(values.shape)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def _saturated(values: Array, dtype: DType, magnitude: float) -> Array:
    beyond = (np.abs(values) >= dtype.overflow) & np.isfinite(values)
    return np.where(beyond, np.copysign(magnitude, values), values).astype(values.dtype)


def _to_float16(values: Array) -> Array:
    """Round a flat float32 array, a block at a time."""
    result = np.empty(values.size, np.uint16)
    scratch = np.empty((2, min(_BLOCK, values.size)), np.uint32)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        _round_block(block, result[start : start + _BLOCK], scratch[:, : block.size])
    return result.view(np.float16)


def _round_block(block: Array, out: Array, scratch: Array) -> None:
    """Write the float16 bits of `block` into `out`.

    With e the exponent of |x|, at least float16's smallest, |x| + 2^(e+13) rounds |x| to a multiple
    of 2^(e-10), which is float16's spacing there; the low bits of the sum are the quotient, and
    adding the new exponent carries into it where the quotient overflowed.
    """
    bits = block.view(np.uint32)
    quotient, magic = scratch
    np.bitwise_and(bits, _ABS, out=quotient)
    has_nan = quotient.max() > _EXPONENT
    # 2^16 rounds to infinity, and what is larger would overflow the sum.
    np.minimum(quotient, np.float32(1 << 16).view(np.uint32), out=quotient)
    np.maximum(quotient, np.float32(FLOAT16.smallest_normal).view(np.uint32), out=magic)
    np.bitwise_and(magic, _EXPONENT, out=magic)
    np.add(magic, _DROPPED_EXPONENT, out=magic)
    np.add(quotient.view(np.float32), magic.view(np.float32), out=quotient.view(np.float32))
    np.subtract(quotient, magic, out=quotient)
    np.right_shift(magic, _DROPPED_BITS, out=magic)
    np.subtract(magic, _REBIAS, out=magic)
    np.add(quotient, magic, out=quotient)
    np.right_shift(bits, _SIGN_SHIFT, out=magic)
    np.bitwise_and(magic, _SIGN, out=magic)
    np.bitwise_or(quotient, magic, out=quotient)
    np.copyto(out, quotient, casting="unsafe")
    if has_nan:
        where = np.isnan(block)
        out[where] = block[where].astype(np.float16).view(np.uint16)
