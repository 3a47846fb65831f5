"""Operators of one element at a time that kernels for Arm approximate with fused multiply-adds.

ONNX Runtime's kernels of Erf and Gelu take 8 numbers at once through float16 instructions, and what
is left of a tensor, its last elements if their number is no multiple of 8, through float32. Both
are functions of one float16 number, so that a table of all 65,536 of each says everything. The
formulas and constants are those of ONNX Runtime 1.32.0, onnxruntime/core/mlas/lib:
erf_neon_fp16.cpp, gelu_neon_fp16.cpp (Fujitsu, 2025), softmax_kernel_neon_fp16.cpp (Microsoft), and
the reciprocals those of the instructions FRECPE and FRECPS (Arm Architecture Reference Manual,
FPRecipEstimate). Where the compiler made one instruction of a product and a difference, so do they.
Each of the 65,536 results was compared with an Arm processor's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

Array = np.ndarray[Any, Any]

LANES = 8
"""The numbers that one instruction takes."""

_COUNT = 2**16
"""The numbers of a 16-bit type."""

_LARGEST_ERF = 4.0
"""Where erf is 1."""
_RATE = 0.328
_TERMS = (0.2505, -0.2881, 1.4102, -1.423, 1.0547)
"""erf(x) = 1 - p(t) exp(-x^2) with t = 1 / (1 + 0.328 x): the coefficients of t, t^2 and so on."""
_EXP_OVER, _EXP_UNDER = (1.330, -0.390, 0.0288), (1.338, 0.848, 0.467)
"""exp(-x), for x of at most 6, as the quotient of these polynomials."""
_LARGEST_EXPONENT = 6.0

_ROOT_HALF = 0.7071067811865475
_CUBIC, _LINEAR, _LARGEST_INNER = 0.035677408136300125, 0.7978845608028654, 5.0
_LARGEST_TANH = 3.515625
_TANH_OVER, _TANH_UNDER = (0x0001, 0x00F9, 0x1138, 0x1D03), (0x0014, 0x07C5, 0x18A5, 0x1D03)
"""tanh(x) / x as a quotient of polynomials in x^2, the highest power first: bits of float16."""


def _round(value: Array) -> Array:
    return value.astype(np.float16)


def _fused(a: npt.ArrayLike, b: Array, c: npt.ArrayLike) -> Array:
    """Return a * b + c of float16 numbers, rounded once."""
    return _round(np.asarray(a, np.float64) * b.astype(np.float64) + np.asarray(c, np.float64))


def _low(value: float) -> np.float16:
    return np.float16(value)


def _reciprocal(value: Array) -> Array:
    """Return 1 / x, of positive normal numbers: an estimate of 8 bits and two of Newton's steps."""
    fraction, exponent = np.frexp(value.astype(np.float64))
    cell = np.floor(fraction * 512).astype(np.int64)  # 256 to 511
    estimate = (2**19 // (2 * cell + 1) + 1) // 2
    quotient = _round(estimate / 256 * 2.0**-exponent)
    for _ in range(2):
        quotient = quotient * _fused(-value, quotient, 2)
    return quotient


def _polynomial(x: Array, coefficients: tuple[np.float16, ...]) -> Array:
    """Return a polynomial by Horner's rule, the coefficient of the highest power first."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = _fused(total, x, coefficient)
    return total


def _exp_of_negative(x: Array) -> Array:
    """Return exp(-x)."""
    x = np.minimum(x, _low(_LARGEST_EXPONENT))
    square = x * x
    over, under = (
        _fused(_low(c[2]), square, _fused(_low(c[1]), x, _low(c[0])))
        for c in (_EXP_OVER, _EXP_UNDER)
    )
    return over * _reciprocal(under)


def erf(x: Array) -> Array:
    """Return erf of float16 numbers, as 8 at once are computed."""
    size = np.minimum(np.abs(x), _low(_LARGEST_ERF))
    sign = np.where(x < 0, _low(-1), _low(1))
    t = _reciprocal(_fused(_low(_RATE), size, 1))
    power, total = t, _low(_TERMS[0]) * t
    for coefficient in _TERMS[1:]:
        power = power * t
        total = _fused(_low(coefficient), power, total)
    values = np.clip(sign * _fused(-total, _exp_of_negative(size * size), 1), _low(-1), _low(1))
    return np.where(np.isnan(x), x, np.where(np.abs(x) < _LARGEST_ERF, values, sign))


def last_erf(x: Array) -> Array:
    """Return erf of the last float16 numbers of a tensor, computed in float32."""
    wide = x.astype(np.float32)
    size, sign = np.abs(wide), np.where(wide < 0, np.float32(-1), np.float32(1))
    terms = [np.float32(_low(c)) for c in _TERMS]
    t = np.float32(1) / _fused_wide(np.float32(_low(_RATE)), size, np.float32(1))
    total, power = terms[0] * t, np.ones_like(t)
    for coefficient in terms[1:]:
        power = power * t
        total = _fused_wide(coefficient * power, t, total)
    values = sign * _fused_wide(-total, np.exp(-size * size), np.float32(1))
    return np.where(size > _LARGEST_ERF, sign, np.clip(values, -1, 1)).astype(np.float16)


def _fused_wide(a: Any, b: Array, c: Any) -> Array:
    """Return a * b + c of float32 numbers, rounded once but for ties of doubles."""
    return (np.float64(a) * b.astype(np.float64) + np.float64(c)).astype(np.float32)


def tanh(x: Array) -> Array:
    """Return tanh of float16 numbers."""
    x = np.clip(x, _low(-_LARGEST_TANH), _low(_LARGEST_TANH))
    square = x * x
    over, under = (
        _polynomial(square, tuple(np.array(bits, np.uint16).view(np.float16)))
        for bits in (_TANH_OVER, _TANH_UNDER)
    )
    return over * x / under


def gelu(x: Array) -> Array:
    """Return x (0.5 (1 + erf(x / sqrt(2))))."""
    return x * (_low(0.5) * (1 + erf(x * _low(_ROOT_HALF))))


def last_gelu(x: Array) -> Array:
    """0.5 x (1 + erf(x / sqrt(2))) in float32, erf as float16."""
    inner = (x.astype(np.float32) * np.float32(_ROOT_HALF)).astype(np.float16)
    return _last(x, last_erf(inner))


def fast_gelu(x: Array) -> Array:
    """Return x (0.5 (1 + tanh(x (0.798 + 0.0357 x^2))))."""
    inner = x * _fused(_low(_CUBIC), x * x, _low(_LINEAR))
    return x * (_low(0.5) * (1 + tanh(np.clip(inner, -_LARGEST_INNER, _LARGEST_INNER))))


def last_fast_gelu(x: Array) -> Array:
    """0.5 x (1 + tanh(x (0.798 + 0.0357 x^2))) in float32, tanh in float16."""
    wide = x.astype(np.float32)
    inner = wide * (np.float32(_LINEAR) + np.float32(_CUBIC) * wide * wide)
    low = np.clip(inner, -_LARGEST_INNER, _LARGEST_INNER).astype(np.float16)
    return _last(x, tanh(low))


def _last(x: Array, function: Array) -> Array:
    half = np.float32(0.5) * x.astype(np.float32)
    return (half * (1 + function.astype(np.float32))).astype(np.float16)


Function = Callable[[Array], Array]

# operators: an operator with its attribute `approximate`.
FUNCTIONS: dict[tuple[str, str], tuple[Function, Function]] = {
    ("Erf", "none"): (erf, last_erf),
    ("Gelu", "none"): (gelu, last_gelu),
    ("Gelu", "tanh"): (fast_gelu, last_fast_gelu),
}
"""What 8 numbers at once become, and what the others do."""


@cache
def _table(operator: str, approximate: str) -> Array:
    """Return what each float16 number becomes, by its bits, and then what the last ones do."""
    every = np.arange(_COUNT, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        return np.concatenate([each(every) for each in FUNCTIONS[operator, approximate]])


def looked_up(nodes: NodeCollector, node: ir.Node) -> ir.Value:
    """Add nodes that compute an operator of FUNCTIONS on float32 values that float16 has."""
    data = node.inputs[0]
    assert data is not None, "the checker has looked"
    approximate = node.attributes.get_string("approximate", "none")
    table = nodes.array(_table(node.op_type, approximate), FLOAT16)
    flat = nodes.add("Reshape", [data, nodes.ints(-1)])
    place = nodes.add("Add", [_bits(nodes, flat), _offset(nodes, flat)])
    row = nodes.cast(nodes.add("Gather", [table, place]), FLOAT32.ir)
    return nodes.add("Reshape", [row, nodes.add("Shape", [data])])


def _offset(nodes: NodeCollector, flat: ir.Value) -> ir.Value:
    """Return the size of one table for the last elements, 0 for those that 8 at once take."""
    count = nodes.add("Squeeze", [nodes.add("Shape", [flat])])
    scalars = [nodes.add("Squeeze", [nodes.ints(n)]) for n in (0, 1, LANES)]
    zero, one, lanes = scalars
    whole = nodes.add("Mul", [nodes.add("Div", [count, lanes]), lanes])
    is_last = nodes.add("GreaterOrEqual", [nodes.add("Range", [zero, count, one]), whole])
    return nodes.add("Mul", [nodes.cast(is_last, ir.DataType.INT64), nodes.ints(_COUNT)])


def _bits(nodes: NodeCollector, flat: ir.Value) -> ir.Value:
    """Return the bits of float32 values that float16 has, as whole numbers.

    The power of two below a number x is q - (q - u q) with q = (1 / 2u + 1) x and u = 2^-24 (S. M.
    Rump, T. Ogita, S. Oishi, Accurate Floating-Point Summation Part I, 2008, algorithm 3.5).
    """
    infinity = 2 * FLOAT16.max / (2 - FLOAT16.epsilon)
    bounded = nodes.add("Min", [nodes.add("Abs", [flat]), nodes.number(infinity)])
    nan = nodes.add("IsNaN", [flat])
    size = nodes.add("Where", [nan, nodes.number(1.5 * infinity), bounded])
    q = nodes.add("Mul", [size, nodes.number(2.0**23 + 1)])
    below = nodes.add("Sub", [q, nodes.add("Mul", [q, nodes.number(2.0**-24)])])
    smallest = nodes.number(FLOAT16.smallest_normal)
    power = nodes.add("Max", [nodes.add("Sub", [q, below]), smallest])
    steps = 1 / FLOAT16.epsilon
    unit = nodes.add("Div", [nodes.number(steps), power])
    fraction = nodes.cast(nodes.add("Mul", [size, unit]), ir.DataType.INT64)
    scaled = nodes.add("Div", [power, smallest])
    log = nodes.add("Div", [nodes.add("Log", [scaled]), nodes.number(float(np.log(2)))])
    exponent = nodes.cast(nodes.add("Round", [log]), ir.DataType.INT64)
    sign = nodes.cast(nodes.add("Less", [flat, nodes.number(0)]), ir.DataType.INT64)
    parts = [nodes.add("Mul", [exponent, nodes.ints(int(steps))]), fraction]
    parts.append(nodes.add("Mul", [sign, nodes.ints(_COUNT // 2)]))
    return nodes.add("Add", [nodes.add("Add", parts[:2]), parts[2]])
